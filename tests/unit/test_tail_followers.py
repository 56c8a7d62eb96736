"""Followers on threads of their own, and the keeper that starts and stops them."""

from __future__ import annotations

import itertools
import logging
import random
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from planner.errors import (
    CatalogUnavailable,
    FederationError,
    LogUnavailable,
    TailTooLarge,
    UndecodableRecord,
)
from planner.names import TableName
from planner.offsets import OffsetRange
from planner.seam.binding import Binding
from planner.seam.cut import TableCut
from proxy.tail.budget import TailLimits
from proxy.tail.follower import Follower
from proxy.tail.generations import Generation
from proxy.tail.housekeeping import Keeper
from proxy.tail.pacing import Pacing
from proxy.tail.reader.readers import LocalReader
from proxy.tail.segment import LeasedTail
from tests.harness.builders import FLOWS
from tests.harness.tails import FOLLOWED, LIMITS, OTHER, offsets, places, started, tail_harness


def test_a_statement_waits_for_the_follower_and_fetches_nothing() -> None:
    with tail_harness(threads=True) as harness:
        harness.write(0, 0)
        harness.read(harness.cut(0, 0))
        for stop in range(2, 60):
            harness.write(0, stop)
            assert places(harness, harness.cut(0, 0)) == offsets((0, stop))
        assert harness.fetched == 1


def test_a_follower_gathers_on_when_what_is_asked_for_is_there() -> None:
    with tail_harness(threads=False) as harness:
        harness.write(0, 0)
        cut = harness.cut(0, 0)
        harness.read(cut)
        (entry,) = harness.tails._entries.values()
        follower = entry.follower
        assert follower is not None
        assert cut.hot is not None
        Follower.request(follower, cut.hot.ranges)
        assert not follower._wake.is_set()
        harness.write(0, 1)
        later = harness.cut(0, 0).hot
        assert later is not None
        Follower.request(follower, later.ranges)
        assert follower._wake.is_set()


def test_who_must_fetch_does_not_wait_for_the_pauses_of_the_follower() -> None:
    pacing = Pacing(gather_s=0, piece_rows=4, pause_ratio=1e9)
    patient = replace(LIMITS, fetch_timeout_s=60)
    with tail_harness(
        threads=True, limits=patient, is_serving=lambda: True, pacing=pacing
    ) as harness:
        harness.write(0, 0)
        harness.read(harness.cut(0, 0))
        (entry,) = harness.tails._entries.values()
        # It pauses after the first piece of a step, at the latest of the second one's.
        for count in itertools.count(1):
            harness.write(0, *range(7))
            if entry.generation.writing.locked() and entry.generation.rows < 7 * count:
                break
        harness.log.add_partitions("flows", 3)
        harness.write(2, 5)
        places = [row[:2] for row in harness.read(harness.cut(0, 0, 0))]
        assert places == offsets((0, 7 * count + 1), (2, 1))


def test_what_is_added_just_after_it_was_looked_for_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    misses: list[None] = []
    lease = Generation.acquire

    def missed_once(
        self: Generation, expected: Iterable[OffsetRange], names: Sequence[str] | None
    ) -> LeasedTail | None:
        return misses.pop() if misses else lease(self, expected, names)

    with tail_harness(threads=True) as harness:
        harness.write(0, 0, 1, 2)
        cut = harness.cut(0, 0)
        assert places(harness, cut) == offsets((0, 3))
        monkeypatch.setattr(Generation, "acquire", missed_once)
        misses.append(None)

        def late() -> None:
            raise AssertionError("it waits for what is there")

        with harness.tails.read(cut, late) as tail:
            assert tail.relations
        assert not misses


def test_a_follower_that_stands_still_fails_statements_by_their_deadline() -> None:
    """Here the decoder hangs; a broker that is silent looks the same."""
    going_on = threading.Event()
    going_on.set()
    with tail_harness(threads=True, on_decode=lambda batch: going_on.wait(30)) as harness:
        harness.write(0, 0)
        harness.read(harness.cut(0, 0))
        going_on.clear()
        harness.write(0, 1)
        cut = harness.cut(0, 0)

        def late() -> None:
            harness.now_s += 1

        try:
            with pytest.raises(
                LogUnavailable, match=r"flows/0: target unreachable: .* offset 2 "
            ):
                harness.tails.read(cut, late)
        finally:
            going_on.set()
        assert places(harness, cut) == offsets((0, 2))


def test_a_statement_does_not_wait_for_a_reader_that_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The harness's clock stands still: who waits here waits for good."""
    serving = threading.Event()

    def decode(batch: pa.RecordBatch) -> None:
        if threading.current_thread().name.endswith(", ahead"):
            assert serving.wait(30)

    monkeypatch.setattr(LocalReader, "fetches_sooner", lambda *_: not serving.is_set())
    with tail_harness(threads=True, on_decode=decode) as harness:
        try:
            for value in range(4):
                harness.write(0, value)
                assert places(harness, harness.cut(0, 0)) == offsets((0, value + 1))
            assert harness.fetched == 4
        finally:
            serving.set()
        harness.write(0, 4)
        assert places(harness, harness.cut(0, 0)) == offsets((0, 5))
        assert harness.fetched == 4


