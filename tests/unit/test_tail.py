"""Tails over the in-memory log: a record is decoded once, never twice in an answer, within the limits."""

from __future__ import annotations

import random
import threading

import pyarrow as pa
import pytest

from planner.errors import Cancelled, OffsetsExpired, TailTooLarge, UndecodableRecord
from planner.schema import Column, TableSchema
from planner.seam.binding import Binding
from planner.seam.cut import TableCut
from proxy.tail.budget import TailLimits
from tests.doubles.log import MemoryRecord
from tests.harness.tails import LIMITS, SCHEMA, TailHarness


def test_a_record_is_decoded_once_however_many_statements_read_it() -> None:
    harness = TailHarness()
    harness.write(0, 10, 11)
    assert harness.read(harness.cut(0, 0)) == [(0, 0, 10), (0, 1, 11)]
    harness.write(0, 12)
    harness.write(1, 20)
    for _ in range(3):
        assert harness.read(harness.cut(0, 0)) == [
            (0, 0, 10),
            (0, 1, 11),
            (0, 2, 12),
            (1, 0, 20),
        ]
    assert harness.decoded == 4


def test_rows_below_the_watermark_leave_the_answer_and_then_the_memory() -> None:
    harness = TailHarness()
    harness.write(0, *range(20))
    harness.read(harness.cut(0, 0))
    assert harness.read(harness.cut(15, 0)) == [(0, offset, offset) for offset in range(15, 20)]
    harness.write(0, 20)
    assert harness.read(harness.cut(20, 0)) == [(0, 20, 20)]
    assert harness.read(harness.cut(21, 0)) == []
    assert harness.segments() == 0


def test_a_statement_keeps_its_rows_while_tiering_takes_them_over() -> None:
    harness = TailHarness()
    harness.write(0, *range(10))
    with harness.tails.read(harness.cut(2, 0), lambda: None) as tail:
        harness.write(0, 10)
        assert harness.read(harness.cut(11, 0)) == []
        assert harness.segments() == 1
        assert harness.rows(tail) == [(0, offset, offset) for offset in range(2, 10)]
    assert harness.segments() == 0


def test_room_made_for_new_rows_never_takes_those_of_a_statement_under_way() -> None:
    harness = TailHarness(
        limits=TailLimits(max_rows=12, max_bytes=10_000_000, fetch_timeout_s=5)
    )
    harness.write(0, *range(10))
    with harness.tails.read(harness.cut(0, 0), lambda: None) as tail:
        harness.write(0, 10, 11, 12)
        with pytest.raises(TailTooLarge):
            harness.read(harness.cut(9, 0))
        assert len(harness.rows(tail)) == 10
    assert harness.read(harness.cut(9, 0)) == [(0, offset, offset) for offset in range(9, 13)]


def test_an_older_cut_is_still_answered_and_disturbs_nobody() -> None:
    harness = TailHarness()
    harness.write(0, *range(10))
    older = harness.cut(2, 0)
    harness.read(harness.cut(5, 0))
    harness.write(0, 10)
    assert harness.read(older) == [(0, offset, offset) for offset in range(2, 10)]
    assert harness.read(harness.cut(5, 0)) == [(0, offset, offset) for offset in range(5, 11)]


def test_random_cuts_of_a_growing_log_are_always_exact() -> None:
    rng = random.Random(7)
    harness = TailHarness()
    written: list[list[int]] = [[], []]
    marks = [0, 0]
    cuts: list[tuple[TableCut, list[tuple[int, int, int]]]] = []
    for step in range(100):
        partition = rng.randrange(2)
        values = [rng.randrange(1000) for _ in range(rng.randrange(9))]
        harness.write(partition, *values)
        written[partition].extend(values)
        if step % 3 == 0:
            marks[partition] += rng.randrange(len(written[partition]) - marks[partition] + 1)
        expected = [
            (number, offset, items[offset])
            for number, items in enumerate(written)
            for offset in range(marks[number], len(items))
        ]
        cuts.append((harness.cut(*marks), expected))
        for cut, answer in rng.sample(cuts[-12:], min(3, len(cuts))):
            assert harness.read(cut) == answer


def test_another_schema_is_another_generation() -> None:
    harness = TailHarness()
    harness.write(0, 1)
    harness.read(harness.cut(0, 0))
    wider = TableSchema(1, (*SCHEMA.columns, Column(5, "m", pa.string())))
    with harness.tails.read(harness.cut(0, 0, columns=wider), lambda: None) as tail:
        assert harness.rows(tail, "n, m") == [(1, None)]


