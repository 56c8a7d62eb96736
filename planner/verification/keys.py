"""Judges the row that cold has of one key by the newest changes of the key that the log retains below the watermark.

A key mostly has changes in one partition. Where it has some in two, offsets do not say which is the newest, so the newest of
each partition may be the one that decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from planner.offsets import OffsetRange
from planner.verification.findings import Fault, Kind, span_text

#: A finding on one or more offsets.
NEWEST_MISSING = "the log has the newest change of a key there, and cold has no row of it"


@dataclass(frozen=True, slots=True)
class KeyChange:
    """The newest change of a key in one partition. Its ``code`` is twice its offset, and one more for a delete."""

    partition: int
    code: int

    @property
    def offset(self) -> int:
        return self.code // 2

    @property
    def is_delete(self) -> bool:
        return self.code % 2 == 1

    @property
    def span(self) -> OffsetRange:
        return OffsetRange(self.partition, self.offset, self.offset + 1)


@dataclass(frozen=True, slots=True)
class KeyState:
    """One key on both sides.

    ``rows`` is how many cold has, ``row`` the offset of one of them, None: there is none, or it has no offset. ``is_retained``:
    the log was compared at that offset. ``own`` is the newest change in the partition of that row, ``any`` in one of all
    partitions, ``has_delete``: a delete is the newest in one of them.
    """

    rows: int
    row: OffsetRange | None
    is_retained: bool
    own: KeyChange | None
    any: KeyChange | None
    has_delete: bool


class Unsure(StrEnum):
    """Why nothing can be said of the row of a key."""

    CLEANED = "cleaned"
    ORDER = "order"


def judge(key: KeyState, *, is_compacted: bool) -> Fault | Unsure | None:
    """Say what is wrong with a key; None: nothing. ``is_compacted``: the log may lack changes that cold has."""
    if key.rows > 1:
        return _fault(
            Kind.DUPLICATE_KEY, key.row, f"cold has {key.rows} rows of one key", key.rows
        )
    if key.row is None:
        return _without_row(key)
    own, row = key.own, key.row
    if own is not None and own.offset >= row.start:
        if own.is_delete:
            what = f"cold has a row of a key that was deleted at offset {own.offset}"
            return _fault(Kind.UNDELETED, row, what)
        if own.offset == row.start:
            return None
        what = f"cold has a row of a key whose newest change below the watermark is at offset {own.offset}"
        return _fault(Kind.STALE, row, what)
    if not key.is_retained:
        return None if key.any is None or own is not None else Unsure.ORDER
    if is_compacted:
        return Unsure.CLEANED
    what = "cold has a row of a key that has no change there in the log"
    return _fault(Kind.SURPLUS, row, what)


def _without_row(key: KeyState) -> Fault | None:
    """Judge a key whose only row, if cold has any, is of no offset."""
    if key.any is None:
        return None
    if not key.has_delete:
        return _fault(Kind.MISSING, key.any.span, NEWEST_MISSING)
    if not key.rows:
        return None
    what = "cold has a row of a key that was deleted there"
    return _fault(Kind.UNDELETED, key.any.span, what)


def _fault(kind: Kind, at: OffsetRange | None, what: str, rows: int = 1) -> Fault:
    where = "rows without an offset" if at is None else span_text(at)
    return Fault(kind, f"{where}: {what}", at, rows)