def test_records_that_were_wished_for_while_they_are_added_are_not_looked_for_again() -> None:
    """The follower lingers longer than this test may take, but for a statement that waits."""
    pacing = Pacing(gather_s=0, linger_s=3600.0, demand_s=3600.0)
    steps, decoding, wished = [], threading.Event(), threading.Event()

    def decode(batch: pa.RecordBatch) -> None:
        steps.append(batch.num_rows)
        decoding.set()
        assert wished.wait(30)

    with tail_harness(threads=True, pacing=pacing) as harness:
        harness.write(0, 0)
        harness.read(harness.cut(0, 0))
        harness.on_decode = decode
        harness.write(0, 1)
        assert decoding.wait(30)
        with ThreadPoolExecutor(1) as reader:
            cut = harness.cut(0, 0)
            harness.tails.expect(cut)
            totals = reader.submit(places, harness, cut)
            wished.set()
            assert totals.result(30) == offsets((0, 2))
        # Nobody waits for this one; what the follower adds next, for the one behind it, has both.
        harness.write(0, 2)
        harness.write(0, 3)
        assert places(harness, harness.cut(0, 0)) == offsets((0, 4))
        assert steps == [1, 2]


def test_a_statement_that_waits_can_be_cancelled() -> None:
    going_on = threading.Event()
    going_on.set()
    with tail_harness(threads=True, on_decode=lambda batch: going_on.wait(30)) as harness:
        harness.write(0, 0)
        harness.read(harness.cut(0, 0))
        going_on.clear()
        harness.write(0, 1)

        def cancelled() -> None:
            raise CatalogUnavailable("stands for a cancellation")

        try:
            with pytest.raises(CatalogUnavailable):
                harness.tails.read(harness.cut(0, 0), cancelled)
        finally:
            going_on.set()


@pytest.mark.parametrize("how", ["hangs", "poisoned", "huge"])
def test_a_table_in_trouble_delays_no_other(how: str) -> None:
    troubled, hanging = threading.Event(), threading.Event()

    def decode(batch: pa.RecordBatch) -> None:
        if how == "hangs" and b"trouble" in batch.column("kafka_value").to_pylist():
            troubled.set()
            hanging.wait(60)

    limits = replace(LIMITS, max_rows=50)
    with tail_harness(threads=True, on_decode=decode, limits=limits) as harness:
        harness.log.create_topic("other", 1)
        harness.write(0, 0)
        harness.read(harness.cut(0, 0))
        harness.write(0, 0, topic="other")
        harness.read(harness.cut(0, table=OTHER, topic="other"))
        harness.write(0, *(range(500) if how == "huge" else (b"trouble",)))
        if how == "hangs":
            assert troubled.wait(30)
        else:
            with pytest.raises((UndecodableRecord, TailTooLarge)):
                harness.read(harness.cut(0, 0))
        try:
            for value in range(1, 20):
                harness.write(0, value, topic="other")
                cut = harness.cut(0, table=OTHER, topic="other")
                assert len(harness.read(cut)) == value + 1
        finally:
            hanging.set()


def test_an_outage_is_said_once_and_following_goes_on_after_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pacing = Pacing(gather_s=0, first_retry_s=0.001, longest_retry_s=0.001)
    failures = threading.Semaphore(0)
    with tail_harness(threads=True, pacing=pacing) as harness:
        harness.write(0, 0)
        harness.read(harness.cut(0, 0))
        follow = harness.log.follow

        def counted(*inputs: Any, **named: Any) -> object:
            failures.release()
            return follow(*inputs, **named)

        monkeypatch.setattr(harness.log, "follow", counted)
        with caplog.at_level(logging.WARNING):
            harness.log.stop()
            for _ in range(20):
                assert failures.acquire(timeout=30)
            harness.log.start()
            harness.write(0, 1)
            assert places(harness, harness.cut(0, 0)) == offsets((0, 2))
        assert (
            len([record for record in caplog.records if "is not followed" in record.message])
            == 1
        )


def test_what_is_followed_is_decoded_on_another_thread_than_it_is_added_by() -> None:
    pacing = Pacing(gather_s=0, backlog_rows=5)
    before = threading.enumerate()
    threads = set()
    decoded_on = lambda batch: threads.add(threading.current_thread().name)  # noqa: E731
    with tail_harness(threads=True, on_decode=decoded_on, pacing=pacing) as harness:
        harness.write(0, 0)
        harness.read(harness.cut(0, 0))
        assert threads == {threading.current_thread().name}
        threads.clear()
        for partition in (0, 1):
            harness.write(partition, *range(300))
        assert places(harness, harness.cut(0, 0)) == offsets((0, 301), (1, 300))
        assert harness.fetched == 1
    assert threads == {f"tail {FLOWS}, ahead"}
    assert started("tail ", before) == []


