"""Checks that a log, as measured, still has the ranges of a read."""

from __future__ import annotations

from collections.abc import Sequence

from planner.errors import LogTruncated, OffsetsExpired, TopicRecreated
from planner.offsets import OffsetRange
from planner.seam.cut import LogBounds, PartitionBounds


def check_ranges(measured: LogBounds, ranges: Sequence[OffsetRange], topic_id: str) -> None:
    """Compare ranges with the log; measured after reading, this proves that nothing was missed.

    Log starts only rise, so a start that is not above a range now was not above it while it was read.

    Raises:
        TopicRecreated: the topic is not the one of ``topic_id``.
        OffsetsExpired: a range starts below the log start.
        LogTruncated: a range stops above the log end, or its partition is gone.
    """
    if measured.topic_id != topic_id:
        raise TopicRecreated(
            f"{measured.topic}: the topic has id {measured.topic_id}, the offsets were measured on id {topic_id}: it "
            f"was deleted and created again, so its offsets start over.",
            topic=measured.topic,
            expected=topic_id,
            found=measured.topic_id,
        )
    by_partition = {bounds.partition: bounds for bounds in measured.partitions}
    for span in ranges:
        _check(measured.topic, span, by_partition.get(span.partition))


def _check(topic: str, span: OffsetRange, bounds: PartitionBounds | None) -> None:
    where = f"{topic}/{span.partition}"
    facts: dict[str, object] = {
        "topic": topic,
        "partition": span.partition,
        "start": span.start,
        "stop": span.stop,
    }
    was_to_be_read = f"{where}: the log was to be read up to offset {span.stop}, but"
    if bounds is None:
        raise LogTruncated(f"{was_to_be_read} the topic has no such partition.", **facts)
    if bounds.log_start > span.start:
        raise OffsetsExpired(
            f"{where}: offsets {span.start} to {span.stop} (exclusive) were to be read, but the log starts at "
            f"{bounds.log_start} now; retention removed the rest.",
            **facts,
            log_start=bounds.log_start,
        )
    if bounds.log_end < span.stop:
        what = f"{was_to_be_read} it ends at {bounds.log_end}; it lost records."
        raise LogTruncated(what, **facts, log_end=bounds.log_end)
