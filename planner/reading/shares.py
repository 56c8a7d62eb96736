"""Parts of a scan: disjoint shares of one cut's rows, which are together all of them, for readers side by side.

A file is in a part by a number that its path alone gives, so whichever files are listed, pruned or not, at any replica,
in any order, it is in the same one. The tail is shared out by its ranges.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from planner.offsets import OffsetRange

#: A file's place is below this.
PLACES = 1 << 64
#: What a record of the tail is taken to weigh, beside the bytes of files.
_RECORD_BYTES = 100


@dataclass(frozen=True, slots=True)
class FileSpan:
    """The files whose place is in ``[start, stop)``."""

    start: int = 0
    stop: int = PLACES

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.stop <= PLACES:
            raise ValueError(f"not a span of places: [{self.start}, {self.stop})")

    @property
    def is_whole(self) -> bool:
        """Whether it has all files, also where nobody can list them."""
        return (self.start, self.stop) == (0, PLACES)

    @property
    def is_empty(self) -> bool:
        return self.start == self.stop

    def has(self, path: str) -> bool:
        return self.start <= place_of(path) < self.stop


EVERY_FILE = FileSpan()
NO_FILE = FileSpan(0, 0)


@dataclass(frozen=True, slots=True)
class ScanPart:
    """What one reader reads of a cut: the cold rows of some files, and the records of some of the tail's ranges.

    ``split`` names what the whole was split into: parts of one name are disjoint and complete.
    """

    files: FileSpan
    ranges: tuple[OffsetRange, ...]
    split: str = ""


def place_of(path: str) -> int:
    return int.from_bytes(hashlib.blake2b(path.encode(), digest_size=8).digest())


def split_scan(
    files: Sequence[tuple[int, int]] | None, ranges: Sequence[OffsetRange], count: int
) -> tuple[tuple[FileSpan, tuple[OffsetRange, ...]], ...]:
    """Return at most ``count`` shares of about the same size; one if there is nothing to split.

    ``files`` are place and bytes of those that matter, in any order; None: they are not to be told apart, so one reader
    has all. The spans have every place, whichever files there are.
    """
    spans = _spans(files, count)
    loads = [size for _, size in spans] + [0] * (
        min(count, len(ranges) + len(spans)) - len(spans)
    )
    shares: list[list[OffsetRange]] = [[] for _ in loads]
    for item in sorted(ranges, key=lambda each: (-len(each), each.partition)):
        least = loads.index(min(loads))
        shares[least].append(item)
        loads[least] += len(item) * _RECORD_BYTES
    every = [span for span, _ in spans] + [NO_FILE] * (len(loads) - len(spans))
    split = [
        (span, tuple(sorted(share, key=lambda item: item.partition)))
        for span, share in zip(every, shares, strict=True)
    ]
    return tuple(each for each in split if each[1] or not each[0].is_empty)


def split_name(
    shares: Sequence[tuple[FileSpan, tuple[OffsetRange, ...]]], *more: object
) -> str:
    """Name a split: two of the same name have the same shares, of the same things (``more``)."""
    text = json.dumps(
        [
            [
                [span.start, span.stop, [[*_numbers(item)] for item in ranges]]
                for span, ranges in shares
            ],
            *map(str, more),
        ]
    )
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _numbers(item: OffsetRange) -> tuple[int, int, int]:
    return item.partition, item.start, item.stop


def _spans(files: Sequence[tuple[int, int]] | None, count: int) -> list[tuple[FileSpan, int]]:
    """Return spans of about the same size with their bytes: all places, in their order, none without a file but one."""
    total = sum(size for _, size in files or ())
    if files is None or not files:
        return [(EVERY_FILE, 0)]
    spans: list[tuple[FileSpan, int]] = []
    start = size = before = 0
    ordered = sorted(files)
    for number, (place, bytes_) in enumerate(ordered):
        # A file that would make a span larger than its share begins the next one, unless that was the last.
        share = (total - before) / (count - len(spans))
        if (
            size
            and len(spans) + 1 < count
            and size + bytes_ / 2 > share
            and ordered[number - 1][0] < place
        ):
            spans.append((FileSpan(start, place), size))
            start, before, size = place, before + size, 0
        size += max(bytes_, 1)
    return [*spans, (FileSpan(start, PLACES), size)]
