"""A tail that takes longer than a statement may wait: what has arrived stays, and the next statement gets it all."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from planner.errors import DeadlineExceeded, LogUnavailable, TailTooLarge
from planner.offsets import OffsetRange
from proxy.tail import followed_table
from proxy.tail.budget import TailLimits
from proxy.tail.followed_table import FollowSettings
from proxy.tail.housekeeping import Keeper
from proxy.tail.pacing import Pacing
from tests.harness.builders import FLOWS
from tests.harness.tails import LIMITS, offsets, places, tail_harness

ROWS = 70
PLACES = "kafka_partition, kafka_offset"
SOON_S = 30
#: One batch of the log is a step of its own.
SMALL_STEPS = Pacing(gather_s=0, max_ready_rows=1)


@pytest.fixture(autouse=True)
def _few_records_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_table, "FETCHED_RECORDS", 10)


def late_when(holds: Callable[[], bool]) -> Callable[[], None]:
    """A statement whose time is over as soon as that holds."""

    def check() -> None:
        if holds():
            raise DeadlineExceeded("the statement waited longer than 9 s.", timeout_s=9)

    return check


def test_many_records_are_followed_from_the_first_one_and_not_fetched() -> None:
    with tail_harness(threads=True) as harness:
        harness.write(0, *range(ROWS))
        harness.write(1, *range(3))
        assert places(harness, harness.cut(0, 0)) == offsets((0, ROWS), (1, 3))
        assert harness.fetched == 0
        assert harness.decoded == ROWS + 3


def test_few_records_are_fetched() -> None:
    with tail_harness(threads=True) as harness:
        harness.write(0, *range(9))
        assert places(harness, harness.cut(0, 0)) == offsets((0, 9))
        assert harness.fetched == 1


def test_a_tail_begins_at_the_watermark_and_in_partitions_it_does_not_know() -> None:
    with tail_harness(threads=True) as harness:
        harness.log.add_partitions("flows", 3)
        harness.write(0, *range(ROWS))
        harness.write(2, *range(ROWS))
        expected = [(0, offset) for offset in range(20, ROWS)]
        assert places(harness, harness.cut(20, 0)) == [*expected, *offsets((2, ROWS))]
        assert harness.fetched == 0


def test_a_statement_out_of_time_says_how_far_it_is_and_the_next_one_reads_on() -> None:
    going_on = threading.Event()
    decoded = 0

    def decode(batch: object) -> None:
        nonlocal decoded
        decoded += 1
        if decoded > 4:
            assert going_on.wait(SOON_S)

    with tail_harness(threads=True, on_decode=decode, pacing=SMALL_STEPS) as harness:
        harness.write(0, *range(ROWS))
        cut = harness.cut(0, 0)

        def arrived() -> int:
            states = harness.tails.states()
            return states[0].rows if states else 0

        def is_late() -> bool:
            harness.now_s += 0.001  # far from what a silent broker is given
            return arrived() >= 14

        with pytest.raises(DeadlineExceeded) as caught:
            harness.tails.read(cut, late_when(is_late))
        facts = caught.value.facts
        assert 14 <= int(str(facts["read"])) < ROWS
        assert caught.value.message == (
            f"lake.net.flows: the statement's time was over when {facts['read']} of the {ROWS} offsets of its tail were "
            f"read. Reading goes on, the rest takes about {facts['rest_s']} s: try again then."
        )
        assert facts["timeout_s"] == 9
        going_on.set()
        assert places(harness, cut) == offsets((0, ROWS))
        # What had arrived was not read again.
        assert (harness.decoded, harness.fetched) == (ROWS, 0)


def test_a_look_at_a_large_tail_is_answered_by_the_first_rows_of_it() -> None:
    going_on = threading.Event()
    decoded = 0

    def decode(batch: object) -> None:
        nonlocal decoded
        decoded += 1
        if decoded > 2:
            assert going_on.wait(SOON_S)

    with tail_harness(threads=True, on_decode=decode, pacing=SMALL_STEPS) as harness:
        harness.write(0, *range(ROWS))
        cut = harness.cut(0, 0)
        try:
            with harness.tails.read(cut, lambda: None, any_rows=5) as tail:
                rows = [row[:2] for row in harness.rows(tail)]
            assert 5 <= len(rows) < ROWS
            assert rows == offsets((0, len(rows)))
        finally:
            going_on.set()
        assert places(harness, cut) == offsets((0, ROWS))
        assert harness.fetched == 0


def test_a_statement_out_of_time_before_anything_came_says_what_it_always_said() -> None:
    going_on = threading.Event()
    with tail_harness(threads=True, on_decode=lambda batch: going_on.wait(SOON_S)) as harness:
        harness.write(0, *range(ROWS))
        try:
            with pytest.raises(DeadlineExceeded, match="longer than 9 s"):
                harness.tails.read(harness.cut(0, 0), late_when(lambda: True))
        finally:
            going_on.set()


def test_a_fetch_that_ran_out_of_time_is_followed_from_then_on() -> None:
    with tail_harness(threads=True) as harness:
        harness.write(0, *range(9))
        cut = harness.cut(0, 0)
        with pytest.raises(DeadlineExceeded) as caught:
            harness.tails.read(cut, late_when(lambda: True))
        assert caught.value.message == (
            "lake.net.flows: the statement's time was over before the 9 offsets that its tail lacked were read. "
            "They are read on: try again."
        )
        assert caught.value.facts["timeout_s"] == 9
        assert harness.state().is_followed
        fetched = harness.fetched
        assert places(harness, cut) == offsets((0, 9))
        assert harness.fetched == fetched


def test_a_small_part_of_a_large_tail_is_read_by_itself_and_the_rest_is_followed() -> None:
    going_on = threading.Event()
    with tail_harness(
        threads=True, on_decode=lambda batch: len(batch) < 9 or going_on.wait(SOON_S)
    ) as harness:
        harness.write(0, *range(ROWS))
        harness.write(1, *range(3))
        cut = harness.cut(0, 0)
        try:
            with harness.tails.read(cut, lambda: None, only=[OffsetRange(1, 0, 3)]) as tail:
                assert harness.rows(tail, PLACES) == offsets((1, 3))
            assert harness.state().is_followed
            assert harness.fetched == 1
        finally:
            going_on.set()
        assert places(harness, cut) == offsets((0, ROWS), (1, 3))
        assert harness.fetched == 1
        # It is there now, and nothing is read again.
        with harness.tails.read(cut, lambda: None, only=[OffsetRange(1, 0, 3)]) as tail:
            assert harness.rows(tail, PLACES) == offsets((1, 3))
        assert harness.fetched == 1


def test_a_part_of_a_small_tail_is_fetched_and_kept_for_who_needs_the_rest() -> None:
    with tail_harness(threads=True) as harness:
        harness.write(0, *range(4))
        harness.write(1, *range(3))
        cut = harness.cut(0, 0)
        with harness.tails.read(cut, lambda: None, only=[OffsetRange(1, 0, 3)]) as tail:
            assert harness.rows(tail, PLACES) == offsets((1, 3))
        with harness.tails.read(cut, lambda: None, only=[]) as tail:
            assert not tail.relations
        assert places(harness, cut) == offsets((0, 4), (1, 3))
        assert harness.decoded == 7


def test_a_large_tail_is_followed_after_a_statement_that_needed_none_of_it() -> None:
    with tail_harness(threads=True) as harness:
        harness.write(0, *range(ROWS))
        cut = harness.cut(0, 0)
        with harness.tails.read(cut, lambda: None, only=[]) as tail:
            assert not tail.relations
        assert places(harness, cut) == offsets((0, ROWS))
        assert harness.fetched == 0


def test_a_fetch_that_brokers_did_not_answer_is_followed_from_then_on() -> None:
    pacing = Pacing(gather_s=0, first_retry_s=0.001, longest_retry_s=0.001)
    with tail_harness(threads=True, pacing=pacing) as harness:
        harness.write(0, *range(5))
        cut = harness.cut(0, 0)
        harness.log.stop()
        with pytest.raises(LogUnavailable):
            harness.read(cut)
        assert harness.state().is_followed
        harness.log.start()
        assert places(harness, cut) == offsets((0, 5))


def test_a_table_that_is_always_followed_is_read_once_all_of_it_is() -> None:
    going_on = threading.Event()
    with tail_harness(
        threads=True, on_decode=lambda batch: going_on.wait(SOON_S), pacing=SMALL_STEPS
    ) as harness:
        harness.write(0, *range(ROWS))
        with pytest.raises(DeadlineExceeded):
            harness.tails.read(harness.cut(0, 0), late_when(lambda: True))
        assert harness.state().is_followed
        keeper = Keeper(
            harness.tails, tables=[FLOWS], pins=list, cut=lambda _: harness.cut(0, 0)
        )
        reading = threading.Thread(target=keeper.follow)
        reading.start()
        assert not keeper.has_read_all()
        going_on.set()
        reading.join(SOON_S)
        assert keeper.has_read_all()
        assert harness.state().rows == ROWS


def test_where_no_more_tables_may_be_followed_a_statement_fetches() -> None:
    with tail_harness(threads=True, following=FollowSettings(max_tables=0)) as harness:
        harness.write(0, *range(ROWS))
        assert places(harness, harness.cut(0, 0)) == offsets((0, ROWS))
        assert harness.fetched == 1


def test_a_tail_beyond_its_budget_is_refused_by_name() -> None:
    limits = TailLimits(50, LIMITS.max_bytes, LIMITS.fetch_timeout_s)
    with tail_harness(threads=True, limits=limits, pacing=SMALL_STEPS) as harness:
        harness.write(0, *range(ROWS))
        with pytest.raises(TailTooLarge):
            harness.read(harness.cut(0, 0))
        # Tiering moves on: then it fits.
        assert places(harness, harness.cut(ROWS - 5, 0)) == [
            (0, ROWS - 5 + number) for number in range(5)
        ]
