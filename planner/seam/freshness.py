"""Freshness contracts: how new an answer must be, what a table's plain name means, which records must be in it.

::

    live                   up to the last committed record of the moment the statement is planned
    max_staleness 5s       every record committed 5 s before that, maybe more; the log need not be asked
    cold                   a table's name means its "$cold": what Iceberg holds
    tail                   a table's name means its "$tail": what Iceberg does not hold yet

``wait_for`` names records: the statement waits until its cut covers them (read your own writes).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from planner.errors import BadParameter
from planner.names import Side
from planner.offsets import OffsetVector
from planner.seam.cut import LogBounds, PartitionBounds, TableCut
from planner.seam.watermark import Watermark

Kind = Literal["live", "max_staleness", "cold", "tail"]

_SPAN = re.compile(r"(\d{1,9})\s*(ms|s|m|min|h|d)", re.ASCII)
_UNIT_S = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
#: Names of Kafka topics and clusters hold no slash, colon or comma.
_RECORD = re.compile(
    r"((?:[A-Za-z0-9_-]{1,64}/)?[A-Za-z0-9._-]{1,249})/(\d{1,10}):(\d{1,19})", re.ASCII
)
_OFFSET_END = 2**63


@dataclass(frozen=True, slots=True)
class Freshness:
    """A contract. ``max_staleness_s`` is set for that kind only."""

    kind: Kind = "live"
    max_staleness_s: float | None = None

    def __str__(self) -> str:
        if self.max_staleness_s is None:
            return self.kind
        ms = round(self.max_staleness_s * 1000)
        return f"{self.kind} {ms}ms" if ms % 1000 else f"{self.kind} {ms // 1000}s"

    @property
    def side(self) -> Side:
        """What a table's plain name means."""
        return Side(self.kind) if self.kind in ("cold", "tail") else Side.BOTH


LIVE = Freshness()


def parse_freshness(text: str) -> Freshness:
    """Read a contract as users write it; case and spaces do not matter. Raises BadParameter: it is not a contract."""
    word, _, rest = text.strip().lower().partition(" ")
    if word == "max_staleness":
        span = _SPAN.fullmatch(rest.strip())
        if span is not None:
            return Freshness("max_staleness", int(span[1]) * _UNIT_S[span[2]])
    elif word in ("live", "cold", "tail") and not rest:
        return Freshness(word)  # type: ignore[arg-type]
    raise BadParameter(
        f"{text[:80]!r} is no freshness; write live, max_staleness and a time such as 500ms, 5s or 2m, cold, or tail."
    )


def parse_wait_for(text: str) -> Mapping[str, OffsetVector]:
    """Read ``flows/0:1204, flows/1:98``: records that must be covered, by topic; several of a partition: the last.

    The text names offsets of records, as producers get them. The result is exclusive ends, as everywhere.

    Raises:
        BadParameter: it is not of that form.
    """
    targets: dict[str, dict[int, int]] = {}
    for item in re.split(r"[,\s]+", text.strip()):
        record = _RECORD.fullmatch(item)
        if record is None or int(record[3]) + 1 >= _OFFSET_END:
            raise BadParameter(
                f"{item[:80]!r} names no record to wait for; write topic/partition:offset, several with commas."
            )
        ends = targets.setdefault(record[1], {})
        partition = int(record[2])
        ends[partition] = max(ends.get(partition, 0), int(record[3]) + 1)
    return {topic: OffsetVector.of(ends.items()) for topic, ends in targets.items()}


@dataclass(frozen=True, slots=True)
class Uncovered:
    """A record that is not in a cut yet. ``end``: where the cut ends in its partition."""

    topic: str
    partition: int
    offset: int
    end: int


def uncovered(wait_for: Mapping[str, OffsetVector], cut: TableCut) -> Uncovered | None:
    """Return the first record to wait for that lies beyond the cut; topics of other tables do not count."""
    if cut.hot is None:
        return None
    ends = cut.end.as_dict()
    for partition, target in wait_for.get(cut.hot.topic, ()):
        if (end := ends.get(partition, 0)) < target:
            return Uncovered(cut.hot.topic, partition, target - 1, end)
    return None


def caught_up(bounds: LogBounds, watermark: Watermark) -> LogBounds:
    """Correct bounds that were measured before the pin was taken by what the pin proves.

    Offsets below the watermark were committed, so the log has reached it since. The leader epoch measured then may be
    out of date.
    """
    measured = {own.partition: own for own in bounds.partitions}
    for partition, tiered in watermark.next:
        # A partition that was added after the measurement: only its tiered part is known.
        own = measured.get(partition, PartitionBounds(partition, tiered, tiered))
        measured[partition] = replace(own, log_end=max(own.log_end, tiered), leader_epoch=None)
    return replace(bounds, partitions=tuple(measured[at] for at in sorted(measured)))
