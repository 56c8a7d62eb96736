"""Offsets of one topic: half-open ranges and per-partition vectors."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import lt
from types import MappingProxyType

#: Leader epochs by partition where none is known.
NO_EPOCHS: Mapping[int, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """Offsets ``start <= offset < stop`` of one partition. Offsets, not records: a log has holes."""

    partition: int
    start: int
    stop: int

    def __post_init__(self) -> None:
        if self.partition < 0:
            raise ValueError(f"not a partition: {self.partition}")
        if not 0 <= self.start <= self.stop:
            raise ValueError(f"not a range: [{self.start}, {self.stop})")

    def __len__(self) -> int:
        return self.stop - self.start

    def __contains__(self, offset: int) -> bool:
        return self.start <= offset < self.stop


@dataclass(frozen=True, slots=True)
class OffsetVector:
    """One offset per partition, sorted by partition. A partition that is not in it is *absent*, not 0."""

    items: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        if not self.items:
            return
        partitions = [partition for partition, _ in self.items]
        if not all(map(lt, partitions, partitions[1:])):
            raise ValueError(f"partitions must be sorted and unique: {partitions}")
        if partitions[0] < 0 or min([offset for _, offset in self.items]) < 0:
            raise ValueError(f"negative partition or offset: {self.items}")

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, int]]) -> OffsetVector:
        return cls(tuple(sorted(pairs)))

    def get(self, partition: int) -> int | None:
        index = bisect.bisect_left(self.items, (partition,))
        matches = self.items[index : index + 1]
        return matches[0][1] if matches and matches[0][0] == partition else None

    def as_dict(self) -> dict[int, int]:
        return dict(self.items)

    @property
    def partitions(self) -> tuple[int, ...]:
        return tuple(partition for partition, _ in self.items)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


def joined(ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """Join ranges of one partition that touch, sorted: a log is asked for one range per partition."""
    merged: list[OffsetRange] = []
    for item in sorted(ranges):
        last = merged[-1] if merged else None
        if last is not None and (last.partition, last.stop) == (item.partition, item.start):
            merged[-1] = OffsetRange(item.partition, last.start, item.stop)
        else:
            merged.append(item)
    return tuple(merged)


def check_one_per_partition(ranges: Sequence[OffsetRange]) -> None:
    """Raise ValueError if a partition has two ranges: a bug of the caller's, see ``joined``."""
    if len({item.partition for item in ranges}) != len(ranges):
        raise ValueError(f"more than one range of a partition: {list(ranges)}")


def fair_share(untiered: tuple[OffsetRange, ...], allowed: int) -> tuple[OffsetRange, ...]:
    """Cut every range to the same fraction of its length, rounded down, one offset more while any is left."""
    total = sum(len(item) for item in untiered)
    if total <= allowed:
        return untiered
    lengths = [len(item) * allowed // total for item in untiered]
    left = allowed - sum(lengths)
    for index, item in enumerate(untiered):
        if left and lengths[index] < len(item):
            lengths[index] += 1
            left -= 1
    return tuple(
        OffsetRange(item.partition, item.start, item.start + length)
        for item, length in zip(untiered, lengths, strict=True)
    )


def cut_up(item: OffsetRange, rows: int) -> list[OffsetRange]:
    """Cut one range into near-equal splits of at most ``rows`` offsets; an empty range has none."""
    count = -(-len(item) // rows)
    bounds = (item.start + len(item) * index // count for index in range(count + 1) if count)
    return [OffsetRange(item.partition, *pair) for pair in itertools.pairwise(bounds)]