def test_what_stops_a_backlog_stops_it_where_it_lies() -> None:
    with tail_harness(threads=True, pacing=Pacing(gather_s=0, backlog_rows=5)) as harness:
        harness.write(0, 0)
        harness.read(harness.cut(0, 0))
        for partition in (0, 1):
            harness.write(partition, *range(100))
        below = harness.cut(0, 0)
        harness.write(0, b"poison", *range(50))
        for _ in range(2):
            with pytest.raises(UndecodableRecord, match="partition 0, offset 101"):
                harness.read(harness.cut(0, 0))
            assert places(harness, below) == offsets((0, 101), (1, 100))


@pytest.mark.parametrize("backlog_rows", [4_096, 1], ids=["lingering", "with a backlog"])
def test_many_readers_over_a_growing_log_are_always_exact(
    monkeypatch: pytest.MonkeyPatch, backlog_rows: int
) -> None:
    """T28 of docs/internals/seam.md: and none of them ever sees less than before."""
    pacing = Pacing(gather_s=0, backlog_rows=backlog_rows, linger_s=0.001)
    monkeypatch.setattr("proxy.tail.generations.SEGMENT_ROWS", 40)
    rounds, marks, lock = 60, [0, 0], threading.Lock()
    with tail_harness(
        threads=True, following=replace(FOLLOWED, keep_s=5), pacing=pacing
    ) as harness:
        ready = threading.Barrier(5)

        def produce() -> None:
            rng = random.Random(1)
            ready.wait()
            for step in range(400):
                harness.write(rng.randrange(2), *range(rng.randrange(6)))
                if step % 10 == 0:
                    bounds = harness.log.measure(["flows"])["flows"].partitions
                    with lock:
                        for at, value in enumerate(bounds):
                            marks[at] = rng.randint(marks[at], value.log_end)

        def read(seed: int) -> None:
            rng, observed, tickets = random.Random(seed), [0, 0], []
            ready.wait()
            for _ in range(rounds):
                with lock:
                    mark = tuple(marks)
                tickets.append(harness.cut(*mark))
                cut = rng.choice(tickets[-3:])
                hot = cut.hot
                assert hot is not None
                expected = [
                    (item.partition, offset)
                    for item in hot.ranges
                    for offset in range(item.start, item.stop)
                ]
                assert places(harness, cut) == expected
                ends = tickets[-1].end
                now = [ends.get(0) or 0, ends.get(1) or 0]
                assert all(later >= before for later, before in zip(now, observed, strict=True))
                observed = now

        works: list[Callable[[], None]] = [produce]
        works += [partial(read, seed) for seed in range(4)]
        with ThreadPoolExecutor(5) as pool:
            for done in [pool.submit(work) for work in works]:
                done.result(120)


# --- the keeper ---


def test_configured_tables_are_followed_without_a_statement_and_retried() -> None:
    with tail_harness(following=replace(FOLLOWED, tables=(FLOWS,))) as harness:
        harness.write(0, 0)
        answers: list[FederationError | None] = [CatalogUnavailable("no answer"), None]

        def cut(table: TableName) -> TableCut:
            error = answers.pop(0) if answers else None
            if error is not None:
                raise error
            return harness.cut(0, 0, table=table)

        keeper = Keeper(
            harness.tails, tables=[FLOWS], pins=lambda: [harness.pin(1, 0)], cut=cut
        )
        keeper.follow()
        assert harness.tails.states() == ()
        assert not keeper.has_read_all()
        keeper.follow()
        assert keeper.has_read_all()
        assert harness.state().is_followed
        assert harness.state().rows == 1
        keeper.tend()
        assert harness.state().rows == 0
        fetched = harness.fetched
        keeper.follow()
        assert harness.fetched == fetched


def test_the_keeper_runs_by_itself_and_stops() -> None:
    before = threading.enumerate()
    with tail_harness(threads=True, following=replace(FOLLOWED, tables=(FLOWS,))) as harness:
        harness.write(0, 0)
        request = threading.Event()

        def cut(table: TableName) -> TableCut:
            request.set()
            return harness.cut(0, 0, table=table)

        keeper = Keeper(harness.tails, tables=[FLOWS], pins=list, cut=cut)
        keeper.start()
        assert request.wait(30)
        keeper.stop()
        assert started("tails keep", before) == []


def test_limits_of_a_table_only_lower_the_servers() -> None:
    limits = TailLimits(max_rows=10, max_bytes=100, fetch_timeout_s=1)
    assert limits.of(Binding(topic="t", max_tail_rows=20, max_tail_bytes=50)) == TailLimits(
        10, 50, 1
    )
