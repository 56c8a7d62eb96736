"""Which files hold the tail of a live table: those there are already, and the ranges still to be written.

A piece is one immutable file with the rows of one offset range in each of some partitions. An answer needs exactly
``[watermark, end)`` of every partition: a piece that reaches outside of it, or was read under another leader, is not part
of it. What is left is written as new pieces. Once ``MERGE`` pieces of a level would stand side by side, one of the next
level is written instead of them, and a large piece is written with the small ones before it: so a row is written about once
for each level, and there are few files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from planner.offsets import OffsetRange, OffsetVector, check_one_per_partition

#: Twelve pieces of a second of 5,000 events make one of a minute, twelve of those one of twelve minutes: 33 files at most,
#: and each row is written three times.
MERGE = 12
#: A piece with fewer rows is of level 0.
_LEVEL_ROWS = 60_000


@dataclass(frozen=True, slots=True)
class WrittenPart:
    """Rows of one partition as they were written: how many, and their lowest and highest offset (inclusive)."""

    partition: int
    rows: int
    lowest: int
    highest: int


@dataclass(frozen=True, slots=True)
class LivePiece:
    """One file. ``path`` is None where the ranges hold no row: transactions and compaction leave holes.

    ``ranges``: one a partition, sorted. ``epochs``: the leaders' epochs under which they were read, where they are known.
    """

    ranges: tuple[OffsetRange, ...]
    epochs: OffsetVector
    path: str | None
    rows: int
    level: int = 0

    def __post_init__(self) -> None:
        check_one_per_partition(self.ranges)


@dataclass(frozen=True, slots=True)
class Hole:
    """Ranges to be written as one piece of (at least) ``level``: one a partition, sorted."""

    ranges: tuple[OffsetRange, ...]
    level: int = 0


@dataclass(frozen=True, slots=True)
class Tiling:
    """``pieces`` and ``holes`` together are exactly the ranges that were asked for, each offset once."""

    pieces: tuple[LivePiece, ...]
    holes: tuple[Hole, ...]


def level_of(rows: int, level: int) -> int:
    """Return the level of a piece with so many rows: a large one is not merged with small ones."""
    own = 0
    while rows >= _LEVEL_ROWS * MERGE**own:
        own += 1
    return max(own, level)


def tile(
    needed: Sequence[OffsetRange], epochs: OffsetVector | None, pieces: Iterable[LivePiece]
) -> Tiling:
    """Choose among ``pieces`` and say what is missing. ``needed``: one range a partition.

    ``epochs``: the leaders' now; None: of a cut of the past, whose leaders nobody knows. Then any piece may do.
    """
    check_one_per_partition(needed)
    needed_of = {span.partition: span for span in needed if len(span)}
    chosen: list[LivePiece] = []
    spans_of: defaultdict[int, list[OffsetRange]] = defaultdict(list)
    # Larger ones first: they stand for the small ones they were merged from.
    for piece in sorted(pieces, key=lambda piece: (-piece.level, -piece.rows)):
        if _fits(piece, needed_of, epochs) and not any(
            _overlap(span, other) for span in piece.ranges for other in spans_of[span.partition]
        ):
            chosen.append(piece)
            for span in piece.ranges:
                spans_of[span.partition].append(span)
    holes = _holes(needed_of, spans_of)
    if len(holes) == 1:
        return _merged(chosen, holes[0])
    return Tiling(tuple(chosen), tuple(holes))


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


def _holes(
    needed_of: Mapping[int, OffsetRange], spans_of: Mapping[int, Sequence[OffsetRange]]
) -> list[Hole]:
    """The first gap of every partition together, then the second: a piece has one range a partition."""
    rounds: list[list[OffsetRange]] = []
    for partition, span in sorted(needed_of.items()):
        at, number = span.start, 0
        ends = OffsetRange(partition, span.stop, span.stop)
        for next_span in [*sorted(spans_of.get(partition, ())), ends]:
            if next_span.start > at:
                if number == len(rounds):
                    rounds.append([])
                rounds[number].append(OffsetRange(partition, at, next_span.start))
                number += 1
            at = next_span.stop
    return [Hole(tuple(ranges)) for ranges in rounds]


def _merged(chosen: list[LivePiece], hole: Hole) -> Tiling:
    """Let the hole swallow smaller pieces before it, and those of its level where there are enough, and so on upwards.

    So levels only fall towards the end of the log: a large piece between small ones would keep these apart for good.
    """
    while True:
        level = level_of(sum(map(len, hole.ranges)), hole.level)
        merging = [piece for piece in chosen if piece.level <= level]
        if sum(piece.level == level for piece in merging) >= MERGE - 1:
            level += 1
        else:
            merging = [piece for piece in merging if piece.level < level]
        ranges = _joined([*hole.ranges, *(span for piece in merging for span in piece.ranges)])
        if not merging or ranges is None:
            return Tiling(tuple(chosen), (hole,))
        chosen = [piece for piece in chosen if piece not in merging]
        hole = Hole(ranges, level)


def _joined(ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...] | None:
    """Join ranges to one a partition; None where something would lie between them."""
    joined: dict[int, OffsetRange] = {}
    for span in sorted(ranges):
        before = joined.get(span.partition)
        if before is not None and before.stop != span.start:
            return None
        start = span.start if before is None else before.start
        joined[span.partition] = OffsetRange(span.partition, start, span.stop)
    return tuple(joined.values())


def check_written(
    ranges: Sequence[OffsetRange], written: Iterable[WrittenPart], rows: int
) -> None:
    """Make sure that a file holds rows of its ranges only, and all that it counted.

    Raises:
        AssertionError: it does not, by the offsets in it; it must not be part of an answer.
    """
    within = {span.partition: span for span in ranges}
    counted = 0
    for part in written:
        span = within.get(part.partition)
        counted += part.rows
        if (
            span is None
            or part.lowest not in span
            or part.highest not in span
            or part.rows > len(span)
        ):
            raise AssertionError(f"a live file holds {part}, and stands for {span}")
    if counted != rows:
        raise AssertionError(f"a live file holds {rows} rows, and {counted} of its ranges")


def check_tiled(needed: Sequence[OffsetRange], pieces: Iterable[LivePiece]) -> None:
    """Make sure that pieces are exactly the ranges of a cut's tail.

    Raises:
        AssertionError: an offset would be missing, or be there twice.
    """
    spans = sorted(span for piece in pieces for span in piece.ranges)
    joined: list[OffsetRange] = []
    for span in spans:
        last = joined[-1] if joined else None
        if last is not None and last.partition == span.partition:
            if last.stop != span.start:
                raise AssertionError(f"live files hold {last} and {span}")
            joined[-1] = OffsetRange(span.partition, last.start, span.stop)
        else:
            joined.append(span)
    if joined != sorted(span for span in needed if len(span)):
        raise AssertionError(f"live files hold {joined}, and the cut's tail is {list(needed)}")
