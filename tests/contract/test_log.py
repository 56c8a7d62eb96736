"""What every ``planner.ports.Log`` does, in memory and on a real broker."""

from __future__ import annotations

import datetime as dt
import re
import time
from collections.abc import Sequence
from typing import Any

import pytest

from planner.errors import (
    LogTruncated,
    LogUnavailable,
    OffsetsExpired,
    TopicRecreated,
    UnknownTopic,
)
from planner.offsets import OffsetRange
from planner.ports import TopicSource
from planner.schema import RAW_SCHEMA
from planner.seam.cut import LogBounds
from tests.doubles.log import MemoryRecord
from tests.fixtures.log import LogHarness

Row = dict[str, object]


def records(count: int, prefix: str = "v") -> list[MemoryRecord]:
    return [MemoryRecord(f"{prefix}{index}".encode()) for index in range(count)]


def measured(harness: LogHarness, topic: str) -> LogBounds:
    return harness.log.measure([topic])[topic]


def ends(harness: LogHarness, topic: str) -> list[tuple[int, int]]:
    return [
        (partition.log_start, partition.log_end)
        for partition in measured(harness, topic).partitions
    ]


def fetch(
    harness: LogHarness, topic: str, ranges: Sequence[OffsetRange], **options: Any
) -> list[Row]:
    batches = list(harness.log.fetch(TopicSource(topic, **options), ranges, timeout_s=10))
    assert all(batch.schema.equals(RAW_SCHEMA) for batch in batches)
    assert all(batch.num_rows for batch in batches)
    return [row for batch in batches for row in batch.to_pylist()]


def positions(rows: Sequence[Row]) -> list[tuple[object, object]]:
    return [(row["kafka_partition"], row["kafka_offset"]) for row in rows]


def values(rows: Sequence[Row]) -> list[object]:
    return [row["kafka_value"] for row in rows]


def everything(harness: LogHarness, topic: str) -> list[Row]:
    partitions = measured(harness, topic).partitions
    return fetch(
        harness,
        topic,
        [OffsetRange(item.partition, item.log_start, item.log_end) for item in partitions],
    )


def test_an_empty_topic_measures_zero_and_reads_nothing(harness: LogHarness) -> None:
    topic = harness.create_topic(3)
    assert ends(harness, topic) == [(0, 0)] * 3
    assert everything(harness, topic) == []


def test_no_ranges_and_empty_ranges_read_nothing_even_while_no_broker_answers(
    harness: LogHarness,
) -> None:
    topic = harness.create_topic()
    harness.stop()
    assert fetch(harness, topic, []) == []
    assert fetch(harness, topic, [OffsetRange(0, 0, 0), OffsetRange(7, 9, 9)]) == []


def test_a_range_is_read_from_its_start_to_before_its_stop(harness: LogHarness) -> None:
    topic = harness.create_topic()
    harness.append(topic, records(10))
    rows = fetch(harness, topic, [OffsetRange(0, 3, 8)])
    assert positions(rows) == [(0, offset) for offset in range(3, 8)]
    assert values(rows) == [f"v{index}".encode() for index in range(3, 8)]


def test_a_single_offset_is_read(harness: LogHarness) -> None:
    topic = harness.create_topic()
    harness.append(topic, records(5))
    assert values(fetch(harness, topic, [OffsetRange(0, 4, 5)])) == [b"v4"]


def test_partitions_are_read_together_each_in_order(harness: LogHarness) -> None:
    topic = harness.create_topic(3)
    for partition in range(3):
        harness.append(topic, records(4 + partition, f"p{partition}-"), partition=partition)
    rows = fetch(
        harness, topic, [OffsetRange(0, 1, 4), OffsetRange(1, 0, 5), OffsetRange(2, 6, 6)]
    )
    for partition, expected in ((0, range(1, 4)), (1, range(5)), (2, range(0))):
        assert [offset for value, offset in positions(rows) if value == partition] == [
            *expected
        ]


def test_what_was_measured_does_not_grow_with_the_log(harness: LogHarness) -> None:
    topic = harness.create_topic()
    harness.append(topic, records(3))
    bounds = measured(harness, topic).partitions[0]
    harness.append(topic, records(3, "later"))
    rows = fetch(harness, topic, [OffsetRange(0, bounds.log_start, bounds.log_end)])
    assert values(rows) == [b"v0", b"v1", b"v2"]


