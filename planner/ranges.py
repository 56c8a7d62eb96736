"""Whether a log, as measured, still holds the ranges somebody reads."""

from __future__ import annotations

from collections.abc import Sequence

from planner.cut import LogBounds, PartitionBounds
from planner.errors import LogTruncated, OffsetsExpired, TopicRecreated
from planner.offsets import OffsetRange


def check_ranges(found: LogBounds, ranges: Sequence[OffsetRange], topic_id: str) -> None:
    """Compare ranges with the log; measured after reading, this proves that nothing was missed.

    Log starts only rise, so a start that is not above a range now was not above it while it was read.

    Raises:
        TopicRecreated: the topic is not the one of ``topic_id``.
        OffsetsExpired: a range starts below the log start.
        LogTruncated: a range stops above the log end, or its partition is gone.
    """
    if found.topic_id != topic_id:
        raise TopicRecreated(
            f"{found.topic}: the topic has id {found.topic_id}, the offsets were measured on id {topic_id}: it "
            f"was deleted and created again, so its offsets start over.",
            topic=found.topic,
            expected=topic_id,
            found=found.topic_id,
        )
    held = {bounds.partition: bounds for bounds in found.partitions}
    for wanted in ranges:
        _check(found.topic, wanted, held.get(wanted.partition))


def _check(topic: str, wanted: OffsetRange, held: PartitionBounds | None) -> None:
    where = f"{topic}/{wanted.partition}"
    facts: dict[str, object] = {
        "topic": topic,
        "partition": wanted.partition,
        "start": wanted.start,
        "stop": wanted.stop,
    }
    if held is None:
        raise LogTruncated(
            f"{where}: the log was to be read up to offset {wanted.stop}, but the topic has no such partition.",
            **facts,
        )
    if held.log_start > wanted.start:
        raise OffsetsExpired(
            f"{where}: offsets {wanted.start} to {wanted.stop} (exclusive) were to be read, but the log starts "
            f"at {held.log_start} now; retention removed the rest.",
            **facts,
            log_start=held.log_start,
        )
    if held.log_end < wanted.stop:
        raise LogTruncated(
            f"{where}: the log was to be read up to offset {wanted.stop}, but it ends at {held.log_end}; it lost "
            f"records.",
            **facts,
            log_end=held.log_end,
        )