@pytest.mark.parametrize(
    ("limits", "binding", "name"),
    [
        (TailLimits(5, 10_000_000, 5), None, "max_tail_rows"),
        (TailLimits(10_000, 100, 5), None, "max_tail_bytes"),
        (LIMITS, Binding(topic="flows", max_tail_rows=5), "max_tail_rows"),
        (LIMITS, Binding(topic="flows", max_tail_bytes=100), "max_tail_bytes"),
    ],
)
def test_a_tail_beyond_its_limit_is_a_named_error(
    limits: TailLimits, binding: Binding | None, name: str
) -> None:
    harness = TailHarness(limits=limits, binding=binding)
    harness.write(0, *range(5 if name == "max_tail_rows" else 2))
    harness.read(harness.cut(0, 0))
    harness.write(1, *range(20))
    with pytest.raises(TailTooLarge, match=rf"lake\.net\.flows: .* more than \d+ \({name}\)"):
        harness.read(harness.cut(0, 0))


def test_a_statement_that_is_not_wanted_any_more_stops_and_leaves_no_gap() -> None:
    harness = TailHarness()
    harness.write(0, *range(20))
    cut = harness.cut(0, 0)

    def cancelled() -> None:
        raise Cancelled("no longer wanted")

    with pytest.raises(Cancelled):
        harness.tails.read(cut, cancelled)
    assert harness.read(cut) == [(0, offset, offset) for offset in range(20)]


def test_a_failed_fetch_keeps_nothing_of_itself() -> None:
    harness = TailHarness()
    harness.write(0, *range(20))
    harness.log.append("flows", 0, MemoryRecord(b"broken"))
    with pytest.raises(UndecodableRecord):
        harness.read(harness.cut(0, 0))
    cut = harness.cut(0, 0)
    harness.log.delete_records("flows", 0, 21)
    with pytest.raises(OffsetsExpired):
        harness.read(cut)
    harness.write(0, 1)
    assert harness.read(harness.cut(21, 0)) == [(0, 21, 1)]


def test_segments_are_freed_one_by_one_and_shared_by_many_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("proxy.tail.generations.SEGMENT_ROWS", 10)
    harness = TailHarness()
    for value in range(100):
        harness.write(value % 2, value)
        assert len(harness.read(harness.cut(0, 0))) == value + 1
    assert harness.segments() == 7  # of 10, 10, 10, then a third of what there is
    assert len(harness.read(harness.cut(25, 26))) == 49
    assert harness.segments() == 3
    assert harness.decoded == 100


def test_the_least_recently_used_generation_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.tail.tails.MAX_GENERATIONS", 2)
    harness = TailHarness()
    harness.write(0, 1)
    for schema_id in range(5):
        columns = TableSchema(schema_id, SCHEMA.columns)
        assert harness.read(harness.cut(0, 0, columns=columns)) == [(0, 0, 1)]
    assert harness.segments() == 2


def test_readers_on_many_threads_share_one_decode() -> None:
    harness = TailHarness()
    harness.write(0, *range(500))
    cut = harness.cut(0, 0)
    answers: list[int] = []
    threads = [
        threading.Thread(target=lambda: answers.append(len(harness.read(cut))))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [500] * 8
    assert harness.decoded == 500


@pytest.mark.parametrize("leased", [False, True])
def test_trimming_leaves_no_hole_for_an_older_cut(
    monkeypatch: pytest.MonkeyPatch, leased: bool
) -> None:
    """An emptied range, or an untrimmed segment before a trimmed one, would vouch for deleted rows."""
    monkeypatch.setattr("proxy.tail.generations.SEGMENT_ROWS", 8)
    harness = TailHarness(limits=TailLimits(10_000, 1_000, 5))
    harness.write(0, *range(10))
    harness.write(1, *range(5))
    running = harness.tails.read(harness.cut(0, 0), lambda: None)
    if not leased:
        running.close()
    harness.write(0, *range(10, 20))
    between = harness.cut(12, 0)
    harness.read(harness.cut(0, 0))
    harness.write(0, *range(20, 25))
    newest = harness.cut(15, 0)
    ones = [(1, offset, offset) for offset in range(5)]
    for _ in range(2):
        assert harness.read(newest) == [(0, at, at) for at in range(15, 25)] + ones
        assert harness.read(between) == [(0, at, at) for at in range(12, 20)] + ones
    running.close()
    assert harness.read(harness.cut(25, 5)) == []


def test_a_fetch_that_failed_leaves_no_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.tail.generations.SEGMENT_ROWS", 8)
    harness = TailHarness(limits=TailLimits(30, 10_000_000, 5))
    harness.write(0, *range(10))
    harness.read(harness.cut(0, 0))
    harness.log.append("flows", 1, MemoryRecord(b"broken"))
    for _ in range(2):
        with pytest.raises(UndecodableRecord):
            harness.read(harness.cut(0, 0))
    harness.write(0, *range(10, 30))
    with pytest.raises(UndecodableRecord):
        harness.read(harness.cut(5, 0))
    tables = harness.engine.execute("SELECT table_name FROM duckdb_tables()").fetchall()
    assert len(tables) == 1