def test_several_topics_are_measured_at_once(harness: LogHarness) -> None:
    one, two = harness.create_topic(1), harness.create_topic(2)
    harness.append(two, records(2), partition=1)
    result = harness.log.measure([one, two, one])
    assert list(result) == [one, two]
    assert [len(bounds.partitions) for bounds in result.values()] == [1, 2]
    assert result[two].partitions[1].log_end == 2
    assert result[one].topic_id != result[two].topic_id
    assert result[one].cluster_id == result[two].cluster_id != ""


def test_measuring_nothing_asks_nobody(harness: LogHarness) -> None:
    harness.stop()
    assert harness.log.measure([]) == {}


def test_null_and_empty_values_stay_apart(harness: LogHarness) -> None:
    topic = harness.create_topic()
    harness.append(
        topic, [MemoryRecord(None, b"k"), MemoryRecord(b"", b"k"), MemoryRecord(b"\x00", b"k")]
    )
    assert values(everything(harness, topic)) == [None, b"", b"\x00"]


def test_key_and_headers_are_null_unless_asked_for(harness: LogHarness) -> None:
    topic = harness.create_topic()
    harness.append(topic, [MemoryRecord(b"v", b"k", [("h", b"1")])])
    (bare,) = fetch(harness, topic, [OffsetRange(0, 0, 1)])
    assert (bare["kafka_key"], bare["kafka_headers"]) == (None, None)
    (full,) = fetch(harness, topic, [OffsetRange(0, 0, 1)], with_key=True, with_headers=True)
    assert full["kafka_key"] == b"k"
    assert full["kafka_headers"] == [{"key": "h", "value": b"1"}]


def test_headers_keep_order_repeats_and_null_values(harness: LogHarness) -> None:
    topic = harness.create_topic()
    harness.append(
        topic,
        [
            MemoryRecord(b"v", None, [("b", None), ("a", b""), ("b", b"2"), ("", b"3")]),
            MemoryRecord(b"w"),
        ],
    )
    rows = fetch(harness, topic, [OffsetRange(0, 0, 2)], with_key=True, with_headers=True)
    assert [row["kafka_key"] for row in rows] == [None, None]
    assert rows[0]["kafka_headers"] == [
        {"key": "b", "value": None},
        {"key": "a", "value": b""},
        {"key": "b", "value": b"2"},
        {"key": "", "value": b"3"},
    ]
    assert rows[1]["kafka_headers"] is None


def test_the_timestamp_is_the_producers_in_utc(harness: LogHarness) -> None:
    topic = harness.create_topic()
    harness.append(topic, [MemoryRecord(b"v", timestamp_ms=1_700_000_000_123)])
    (row,) = everything(harness, topic)
    assert row["kafka_timestamp"] == dt.datetime(2023, 11, 14, 22, 13, 20, 123_000, dt.UTC)


def test_an_open_transaction_holds_the_end_back(harness: LogHarness) -> None:
    topic = harness.create_topic()
    harness.append(topic, records(2))
    transaction = harness.begin(topic, [b"t0", b"t1"])
    harness.append(topic, records(1, "behind"))
    assert ends(harness, topic) == [(0, 2)]
    assert values(everything(harness, topic)) == [b"v0", b"v1"]
    harness.end(transaction, commit=True)
    assert ends(harness, topic) == [(0, 6)]
    assert values(everything(harness, topic)) == [b"v0", b"v1", b"t0", b"t1", b"behind0"]


def test_aborted_records_are_never_seen_and_their_offsets_stay_holes(
    harness: LogHarness,
) -> None:
    topic = harness.create_topic()
    harness.append(topic, records(1))
    harness.end(harness.begin(topic, [b"gone", b"gone"]), commit=False)
    harness.append(topic, records(1, "after"))
    assert ends(harness, topic) == [(0, 5)]
    rows = everything(harness, topic)
    assert positions(rows) == [(0, 0), (0, 4)]
    assert values(rows) == [b"v0", b"after0"]


def test_a_topic_that_ends_in_an_abort_marker_is_read_to_its_end(harness: LogHarness) -> None:
    topic = harness.create_topic()
    harness.end(harness.begin(topic, [b"t0"]), commit=True)
    harness.end(harness.begin(topic, [b"gone"]), commit=False)
    assert ends(harness, topic) == [(0, 4)]
    assert positions(everything(harness, topic)) == [(0, 0)]


def test_only_aborted_data_reads_as_nothing(harness: LogHarness) -> None:
    topic = harness.create_topic()
    harness.end(harness.begin(topic, [b"gone"] * 3), commit=False)
    assert ends(harness, topic) == [(0, 4)]
    assert everything(harness, topic) == []


