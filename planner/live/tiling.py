"""Which files hold the tail of a live table: those there are already, and the ranges still to be written.

A piece is one immutable file with the rows of one offset range in each of some partitions. An answer needs exactly
``[watermark, end)`` of every partition: a piece that reaches outside of it, or was read under another leader, is not part
of it. What is left is written as new pieces.

Once there are ``MERGE`` pieces, those of the lowest level, the newest, are written again as one of the next level: first
many small ones, then fewer, as larger ones take their places. So a row is written once for each level, and the levels are
few: with at most ``n`` pieces, two levels hold about ``n² / 2`` loads and three ``n³ / 6``. No scheme of so few files writes
less (Mathieu and others, "Bigtable Merge Compaction", 2014).

A publish moves the watermark into a piece, mostly a large one. Those it was merged from still lie there: all but the ones
that the watermark cuts take its place (``parts_of``), so that a load writes a few seconds' records again, and not minutes'.
They take its level, too: merged with the newest pieces, all between the two would be written again.

A cut that a reader names may end anywhere. What no piece below its end has is written in blocks whose bounds are the same for
every cut (``tile_named``): another cut shares all of them but the last of each partition.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from planner.offsets import OffsetRange, OffsetVector, check_one_per_partition, joined

#: At one load a second, rows of eleven minutes are written twice, of two hours three times. Lower: fewer files, more writes.
MERGE = 37
#: Where merging does not keep up, a load merges before it answers.
MOST = 40
#: Fewer are left to the next level.
_LEAST = 4
#: A piece with fewer rows is of level 0, with twelve times as many of level 1, and so on.
_LEVEL_ROWS = 60_000
_LEVEL_GROWTH = 12
#: Offsets of a block: its bounds are multiples of that. The least that leave few holes are taken.
_BLOCKS = (1 << 12, 1 << 15, 1 << 18, 1 << 21)
#: Of a cut that a reader names: each file is there for many cuts.
_MOST_NAMED = 2 * MOST


@dataclass(frozen=True, slots=True)
class WrittenPartition:
    """Rows of one partition as they were written: how many, and their lowest and highest offset (inclusive)."""

    partition: int
    rows: int
    lowest: int
    highest: int


@dataclass(frozen=True, slots=True)
class LivePiece:
    """One file. ``path`` is None where the ranges hold no row: transactions and compaction leave holes.

    ``ranges``: one a partition, sorted. ``epochs``: the leaders' epochs under which they were read, where they are known.
    ``size``: bytes of the file.
    """

    ranges: tuple[OffsetRange, ...]
    epochs: OffsetVector
    path: str | None
    rows: int
    level: int = 0
    size: int = 0

    def __post_init__(self) -> None:
        check_one_per_partition(self.ranges)


@dataclass(frozen=True, slots=True)
class Hole:
    """Ranges to be written as one piece of (at least) ``level``: one a partition, sorted."""

    ranges: tuple[OffsetRange, ...]
    level: int = 0


@dataclass(frozen=True, slots=True)
class Merge:
    """``pieces`` that are to become one, and the hole that they and what is newer leave."""

    pieces: tuple[LivePiece, ...]
    hole: Hole


@dataclass(frozen=True, slots=True)
class Tiling:
    """``pieces`` and ``holes`` together are exactly the ranges that were asked for, each offset once.

    ``cut``: pieces with records of holes that do not fit, as a publish moved the watermark into them.
    """

    pieces: tuple[LivePiece, ...]
    holes: tuple[Hole, ...]
    cut: tuple[LivePiece, ...] = ()


def level_of(rows: int, level: int) -> int:
    """Return the level of a piece with this many rows: large ones are not merged with small ones."""
    own = 0
    while rows >= _LEVEL_ROWS * _LEVEL_GROWTH**own:
        own += 1
    return max(own, level)


def tile(
    needed: Sequence[OffsetRange], epochs: OffsetVector | None, pieces: Iterable[LivePiece]
) -> Tiling:
    """Choose among ``pieces`` and say what is missing. ``needed``: one range a partition.

    ``epochs``: the leaders' now; None: of a cut of the past, whose leaders are unknown. Then any piece may do.
    """
    check_one_per_partition(needed)
    needed_of = {span.partition: span for span in needed if len(span)}
    chosen, others = _choose(needed_of, epochs, pieces)
    holes = _holes(needed_of, _gaps(needed_of, chosen), others)
    many = len(holes) == 1 and len(chosen) >= MOST
    merge = merge_of(chosen, holes[0].ranges) if many else None
    if merge is None:
        return Tiling(tuple(chosen), tuple(holes), _meeting(holes, others))
    left = [piece for piece in chosen if piece not in merge.pieces]
    return Tiling(tuple(left), (merge.hole,))


def tile_named(needed: Sequence[OffsetRange], pieces: Iterable[LivePiece]) -> Tiling:
    """Choose among ``pieces`` for a cut that a reader names; the holes are such that other cuts may share their files.

    Any leader's piece may do, as for ``tile`` without epochs. Pieces and holes are ``_MOST_NAMED`` each, about.
    """
    check_one_per_partition(needed)
    needed_of = {span.partition: span for span in needed if len(span)}
    chosen, _ = _choose(needed_of, None, pieces)
    chosen = sorted(chosen, key=lambda piece: piece.rows, reverse=True)[:_MOST_NAMED]
    gaps = [gap for own in _gaps(needed_of, chosen).values() for gap in own]
    return Tiling(tuple(chosen), tuple(_blocks(gaps)))


def parts_of(cut: Sequence[LivePiece], older: Iterable[LivePiece]) -> list[LivePiece]:
    """Return those of ``older`` that hold records of ``cut`` pieces, at the level of these."""
    level = _level(cut)
    return [replace(piece, level=max(level, piece.level)) for piece in _meeting(cut, older)]


def merge_of(pieces: Sequence[LivePiece], newest: Sequence[OffsetRange] = ()) -> Merge | None:
    """Say which of the pieces of an answer to write again as one, with ``newest`` ranges behind them; None: of none.

    Only pieces that nothing lies between become one: with a larger one between small ones, all of them.
    """
    if len(pieces) < MERGE:
        return None
    for level in sorted({piece.level for piece in pieces}):
        merging = tuple(piece for piece in pieces if piece.level <= level)
        spans = [*newest, *(span for piece in merging for span in piece.ranges)]
        ranges = _joined(spans)
        if len(merging) >= _LEAST and ranges is not None:
            return Merge(merging, Hole(ranges, level + 1))
    return None


def _choose(
    needed_of: Mapping[int, OffsetRange],
    epochs: OffsetVector | None,
    pieces: Iterable[LivePiece],
) -> tuple[list[LivePiece], list[LivePiece]]:
    """Return pieces that fit and do not overlap, and the others. Larger ones first: they stand for those they were merged from."""
    chosen: list[LivePiece] = []
    others: list[LivePiece] = []
    spans_of: defaultdict[int, list[OffsetRange]] = defaultdict(list)
    for piece in sorted(pieces, key=lambda piece: (-piece.level, -piece.rows)):
        if _fits(piece, needed_of, epochs) and not any(
            _overlap(span, other) for span in piece.ranges for other in spans_of[span.partition]
        ):
            chosen.append(piece)
            for span in piece.ranges:
                spans_of[span.partition].append(span)
        else:
            others.append(piece)
    return chosen, others


def _fits(
    piece: LivePiece, needed_of: Mapping[int, OffsetRange], epochs: OffsetVector | None
) -> bool:
    return all(
        span.partition in needed_of
        and needed_of[span.partition].start <= span.start
        and span.stop <= needed_of[span.partition].stop
        and (epochs is None or piece.epochs.get(span.partition) == epochs.get(span.partition))
        for span in piece.ranges
    )


def _overlap(one: OffsetRange, other: OffsetRange) -> bool:
    return one.start < other.stop and other.start < one.stop


def _meeting(
    these: Iterable[Hole | LivePiece], pieces: Iterable[LivePiece]
) -> tuple[LivePiece, ...]:
    """Return the ``pieces`` with records that are in ``these``, too."""
    spans_of = _by_partition(span for one in these for span in one.ranges)
    return tuple(
        piece
        for piece in pieces
        if any(
            _overlap(span, other)
            for span in piece.ranges
            for other in spans_of.get(span.partition, ())
        )
    )


def _level(pieces: Iterable[LivePiece]) -> int:
    return max((piece.level for piece in pieces), default=0)


def _gaps(
    needed_of: Mapping[int, OffsetRange], pieces: Iterable[LivePiece]
) -> dict[int, list[OffsetRange]]:
    """Return what ``pieces`` leave of each partition, in order. The last one may reach its end."""
    spans_of = _by_partition(span for piece in pieces for span in piece.ranges)
    gaps: dict[int, list[OffsetRange]] = {}
    for partition, span in sorted(needed_of.items()):
        at, own = span.start, gaps.setdefault(partition, [])
        for next_span in sorted(spans_of.get(partition, ())):
            if next_span.start > at:
                own.append(OffsetRange(partition, at, next_span.start))
            at = next_span.stop
        if at < span.stop:
            own.append(OffsetRange(partition, at, span.stop))
    return gaps


def _holes(
    needed_of: Mapping[int, OffsetRange],
    gaps: Mapping[int, Sequence[OffsetRange]],
    others: Sequence[LivePiece],
) -> list[Hole]:
    """The first gap of every partition together, then the second: a piece has one range a partition. The newest are apart.

    What is between pieces has the level of those of ``others`` that held it.
    """
    ends = (own[-1] for own in gaps.values() if own)
    newest = tuple(span for span in ends if span.stop == needed_of[span.partition].stop)
    between = _rounds(gap for own in gaps.values() for gap in own if gap not in newest)
    holes = [Hole(ranges, _level(_meeting([Hole(ranges)], others))) for ranges in between]
    return [*holes, Hole(newest)] if newest else holes


def _rounds(spans: Iterable[OffsetRange]) -> list[tuple[OffsetRange, ...]]:
    """Put the first of every partition together, then the second."""
    rounds = zip_longest(*_by_partition(spans).values())
    return [tuple(span for span in one if span is not None) for one in rounds]


def _by_partition(spans: Iterable[OffsetRange]) -> dict[int, list[OffsetRange]]:
    spans_of: dict[int, list[OffsetRange]] = {}
    for span in spans:
        spans_of.setdefault(span.partition, []).append(span)
    return spans_of


def _blocks(gaps: Sequence[OffsetRange]) -> list[Hole]:
    """Split gaps at the bounds of blocks, the least that leave few holes. Blocks of one partition are apart, if they are few.

    What is left before the first block of a gap goes together, and what is left behind the last one.
    """
    for least in _BLOCKS:
        before, whole, behind = _split(gaps, least)
        blocks = _rounds(whole)
        if len(blocks) <= _MOST_NAMED:
            break
    # Powers of two: cuts of about as many blocks put the same partitions together.
    each = max(_MOST_NAMED // max(len(blocks), 1), 1)
    apart = 1 << each.bit_length() - 1
    grouped = [
        ranges[at : at + width]
        for ranges in blocks
        for width in (-(-len(ranges) // apart),)
        for at in range(0, len(ranges), width)
    ]
    return [Hole(ranges) for ranges in (*_rounds(before), *grouped, *_rounds(behind))]


def _split(
    gaps: Iterable[OffsetRange], least: int
) -> tuple[list[OffsetRange], list[OffsetRange], list[OffsetRange]]:
    """Split gaps into what is before the largest blocks that lie in them, none smaller than ``least``, those, and the rest."""
    sizes = [size for size in reversed(_BLOCKS) if size >= least]
    before: list[OffsetRange] = []
    whole: list[OffsetRange] = []
    behind: list[OffsetRange] = []
    for gap in gaps:
        at = gap.start
        while at < gap.stop:
            size = next((n for n in sizes if at % n == 0 and at + n <= gap.stop), None)
            bound = at - at % least + least
            stop = min(bound, gap.stop) if size is None else at + size
            span = OffsetRange(gap.partition, at, stop)
            (whole if size is not None else before if stop == bound else behind).append(span)
            at = stop
    return before, whole, behind


def _joined(ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...] | None:
    """Join ranges to one a partition; None where something would lie between them."""
    spans = joined(ranges)
    return spans if len({span.partition for span in spans}) == len(spans) else None


def check_written(
    ranges: Sequence[OffsetRange], written: Iterable[WrittenPartition], rows: int
) -> None:
    """Make sure that a file holds rows of its ranges only, and all that it counted.

    Raises:
        AssertionError: it does not, by the offsets in it; it must not be part of an answer.
    """
    within = {span.partition: span for span in ranges}
    counted = 0
    for each in written:
        span = within.get(each.partition, ())
        counted += each.rows
        if each.lowest not in span or each.highest not in span or each.rows > len(span):
            raise AssertionError(f"a live file holds {each}, and stands for {span}")
    if counted != rows:
        raise AssertionError(f"a live file holds {rows} rows, and {counted} of its ranges")


def check_tiled(needed: Sequence[OffsetRange], pieces: Iterable[LivePiece]) -> None:
    """Make sure that pieces are exactly the ranges of a cut's tail.

    Raises:
        AssertionError: an offset would be missing, or be there twice.
    """
    spans = joined(span for piece in pieces for span in piece.ranges)
    if spans != tuple(sorted(span for span in needed if len(span))):
        raise AssertionError(f"live files hold {spans}, and the cut's tail is {list(needed)}")
