"""Which files hold a tail: every offset once, few files, nothing read under another leader."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.live.tiling import (
    MERGE,
    MOST,
    Hole,
    LivePiece,
    Merge,
    Tiling,
    WrittenPartition,
    check_tiled,
    check_written,
    level_of,
    merge_of,
    parts_of,
    tile,
    tile_named,
)
from planner.offsets import OffsetRange, OffsetVector

#: Of an hour, one a second.
LOADS = 3_600
EPOCHS = OffsetVector.of([(0, 3), (1, 3)])


def piece(
    *spans: tuple[int, int, int], level: int = 0, epochs: OffsetVector = EPOCHS
) -> LivePiece:
    ranges = tuple(OffsetRange(*span) for span in spans)
    return LivePiece(ranges, epochs, f"{spans}", sum(map(len, ranges)), level)


def test_what_is_not_in_files_is_one_hole() -> None:
    needed = [OffsetRange(0, 5, 20), OffsetRange(1, 0, 0)]
    tiling = tile(needed, EPOCHS, [])
    assert (tiling.pieces, tiling.holes) == ((), (Hole((OffsetRange(0, 5, 20),)),))


def test_pieces_of_the_cut_stay_and_what_came_since_is_written() -> None:
    first, second = piece((0, 5, 10), (1, 0, 4)), piece((0, 10, 12))
    tiling = tile([OffsetRange(0, 5, 20), OffsetRange(1, 0, 9)], EPOCHS, [first, second])
    assert set(tiling.pieces) == {first, second}
    assert tiling.holes == (Hole((OffsetRange(0, 12, 20), OffsetRange(1, 4, 9))),)


def test_a_piece_that_the_watermark_cuts_is_written_again_from_there() -> None:
    straddling, later = piece((0, 5, 10), level=1), piece((0, 10, 12))
    tiling = tile([OffsetRange(0, 7, 15)], EPOCHS, [straddling, later])
    assert tiling.pieces == (later,)
    assert tiling.holes == (Hole((OffsetRange(0, 7, 10),), 1), Hole((OffsetRange(0, 12, 15),)))
    assert tiling.cut == (straddling,)
    rest = tile([OffsetRange(0, 7, 12)], EPOCHS, [straddling, later])
    assert (rest.pieces, rest.holes) == ((later,), tiling.holes[:1])


def test_what_a_cut_piece_was_made_from_takes_its_place_and_its_level() -> None:
    small = [piece((0, at, at + 2), (1, at, at + 2)) for at in range(0, 10, 2)]
    large, newest = piece((0, 0, 10), (1, 0, 10), level=2), piece((0, 10, 12), (1, 10, 11))
    needed = [OffsetRange(0, 5, 12), OffsetRange(1, 3, 12)]
    tiling = tile(needed, EPOCHS, [large, newest])
    assert (tiling.pieces, tiling.cut) == ((newest,), (large,))
    parts = parts_of(tiling.cut, [*small, large, newest])
    assert {part.level for part in parts} == {2}
    finer = tile(needed, EPOCHS, [*tiling.pieces, *parts])
    assert {p.path: p.level for p in finer.pieces} == {
        small[3].path: 2,
        small[4].path: 2,
        newest.path: 0,
    }
    assert finer.holes == (
        Hole((OffsetRange(0, 5, 6), OffsetRange(1, 3, 6)), 2),
        Hole((OffsetRange(1, 11, 12),)),
    )


@pytest.mark.parametrize("epochs", [OffsetVector.of([(0, 4)]), OffsetVector()])
def test_a_piece_of_another_leader_is_written_again(epochs: OffsetVector) -> None:
    own = piece((0, 5, 10))
    tiling = tile([OffsetRange(0, 5, 10)], epochs, [own])
    assert (tiling.pieces, tiling.holes) == ((), (Hole((OffsetRange(0, 5, 10),)),))
    assert not tile([OffsetRange(0, 5, 10)], epochs, parts_of([own], [own])).pieces


def test_the_newest_small_pieces_become_a_larger_one_and_larger_ones_one_larger_still() -> None:
    small = [piece((0, at, at + 1)) for at in range(MERGE)]
    assert merge_of(small[1:]) is None
    assert merge_of(small) == Merge(tuple(small), Hole((OffsetRange(0, 0, MERGE),), 1))
    larger = [piece((0, at, at + 10), level=1) for at in range(0, 10 * (MERGE - 5), 10)]
    start = 10 * len(larger)
    small = [piece((0, start + at, start + at + 1)) for at in range(5)]
    span = OffsetRange(0, start, start + 5)
    assert merge_of([*larger, *small]) == Merge(tuple(small), Hole((span,), 1))
    # Where few are small, the larger ones are due.
    larger = [piece((0, at, at + 10), level=1) for at in range(0, 10 * (MERGE - 1), 10)]
    pieces = [*larger, piece((0, 10 * len(larger), 10 * len(larger) + 1))]
    span = OffsetRange(0, 0, 10 * len(larger) + 1)
    assert merge_of(pieces) == Merge(tuple(pieces), Hole((span,), 2))


def test_pieces_with_another_between_them_become_one_with_that() -> None:
    small = [piece((0, 2 * at, 2 * at + 1)) for at in range(MERGE)]
    between = [piece((0, 2 * at + 1, 2 * at + 2), level=1) for at in range(MERGE)]
    merge = merge_of([*small, *between])
    assert merge is not None
    assert merge.hole == Hole((OffsetRange(0, 0, 2 * MERGE),), 2)
    assert merge_of(small) is None


def test_a_load_merges_by_itself_only_where_there_are_very_many_pieces() -> None:
    pieces = [piece((0, at, at + 1)) for at in range(MOST)]
    few = tile([OffsetRange(0, 0, MOST + 4)], EPOCHS, pieces[1:])
    assert few.holes == (Hole((OffsetRange(0, 0, 1),)), Hole((OffsetRange(0, MOST, MOST + 4),)))
    few = tile([OffsetRange(0, 0, MOST + 4)], EPOCHS, pieces[:-1])
    assert few == Tiling(tuple(pieces[:-1]), (Hole((OffsetRange(0, MOST - 1, MOST + 4),)),))
    many = tile([OffsetRange(0, 0, MOST + 4)], EPOCHS, pieces)
    assert many == Tiling((), (Hole((OffsetRange(0, 0, MOST + 4),), 1),))


def test_a_large_first_piece_is_not_merged_with_small_ones() -> None:
    assert [level_of(rows, 0) for rows in (1, 59_999, 60_000, 720_000)] == [0, 0, 1, 2]
    assert level_of(5, 2) == 2


SPANS = st.tuples(st.integers(0, 1), st.integers(0, 12), st.integers(0, 12)).map(
    lambda span: OffsetRange(span[0], min(span[1:]), max(span[1:]))
)
PIECES = st.lists(
    st.tuples(
        st.lists(SPANS, min_size=1, max_size=2, unique_by=lambda s: s.partition),
        st.integers(0, 2),
    ).map(lambda made: LivePiece(tuple(sorted(made[0])), EPOCHS, "x", 1, made[1])),
    max_size=14,
)


@given(st.lists(SPANS, max_size=2, unique_by=lambda span: span.partition), PIECES)
def test_pieces_and_holes_are_the_cuts_tail_each_offset_once(
    needed: list[OffsetRange], pieces: list[LivePiece]
) -> None:
    pieces = [replace(p, ranges=tuple(s for s in p.ranges if len(s))) for p in pieces]
    tiling = tile(needed, EPOCHS, [p for p in pieces if p.ranges])
    written = [LivePiece(hole.ranges, EPOCHS, "new", 1) for hole in tiling.holes]
    check_tiled(needed, [*tiling.pieces, *written])


@given(st.lists(SPANS, max_size=2, unique_by=lambda span: span.partition), PIECES)
def test_so_they_are_of_a_named_cut(needed: list[OffsetRange], pieces: list[LivePiece]) -> None:
    pieces = [replace(p, ranges=tuple(s for s in p.ranges if len(s))) for p in pieces]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("planner.live.tiling._BLOCKS", (2, 4))
        tiling = tile_named(needed, [p for p in pieces if p.ranges])
    written = [LivePiece(hole.ranges, EPOCHS, "new", 1) for hole in tiling.holes]
    check_tiled(needed, [*tiling.pieces, *written])


@pytest.mark.parametrize(
    "pieces",
    [
        [piece((0, 0, 5))],
        [piece((0, 0, 5)), piece((0, 4, 10))],
        [piece((0, 0, 10)), piece((1, 0, 1))],
        [piece((0, 0, 5)), piece((0, 6, 10))],
    ],
)
def test_files_that_are_not_the_cuts_tail_are_refused(pieces: list[LivePiece]) -> None:
    with pytest.raises(AssertionError, match="live files hold"):
        check_tiled([OffsetRange(0, 0, 10)], pieces)


@pytest.mark.parametrize(
    ("part", "rows"),
    [
        (WrittenPartition(0, 5, 4, 9), 5),
        (WrittenPartition(0, 5, 5, 10), 5),
        (WrittenPartition(1, 5, 5, 9), 5),
        (WrittenPartition(0, 6, 5, 9), 6),
        (WrittenPartition(0, 4, 5, 9), 5),
    ],
)
def test_a_file_with_rows_of_other_offsets_is_refused(
    part: WrittenPartition, rows: int
) -> None:
    with pytest.raises(AssertionError, match="live file holds"):
        check_written([OffsetRange(0, 5, 10)], [part], rows)


def test_a_file_of_its_own_rows_passes_with_holes_in_it() -> None:
    check_written([OffsetRange(0, 5, 10)], [WrittenPartition(0, 2, 6, 9)], 2)


@pytest.mark.parametrize(
    "size",
    [
        lambda _: 5_000,
        lambda number: 5_000 if number % 3 else 100_000,
        lambda number: 1 if number % 2 else 70_000,
        lambda number: (1, 500, 800_000, 70_000, 20)[number % 5],
    ],
    ids=["even", "every third large", "in turn", "wild"],
)
@pytest.mark.parametrize("behind", [0, 2, 10_000], ids=["at once", "late", "never"])
def test_few_files_hold_a_tail_whatever_the_sizes_of_its_loads(
    size: Callable[[int], int], behind: int
) -> None:
    """``behind``: how many loads come before a merge is done."""
    pieces: tuple[LivePiece, ...] = ()
    end = written = most = 0
    merge: tuple[int, Merge] | None = None

    def write(hole: Hole) -> LivePiece:
        nonlocal written
        rows = sum(map(len, hole.ranges))
        written += rows
        return LivePiece(hole.ranges, EPOCHS, f"{written}", rows, level_of(rows, hole.level))

    for number in range(LOADS):
        end += size(number)
        usable = pieces
        if merge is not None and number > merge[0] + behind:
            usable, merge = (*pieces, write(merge[1].hole)), None
        tiling = tile([OffsetRange(0, 0, end)], EPOCHS, usable)
        pieces = (*tiling.pieces, *map(write, tiling.holes))
        check_tiled([OffsetRange(0, 0, end)], pieces)
        most = max(most, len(pieces))
        due = merge_of(pieces)
        if due is not None and merge is None:
            merge = number, due
    assert most <= MOST
    assert written <= 3 * end


#: Between two publishes, and from what a publish takes to its end.
PUBLISH_EVERY, PUBLISH_TAKES = 600, 60


def test_a_load_after_a_publish_writes_what_a_second_brings() -> None:
    """A load each second for an hour, a publish every ten minutes."""
    rate = 5_000
    there: dict[str, LivePiece] = {}
    pieces: tuple[LivePiece, ...] = ()
    start = end = written = at_once = 0
    merge: Merge | None = None

    def write(hole: Hole) -> LivePiece:
        nonlocal written
        rows = sum(map(len, hole.ranges))
        written += rows
        return LivePiece(hole.ranges, EPOCHS, f"{written}", rows, level_of(rows, hole.level))

    for number in range(LOADS):
        end += rate
        if number % PUBLISH_EVERY == PUBLISH_EVERY - 1:
            start = end - PUBLISH_TAKES * rate - 1_234
        needed = [OffsetRange(0, start, end)]
        usable = pieces
        if merge is not None and set(merge.pieces) <= set(pieces):
            usable = (*pieces, write(merge.hole))
        tiling = tile(needed, EPOCHS, usable)
        if tiling.cut:
            parts = parts_of(tiling.cut, there.values())
            tiling = tile(needed, EPOCHS, (*tiling.pieces, *parts))
        at_once = max(at_once, sum(len(span) for hole in tiling.holes for span in hole.ranges))
        pieces = (*tiling.pieces, *map(write, tiling.holes))
        check_tiled(needed, pieces)
        there |= {p.path: p for p in pieces if p.path is not None}
        assert len(pieces) <= 2 * MERGE
        merge = merge_of(pieces)
    assert at_once <= 2 * rate
    assert written <= 3 * end


@pytest.mark.parametrize(
    ("partitions", "order"),
    [
        *itertools.product((1, 3, 12), ("random", "down", "against each other")),
        (60, "down"),
    ],
)
def test_cuts_that_readers_make_up_write_little(partitions: int, order: str) -> None:
    """Of a tail of 1.2 million rows: for each cut a few thousand of each partition."""
    chance, start, each, cuts = random.Random(order), 777, 1_200_000 // partitions, 60
    pieces: list[LivePiece] = []
    written = 0
    for number in range(cuts):
        down = start + each - number * (each // cuts)
        stops = [
            chance.randint(start, start + each) if order == "random" else down
        ] * partitions
        if order == "against each other":
            stops[::2] = [2 * start + each - stop for stop in stops[::2]]
        needed = [OffsetRange(p, start, stop) for p, stop in enumerate(stops)]
        tiling = tile_named(needed, pieces)
        new = [
            LivePiece(hole.ranges, OffsetVector(), f"{number} {n}", sum(map(len, hole.ranges)))
            for n, hole in enumerate(tiling.holes)
        ]
        check_tiled(needed, [*tiling.pieces, *new])
        assert len(tiling.pieces) <= 80
        assert len(tiling.holes) < 90
        written += sum(piece.rows for piece in new)
        pieces += new
    least = cuts * partitions * 4_096
    assert written <= 5 * 1_200_000 + least  # without shared files it would be 36 million


def test_a_tail_beyond_the_widest_blocks_is_tiled_all_the_same() -> None:
    needed = [OffsetRange(0, 5, 200 << 21)]
    tiling = tile_named(needed, [])
    pieces = [
        LivePiece(hole.ranges, OffsetVector(), str(number), sum(map(len, hole.ranges)))
        for number, hole in enumerate(tiling.holes)
    ]
    check_tiled(needed, [*tiling.pieces, *pieces])
