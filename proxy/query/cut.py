"""One cut for all tables of a statement: pin each, measure every log in one round, decide (docs/internals/seam.md)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from connectors.iceberg.pin_cache import PinCache
from planner.cut import LogBounds, Pin, TableCut, cold_cut, plan_cut
from planner.errors import (
    FederationError,
    Inconsistent,
    SnapshotExpired,
    StalePlan,
    UnknownTopic,
)
from planner.freshness import caught_up
from planner.names import TableName
from planner.statement.references import CutKey
from planner.ticket import TicketTable
from planner.watermark import Watermark
from proxy.query.bounds_cache import BoundsCache


class Measures(Protocol):
    """The part of ``planner.ports.Log`` that cuts need."""

    def measure(self, topics: Sequence[str]) -> Mapping[str, LogBounds]: ...


def cut_tables(
    pins: PinCache,
    log: Measures,
    tables: Sequence[TableName],
    *,
    cold_only: Collection[TableName] = (),
) -> dict[TableName, TableCut]:
    """Pin first, measure second, decide; after a refusal re-pin once and measure again.

    The logs of ``cold_only`` tables are not asked: their snapshot is all the statement reads.

    An old pin meets a log that retention has moved past it whenever tiering and retention both went on: the
    newest pin then answers. What is refused twice is true.

    Raises:
        FederationError: of the pins, the log or the decision.
    """
    try:
        return _cut({table: pins.get(table) for table in tables}, log, cold_only)
    except (Inconsistent, StalePlan):
        return _cut({table: pins.refresh(table) for table in tables}, log, cold_only)


def cut_remembered(
    pins: PinCache,
    rounds: BoundsCache,
    tables: Sequence[TableName],
    *,
    cold_only: Collection[TableName] = (),
    max_age_s: float,
) -> tuple[dict[TableName, TableCut], float | None] | None:
    """Cut tables as of a round measured at most ``max_age_s`` ago; return them with its age. No log is asked.

    None: there is no such round, or it does not fit the tables any more.

    Raises:
        FederationError: of the pins.
    """
    pinned = {table: pins.get(table) for table in tables}
    marks = _marks(pinned, cold_only)
    if not marks:
        return {table: cold_cut(pin) for table, pin in pinned.items()}, None
    measured = rounds.remembered([mark.topic for mark in marks.values()], max_age_s)
    if measured is None:
        return None
    try:
        cuts = {
            table: plan_cut(pin, caught_up(measured.bounds[marks[table].topic], marks[table]))
            if table in marks
            else cold_cut(pin)
            for table, pin in pinned.items()
        }
    except Inconsistent:
        return None
    return cuts, rounds.age_s(measured)


def _marks(
    pinned: Mapping[TableName, Pin], cold_only: Collection[TableName]
) -> dict[TableName, Watermark]:
    """The watermarks of the tables whose logs are read."""
    return {
        table: pin.watermark
        for table, pin in pinned.items()
        if pin.watermark is not None and table not in cold_only
    }


def _cut(
    pinned: Mapping[TableName, Pin], log: Measures, cold_only: Collection[TableName]
) -> dict[TableName, TableCut]:
    marks = _marks(pinned, cold_only)
    bounds = _measure(log, marks)
    return {
        table: plan_cut(pin, bounds[marks[table].topic]) if table in marks else cold_cut(pin)
        for table, pin in pinned.items()
    }


def _measure(log: Measures, marks: Mapping[TableName, Watermark]) -> Mapping[str, LogBounds]:
    topics = sorted({mark.topic for mark in marks.values()})
    try:
        return log.measure(topics) if topics else {}
    except UnknownTopic as error:
        missing = error.facts["topic"]
        table = next((name for name in sorted(marks) if marks[name].topic == missing), None)
        if table is None:
            raise
        raise UnknownTopic(
            f"{table}: it is bound to topic {missing}, which the Kafka cluster does not have; point the server at "
            f"the right brokers, or bind a new table.",
            table=str(table),
            topic=missing,
        ) from error


def redeem_tables(pins: PinCache, tables: Sequence[TicketTable]) -> dict[CutKey, TableCut]:
    """Build the cuts a ticket names again, on whatever replica this is. The log is not measured.

    Raises:
        SnapshotExpired: the table, its metadata file or its watermark is not the ticket's any more.
        FederationError: of the pins.
    """
    return {table.key: _redeem(pins, table) for table in tables}


def _redeem(pins: PinCache, table: TicketTable) -> TableCut:
    pin = pins.pin_at(
        table.table,
        table_uuid=table.table_uuid,
        metadata_file=table.metadata_file,
        snapshot_id=table.snapshot_id,
        schema_id=table.schema_id,
    )
    try:
        return table.cut(pin)
    except ValueError as error:
        raise _changed(table) from error


def _changed(table: TicketTable) -> FederationError:
    return SnapshotExpired(
        f"{table.table}: the table is not what the ticket was issued for any more; plan the statement again.",
        table=str(table.table),
        snapshot_id=table.snapshot_id,
    )
