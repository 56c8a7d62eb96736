"""How a statement reads a segment: bare where its cut has all of it, else through the cut's ranges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from planner.names import KAFKA_OFFSET, KAFKA_PARTITION
from planner.offsets import OffsetRange
from planner.ports import SqlRelation
from planner.sql_text import identifier
from proxy.tail.segment import Segment

#: Ranges are compared one by one up to this many partitions, and joined for more.
_MAX_CASES = 32


def relations(
    segment: Segment, columns: Sequence[str], needed: Mapping[int, OffsetRange]
) -> Iterator[SqlRelation]:
    """Name the rows of a segment within ``needed``, by partition, in the cheapest way that is exact."""
    if _is_bare(segment, needed):
        yield _bare(segment.name, columns)
        return
    rows = bare_rows(segment, needed)
    if rows:
        # The rows added first: row ids count up from 0, and no row was deleted.
        # A third of what comparing offsets costs: 1.0 against 3.2 ms on 600,000 rows (DuckDB 1.5.5).
        first = f"{_bare(segment.name, columns).sql} WHERE rowid < {rows}"
        yield SqlRelation(first, is_native=True)
    if not segment.append_log or rows < segment.append_log[-1][0]:
        cut = [item for partition, item in needed.items() if partition in segment.ranges]
        yield bounded(segment.name, columns, cut, rows)


def bare_rows(segment: Segment, needed: Mapping[int, OffsetRange]) -> int:
    """Return how many of a segment's first rows are surely within ``needed``: all where it is read bare."""
    if _is_bare(segment, needed):
        return segment.rows
    inside = (
        rows for rows, ranges in reversed(segment.append_log) if _is_inside(ranges, needed)
    )
    return next(inside, 0)


def _is_bare(segment: Segment, needed: Mapping[int, OffsetRange]) -> bool:
    # Others may add to a segment that is not full between this decision and the read.
    is_exact = segment.is_full and not segment.is_trimmed
    return is_exact and _is_inside(segment.ranges, needed)


def _is_inside(ranges: Mapping[int, OffsetRange], bounds: Mapping[int, OffsetRange]) -> bool:
    """Whether every offset of ``ranges`` is within ``bounds``."""
    return all(
        partition in bounds
        and bounds[partition].start <= item.start
        and item.stop <= bounds[partition].stop
        for partition, item in ranges.items()
    )


def _bare(name: str, columns: Sequence[str]) -> SqlRelation:
    """All rows of a full segment."""
    names = ", ".join(map(identifier, columns))
    return SqlRelation(f"SELECT {names} FROM {name}", is_native=True)  # noqa: S608 - our names


def bounded(
    name: str, columns: Sequence[str], ranges: Sequence[OffsetRange], after: int = 0
) -> SqlRelation:
    """The rows of a segment within the ranges; a partition without one has no rows in the answer.

    ``after`` leaves out this many rows that were added first.
    """
    if len(ranges) > _MAX_CASES:
        return _joined(name, columns, ranges, after)
    cases = " ".join(
        f"WHEN {item.partition} THEN {KAFKA_OFFSET} >= {item.start} AND {KAFKA_OFFSET} < {item.stop}"
        for item in ranges
    )
    inside = f"(CASE {KAFKA_PARTITION} {cases} ELSE false END)" if cases else "false"
    # Implied by the rest, but lets the engine skip blocks unread.
    lowest = min((item.start for item in ranges), default=0)
    return SqlRelation(
        f"{_bare(name, columns).sql} WHERE {KAFKA_OFFSET} >= {lowest} AND {inside}"
        + (f" AND rowid >= {after}" if after else ""),
        is_native=True,
    )


def _joined(
    name: str, columns: Sequence[str], ranges: Iterable[OffsetRange], after: int
) -> SqlRelation:
    """As ``bounded``: planned in three quarters of its time for 256 partitions, in 1.4 times that for four."""
    bounds = ", ".join(
        f"({item.partition}::INTEGER, {item.start}::BIGINT, {item.stop}::BIGINT)"
        for item in ranges
    )
    names = ", ".join(f"tail.{identifier(column)}" for column in columns)
    return SqlRelation(
        f"SELECT {names} FROM {name} AS tail "  # noqa: S608 - our names and numbers
        f"JOIN (VALUES {bounds}) AS cut(part, start, stop) ON tail.{KAFKA_PARTITION} = cut.part "
        f"AND tail.{KAFKA_OFFSET} >= cut.start AND tail.{KAFKA_OFFSET} < cut.stop"
        + (f" WHERE tail.rowid >= {after}" if after else ""),
        is_native=True,
    )
