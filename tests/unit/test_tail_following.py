"""Followed tails over the in-memory log, stepped by hand; on threads: ``test_tail_followers``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from planner.binding import Binding
from planner.errors import (
    LogUnavailable,
    OffsetsExpired,
    TailTooLarge,
    TopicRecreated,
    UndecodableRecord,
)
from planner.offsets import OffsetRange
from planner.schema import Column, TableSchema
from tests.doubles.log import MemoryRecord
from tests.harness.builders import FLOWS
from tests.harness.tails import (
    LIMITS,
    OTHER,
    SCHEMA,
    STEPPED,
    benched,
    offsets,
    places,
)


def test_after_the_first_statement_nothing_is_fetched_any_more() -> None:
    with benched() as bench:
        bench.write(0, *range(10))
        assert places(bench, bench.cut(0, 0)) == offsets((0, 10))
        for stop in range(11, 20):
            bench.write(0, stop)
            assert places(bench, bench.cut(0, 0)) == offsets((0, stop))
        assert bench.fetched == 1
        assert bench.decoded == 19


def test_what_is_followed_beyond_a_cut_is_not_in_its_answer() -> None:
    with benched() as bench:
        bench.write(0, 0)
        bench.read(bench.cut(0, 0))
        bench.write(0, 1)
        older = bench.cut(0, 0)
        bench.write(0, 2)
        bench.write(1, 0)
        bench.tails.step()
        assert places(bench, older) == offsets((0, 2))
        assert places(bench, bench.cut(0, 0)) == offsets((0, 3), (1, 1))


def test_markers_and_aborted_records_move_the_tail_on() -> None:
    with benched() as bench:
        bench.write(0, 0)
        bench.read(bench.cut(0, 0))
        transaction = bench.log.begin()
        transaction.append("flows", 0, MemoryRecord(b'{"n": 1}'))
        transaction.abort()
        assert places(bench, bench.cut(0, 0)) == offsets((0, 1))
        assert bench.state().ranges == (OffsetRange(0, 0, 3), OffsetRange(1, 0, 0))
        assert bench.fetched == 1


def test_a_partition_born_later_is_followed_too() -> None:
    with benched() as bench:
        bench.write(0, 0)
        bench.read(bench.cut(0, 0))
        bench.log.add_partitions("flows", 3)
        bench.write(2, 0)
        assert places(bench, bench.cut(0, 0)) == [(0, 0), (2, 0)]
        bench.write(2, 1)
        assert places(bench, bench.cut(0, 0)) == [(0, 0), (2, 0), (2, 1)]
        assert bench.fetched == 2


def test_what_a_statement_fetched_while_a_follower_decoded_it_is_not_added_twice() -> None:
    """A new partition makes the statement fetch, and what it lacks of the others with it."""
    meanwhile: list[Callable[[], None]] = []
    with benched(on_decode=lambda batch: meanwhile.pop()() if meanwhile else None) as bench:
        bench.write(0, 0)
        bench.read(bench.cut(0, 0))
        bench.write(0, 1, 2)
        bench.log.add_partitions("flows", 3)
        bench.write(2, 0)
        meanwhile.append(lambda: bench.read(bench.cut(0, 0)) and None)
        bench.tails.step()
        assert bench.fetched == 2
        assert places(bench, bench.cut(0, 0)) == [*offsets((0, 3)), (2, 0)]
        bench.write(0, 3)
        assert places(bench, bench.cut(0, 0)) == [*offsets((0, 4)), (2, 0)]


def test_a_topic_recreated_behind_a_batch_adds_nothing() -> None:
    with benched() as bench:
        bench.write(0, *range(5))
        bench.read(bench.cut(0, 0))
        bench.write(0, 5, 6)
        cut = bench.cut(0, 0)

        def recreate() -> None:
            bench.on_batch = lambda: None
            bench.log.delete_topic("flows")
            bench.log.create_topic("flows", 2)
            bench.write(0, *range(100, 110))

        bench.on_batch = recreate
        with pytest.raises(TopicRecreated):
            bench.read(cut)
        assert bench.state().ranges[0] == OffsetRange(0, 0, 5)
        assert [row[2] for row in bench.read(bench.cut(0, 0))] == list(range(100, 110))


def test_a_gap_met_while_following_is_an_error_until_a_pin_lies_above_it() -> None:
    with benched() as bench:
        bench.write(0, *range(5))
        bench.read(bench.cut(0, 0))
        bench.write(0, *range(5, 10))
        cut = bench.cut(0, 0)
        bench.log.delete_records("flows", 0, 8)
        with pytest.raises(OffsetsExpired):
            bench.read(cut)
        assert isinstance(bench.state().error, OffsetsExpired)
        assert places(bench, bench.cut(8, 0)) == [(0, 8), (0, 9)]
        bench.write(0, 10)
        assert places(bench, bench.cut(8, 0)) == [(0, 8), (0, 9), (0, 10)]
        assert bench.state().error is None


def test_rows_held_are_answered_although_the_log_lost_them_since() -> None:
    with benched() as bench:
        bench.write(0, *range(5))
        cut = bench.cut(0, 0)
        bench.read(cut)
        bench.log.delete_records("flows", 0, 5)
        assert places(bench, cut) == offsets((0, 5))


def test_a_poisoned_record_stops_its_table_at_that_record_only() -> None:
    with benched() as bench:
        bench.log.create_topic("other", 1)
        bench.write(0, 0)
        bench.write(0, 0, topic="other")
        other = bench.cut(0, table=OTHER, topic="other")
        bench.read(bench.cut(0, 0))
        bench.read(other)
        below = bench.cut(0, 0)
        bench.write(0, b"poison", 2)
        for _ in range(3):
            with pytest.raises(UndecodableRecord, match="partition 0, offset 1"):
                bench.read(bench.cut(0, 0))
        assert isinstance(bench.state().error, UndecodableRecord)
        assert bench.fetched == 2
        assert places(bench, below) == offsets((0, 1))
        bench.write(0, 1, topic="other")
        assert len(bench.read(bench.cut(0, table=OTHER, topic="other"))) == 2
        assert bench.state(OTHER).error is None


def test_a_watermark_above_the_poison_lets_the_table_go_on() -> None:
    with benched() as bench:
        bench.write(0, 0)
        bench.read(bench.cut(0, 0))
        bench.write(0, b"poison", 2)
        with pytest.raises(UndecodableRecord):
            bench.read(bench.cut(0, 0))
        assert places(bench, bench.cut(2, 0)) == [(0, 2)]
        bench.write(0, 3)
        assert places(bench, bench.cut(2, 0)) == [(0, 2), (0, 3)]


def test_bad_records_are_counted_and_named_by_offset() -> None:
    with benched(binding=Binding(topic="flows", on_error="skip")) as bench:
        bench.write(0, 0, b"[]", 2)
        bench.read(bench.cut(0, 0))
        bench.write(1, b"{", 1)
        bench.log.append("flows", 1, MemoryRecord(None))
        assert places(bench, bench.cut(0, 0)) == [(0, 0), (0, 2), (1, 1)]
        state = bench.state()
        assert (state.outcomes.rows, state.outcomes.skipped, state.outcomes.tombstones) == (
            3,
            2,
            1,
        )
        assert [(bad.partition, bad.offset) for bad in state.bad] == [(0, 1), (1, 0)]


def test_beyond_its_limit_a_tail_is_an_error_and_goes_on_when_tiering_has_made_room() -> None:
    limits = replace(LIMITS, max_rows=10)
    with benched(limits=limits) as bench:
        bench.write(0, *range(5))
        bench.read(bench.cut(0, 0))
        bench.write(0, *range(5, 15))
        for _ in range(2):
            with pytest.raises(TailTooLarge, match="max_tail_rows"):
                bench.read(bench.cut(0, 0))
        assert isinstance(bench.state().error, TailTooLarge)
        assert places(bench, bench.cut(12, 0)) == [(0, 12), (0, 13), (0, 14)]
        bench.write(0, 15)
        assert len(bench.read(bench.cut(12, 0))) == 4
        assert bench.state().error is None


def test_rows_stay_for_the_pins_still_in_use() -> None:
    with benched(following=replace(STEPPED, keep_s=10)) as bench:
        bench.write(0, *range(10))
        older = bench.cut(0, 0)
        bench.read(older)
        bench.now_s = 9
        assert bench.read(bench.cut(10, 0)) == []
        assert places(bench, older) == offsets((0, 10))
        assert bench.fetched == 1
        bench.now_s = 30
        bench.tails.note_pin(bench.pin(10, 0))
        assert bench.state().rows == 0


def test_what_could_not_be_freed_while_rows_were_added_is_freed_by_who_adds() -> None:
    with benched() as bench:
        bench.write(0, *range(10))
        bench.read(bench.cut(0, 0))
        (entry,) = bench.tails._entries.values()
        with entry.generation.writing:
            bench.tails.note_pin(bench.pin(10, 0))
        assert bench.state().rows == 10
        bench.tails.step()
        assert bench.state().rows == 0


def test_a_pin_that_no_statement_brought_frees_rows_as_well() -> None:
    with benched() as bench:
        bench.write(0, *range(10))
        bench.read(bench.cut(0, 0))
        bench.tails.note_pin(bench.pin(9, 0))
        assert bench.state().rows == 10
        bench.tails.note_pin(bench.pin(10, 0))
        assert bench.state().rows == 0


def test_an_idle_tail_is_dropped_unless_it_is_configured() -> None:
    following = replace(STEPPED, idle_s=60, tables=(OTHER,))
    with benched(following=following) as bench:
        bench.log.create_topic("other", 1)
        bench.write(0, 0)
        bench.read(bench.cut(0, 0))
        bench.read(bench.cut(0, table=OTHER, topic="other"))
        bench.now_s = 59
        bench.tails.tend()
        assert [state.table for state in bench.tails.states()] == [FLOWS, OTHER]
        bench.now_s = 61
        bench.tails.tend()
        assert [state.table for state in bench.tails.states()] == [OTHER]
        assert places(bench, bench.cut(0, 0)) == [(0, 0)]


def test_after_a_schema_change_the_old_schemas_tail_goes_soon() -> None:
    with benched(following=replace(STEPPED, keep_s=10)) as bench:
        bench.write(0, 0)
        bench.read(bench.cut(0, 0))
        wider = TableSchema(1, (*SCHEMA.columns, Column(5, "m", pa.string())))
        bench.now_s = 5
        bench.read(bench.cut(0, 0, columns=wider))
        bench.tails.tend()
        assert [state.schema_id for state in bench.tails.states()] == [0, 1]
        bench.now_s = 11
        bench.tails.tend()
        assert [state.schema_id for state in bench.tails.states()] == [1]


def test_not_more_tables_are_followed_than_allowed_and_the_others_are_fetched() -> None:
    with benched(following=replace(STEPPED, max_tables=1)) as bench:
        bench.log.create_topic("other", 1)
        for value in range(3):
            bench.write(0, value)
            bench.write(0, value, topic="other")
            assert len(bench.read(bench.cut(0, 0))) == value + 1
            cut = bench.cut(0, table=OTHER, topic="other")
            assert len(bench.read(cut)) == value + 1
        assert [state.is_followed for state in bench.tails.states()] == [True, False]
        assert bench.fetched == 1 + 3


def test_lag_is_what_statements_measured_and_the_tail_does_not_hold_yet() -> None:
    with benched() as bench:
        bench.write(0, 0)
        bench.read(bench.cut(0, 0))
        assert bench.state().lag == 0
        bench.write(0, *range(1, 4))
        bench.log.stop()
        with pytest.raises(LogUnavailable):
            bench.cut(0, 0)
        bench.log.start()
        cut = bench.cut(0, 0)
        bench.log.stop()
        with pytest.raises(LogUnavailable):
            bench.read(cut)
        assert bench.state().lag == 3
        bench.log.start()
        assert len(bench.read(cut)) == 4
        assert bench.state().lag == 0


def test_of_a_segment_ahead_of_the_cut_offsets_of_the_last_batches_only_are_compared() -> None:
    with benched() as bench:
        bench.write(0, *range(5))
        bench.read(bench.cut(0, 0))
        bench.write(0, 5)
        between = bench.cut(0, 0)
        bench.write(0, 6)
        bench.tails.step()
        with bench.tails.read(between, lambda: None) as tail:
            assert ["CASE" in part.sql for part in tail.relations] == [False, True]
            assert [row[1] for row in bench.rows(tail)] == list(range(6))


def test_a_full_segment_inside_the_cut_is_read_without_comparing_offsets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("proxy.tail.generations.SEGMENT_ROWS", 8)
    with benched() as bench:
        bench.write(0, *range(8))
        bench.read(bench.cut(0, 0))
        bench.write(0, 8)
        with bench.tails.read(bench.cut(0, 0), lambda: None) as tail:
            assert ["CASE" in part.sql for part in tail.relations] == [False, False]
            bench.write(0, 9)
            bench.tails.step()
            assert len(bench.rows(tail)) == 9
        with bench.tails.read(bench.cut(1, 0), lambda: None) as tail:
            assert ["CASE" in part.sql for part in tail.relations] == [True, False]
            assert len(bench.rows(tail)) == 9
