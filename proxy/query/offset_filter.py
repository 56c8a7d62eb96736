"""Relations of a cut narrowed to some of its offsets: what a follower has not seen, what is older than its end."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from planner.cut import Increment
from planner.names import KAFKA_OFFSET, KAFKA_PARTITION, KAFKA_TIMESTAMP
from planner.offsets import OffsetRange
from planner.ports import ArrowRelation, SqlRelation

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def narrowed(
    part: SqlRelation | ArrowRelation,
    ranges: Sequence[OffsetRange],
    increment: Increment | None,
) -> SqlRelation | ArrowRelation:
    """Return the rows of ``part`` that lie in ``ranges`` (one a partition, at least one) and are young enough."""
    since_us = None if increment is None else increment.since_us
    if isinstance(part, ArrowRelation):
        return ArrowRelation(part.table.filter(_mask(part.table, since_us, ranges)))
    return replace(part, sql=_narrowed_sql(part.sql, since_us, ranges))


def _narrowed_sql(sql: str, since_us: int | None, ranges: Sequence[OffsetRange]) -> str:
    spans = ", ".join(
        f"({span.partition}::INTEGER, {span.start}::BIGINT, {span.stop}::BIGINT)"
        for span in ranges
    )
    # The outermost bounds once more, as constants: statistics of files are compared with those.
    conditions = [
        f"rows.{KAFKA_OFFSET} >= {min(span.start for span in ranges)}",
        f"rows.{KAFKA_OFFSET} < {max(span.stop for span in ranges)}",
    ]
    if since_us is not None:
        since = _EPOCH + dt.timedelta(microseconds=since_us)
        conditions.append(f"rows.{KAFKA_TIMESTAMP} >= TIMESTAMPTZ '{since.isoformat()}'")
    return (
        f"SELECT rows.* FROM (\n{sql}\n) AS rows "  # noqa: S608 - our SQL and numbers
        f"JOIN (VALUES {spans}) AS span(part, start, stop) ON rows.{KAFKA_PARTITION} = span.part "
        f"AND rows.{KAFKA_OFFSET} >= span.start AND rows.{KAFKA_OFFSET} < span.stop "
        f"WHERE {' AND '.join(conditions)}"
    )


def _mask(
    table: pa.Table, since_us: int | None, ranges: Sequence[OffsetRange]
) -> pa.ChunkedArray:
    partitions, offsets = table[KAFKA_PARTITION], table[KAFKA_OFFSET]
    mask = pa.chunked_array([pa.repeat(False, table.num_rows)])
    for span in ranges:
        inside = pc.and_(
            pc.equal(partitions, span.partition),
            pc.and_(
                pc.greater_equal(offsets, span.start),
                pc.less(offsets, span.stop),
            ),
        )
        mask = pc.or_(mask, inside)
    if since_us is not None:
        since = pa.scalar(since_us, pa.timestamp("us", tz="UTC"))
        mask = pc.and_(mask, pc.greater_equal(table[KAFKA_TIMESTAMP], since))
    return mask
