"""Cuts a fetch into windows: bounded in rows and bytes, whatever the size of the records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from planner.names import KAFKA_OFFSET, KAFKA_PARTITION
from planner.offsets import OffsetRange
from planner.schema import RAW_SCHEMA
from planner.verification.window import Window


def windows(
    batches: Iterable[pa.RecordBatch],
    ranges: Sequence[OffsetRange],
    *,
    max_rows: int,
    max_bytes: int,
) -> Iterator[tuple[Window, pa.Table]]:
    """Yield windows with all their records; together they are exactly ``ranges``.

    A window ends behind the last record read of each partition, the last one at the stops.
    """
    reached = {item.partition: item.start for item in ranges}
    stops = {item.partition: item.stop for item in ranges}
    pending: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        pending.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= max_rows or size >= max_bytes:
            records = pa.Table.from_batches(pending, RAW_SCHEMA)
            yield _window(reached, _behind_last(records)), records
            pending, rows, size = [], 0, 0
    last = _window(reached, stops)
    if last.ranges:
        yield last, pa.Table.from_batches(pending, RAW_SCHEMA)


def _behind_last(records: pa.Table) -> dict[int, int]:
    last = records.group_by(KAFKA_PARTITION).aggregate([(KAFKA_OFFSET, "max")])
    return {row[KAFKA_PARTITION]: row[f"{KAFKA_OFFSET}_max"] + 1 for row in last.to_pylist()}


def _window(reached: dict[int, int], stops: dict[int, int]) -> Window:
    """Make the window up to ``stops`` and remember its end."""
    ranges = tuple(
        OffsetRange(partition, reached[partition], stop)
        for partition, stop in sorted(stops.items())
        if reached[partition] < stop
    )
    reached.update(stops)
    return Window(ranges)