@pytest.mark.parametrize(("start", "stop"), [(0, 3), (1, 2), (2, 3), (2, 4), (3, 4)])
def test_a_range_may_start_and_stop_on_a_marker(
    start: int, stop: int, harness: LogHarness
) -> None:
    topic = harness.create_topic()
    harness.end(harness.begin(topic, [b"t0", b"t1"]), commit=True)
    harness.append(topic, records(2))
    rows = fetch(harness, topic, [OffsetRange(0, start, stop)])
    readable = {0, 1, 3, 4}
    assert [offset for _, offset in positions(rows)] == sorted(readable & {*range(start, stop)})


def test_a_transaction_over_two_partitions_has_a_marker_in_each(harness: LogHarness) -> None:
    topic = harness.create_topic(2)
    for partition in (0, 1):
        harness.end(harness.begin(topic, [b"t"], partition=partition), commit=True)
    assert ends(harness, topic) == [(0, 2), (0, 2)]
    assert sorted(positions(everything(harness, topic))) == [(0, 0), (1, 0)]


def test_compaction_leaves_holes_and_a_range_over_them_is_read_wherever_it_ends(
    harness: LogHarness,
) -> None:
    topic = harness.create_topic(compacted=True)
    harness.append(topic, [MemoryRecord(f"a{index}".encode(), b"a") for index in range(5)])
    harness.append(topic, [MemoryRecord(f"b{index}".encode(), b"b") for index in range(5)])
    time.sleep(0.2)
    harness.append(topic, [MemoryRecord(b"end", b"end")])
    harness.compact(topic, keep=[4, 9, 10])
    assert ends(harness, topic)[0][1] == 11
    # At the beginning, in a hole, on a record, behind one.
    for start in (0, 3, 4, 5, 9, 10, 11):
        for stop in (0, 1, 4, 5, 9, 10, 11):
            if stop < start:
                continue
            rows = fetch(harness, topic, [OffsetRange(0, start, stop)])
            saved = [(0, offset) for offset in (4, 9, 10) if start <= offset < stop]
            assert positions(rows) == saved, (start, stop)


def test_a_start_below_the_log_start_has_expired(harness: LogHarness) -> None:
    topic = harness.create_topic()
    harness.append(topic, records(10))
    harness.delete_records(topic, 0, 6)
    assert ends(harness, topic) == [(6, 10)]
    with pytest.raises(OffsetsExpired, match=rf"{topic}/0: offsets 5 to 10 .* starts at 6"):
        fetch(harness, topic, [OffsetRange(0, 5, 10)])
    assert len(fetch(harness, topic, [OffsetRange(0, 6, 10)])) == 4


def test_a_range_wholly_below_the_log_start_has_expired(harness: LogHarness) -> None:
    topic = harness.create_topic()
    harness.append(topic, records(10))
    harness.delete_records(topic, 0, 10)
    assert ends(harness, topic) == [(10, 10)]
    with pytest.raises(OffsetsExpired):
        fetch(harness, topic, [OffsetRange(0, 2, 4)])


def test_records_removed_while_they_are_read_fail_the_read(harness: LogHarness) -> None:
    topic = harness.create_topic()
    harness.append(topic, records(40))
    batches = harness.log.fetch(TopicSource(topic), [OffsetRange(0, 0, 40)], timeout_s=10)
    next(batches)
    harness.delete_records(topic, 0, 39)
    with pytest.raises(OffsetsExpired):
        list(batches)


def test_a_stop_above_the_log_end_is_truncation(harness: LogHarness) -> None:
    topic = harness.create_topic()
    harness.append(topic, records(3))
    with pytest.raises(LogTruncated, match=rf"{topic}/0: .* up to offset 5, but it ends at 3"):
        fetch(harness, topic, [OffsetRange(0, 0, 5)])


def test_a_start_above_the_log_end_is_truncation(harness: LogHarness) -> None:
    topic = harness.create_topic()
    harness.append(topic, records(3))
    with pytest.raises(LogTruncated):
        fetch(harness, topic, [OffsetRange(0, 8, 9)])


def test_a_partition_the_topic_does_not_have_is_truncation(harness: LogHarness) -> None:
    topic = harness.create_topic()
    with pytest.raises(LogTruncated, match="no such partition"):
        fetch(harness, topic, [OffsetRange(3, 0, 1)])


