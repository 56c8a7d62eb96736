"""Splits a ``TableRead`` among readers side by side: into disjoint shares that together are all of it.

A file is in a share by a number that its path alone gives, so it is in the same one at every replica, however files are
listed or pruned. The tail is split by its ranges.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import TypeAlias

from planner.offsets import OffsetRange, cut_up, joined
from planner.reading.filters import EVERY_FILE, NO_FILE, POSITIONS, FileSpan
from planner.reading.plan import ReadShare, TableRead

#: What a record of the tail is taken to weigh, beside the bytes of files.
_RECORD_BYTES = 100

#: Position and bytes of each file, in any order; None: files are not to be told apart.
Files: TypeAlias = Sequence[tuple[int, int]] | None


def split_read(
    read: TableRead, files: Files, count: int, *, statement_time_us: int, hides_count: bool
) -> tuple[ReadShare, ...]:
    """Return at most ``count`` shares of a divisible read; none if there is nothing to split.

    ``hides_count``: always return ``count`` shares without a name, as their number tells of the rows.
    """
    shares = split_scan(files, read.tail, count)
    if hides_count:
        shares += ((NO_FILE, ()),) * (count - len(shares))
        return tuple(ReadShare(span, ranges) for span, ranges in shares)
    if len(shares) == 1:
        return ()
    cut, when = read.cut, statement_time_us if read.tells_time else None
    cold = cut.cold
    name = split_name(shares, cut.table_uuid, cold.snapshot_id, cold.schema.schema_id, when)
    return tuple(ReadShare(span, ranges, name) for span, ranges in shares)


def split_scan(
    files: Files, ranges: Sequence[OffsetRange], count: int
) -> tuple[tuple[FileSpan, tuple[OffsetRange, ...]], ...]:
    """Return at most ``count`` shares of about the same size; one if there is nothing to split.

    ``files`` are those that matter; of None, one reader has all. The spans have every position, also without a file there.
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


def split_ranges(
    ranges: Sequence[OffsetRange], most_offsets: int, count: int | None = None
) -> tuple[tuple[OffsetRange, ...], ...]:
    """Return ranges for tasks of near-equal size, of at most ``most_offsets`` each unless ``count`` tasks are fewer."""
    splits = [split for span in ranges for split in cut_up(span, most_offsets)]
    return share_out(splits, len(splits) if count is None else count)


def share_out(splits: Sequence[OffsetRange], count: int) -> tuple[tuple[OffsetRange, ...], ...]:
    """Group splits into ``count`` tasks of near-equal size, or as many as there are splits if they are fewer.

    Splits of one partition that meet in a task become one range again.
    """
    total = sum(map(len, splits))
    count = min(len(splits), count)
    tasks: list[list[OffsetRange]] = [[] for _ in range(count)]
    before = 0
    for split in splits:
        # By its middle, so that equal splits fall into different tasks.
        middle = before + len(split) / 2
        tasks[int(middle * count / total)].append(split)
        before += len(split)
    return tuple(joined(task) for task in tasks if task)


def split_name(
    shares: Sequence[tuple[FileSpan, tuple[OffsetRange, ...]]], *more: object
) -> str:
    """Name a split: two of the same name have the same shares, of the same things (``more``)."""
    text = json.dumps(
        [
            [
                [
                    span.start,
                    span.stop,
                    [[item.partition, item.start, item.stop] for item in ranges],
                ]
                for span, ranges in shares
            ],
            *map(str, more),
        ]
    )
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _spans(files: Files, count: int) -> list[tuple[FileSpan, int]]:
    """Return spans of about the same size with their bytes: all positions in order, none without a file but one."""
    total = sum(size for _, size in files or ())
    if not files:
        return [(EVERY_FILE, 0)]
    spans: list[tuple[FileSpan, int]] = []
    start = size = before = 0
    ordered = sorted(files)
    for number, (position, bytes_) in enumerate(ordered):
        # A file that would make a span larger than its share begins the next one, unless that was the last.
        share = (total - before) / (count - len(spans))
        if (
            size
            and len(spans) + 1 < count
            and size + bytes_ / 2 > share
            and ordered[number - 1][0] < position
        ):
            spans.append((FileSpan(start, position), size))
            start, before, size = position, before + size, 0
        size += max(bytes_, 1)
    return [*spans, (FileSpan(start, POSITIONS), size)]
