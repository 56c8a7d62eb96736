"""Checks that a log still has what is read of it: its ranges, as measured, and by the clock its deletes."""

from __future__ import annotations

from collections.abc import Sequence

from planner.errors import LogTruncated, OffsetsExpired, TombstonesExpired, TopicRecreated
from planner.names import shell_word
from planner.offsets import OffsetRange
from planner.seam.cut import LogBounds, PartitionBounds

#: ``thermocline create`` refuses a topic that keeps deletes for less, in seconds: a publish may be late by as much again as
#: its table waits for it. It is taken for the setting of a topic that hides it.
LEAST_DELETES_S = 3_600.0
#: The share of ``delete.retention.ms`` for which deletes are sure to be there. The rest is for clocks, which differ, and for a
#: publish, which is committed a while after it measured the log's end.
_SURE_SHARE = 0.9


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


def check_deletes(table: str, topic: str, *, age_s: float, retention_s: float | None) -> None:
    """Check that a compacted topic's log has every delete that was written since it was last read to its end, ``age_s`` ago.

    A cleaner removes deletes ``delete.retention.ms`` after it met them, at the soonest, and no offset tells (KIP-534).
    ``retention_s`` is that setting; infinite: the topic is not compacted; None: its settings cannot be read.

    Raises:
        TombstonesExpired: some deletes may be gone.
    """
    setting, limit_s = "delete.retention.ms", retention_s
    if limit_s is None:
        limit_s = LEAST_DELETES_S
        setting = "assumed, since its settings cannot be read: grant DescribeConfigs on it"
    if age_s > _SURE_SHARE * limit_s:
        raise TombstonesExpired(
            f"{table}: the last time that topic {topic} was surely read to its end was {age_s:,.0f} s ago, and it keeps deletes "
            f"for {limit_s:,.0f} s ({setting}), of which a tenth is left to clocks: some may be gone, and their rows would stay "
            f"for ever; run `thermocline rebuild {shell_word(table)}`, and raise delete.retention.ms if tiering may stand as "
            f"long again.",
            table=table,
            topic=topic,
        )


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
