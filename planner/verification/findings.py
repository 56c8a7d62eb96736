"""Results of ``verify`` for a table: findings, changes that are no fault, and what could not be checked."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from planner.offsets import OffsetRange
from planner.seam.watermark import Outcomes


class Kind(StrEnum):
    """Kinds of findings. Each is one broken promise; docs/verify.md says what to do about it."""

    MISSING = "missing"
    DUPLICATE = "duplicate"
    VALUE = "value"
    SURPLUS = "surplus"
    OUTCOME = "outcome"
    ABOVE_WATERMARK = "above watermark"
    WITHOUT_OFFSET = "without offset"
    FILE_TWICE = "file twice"
    CHAIN = "chain"
    TAG = "tag"
    MIRROR = "mirror"
    COUNT = "count"
    LOG = "log"
    REFUSED = "refused"
    #: Of keyed tables.
    STALE = "stale"
    UNDELETED = "undeleted"
    DUPLICATE_KEY = "duplicate key"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. ``offsets`` is its place, ``rows`` the number of rows concerned; files by last segment."""

    kind: Kind
    message: str
    offsets: OffsetRange | None = None
    rows: int = 0
    snapshot_id: int | None = None
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ForeignChange:
    """Rows that were tiered right and that another writer changed or deleted since: no fault of the seam."""

    snapshot_id: int
    operation: str
    changed: int
    deleted: int
    example: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Coverage:
    """How far one partition was checked.

    Offsets of ``compared`` were compared with the log. Those between ``floor`` and ``compared.start`` are cold
    only: the log does not hold them any more, or ``--since`` left them out.
    """

    compared: OffsetRange
    floor: int
    watermark: int


@dataclass(frozen=True, slots=True)
class Report:
    """The whole of one verification. No findings: everything that could be checked is as promised."""

    table: str
    topic: str
    snapshot_id: int | None
    with_values: bool
    findings: tuple[Fault, ...]
    #: Findings beyond those listed, by kind: a table that is wrong in every row must not fill memory.
    more: tuple[tuple[Kind, int], ...]
    changes: tuple[ForeignChange, ...]
    coverage: tuple[Coverage, ...]
    outcomes: Outcomes
    cold_rows: int
    unchecked: tuple[str, ...]
    decisions: tuple[str, ...]

    @property
    def is_clean(self) -> bool:
        return not self.findings

    @property
    def compared_offsets(self) -> int:
        return sum(len(each.compared) for each in self.coverage)

    @property
    def covered_offsets(self) -> int:
        """Offsets below the watermark, from the first that this table ever covered."""
        return sum(max(0, each.watermark - each.floor) for each in self.coverage)


def span_text(offsets: OffsetRange) -> str:
    """Say where: ``partition 0, offset 7`` or ``partition 0, offsets 7 to 9``, both inclusive."""
    if len(offsets) == 1:
        return f"partition {offsets.partition}, offset {offsets.start}"
    return f"partition {offsets.partition}, offsets {offsets.start} to {offsets.stop - 1}"
