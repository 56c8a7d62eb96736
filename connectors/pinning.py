"""From what one metadata file says of a table to its pin. Shared by every cold store; no I/O of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from planner.binding import Binding, parse_binding
from planner.cut import Pin
from planner.errors import WatermarkMissing
from planner.names import TableName
from planner.offsets import OffsetVector
from planner.resolver import needs_statistics, resolve
from planner.schema import TableSchema, check_federated
from planner.snapshots import History

#: Iceberg's own table property for a description of the table.
COMMENT = "comment"


@dataclass(frozen=True, slots=True)
class TableFacts:
    """One metadata file, read once. ``head`` is the current snapshot, None when there is none."""

    table: TableName
    table_uuid: str
    metadata_location: str
    head: int | None
    schema: TableSchema
    properties: Mapping[str, str]
    history: History


def decide_pin(facts: TableFacts, added_next: Callable[[int], OffsetVector | None]) -> Pin:
    """Bind, check and resolve. ``added_next`` looks up what an ``overwrite`` snapshot added.

    Raises:
        BadBinding, UnsupportedType: as ``parse_binding`` and ``check_federated``.
        WatermarkMissing, WatermarkUnreadable, ForeignCommit: as ``resolve``.
    """
    pin = Pin(
        table=facts.table,
        table_uuid=facts.table_uuid,
        metadata_location=facts.metadata_location,
        snapshot_id=facts.head,
        schema=facts.schema,
        comment=facts.properties.get(COMMENT) or None,
    )
    binding = parse_binding(facts.table, facts.properties)
    if binding is None:
        return pin
    check_federated(facts.table, facts.schema)
    if facts.head is None:
        raise WatermarkMissing(
            f"{facts.table}: the table is bound to topic {binding.topic} but has no snapshot, so it has no first "
            f"watermark; create it with `thermocline create`.",
            table=str(facts.table),
            topic=binding.topic,
        )
    history = with_statistics(facts.history, facts.head, added_next)
    mark = resolve(history, facts.head, table=str(facts.table)).watermark
    return replace(
        pin,
        schema=with_units(facts.schema, binding),
        binding=replace(binding, skips=mark.skipped),
        watermark=mark,
    )


def with_statistics(
    history: History, head: int, added_next: Callable[[int], OffsetVector | None]
) -> History:
    """Look up what the resolver needs to know of ``overwrite`` snapshots above the watermark of ``head``."""
    asked = needs_statistics(history, head)
    if not asked:
        return history
    snapshots = dict(history.snapshots)
    for snapshot_id in asked:
        snapshots[snapshot_id] = replace(
            snapshots[snapshot_id], added_next=added_next(snapshot_id)
        )
    return replace(history, snapshots=snapshots)


def with_units(schema: TableSchema, binding: Binding) -> TableSchema:
    units = dict(binding.epoch_units)
    return replace(
        schema,
        columns=tuple(
            replace(column, epoch_unit=units.get(column.field_id)) for column in schema.columns
        ),
    )
