"""Packed in between anything: what a generation answers stays what its ranges stand for."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Sequence

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import LimitExceeded
from planner.offsets import OffsetRange
from proxy.engine.segments import Segments
from proxy.tail.budget import Packing
from proxy.tail.generations import Generation
from proxy.tail.segment import LeasedTail

SCHEMA = pa.schema(
    [("kafka_partition", pa.int32()), ("kafka_offset", pa.int64()), ("v", pa.string())]
)
FULL = 20
Rows = list[tuple[int, int]]


@pytest.fixture(autouse=True)
def _small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.tail.generations.SEGMENT_ROWS", FULL)


class Interrupted(Segments):
    """Segments that do something in the midst of packing: after the rows were copied, before the copy is used."""

    during: Callable[[], None] = staticmethod(lambda: None)

    def pack(self, names: Sequence[str]) -> str:
        packed = super().pack(names)
        during, self.during = self.during, lambda: None
        during()
        return packed


class Mark:
    """A watermark of two partitions."""

    def __init__(self, *offsets: int) -> None:
        self._offsets = offsets

    def offset(self, partition: int) -> int:
        return self._offsets[partition]


class LeasedSegment:
    """A generation of two partitions over an engine of its own."""

    def __init__(self, **config: str | bool | int | float | list[str]) -> None:
        self.engine = duckdb.connect(config=config)
        self.segments = Interrupted(self.engine)
        self.generation = Generation("lake.net.flows", SCHEMA, self.segments)
        self.stops = [0, 0]

    def add(self, *counts: int, text: Callable[[], str] = lambda: "same") -> None:
        ranges, batches = [], []
        for partition, count in enumerate(counts):
            if count:
                start, stop = self.stops[partition], self.stops[partition] + count
                ranges.append(OffsetRange(partition, start, stop))
                columns = [
                    [partition] * count,
                    range(start, stop),
                    [text() for _ in range(count)],
                ]
                batches.append(pa.record_batch(list(map(list, columns)), schema=SCHEMA))
                self.stops[partition] = stop
        with self.generation.writing:
            self.generation.add(ranges, batches)

    def leased(self, *expected: OffsetRange) -> LeasedTail:
        tail = self.generation.acquire(expected)
        assert tail is not None
        return tail

    def rows(self, tail: LeasedTail) -> Rows:
        sql = " UNION ALL ".join(part.sql for part in tail.relations)
        if not sql:
            return []
        places = f"SELECT kafka_partition, kafka_offset FROM ({sql})"
        return sorted(self.engine.cursor().execute(places).fetchall())

    def all_rows(self) -> Rows:
        with self.leased(*self.generation.ranges()) as tail:
            return self.rows(tail)

    def databases(self) -> list[str]:
        listed = "SELECT database_name FROM duckdb_databases() WHERE NOT internal ORDER BY ALL"
        return [name for (name,) in self.engine.cursor().execute(listed).fetchall()]

    def tables(self) -> int:
        return len(self.engine.cursor().execute("SELECT 1 FROM duckdb_tables()").fetchall())


def expected(*ranges: OffsetRange) -> Rows:
    return [(item.partition, at) for item in ranges for at in range(item.start, item.stop)]


def test_neighbours_become_one_that_is_read_whole_or_in_part_and_dropped_with_its_rows() -> (
    None
):
    value = LeasedSegment()
    for _ in range(32):
        value.add(15, 10)
    assert value.tables() > 8
    packed = 0
    while value.generation.pack():
        packed += 1
    assert 1 < packed < 16
    assert value.tables() < 16
    assert value.generation.packed_size > value.generation.size // 2
    assert value.all_rows() == expected(OffsetRange(0, 0, 480), OffsetRange(1, 0, 320))
    part = (OffsetRange(0, 33, 277), OffsetRange(1, 5, 6))
    with value.leased(*part) as tail:
        assert value.rows(tail) == expected(*part)
    with value.generation.writing:
        value.generation.forget(Mark(480, 320))
    assert value.tables() == 0
    assert value.databases() == ["memory"]


def test_a_statement_reads_on_what_is_packed_under_it() -> None:
    value = LeasedSegment()
    value.add(25)
    value.add(3)
    with value.leased(OffsetRange(0, 0, 27)) as tail:
        assert value.generation.pack()
        assert not value.generation.pack()
        assert value.rows(tail) == expected(OffsetRange(0, 0, 27))
        assert value.tables() == 3
    assert value.tables() == 2
    with value.leased(OffsetRange(0, 0, 27)) as tail:
        value.generation.clear()
        assert value.rows(tail) == expected(OffsetRange(0, 0, 27))
    assert value.databases() == ["memory"]


@pytest.mark.parametrize("change", ["forget", "trim", "clear"])
def test_what_happens_to_segments_while_they_are_packed_counts(change: str) -> None:
    value = LeasedSegment()
    for _ in range(3):
        value.add(25)

    def meanwhile() -> None:
        with value.generation.writing:
            if change == "clear":
                value.generation.clear()
            elif change == "forget":
                value.generation.forget(Mark(30, 0))
            else:
                value.generation.trim(Mark(30, 0))

    value.segments.during = meanwhile
    assert value.generation.pack()
    assert value.databases() == ["memory"]
    assert value.generation.packed_size == 0
    assert value.all_rows() == expected(*value.generation.ranges())
    assert value.generation.rows == len(value.all_rows())
    while value.generation.pack():
        pass
    assert value.all_rows() == expected(*value.generation.ranges())


def test_dropping_and_adding_do_not_wait_for_what_is_being_packed() -> None:
    value = LeasedSegment()
    value.add(25)
    value.add(25)
    done = threading.Event()

    def meanwhile() -> None:
        def others() -> None:
            value.add(5)
            with value.generation.writing:
                value.generation.forget(Mark(25, 0))
            done.set()

        thread = threading.Thread(target=others, daemon=True)
        thread.start()
        assert done.wait(60)

    value.segments.during = meanwhile
    assert value.generation.pack()
    assert done.is_set()
    assert value.all_rows() == expected(OffsetRange(0, 25, 55))


def test_out_of_memory_leaves_the_segments_as_they_were() -> None:
    value = LeasedSegment(memory_limit="24MB", threads="1", temp_directory="")
    value.add(150_000, text=lambda: uuid.uuid4().hex)
    before, now_s = value.all_rows(), 0.0
    with pytest.raises(LimitExceeded):
        value.generation.pack()
    assert value.databases() == ["memory"]
    assert value.all_rows() == before
    packing = Packing(lambda: now_s, 0)
    for _ in range(3):
        packing.work([value.generation])
    assert value.generation.packed_size == 0
    assert value.all_rows() == before


def test_packing_waits_until_little_arrives_and_then_closes_the_last_segment() -> None:
    value, now_s = LeasedSegment(), 0.0
    packing = Packing(lambda: now_s, 0)
    value.add(FULL * 2)
    value.add(1)
    packing.work([value.generation])
    assert value.generation.packed_size == 0, "at the first look nobody knows what arrives"
    now_s = 1.0
    value.add(30_000)
    packing.work([value.generation])
    assert value.generation.packed_size == 0, "rows arrive fast"
    now_s = 2.0
    with value.generation.writing:
        packing.work([value.generation])
    assert value.generation.packed_size == 0, "rows are being added"
    value.add(FULL // 2)
    now_s = 3.0
    packing.work([value.generation])
    assert value.generation.packed_size > 0
    value.add(FULL)
    now_s = 4.0
    packing.work([value.generation])
    assert value.generation.packed_size < value.generation.size, "it would be packed again soon"
    value.add(6_000)
    now_s = 5.0
    packing.work([value.generation])
    assert value.generation.packed_size == value.generation.size
    packing.stop()
    value.add(6_000)
    now_s = 6.0
    packing.work([value.generation])
    assert value.generation.packed_size < value.generation.size


MOVES = st.lists(
    st.tuples(
        st.sampled_from(
            ["add", "add", "add", "pack", "pack", "forget", "trim", "lease", "clear"]
        ),
        st.integers(0, 40),
        st.integers(0, 40),
        st.sampled_from([None, None, "add", "forget", "trim", "lease", "clear"]),
    ),
    min_size=4,
    max_size=16,
)


@given(moves=MOVES)
@settings(max_examples=25, deadline=None)
def test_whatever_is_packed_in_between_each_answer_is_what_the_ranges_stand_for(
    moves: list[tuple[str, int, int, str | None]],
) -> None:
    value = LeasedSegment()
    open_tails: list[tuple[LeasedTail, Rows]] = []
    with contextlib.closing(value.engine):
        for move, first, second, meanwhile in moves:
            if move == "pack":
                value.segments.during = lambda: None
                if meanwhile is not None:
                    value.segments.during = _moving(value, open_tails, meanwhile, first, second)
                value.generation.pack()
            else:
                _moving(value, open_tails, move, first, second)()
            ranges = value.generation.ranges()
            assert value.all_rows() == expected(*ranges)
            middle = [OffsetRange(r.partition, (r.start + r.stop) // 2, r.stop) for r in ranges]
            with value.leased(*middle) as tail:
                assert value.rows(tail) == expected(*middle)
            for tail, rows in open_tails:
                assert value.rows(tail) == rows
        value.generation.clear()
        for tail, rows in open_tails:
            assert value.rows(tail) == rows
            tail.close()
        assert value.tables() == 0
        assert value.databases() == ["memory"]


def _moving(
    value: LeasedSegment,
    open_tails: list[tuple[LeasedTail, Rows]],
    move: str,
    first: int,
    second: int,
) -> Callable[[], None]:
    generation = value.generation

    def make() -> None:
        if move == "add":
            if first + second:
                value.add(first, second)
        elif move == "lease":
            ranges = [
                OffsetRange(r.partition, r.start, max(r.start, r.stop - first))
                for r in generation.ranges()
            ]
            open_tails.append((value.leased(*ranges), expected(*ranges)))
        else:
            offsets = {r.partition: min(r.start + first, r.stop) for r in generation.ranges()}
            mark = Mark(offsets.get(0, 0), offsets.get(1, 0))
            with generation.writing:
                if move == "clear":
                    generation.clear()
                    value.stops = [0, 0]
                elif move == "forget":
                    generation.forget(mark)
                else:
                    generation.trim(mark)

    return make


@pytest.mark.parametrize("tails", [1, 2])
def test_the_newest_rows_of_all_tails_stay_while_memory_is_not_short(tails: int) -> None:
    value, now_s = LeasedSegment(), 0.0
    for _ in range(9):
        value.add(FULL)
    sizes = [segment.size for segment in value.generation._order]
    assert len(sizes) > 4
    packing = Packing(lambda: now_s, 8 * tails * (sum(sizes[-2:]) + 1))
    others = [LeasedSegment() for _ in range(tails - 1)]
    generations = [each.generation for each in (value, *others)]
    packing.work(generations)
    now_s = 1.0
    packing.work(generations)
    assert value.generation.packed_size == sum(sizes[:-2])
    # Where memory is short nothing is spared but what is being filled.
    while value.generation.pack():
        pass
    assert value.generation.packed_size == sum(sizes[:-1])
    assert value.all_rows() == expected(OffsetRange(0, 0, 9 * FULL))