def test_an_unknown_topic_is_named(harness: LogHarness) -> None:
    facts = harness.create_topic()
    with pytest.raises(UnknownTopic, match="no topic nowhere"):
        harness.log.measure([facts, "nowhere"])
    with pytest.raises(UnknownTopic, match="no topic nowhere"):
        fetch(harness, "nowhere", [OffsetRange(0, 0, 1)])


def test_a_deleted_topic_is_unknown_also_to_a_log_that_knew_it(harness: LogHarness) -> None:
    topic = harness.create_topic()
    harness.append(topic, records(1))
    measured(harness, topic)
    harness.delete_topic(topic)
    with pytest.raises(UnknownTopic):
        harness.log.measure([topic])
    with pytest.raises(UnknownTopic):
        fetch(harness, topic, [OffsetRange(0, 0, 1)])


@pytest.mark.parametrize("again", [1, 3, 9], ids=["fewer", "as many", "more"])
def test_a_recreated_topic_has_another_id_and_its_own_offsets(
    again: int, harness: LogHarness
) -> None:
    topic = harness.create_topic(2)
    harness.append(topic, records(3))
    first = measured(harness, topic)
    harness.recreate_topic(topic, 1)
    harness.append(topic, records(again, "new"))
    second = measured(harness, topic)
    assert second.topic_id != first.topic_id
    assert second.cluster_id == first.cluster_id
    assert ends(harness, topic) == [(0, again)]
    with pytest.raises(TopicRecreated, match=re.escape(first.topic_id)):
        list(
            harness.log.fetch(
                TopicSource(topic, first.topic_id), [OffsetRange(0, 0, 1)], timeout_s=10
            )
        )
    assert values(everything(harness, topic)) == [
        f"new{index}".encode() for index in range(again)
    ]


def test_a_topic_recreated_while_it_is_read_fails_the_read(harness: LogHarness) -> None:
    topic = harness.create_topic()
    harness.append(topic, records(40))
    batches = harness.log.fetch(TopicSource(topic), [OffsetRange(0, 0, 40)], timeout_s=10)
    next(batches)
    harness.recreate_topic(topic)
    harness.append(topic, records(50, "new"))
    with pytest.raises((TopicRecreated, UnknownTopic)):
        list(batches)


def test_new_partitions_are_seen_by_the_next_measurement(harness: LogHarness) -> None:
    topic = harness.create_topic(1)
    before = measured(harness, topic)
    harness.add_partitions(topic, 3)
    harness.append(topic, records(2), partition=2)
    after = measured(harness, topic)
    assert after.topic_id == before.topic_id
    assert ends(harness, topic) == [(0, 0), (0, 0), (0, 2)]
    assert positions(everything(harness, topic)) == [(2, 0), (2, 1)]


def test_a_fetch_closed_early_leaves_the_log_readable(harness: LogHarness) -> None:
    topic = harness.create_topic(2)
    for partition in (0, 1):
        harness.append(topic, records(20, f"p{partition}-"), partition=partition)
    for _ in range(5):
        batches = harness.log.fetch(
            TopicSource(topic), [OffsetRange(0, 0, 20), OffsetRange(1, 0, 20)], timeout_s=10
        )
        next(batches)
        batches.close()
        rows = fetch(harness, topic, [OffsetRange(1, 5, 20)])
        assert positions(rows) == [(1, offset) for offset in range(5, 20)]


def test_brokers_that_do_not_answer_fail_in_time_and_work_again_afterwards(
    harness: LogHarness,
) -> None:
    topic = harness.create_topic()
    harness.append(topic, records(3))
    assert ends(harness, topic) == [(0, 3)]
    harness.stop()
    began = time.monotonic()
    with pytest.raises(LogUnavailable, match="do not answer"):
        harness.log.measure([topic])
    with pytest.raises(LogUnavailable):
        list(harness.log.fetch(TopicSource(topic), [OffsetRange(0, 0, 3)], timeout_s=1))
    assert time.monotonic() - began < 8
    harness.start()
    assert values(everything(harness, topic)) == [b"v0", b"v1", b"v2"]


def test_two_ranges_of_a_partition_are_refused_before_anything_is_read(
    harness: LogHarness,
) -> None:
    topic = harness.create_topic()
    harness.append(topic, records(4))
    with pytest.raises(ValueError, match="more than one range of a partition"):
        fetch(harness, topic, [OffsetRange(0, 0, 2), OffsetRange(0, 2, 4)])
