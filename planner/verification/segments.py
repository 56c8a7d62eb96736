"""Cuts the compared offsets by how they were tiered: rows tiered before a column was added stay NULL in it.

The chain of watermarks tells which snapshot tiered an offset, and so its schema and shape.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from planner.offsets import OffsetRange
from planner.verification.chain import Carrier


@dataclass(frozen=True, slots=True)
class TieredSegment:
    """Ranges tiered alike, one per partition. None: the snapshot that tiered them expired, so it is not known.

    ``skipped`` are the skips that ``shape`` includes.
    """

    ranges: tuple[OffsetRange, ...]
    schema_id: int | None
    shape: str | None
    skipped: tuple[tuple[int, int], ...] = ()


def segments(
    compared: Sequence[OffsetRange], chain: Sequence[Carrier], schema_ids: Mapping[int, int]
) -> tuple[TieredSegment, ...]:
    """Cut ``compared``, one range per partition, where schema or shape changed, oldest first.

    ``chain`` are the retained carriers, newest first; ``schema_ids`` the schema of each snapshot.
    """
    result: list[TieredSegment] = []
    begins = {item.partition: item.start for item in compared}
    ends = {item.partition: item.stop for item in compared}
    steps = [
        (carrier, schema_ids[carrier.snapshot.snapshot_id], carrier.watermark.shape)
        for carrier in reversed(chain)
    ]
    # Offsets of the oldest retained carrier were tiered by earlier commits, and perhaps by itself.
    alike: list[tuple[Carrier, int | None, str | None]] = [
        (carrier, None if index == 0 else schema_id, None if index == 0 else shape)
        for index, (carrier, schema_id, shape) in enumerate(steps)
    ]
    for (schema_id, shape), group in itertools.groupby(alike, key=lambda step: step[1:]):
        newest = list(group)[-1][0].watermark
        ranges = []
        for partition, start in begins.items():
            stop = min(newest.offset(partition), ends[partition])
            if start < stop:
                ranges.append(OffsetRange(partition, start, stop))
                begins[partition] = stop
        if ranges:
            result.append(TieredSegment(tuple(ranges), schema_id, shape, newest.skipped))
    return tuple(result)
