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


class Held:
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

    def leased(self, *wanted: OffsetRange) -> LeasedTail:
        tail = self.generation.acquire({item.partition: item for item in wanted})
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
    held = Held()
    for _ in range(32):
        held.add(15, 10)
    assert held.tables() > 8
    packed = 0
    while held.generation.pack():
        packed += 1
    assert 1 < packed < 16
    assert held.tables() < 16
    assert held.generation.packed_size > held.generation.size // 2
    assert held.all_rows() == expected(OffsetRange(0, 0, 480), OffsetRange(1, 0, 320))
    part = (OffsetRange(0, 33, 277), OffsetRange(1, 5, 6))
    with held.leased(*part) as tail:
        assert held.rows(tail) == expected(*part)
    with held.generation.writing:
        held.generation.forget(Mark(480, 320))
    assert held.tables() == 0
    assert held.databases() == ["memory"]


def test_a_statement_reads_on_what_is_packed_under_it() -> None:
    held = Held()
    held.add(25)
    held.add(3)
    with held.leased(OffsetRange(0, 0, 27)) as tail:
        assert held.generation.pack()
        assert not held.generation.pack()
        assert held.rows(tail) == expected(OffsetRange(0, 0, 27))
        assert held.tables() == 3
    assert held.tables() == 2
    with held.leased(OffsetRange(0, 0, 27)) as tail:
        held.generation.clear()
        assert held.rows(tail) == expected(OffsetRange(0, 0, 27))
    assert held.databases() == ["memory"]


@pytest.mark.parametrize("change", ["forget", "trim", "clear"])
def test_what_happens_to_segments_while_they_are_packed_counts(change: str) -> None:
    held = Held()
    for _ in range(3):
        held.add(25)

    def meanwhile() -> None:
        with held.generation.writing:
            if change == "clear":
                held.generation.clear()
            elif change == "forget":
                held.generation.forget(Mark(30, 0))
            else:
                held.generation.trim(Mark(30, 0))

    held.segments.during = meanwhile
    assert held.generation.pack()
    assert held.databases() == ["memory"]
    assert held.generation.packed_size == 0
    assert held.all_rows() == expected(*held.generation.ranges())
    assert held.generation.rows == len(held.all_rows())
    while held.generation.pack():
        pass
    assert held.all_rows() == expected(*held.generation.ranges())


def test_dropping_and_adding_do_not_wait_for_what_is_being_packed() -> None:
    held = Held()
    held.add(25)
    held.add(25)
    done = threading.Event()

    def meanwhile() -> None:
        def others() -> None:
            held.add(5)
            with held.generation.writing:
                held.generation.forget(Mark(25, 0))
            done.set()

        thread = threading.Thread(target=others, daemon=True)
        thread.start()
        assert done.wait(60)

    held.segments.during = meanwhile
    assert held.generation.pack()
    assert done.is_set()
    assert held.all_rows() == expected(OffsetRange(0, 25, 55))


def test_out_of_memory_leaves_the_segments_as_they_were() -> None:
    held = Held(memory_limit="24MB", threads="1", temp_directory="")
    held.add(150_000, text=lambda: uuid.uuid4().hex)
    before, now_s = held.all_rows(), 0.0
    with pytest.raises(LimitExceeded):
        held.generation.pack()
    assert held.databases() == ["memory"]
    assert held.all_rows() == before
    packing = Packing(lambda: now_s)
    for _ in range(3):
        packing.work([held.generation])
    assert held.generation.packed_size == 0
    assert held.all_rows() == before


def test_packing_waits_until_little_arrives_and_then_closes_the_last_segment() -> None:
    held, now_s = Held(), 0.0
    packing = Packing(lambda: now_s)
    held.add(FULL * 2)
    held.add(1)
    packing.work([held.generation])
    assert held.generation.packed_size == 0, "at the first look nobody knows what arrives"
    now_s = 1.0
    held.add(30_000)
    packing.work([held.generation])
    assert held.generation.packed_size == 0, "rows arrive fast"
    now_s = 2.0
    with held.generation.writing:
        packing.work([held.generation])
    assert held.generation.packed_size == 0, "rows are being added"
    held.add(FULL // 2)
    now_s = 3.0
    packing.work([held.generation])
    assert held.generation.packed_size > 0
    held.add(FULL)
    now_s = 4.0
    packing.work([held.generation])
    assert held.generation.packed_size < held.generation.size, "it would be packed again soon"
    held.add(6_000)
    now_s = 5.0
    packing.work([held.generation])
    assert held.generation.packed_size == held.generation.size
    packing.stop()
    held.add(6_000)
    now_s = 6.0
    packing.work([held.generation])
    assert held.generation.packed_size < held.generation.size


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
    held = Held()
    open_tails: list[tuple[LeasedTail, Rows]] = []
    with contextlib.closing(held.engine):
        for move, first, second, meanwhile in moves:
            if move == "pack":
                held.segments.during = lambda: None
                if meanwhile is not None:
                    held.segments.during = _moving(held, open_tails, meanwhile, first, second)
                held.generation.pack()
            else:
                _moving(held, open_tails, move, first, second)()
            ranges = held.generation.ranges()
            assert held.all_rows() == expected(*ranges)
            middle = [OffsetRange(r.partition, (r.start + r.stop) // 2, r.stop) for r in ranges]
            with held.leased(*middle) as tail:
                assert held.rows(tail) == expected(*middle)
            for tail, rows in open_tails:
                assert held.rows(tail) == rows
        held.generation.clear()
        for tail, rows in open_tails:
            assert held.rows(tail) == rows
            tail.close()
        assert held.tables() == 0
        assert held.databases() == ["memory"]


def _moving(
    held: Held, open_tails: list[tuple[LeasedTail, Rows]], move: str, first: int, second: int
) -> Callable[[], None]:
    generation = held.generation

    def make() -> None:
        if move == "add":
            if first + second:
                held.add(first, second)
        elif move == "lease":
            ranges = [
                OffsetRange(r.partition, r.start, max(r.start, r.stop - first))
                for r in generation.ranges()
            ]
            open_tails.append((held.leased(*ranges), expected(*ranges)))
        else:
            offsets = {r.partition: min(r.start + first, r.stop) for r in generation.ranges()}
            mark = Mark(offsets.get(0, 0), offsets.get(1, 0))
            with generation.writing:
                if move == "clear":
                    generation.clear()
                    held.stops = [0, 0]
                elif move == "forget":
                    generation.forget(mark)
                else:
                    generation.trim(mark)

    return make
