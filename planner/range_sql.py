"""SQL of the rows of a relation whose records lie in ranges of offsets."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from planner.names import KAFKA_OFFSET, KAFKA_PARTITION, KAFKA_TIMESTAMP
from planner.offsets import OffsetRange

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def rows_within(sql: str, ranges: Sequence[OffsetRange], since_us: int | None = None) -> str:
    """Return a SELECT of the rows of ``sql`` in ``ranges`` (one a partition, at least one).

    ``since_us``: and of that time or later, microseconds since 1970.
    """
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
