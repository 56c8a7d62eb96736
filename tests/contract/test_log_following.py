"""What every ``planner.ports.LogSubscription`` does, in memory and on a real broker."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping

import pytest

from planner.errors import (
    FederationError,
    LogTruncated,
    OffsetsExpired,
    TopicRecreated,
    UnknownTopic,
)
from planner.ports import LogSubscription, TopicSource
from planner.schema import RAW_SCHEMA
from tests.doubles.log import MemoryRecord
from tests.fixtures.log import LogHarness

TIMEOUT_S = 20.0


class Reader:
    """Takes until the partitions are where they should be, and checks each step."""

    def __init__(self, following: LogSubscription, starts: Mapping[int, int]) -> None:
        self.following = following
        self.reached = dict(starts)
        self.rows: list[tuple[int, int, bytes | None]] = []

    def step(self, timeout_s: float = 0.2) -> bool:
        followed = self.following.take(timeout_s)
        if followed is None:
            return False
        self.following.begin_confirm()()
        assert followed.batch.schema.equals(RAW_SCHEMA)
        assert followed.ranges
        ranges = {item.partition: item for item in followed.ranges}
        for item in followed.ranges:
            assert item.start == self.reached[item.partition] < item.stop
            self.reached[item.partition] = item.stop
        for row in followed.batch.to_pylist():
            at = row["kafka_partition"], row["kafka_offset"]
            assert at[1] in ranges[at[0]]
            self.rows.append((*at, row["kafka_value"]))
        return True

    def until(self, **stops: int) -> list[tuple[int, int, bytes | None]]:
        """Read until partition ``p0`` and so on are known up to these offsets; return all rows, sorted."""
        expected = {int(name[1:]): stop for name, stop in stops.items()}
        self._until(lambda: all(self.reached[at] >= stop for at, stop in expected.items()))
        return sorted(self.rows)

    def fails(self, *kinds: type[FederationError]) -> None:
        with pytest.raises(kinds):
            self._until(lambda: False)

    def _until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not holds():
            assert time.monotonic() < deadline, (self.reached, self.rows)
            self.step()


@contextlib.contextmanager
def following(
    harness: LogHarness, topic: str, starts: Mapping[int, int], **options: bool
) -> Iterator[Reader]:
    topic_id = harness.log.measure([topic])[topic].topic_id
    feed = harness.log.follow(TopicSource(topic, topic_id, **options), starts)
    with contextlib.closing(feed):
        yield Reader(feed, starts)


def records(*values: bytes) -> list[MemoryRecord]:
    return [MemoryRecord(value) for value in values]


def test_what_is_there_and_what_comes_later_is_read_once_and_in_order(
    harness: LogHarness,
) -> None:
    topic = harness.create_topic(2)
    harness.append(topic, records(b"a", b"b", b"c"))
    with following(harness, topic, {0: 1, 1: 0}) as reader:
        assert reader.until(p0=3) == [(0, 1, b"b"), (0, 2, b"c")]
        harness.append(topic, records(b"d"), partition=1)
        harness.append(topic, records(b"e"))
        expected = [(0, 1, b"b"), (0, 2, b"c"), (0, 3, b"e"), (1, 0, b"d")]
        assert reader.until(p0=4, p1=1) == expected
        assert not reader.step()


def test_many_records_come_in_steps_without_a_hole(harness: LogHarness) -> None:
    topic = harness.create_topic(2)
    for partition in (0, 1):
        harness.append(topic, records(*[b"%d" % at for at in range(200)]), partition=partition)
    with following(harness, topic, {0: 0, 1: 0}) as reader:
        rows = reader.until(p0=200, p1=200)
    assert rows == [(p, at, b"%d" % at) for p in (0, 1) for at in range(200)]


def test_aborted_records_and_markers_are_passed_without_rows(harness: LogHarness) -> None:
    topic = harness.create_topic()
    with following(harness, topic, {0: 0}) as reader:
        harness.end(harness.begin(topic, [b"gone", b"gone"]), commit=False)
        assert reader.until(p0=3) == []
        harness.end(harness.begin(topic, [b"kept"]), commit=True)
        assert reader.until(p0=5) == [(0, 3, b"kept")]


def test_an_open_transaction_is_not_passed(harness: LogHarness) -> None:
    topic = harness.create_topic()
    with following(harness, topic, {0: 0}) as reader:
        transaction = harness.begin(topic, [b"late"])
        harness.append(topic, records(b"behind"))
        for _ in range(5):
            reader.step()
        assert (reader.reached, reader.rows) == ({0: 0}, [])
        harness.end(transaction, commit=True)
        assert reader.until(p0=3) == [(0, 0, b"late"), (0, 1, b"behind")]


def test_compacted_offsets_are_passed_without_rows(harness: LogHarness) -> None:
    topic = harness.create_topic(compacted=True)
    harness.append(topic, [MemoryRecord(f"a{index}".encode(), b"a") for index in range(5)])
    time.sleep(0.2)
    harness.append(topic, [MemoryRecord(b"end", b"end")])
    harness.compact(topic, keep=[4, 5])
    with following(harness, topic, {0: 1}) as reader:
        assert reader.until(p0=6) == [(0, 4, b"a4"), (0, 5, b"end")]


def test_key_and_headers_are_null_unless_asked_for(harness: LogHarness) -> None:
    topic = harness.create_topic()
    harness.append(topic, [MemoryRecord(b"v", b"k", [("h", b"1")])])
    result = []
    for request in (False, True):
        with following(
            harness, topic, {0: 0}, with_key=request, with_headers=request
        ) as reader:
            while (followed := reader.following.take(0.2)) is None:
                pass
            result += [
                (row["kafka_key"], row["kafka_headers"]) for row in followed.batch.to_pylist()
            ]
    assert result == [(None, None), (b"k", [{"key": "h", "value": b"1"}])]


def test_a_start_below_the_log_start_has_expired(harness: LogHarness) -> None:
    topic = harness.create_topic()
    harness.append(topic, records(*[b"v"] * 10))
    harness.delete_records(topic, 0, 6)
    with following(harness, topic, {0: 3}) as reader:
        reader.fails(OffsetsExpired)


def test_a_start_above_the_log_end_is_truncation(harness: LogHarness) -> None:
    topic = harness.create_topic()
    harness.append(topic, records(b"v"))
    with following(harness, topic, {0: 7}) as reader:
        reader.fails(LogTruncated)


@pytest.mark.parametrize("again", [0, 2, 9], ids=["fewer", "as many", "more"])
def test_a_recreated_topic_is_never_read_on_under_the_old_id(
    again: int, harness: LogHarness
) -> None:
    topic = harness.create_topic()
    harness.append(topic, records(b"a", b"b"))
    with following(harness, topic, {0: 0}) as reader:
        assert len(reader.until(p0=2)) == 2
        harness.recreate_topic(topic)
        harness.append(topic, records(*[b"new"] * again))
        if again <= 2:
            harness.append(topic, records(*[b"more"] * 5))
        reader.fails(TopicRecreated, UnknownTopic, LogTruncated, OffsetsExpired)
        assert all(value in (b"a", b"b") for _, _, value in reader.rows)


def test_after_an_outage_reading_goes_on_where_it_was(harness: LogHarness) -> None:
    """Whether the outage shows is the client's affair; a fresh reader must then be opened."""
    topic = harness.create_topic()
    harness.append(topic, records(b"a"))
    reached, rows = {0: 0}, []
    with following(harness, topic, reached) as reader:
        rows += reader.until(p0=1)
        reached = dict(reader.reached)
    topic_id = harness.log.measure([topic])[topic].topic_id
    harness.stop()
    with (
        contextlib.suppress(FederationError),
        contextlib.closing(harness.log.follow(TopicSource(topic, topic_id), reached)) as value,
    ):
        assert value.take(0.5) is None
    harness.start()
    harness.append(topic, records(b"b"))
    with following(harness, topic, reached) as reader:
        rows += reader.until(p0=2)
    assert rows == [(0, 0, b"a"), (0, 1, b"b")]
