"""Which files hold a tail: every offset once, few files, nothing read under another leader."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.live_pieces import (
    MERGE,
    Hole,
    LivePiece,
    WrittenPart,
    check_tiled,
    check_written,
    level_of,
    tile,
)
from planner.offsets import OffsetRange, OffsetVector

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
    straddling, later = piece((0, 5, 10)), piece((0, 10, 12))
    tiling = tile([OffsetRange(0, 7, 15)], EPOCHS, [straddling, later])
    assert tiling.pieces == (later,)
    assert tiling.holes == (Hole((OffsetRange(0, 7, 10),)), Hole((OffsetRange(0, 12, 15),)))


@pytest.mark.parametrize("epochs", [OffsetVector.of([(0, 4)]), OffsetVector()])
def test_a_piece_of_another_leader_is_written_again(epochs: OffsetVector) -> None:
    tiling = tile([OffsetRange(0, 5, 10)], epochs, [piece((0, 5, 10))])
    assert (tiling.pieces, tiling.holes) == ((), (Hole((OffsetRange(0, 5, 10),)),))


def test_small_pieces_become_a_larger_one_and_larger_ones_one_larger_still() -> None:
    small = [piece((0, at, at + 1)) for at in range(MERGE - 1)]
    tiling = tile([OffsetRange(0, 0, MERGE)], EPOCHS, small)
    assert tiling.holes == (Hole((OffsetRange(0, 0, MERGE),), 1),)
    start = 10 * (MERGE - 1)
    larger = [piece((0, at, at + 10), level=1) for at in range(0, start, 10)]
    small = [piece((0, start + at, start + at + 1)) for at in range(MERGE - 1)]
    tiling = tile([OffsetRange(0, 0, start + MERGE)], EPOCHS, [*larger, *small])
    assert (tiling.pieces, tiling.holes) == (
        (),
        (Hole((OffsetRange(0, 0, start + MERGE),), 2),),
    )


def test_pieces_with_another_between_them_stay_as_they_are() -> None:
    small = [piece((0, 2 * at, 2 * at + 1)) for at in range(MERGE - 1)]
    between = [piece((0, 2 * at + 1, 2 * at + 2), level=1) for at in range(MERGE - 1)]
    tiling = tile([OffsetRange(0, 0, 2 * MERGE)], EPOCHS, [*small, *between])
    assert set(tiling.pieces) == {*small, *between}
    assert tiling.holes == (Hole((OffsetRange(0, 2 * MERGE - 2, 2 * MERGE),)),)


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
        (WrittenPart(0, 5, 4, 9), 5),
        (WrittenPart(0, 5, 5, 10), 5),
        (WrittenPart(1, 5, 5, 9), 5),
        (WrittenPart(0, 6, 5, 9), 6),
        (WrittenPart(0, 4, 5, 9), 5),
    ],
)
def test_a_file_with_rows_of_other_offsets_is_refused(part: WrittenPart, rows: int) -> None:
    with pytest.raises(AssertionError, match="live file holds"):
        check_written([OffsetRange(0, 5, 10)], [part], rows)


def test_a_file_of_its_own_rows_passes_with_holes_in_it() -> None:
    check_written([OffsetRange(0, 5, 10)], [WrittenPart(0, 2, 6, 9)], 2)


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
def test_few_files_hold_a_tail_whatever_the_sizes_of_its_loads(
    size: Callable[[int], int],
) -> None:
    pieces: tuple[LivePiece, ...] = ()
    end = written = most = 0
    for number in range(600):
        end += size(number)
        tiling = tile([OffsetRange(0, 0, end)], EPOCHS, pieces)
        new = []
        for hole in tiling.holes:
            rows = sum(map(len, hole.ranges))
            written += rows
            level = level_of(rows, hole.level)
            new.append(LivePiece(hole.ranges, EPOCHS, f"{number}", rows, level))
        pieces = (*tiling.pieces, *new)
        check_tiled([OffsetRange(0, 0, end)], pieces)
        most = max(most, len(pieces))
    assert most <= 40
    assert written <= 4 * end
