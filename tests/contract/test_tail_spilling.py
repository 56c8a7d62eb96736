"""Tails beyond their memory: on disk, and beyond that refused. Nothing a cut may need is lost on the way."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from planner.errors import TailTooLarge, UndecodableRecord
from planner.names import TableName
from planner.offsets import OffsetRange
from proxy.tail.budget import Spilling, TailSpace
from proxy.tail.followed_table import FollowSettings
from tests.harness.tails import LIMITS, TailHarness

FOLLOWED = FollowSettings(keep_s=0)
OTHER = TableName("lake", ("net",), "other")
MANY = replace(LIMITS, max_rows=10_000_000, max_bytes=1 << 40)
#: DuckDB takes memory in blocks of 256 KB per column.
TIGHT = TailSpace(max_memory_bytes=2 << 20, max_disk_bytes=1 << 30)


@pytest.fixture(autouse=True)
def _small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.tail.generations.SEGMENT_ROWS", 2_000)


@contextmanager
def tail_harness(tmp_path: Path, **options: Any) -> Iterator[TailHarness]:
    options = {
        "following": FOLLOWED,
        "threads": False,
        "limits": MANY,
        "space": TIGHT,
        **options,
    }
    harness = TailHarness(scratch=tmp_path, **options)
    harness.log._batch_rows = 500
    try:
        yield harness
    finally:
        harness.tails.close()
        assert harness.segments() == 0


def end_of(harness: TailHarness) -> int:
    return harness.log.measure(["flows"])["flows"].partitions[0].log_end


def fill(harness: TailHarness, rows: int, mark: int = 0) -> None:
    """Write and follow some rows at a time, for statements at a watermark."""
    start = end_of(harness)
    for first in range(start, start + rows, 2_000):
        harness.write(0, *range(first, min(first + 2_000, start + rows)))
        harness.tails.read(harness.cut(mark, 0), lambda: None).close()


def test_beyond_its_memory_a_followed_tail_goes_to_disk_and_is_read_from_there(
    tmp_path: Path,
) -> None:
    with tail_harness(tmp_path) as harness:
        fill(harness, 40_000)
        assert 0 < harness.state().on_disk < harness.state().size
        expected = [(0, offset, offset) for offset in range(40_000)]
        assert harness.read(harness.cut(0, 0)) == expected
        assert harness.read(harness.cut(17, 0)) == expected[17:]
        assert harness.decoded == 40_000


def test_a_tail_fetched_at_once_goes_to_disk_while_it_arrives(tmp_path: Path) -> None:
    with tail_harness(tmp_path) as harness:
        harness.write(0, *range(30_000))
        harness.write(1, *range(30_000))
        cut = harness.cut(5, 6)
        expected = [
            (partition, offset, offset)
            for partition, first in ((0, 5), (1, 6))
            for offset in range(first, 30_000)
        ]
        assert harness.read(cut) == expected
        assert harness.state().on_disk > 0
        harness.write(0, 30_000)
        assert len(harness.read(harness.cut(5, 6))) == len(expected) + 1
        assert harness.fetched == 1


def test_a_segment_that_takes_rows_just_now_stays_where_it_is(tmp_path: Path) -> None:
    """Or what its transaction adds would be lost with the copy in memory."""
    with tail_harness(tmp_path, space=None) as harness:
        fill(harness, 10)
        (entry,) = harness.tails._entries.values()
        table, moved = entry.generation, []

        def batches() -> Iterator[pa.RecordBatch]:
            for offset in (10, 11):
                place = {"kafka_partition": 0, "kafka_offset": offset, "n": offset}
                yield pa.RecordBatch.from_pylist([place], table.schema)
                moved.append(table.spill())

        with table.writing:
            table.add([OffsetRange(0, 10, 12)], batches())
            assert moved == [False, False]
            assert table.spill()
        harness.write(0, 10, 11)
        assert harness.read(harness.cut(0, 0)) == [(0, at, at) for at in range(12)]
        assert harness.decoded == 10


def test_a_large_fetch_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    with tail_harness(tmp_path) as harness:
        harness.write(0, *range(20_000), b"poison")
        with pytest.raises(UndecodableRecord):
            harness.read(harness.cut(0, 0))
        assert harness.segments() == 0
        assert harness.state().rows == 0
        assert harness.read(harness.cut(19_999 + 2, 0)) == []


def test_each_segment_of_a_large_fetch_knows_its_own_offsets(tmp_path: Path) -> None:
    """Or tiering would free too much, or nothing."""
    with tail_harness(tmp_path, space=None) as harness:
        harness.write(0, *range(8_000))
        harness.write(1, *range(5_000))
        harness.read(harness.cut(0, 0))
        value = harness.segments()
        for mark in range(0, 8_000, 1_000):
            rows = harness.read(harness.cut(mark, 4_500))
            assert rows == [(0, at, at) for at in range(mark, 8_000)] + [
                (1, at, at) for at in range(4_500, 5_000)
            ]
        assert harness.segments() < value
        assert harness.fetched == 1


def test_a_statement_keeps_its_rows_while_they_go_to_disk(tmp_path: Path) -> None:
    with tail_harness(tmp_path) as harness:
        fill(harness, 4_000)
        with harness.tails.read(harness.cut(0, 0), lambda: None) as tail:
            fill(harness, 40_000)
            assert harness.state().on_disk > 0
            assert len(harness.rows(tail)) == 4_000


def test_memory_is_given_back_when_rows_went_to_disk(tmp_path: Path) -> None:
    with tail_harness(tmp_path) as harness:
        fill(harness, 40_000)
        query = "SELECT memory_usage_bytes FROM duckdb_memory() WHERE tag = 'IN_MEMORY_TABLE'"
        ((used,),) = harness.engine.cursor().execute(query).fetchall()
        assert used <= 2 * TIGHT.max_memory_bytes


def test_a_tail_is_packed_before_any_of_it_goes_to_disk(tmp_path: Path) -> None:
    space = TailSpace(max_memory_bytes=6 << 20, max_disk_bytes=0)
    with tail_harness(tmp_path, space=None) as harness:
        fill(harness, 60_000)
        query = "SELECT memory_usage_bytes FROM duckdb_memory() WHERE tag = 'IN_MEMORY_TABLE'"
        ((used,),) = harness.engine.cursor().execute(query).fetchall()
        assert used > space.max_memory_bytes
        harness.tails._spilling = _spilling(harness, space)
        fill(harness, 20_000)
        assert harness.state().packed > 0
        assert harness.state().on_disk == 0
        assert harness.read(harness.cut(0, 0)) == [
            (0, offset, offset) for offset in range(80_000)
        ]


def test_tiering_frees_what_is_on_disk_and_the_space_is_used_again(tmp_path: Path) -> None:
    with tail_harness(tmp_path) as harness:
        sizes, end = [], 0
        for _ in range(4):
            fill(harness, 20_000, end)
            end = end_of(harness)
            assert harness.read(harness.cut(end, 0)) == []
            assert harness.state().rows == 0
            harness.tails.note_pin(harness.pin(end, 0))
            sizes.append((tmp_path / "tails.duckdb").stat().st_size)
        assert sizes[-1] <= 2 * sizes[0]


def test_beyond_the_disk_a_tail_is_refused_by_name_and_what_is_held_still_answers(
    tmp_path: Path,
) -> None:
    space = TailSpace(max_memory_bytes=1 << 20, max_disk_bytes=1 << 19)
    with tail_harness(tmp_path, space=space) as harness:
        fill(harness, 2_000)
        value = harness.cut(0, 0)
        with pytest.raises(TailTooLarge, match="tier the tables") as caught:
            fill(harness, 200_000)
        assert caught.value.facts["limit"] == "max_disk_bytes"
        assert len(harness.read(value)) == 2_000
        end = end_of(harness)
        assert harness.read(harness.cut(end, 0)) == []
        fill(harness, 1_000, end)
        assert len(harness.read(harness.cut(end, 0))) == 1_000


def test_the_largest_tail_makes_room_for_a_small_one(tmp_path: Path) -> None:
    with tail_harness(tmp_path, space=None) as harness:
        harness.log.create_topic("other", 1)
        fill(harness, 30_000)
        harness.write(0, *range(10), topic="other")
        space = TailSpace(max_memory_bytes=1 << 20, max_disk_bytes=1 << 30)
        harness.tails._spilling = _spilling(harness, space)
        assert len(harness.read(harness.cut(0, table=OTHER, topic="other"))) == 10
        assert harness.state().on_disk > 0
        assert harness.state(OTHER).on_disk == 0


def test_a_tail_that_is_being_written_to_is_passed_over(tmp_path: Path) -> None:
    with tail_harness(tmp_path, space=None) as harness:
        harness.log.create_topic("other", 1)
        fill(harness, 30_000)
        space = TailSpace(max_memory_bytes=1 << 20, max_disk_bytes=1 << 30)
        harness.tails._spilling = _spilling(harness, space)
        (entry,) = harness.tails._entries.values()
        with entry.generation.writing:
            reader = threading.Thread(
                target=lambda: harness.read(harness.cut(0, table=OTHER, topic="other"))
            )
            harness.write(0, *range(10), topic="other")
            reader.start()
            reader.join(30)
            assert not reader.is_alive()
        assert harness.state().ranges[0] == OffsetRange(0, 0, 30_000)
        assert harness.state().on_disk == 0


def _spilling(harness: TailHarness, space: TailSpace) -> Spilling:
    return Spilling(harness.tails.segments, space)
