"""Followed tails over the in-memory log, stepped by hand; on threads: ``test_tail_followers``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from planner.errors import (
    LogUnavailable,
    OffsetsExpired,
    TailTooLarge,
    TopicRecreated,
    UndecodableRecord,
)
from planner.offsets import OffsetRange
from planner.schema import Column, TableSchema
from planner.seam.binding import Binding
from tests.doubles.log import MemoryRecord
from tests.harness.builders import FLOWS
from tests.harness.tails import (
    FOLLOWED,
    LIMITS,
    OTHER,
    SCHEMA,
    offsets,
    places,
    tail_harness,
)


def test_after_the_first_statement_nothing_is_fetched_any_more() -> None:
    with tail_harness() as harness:
        harness.write(0, *range(10))
        assert places(harness, harness.cut(0, 0)) == offsets((0, 10))
        for stop in range(11, 20):
            harness.write(0, stop)
            assert places(harness, harness.cut(0, 0)) == offsets((0, stop))
        assert harness.fetched == 1
        assert harness.decoded == 19


def test_what_is_followed_beyond_a_cut_is_not_in_its_answer() -> None:
    with tail_harness() as harness:
        harness.write(0, 0)
        harness.read(harness.cut(0, 0))
        harness.write(0, 1)
        older = harness.cut(0, 0)
        harness.write(0, 2)
        harness.write(1, 0)
        harness.followers.step()
        assert places(harness, older) == offsets((0, 2))
        assert places(harness, harness.cut(0, 0)) == offsets((0, 3), (1, 1))


def test_a_look_takes_the_rows_that_are_there() -> None:
    with tail_harness() as harness:
        harness.write(0, *range(10))
        harness.read(harness.cut(0, 0))
        harness.write(0, 10)
        harness.write(1, 0)
        cut = harness.cut(0, 0)
        with harness.tails.read(cut, lambda: None, any_rows=10) as tail:
            assert [row[:2] for row in harness.rows(tail)] == offsets((0, 10))
        assert harness.decoded == 10
        with harness.tails.read(cut, lambda: None, any_rows=11) as tail:
            assert [row[:2] for row in harness.rows(tail)] == offsets((0, 11), (1, 1))
        assert harness.decoded == 12


def test_a_look_takes_no_row_that_its_cut_has_not() -> None:
    with tail_harness() as harness:
        harness.write(0, *range(10))
        older = harness.cut(0, 0)
        harness.read(older)
        harness.write(0, *range(10, 20))
        harness.read(harness.cut(0, 0))
        harness.write(1, 0)
        tiered = harness.cut(15, 0)
        for cut, expected in (
            (older, offsets((0, 10))),
            (tiered, offsets((0, 20), (1, 1))[15:]),
        ):
            with harness.tails.read(cut, lambda: None, any_rows=3) as tail:
                assert [row[:2] for row in harness.rows(tail)] == expected


def test_markers_and_aborted_records_move_the_tail_on() -> None:
    with tail_harness() as harness:
        harness.write(0, 0)
        harness.read(harness.cut(0, 0))
        transaction = harness.log.begin()
        transaction.append("flows", 0, MemoryRecord(b'{"n": 1}'))
        transaction.abort()
        assert places(harness, harness.cut(0, 0)) == offsets((0, 1))
        assert harness.state().ranges == (OffsetRange(0, 0, 3), OffsetRange(1, 0, 0))
        assert harness.fetched == 1


def test_a_partition_born_later_is_followed_too() -> None:
    with tail_harness() as harness:
        harness.write(0, 0)
        harness.read(harness.cut(0, 0))
        harness.log.add_partitions("flows", 3)
        harness.write(2, 0)
        assert places(harness, harness.cut(0, 0)) == [(0, 0), (2, 0)]
        harness.write(2, 1)
        assert places(harness, harness.cut(0, 0)) == [(0, 0), (2, 0), (2, 1)]
        assert harness.fetched == 2


def test_what_a_statement_fetched_while_a_follower_decoded_it_is_not_added_twice() -> None:
    """A new partition makes the statement fetch, and what it lacks of the others with it."""
    meanwhile: list[Callable[[], object]] = []
    with tail_harness(
        on_decode=lambda batch: meanwhile.pop()() if meanwhile else None
    ) as harness:
        harness.write(0, 0)
        harness.read(harness.cut(0, 0))
        harness.write(0, 1, 2)
        harness.log.add_partitions("flows", 3)
        harness.write(2, 0)
        meanwhile.append(lambda: harness.read(harness.cut(0, 0)))
        harness.followers.step()
        assert harness.fetched == 2
        assert places(harness, harness.cut(0, 0)) == [*offsets((0, 3)), (2, 0)]
        harness.write(0, 3)
        assert places(harness, harness.cut(0, 0)) == [*offsets((0, 4)), (2, 0)]


def test_a_topic_recreated_behind_a_batch_adds_nothing() -> None:
    with tail_harness() as harness:
        harness.write(0, *range(5))
        harness.read(harness.cut(0, 0))
        harness.write(0, 5, 6)
        cut = harness.cut(0, 0)

        def recreate() -> None:
            harness.on_batch = lambda: None
            harness.log.delete_topic("flows")
            harness.log.create_topic("flows", 2)
            harness.write(0, *range(100, 110))

        harness.on_batch = recreate
        with pytest.raises(TopicRecreated):
            harness.read(cut)
        assert harness.state().ranges[0] == OffsetRange(0, 0, 5)
        assert [row[2] for row in harness.read(harness.cut(0, 0))] == list(range(100, 110))


def test_a_gap_met_while_following_is_an_error_until_a_pin_lies_above_it() -> None:
    with tail_harness() as harness:
        harness.write(0, *range(5))
        harness.read(harness.cut(0, 0))
        harness.write(0, *range(5, 10))
        cut = harness.cut(0, 0)
        harness.log.delete_records("flows", 0, 8)
        with pytest.raises(OffsetsExpired):
            harness.read(cut)
        assert isinstance(harness.state().error, OffsetsExpired)
        assert places(harness, harness.cut(8, 0)) == [(0, 8), (0, 9)]
        harness.write(0, 10)
        assert places(harness, harness.cut(8, 0)) == [(0, 8), (0, 9), (0, 10)]
        assert harness.state().error is None


def test_rows_held_are_answered_although_the_log_lost_them_since() -> None:
    with tail_harness() as harness:
        harness.write(0, *range(5))
        cut = harness.cut(0, 0)
        harness.read(cut)
        harness.log.delete_records("flows", 0, 5)
        assert places(harness, cut) == offsets((0, 5))


def test_a_poisoned_record_stops_its_table_at_that_record_only() -> None:
    with tail_harness() as harness:
        harness.log.create_topic("other", 1)
        harness.write(0, 0)
        harness.write(0, 0, topic="other")
        other = harness.cut(0, table=OTHER, topic="other")
        harness.read(harness.cut(0, 0))
        harness.read(other)
        below = harness.cut(0, 0)
        harness.write(0, b"poison", 2)
        for _ in range(3):
            with pytest.raises(UndecodableRecord, match="partition 0, offset 1"):
                harness.read(harness.cut(0, 0))
        assert isinstance(harness.state().error, UndecodableRecord)
        assert harness.fetched == 2
        assert places(harness, below) == offsets((0, 1))
        harness.write(0, 1, topic="other")
        assert len(harness.read(harness.cut(0, table=OTHER, topic="other"))) == 2
        assert harness.state(OTHER).error is None


def test_a_watermark_above_the_poison_lets_the_table_go_on() -> None:
    with tail_harness() as harness:
        harness.write(0, 0)
        harness.read(harness.cut(0, 0))
        harness.write(0, b"poison", 2)
        with pytest.raises(UndecodableRecord):
            harness.read(harness.cut(0, 0))
        assert places(harness, harness.cut(2, 0)) == [(0, 2)]
        harness.write(0, 3)
        assert places(harness, harness.cut(2, 0)) == [(0, 2), (0, 3)]


def test_bad_records_are_counted() -> None:
    with tail_harness(binding=Binding(topic="flows", on_error="skip")) as harness:
        harness.write(0, 0, b"[]", 2)
        harness.read(harness.cut(0, 0))
        harness.write(1, b"{", 1)
        harness.log.append("flows", 1, MemoryRecord(None))
        assert places(harness, harness.cut(0, 0)) == [(0, 0), (0, 2), (1, 1)]
        state = harness.state()
        assert (state.outcomes.rows, state.outcomes.skipped, state.outcomes.tombstones) == (
            3,
            2,
            1,
        )


def test_beyond_its_limit_a_tail_is_an_error_and_goes_on_when_tiering_has_made_room() -> None:
    limits = replace(LIMITS, max_rows=10)
    with tail_harness(limits=limits) as harness:
        harness.write(0, *range(5))
        harness.read(harness.cut(0, 0))
        harness.write(0, *range(5, 15))
        for _ in range(2):
            with pytest.raises(TailTooLarge, match="max_tail_rows"):
                harness.read(harness.cut(0, 0))
        assert isinstance(harness.state().error, TailTooLarge)
        assert places(harness, harness.cut(12, 0)) == [(0, 12), (0, 13), (0, 14)]
        harness.write(0, 15)
        assert len(harness.read(harness.cut(12, 0))) == 4
        assert harness.state().error is None


def test_rows_stay_for_the_pins_still_in_use() -> None:
    with tail_harness(following=replace(FOLLOWED, keep_s=10)) as harness:
        harness.write(0, *range(10))
        older = harness.cut(0, 0)
        harness.read(older)
        harness.now_s = 9
        assert harness.read(harness.cut(10, 0)) == []
        assert places(harness, older) == offsets((0, 10))
        assert harness.fetched == 1
        harness.now_s = 30
        harness.tails.note_pin(harness.pin(10, 0))
        assert harness.state().rows == 0


def test_what_could_not_be_freed_while_rows_were_added_is_freed_by_who_adds() -> None:
    with tail_harness() as harness:
        harness.write(0, *range(10))
        harness.read(harness.cut(0, 0))
        (entry,) = harness.tails._entries.values()
        with entry.generation.writing:
            harness.tails.note_pin(harness.pin(10, 0))
        assert harness.state().rows == 10
        harness.followers.step()
        assert harness.state().rows == 0


def test_a_pin_that_no_statement_brought_frees_rows_as_well() -> None:
    with tail_harness() as harness:
        harness.write(0, *range(10))
        harness.read(harness.cut(0, 0))
        harness.tails.note_pin(harness.pin(9, 0))
        assert harness.state().rows == 10
        harness.tails.note_pin(harness.pin(10, 0))
        assert harness.state().rows == 0


def test_an_idle_tail_is_dropped_unless_it_is_configured() -> None:
    following = replace(FOLLOWED, idle_s=60, tables=(OTHER,))
    with tail_harness(following=following) as harness:
        harness.log.create_topic("other", 1)
        harness.write(0, 0)
        harness.read(harness.cut(0, 0))
        harness.read(harness.cut(0, table=OTHER, topic="other"))
        harness.now_s = 59
        harness.tails.tend()
        assert [state.table for state in harness.tails.states()] == [FLOWS, OTHER]
        harness.now_s = 61
        harness.tails.tend()
        assert [state.table for state in harness.tails.states()] == [OTHER]
        assert places(harness, harness.cut(0, 0)) == [(0, 0)]


def test_after_a_schema_change_the_old_schemas_tail_goes_soon() -> None:
    with tail_harness(following=replace(FOLLOWED, keep_s=10)) as harness:
        harness.write(0, 0)
        harness.read(harness.cut(0, 0))
        wider = TableSchema(1, (*SCHEMA.columns, Column(5, "m", pa.string())))
        harness.now_s = 5
        harness.read(harness.cut(0, 0, columns=wider))
        harness.tails.tend()
        assert [state.schema_id for state in harness.tails.states()] == [0, 1]
        harness.now_s = 11
        harness.tails.tend()
        assert [state.schema_id for state in harness.tails.states()] == [1]


def test_not_more_tables_are_followed_than_allowed_and_the_others_are_fetched() -> None:
    with tail_harness(following=replace(FOLLOWED, max_tables=1)) as harness:
        harness.log.create_topic("other", 1)
        for value in range(3):
            harness.write(0, value)
            harness.write(0, value, topic="other")
            assert len(harness.read(harness.cut(0, 0))) == value + 1
            cut = harness.cut(0, table=OTHER, topic="other")
            assert len(harness.read(cut)) == value + 1
        assert [state.is_followed for state in harness.tails.states()] == [True, False]
        assert harness.fetched == 1 + 3


def test_lag_is_what_statements_measured_and_the_tail_does_not_hold_yet() -> None:
    with tail_harness() as harness:
        harness.write(0, 0)
        harness.read(harness.cut(0, 0))
        assert harness.state().lag == 0
        harness.write(0, *range(1, 4))
        harness.log.stop()
        with pytest.raises(LogUnavailable):
            harness.cut(0, 0)
        harness.log.start()
        cut = harness.cut(0, 0)
        harness.log.stop()
        with pytest.raises(LogUnavailable):
            harness.read(cut)
        assert harness.state().lag == 3
        harness.log.start()
        assert len(harness.read(cut)) == 4
        assert harness.state().lag == 0


def test_of_a_segment_ahead_of_the_cut_offsets_of_the_last_batches_only_are_compared() -> None:
    with tail_harness() as harness:
        harness.write(0, *range(5))
        harness.read(harness.cut(0, 0))
        harness.write(0, 5)
        between = harness.cut(0, 0)
        harness.write(0, 6)
        harness.followers.step()
        with harness.tails.read(between, lambda: None) as tail:
            assert ["CASE" in part.sql for part in tail.relations] == [False, True]
            assert [row[1] for row in harness.rows(tail)] == list(range(6))


def test_a_full_segment_inside_the_cut_is_read_without_comparing_offsets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("proxy.tail.generations.SEGMENT_ROWS", 8)
    with tail_harness() as harness:
        harness.write(0, *range(8))
        harness.read(harness.cut(0, 0))
        harness.write(0, 8)
        with harness.tails.read(harness.cut(0, 0), lambda: None) as tail:
            assert ["CASE" in part.sql for part in tail.relations] == [False, False]
            harness.write(0, 9)
            harness.followers.step()
            assert len(harness.rows(tail)) == 9
        with harness.tails.read(harness.cut(1, 0), lambda: None) as tail:
            assert ["CASE" in part.sql for part in tail.relations] == [True, False]
            assert len(harness.rows(tail)) == 9
