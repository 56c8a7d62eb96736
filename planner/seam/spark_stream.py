"""A stream over a table: where it stands, what its next batch ends with, which rows a batch has.

An offset of a stream is the next offset of each partition of one topic. A batch is everything from one vector to another:
what is below the watermark at the moment of reading comes from cold, the rest from the log. So a batch that is read again
has the same records, wherever the seam went since.

A stream that begins now has no vector until its first batch is planned, and Spark asks where it began again when it
repeats that batch after a crash. So its beginning is a word, not a vector, and its first batch is empty: it only writes
down where the stream stands.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from planner.errors import BadParameter
from planner.offsets import OffsetRange, OffsetVector, fair_share
from planner.seam.cut import Increment, TableCut
from planner.seam.incremental import After, TablePosition, narrow
from planner.seam.time_travel import vector_of
from planner.seam.watermark import as_int, as_str

OFFSET_VERSION = 1
#: Where a stream stands that begins with what is committed from now on, until its first batch is written down.
NOW = "now"
#: Times of streams lie this near to 1970, in microseconds: 31,000 years, and no 64 bits overflow.
MAX_TIME_US = 10**18


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The next offset per partition; one that is absent was added later, or is read from its beginning: 0."""

    topic_id: str
    next: OffsetVector

    @property
    def document(self) -> dict[str, Any]:
        """One JSON form: equal offsets have equal texts, which Spark compares."""
        return {
            "v": OFFSET_VERSION,
            "topic": self.topic_id,
            "next": [list(pair) for pair in self.next],
        }


@dataclass(frozen=True, slots=True)
class StreamStart:
    """A beginning that is no vector yet. ``since_us``: the first record of that time or later; None: now."""

    topic_id: str
    since_us: int | None = None

    @property
    def document(self) -> dict[str, Any]:
        start = NOW if self.since_us is None else self.since_us
        return {"v": OFFSET_VERSION, "topic": self.topic_id, "start": start}


def parse_offset(document: Any) -> StreamOffset | StreamStart:
    """Read what ``document`` wrote into a checkpoint.

    Raises:
        BadParameter: it is of something else, or of a newer version.
    """
    try:
        return _parsed(document)
    except (KeyError, TypeError, ValueError) as error:
        raise BadParameter(
            "the checkpoint is not of a stream over a table of this version of Thermocline; start the query with a new one."
        ) from error


def _parsed(document: Any) -> StreamOffset | StreamStart:
    # ``True`` equals 1.
    if type(document["v"]) is not int or document["v"] != OFFSET_VERSION:
        raise ValueError("another version")
    topic = as_str(document["topic"])
    if "start" not in document:
        return StreamOffset(topic, vector_of(document["next"]))
    start = document["start"]
    if start == NOW:
        return StreamStart(topic)
    if abs(as_int(start)) >= MAX_TIME_US:
        raise ValueError("no time")
    return StreamStart(topic, start)


def check_reached(cut: TableCut, at: StreamOffset) -> TableCut:
    """Return the part of a cut behind ``at``.

    Raises:
        TopicRecreated: the offsets are of another topic.
        LogTruncated: they lie above the cut's end.
    """
    position = TablePosition(cut.table, at.topic_id, at.next)
    return narrow(cut, After(tables=(position,)))


def next_end(cut: TableCut, at: OffsetVector, first: OffsetVector, limit: int) -> OffsetVector:
    """Return where a batch ends that begins at ``at`` and has at most ``limit`` offsets, the same share of every partition.

    ``first``: below them no partition has a row; such offsets do not count.
    """
    ranges = []
    for partition, stop in cut.end:
        start = max(at.get(partition) or 0, first.get(partition) or 0)
        ranges.append(OffsetRange(partition, min(start, stop), stop))
    return OffsetVector.of(
        (span.partition, span.stop) for span in fair_share(tuple(ranges), limit)
    )


def batch(cut: TableCut, start: StreamOffset, end: StreamOffset) -> TableCut:
    """Return the part of a cut from ``start`` to ``end``: its ``new_cold`` and ``new_hot``.

    Raises:
        TopicRecreated, LogTruncated: as ``check_reached``, of either.
        BadParameter: ``end`` lies before ``start``.
    """
    check_reached(cut, end)
    behind = check_reached(cut, start)
    for partition, offset in start.next:
        if offset > (end.next.get(partition) or 0):
            raise BadParameter(
                f"{cut.table}: the checkpoint has a batch of partition {partition} that ends before it begins; start the "
                f"query with a new one.",
                table=str(cut.table),
                partition=partition,
            )
    return replace(behind, until=end.next)


def batch_since(
    cut: TableCut, start: StreamStart, first: OffsetVector, end: StreamOffset
) -> TableCut:
    """Return the part of a cut from the offsets ``first``, of those partitions that have one, up to ``end``.

    Raises:
        TopicRecreated, LogTruncated: as ``check_reached``, of either.
    """
    check_reached(cut, StreamOffset(start.topic_id, OffsetVector()))
    check_reached(cut, end)
    after = end.next.as_dict() | {
        partition: min(offset, end.next.get(partition) or 0) for partition, offset in first
    }
    return replace(cut, increment=Increment(OffsetVector.of(after.items())), until=end.next)
