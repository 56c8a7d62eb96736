"""``thermocline create``: an Iceberg table bound to a topic, with its first watermark."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import click

from connectors.decoding.avro.columns import columns_from
from connectors.decoding.fields import VALUE
from connectors.decoding.framing import Side
from connectors.decoding.json.renames import with_fields
from connectors.decoding.json.wishes import Wishes, declared_columns, unfit_renames
from connectors.decoding.plain import PLAIN_TYPES
from connectors.iceberg.create import NewTable, create_table
from connectors.kafka.clusters import KafkaClusters
from connectors.registry.options import section_of
from connectors.registry.registries import SchemaRegistries
from planner.errors import BadConfig
from planner.names import (
    KAFKA_HEADERS,
    KAFKA_KEY,
    TableName,
    first_of,
    topic_name,
)
from planner.offsets import OffsetVector
from planner.ports import Log
from planner.schema import METADATA_TYPES, Column
from planner.seam.binding import Binding
from planner.seam.cut import LogBounds
from planner.seam.formats import FORMATS, AvroFormat, JsonFormat
from planner.seam.watermark import Watermark
from planner.sql_text import spelled
from thermocline.config.settings import Settings, load
from thermocline.inferring import (
    inferred_columns,
    newest_records,
    refuse_ids_in_headers,
    refused,
    report,
)
from thermocline.key_columns import KeyOptions, new_key
from thermocline.keyed_options import KeyedOptions, said_of_topic
from thermocline.new_table_options import NewTableOptions
from thermocline.options import takes
from thermocline.schema_columns import described, left_out, registered, schema_of_records


@click.command(
    epilog="Example: thermocline create lake.net.flows --topic flows --column src:string "
    "--column bytes:long --column seen:timestamptz --epoch seen=ms --partition-by 'day(kafka_timestamp)'"
)
@click.argument("table", metavar="CATALOG.NAMESPACE.TABLE")
@takes(NewTableOptions)
@click.pass_obj
def command(config: str | None, chosen: NewTableOptions, table: str) -> None:
    """Create an Iceberg table bound to a Kafka topic.

    The first watermark is where the topic's log starts now: everything it retains belongs to the table.
    """
    settings = load(config).require_catalogs()
    name = TableName.parse(table)
    chosen.check()
    keyed = chosen.keyed()
    key = chosen.key() if keyed is None else None
    if chosen.format or not chosen.infer:
        chosen.check_format(chosen.format or "json")
    wishes = chosen.wishes()
    with KafkaClusters(settings.require_clusters()) as log:
        address = chosen.binding(JsonFormat()).address
        bounds = log.measure([address])[address]
        payload = _find(settings, chosen, wishes, log, bounds)
        if key is not None:
            payload = _with_key(payload, key, settings, chosen)
        if keyed is not None:
            payload = _keyed(payload, keyed, settings, chosen)
        refuse_ids_in_headers(log, bounds, _sides_with_ids(payload.binding))
    extra = [KAFKA_KEY] * chosen.with_key + [KAFKA_HEADERS] * chosen.with_headers
    first = create_table(
        settings.catalogs,
        NewTable(
            name,
            [*(Column(0, key, METADATA_TYPES[key]) for key in extra), *payload.columns],
            payload.binding,
            partition_by=chosen.partition_by,
            sort_by=chosen.sort_by,
            comment=chosen.comment,
            floors=wishes.floors,
            key_column="" if key is None else key.name,
            key=() if keyed is None else keyed.names,
        ),
        first_watermark(bounds, payload.binding),
        replaces=chosen.replaces,
    )
    starts = ", ".join(f"{partition}: {offset}" for partition, offset in first.next)
    click.echo(
        f"created {name} over topic {payload.binding.address}; it starts at offsets {starts}"
    )
    columns = [f"  {line}" for line in first_of(payload.described)]
    click.echo("\n".join((*columns, *payload.lines)))


@dataclass(frozen=True, slots=True)
class _Payload:
    """The columns of the record's value and what they are read by; a line for each of them, and what else is said."""

    columns: tuple[Column, ...]
    binding: Binding
    described: list[str]
    lines: list[str]


def _with_key(
    payload: _Payload, key: KeyOptions, settings: Settings, chosen: NewTableOptions
) -> _Payload:
    key.check_beside(payload.columns)
    new = new_key(key, chosen.topic, settings.registries, chosen.registry)
    return _Payload(
        (new.column, *payload.columns),
        replace(payload.binding, key=new.key),
        [new.line, *payload.described],
        payload.lines,
    )


def _keyed(
    payload: _Payload, keyed: KeyedOptions, settings: Settings, chosen: NewTableOptions
) -> _Payload:
    columns = keyed.with_key(payload.columns)
    binding = keyed.bound(payload.binding, columns, settings.registries, chosen.registry)
    own = columns[: len(columns) - len(payload.columns)]
    return _Payload(
        columns,
        binding,
        [*(f"{column.name}  {column.type}  from keys" for column in own), *payload.described],
        [*payload.lines, *said_of_topic(settings.clusters, binding.address)],
    )


def _sides_with_ids(binding: Binding) -> Iterator[Side]:
    """Yield what has the id of an Avro schema in front."""
    if isinstance(binding.format, AvroFormat) and binding.format.fixed is None:
        yield "value"
    if binding.key is not None and binding.key.format == AvroFormat.name:
        yield "key"


def _find(
    settings: Settings, chosen: NewTableOptions, wishes: Wishes, log: Log, bounds: LogBounds
) -> _Payload:
    if chosen.format == "avro":
        return _of_registry(settings, chosen, wishes, ())
    if chosen.format in PLAIN_TYPES:
        return _plain(chosen, wishes, chosen.format)
    binding = chosen.binding(JsonFormat(chosen.json_mode or "strict"))
    if not chosen.infer:
        payload, refusals = declared_columns(wishes)
        if refusals:
            raise refused(refusals, f"topic {binding.address}")
        return _Payload(payload, binding, list(map(_described, payload)), [])
    newest = newest_records(log, bounds)
    ids = newest.samples.schema_ids
    if chosen.format is None and ids and chosen.registry in settings.registries:
        chosen.check_format("avro")
        return _of_registry(settings, chosen, wishes, ids)
    if not ids:
        chosen.check_format("json")
    inferred = inferred_columns(newest, wishes, binding, settings.registries)
    lines = report(newest, inferred, settings.clusters, binding.address)
    return _Payload(inferred.columns, binding, list(map(_described, inferred.columns)), lines)


def _plain(chosen: NewTableOptions, wishes: Wishes, name: str) -> _Payload:
    """Return the one column of records that are one value. Raises BadBinding for a rename of another."""
    binding = chosen.binding(FORMATS[name]())
    column = Column(0, wishes.renames.get(VALUE, VALUE), PLAIN_TYPES[name])
    refusals = unfit_renames(wishes.renames, (column,), (VALUE,), {})
    if refusals:
        raise refused(refusals, f"topic {binding.address}")
    columns = with_fields((column,), wishes.renames)
    return _Payload(columns, binding, list(map(_described, columns)), [])


def _of_registry(
    settings: Settings, chosen: NewTableOptions, wishes: Wishes, ids: Sequence[int]
) -> _Payload:
    """Take the columns from a schema registry; ``ids`` are those in front of records, where that was why.

    Raises:
        BadConfig: no such registry is configured; or as ``registered``.
        SchemaRegistryUnavailable: as ``registered``.
        BadBinding: with every field that becomes no column, and what to type for each.
    """
    if chosen.registry not in settings.registries:
        section = section_of(chosen.registry)
        raise BadConfig(
            f"--format avro takes columns from a schema registry, and the settings have no [{section}]; add it, with url."
        )
    with SchemaRegistries(settings.registries) as registries:
        registry = registries.of(chosen.registry)
        if ids and chosen.schema is None:
            schema = schema_of_records(registry, chosen.topic, ids[-1])
        else:
            schema = registered(registry, chosen.schema or f"{chosen.topic}-value")
    form = schema.format(chosen.registry, chosen.record, is_fixed=chosen.schema_fixed)
    schema = schema.of_rows(chosen.record, chosen.envelope or "none")
    binding = chosen.binding(form)
    payload = columns_from(schema.writer, wishes)
    if payload.refusals:
        raise refused(payload.refusals, f"topic {binding.address}")
    lines = [f"records are Avro with schema ids, such as {ids[-1]}"] if ids else []
    lines += left_out(payload, schema, wishes)
    return _Payload(payload.columns, binding, described(payload.columns, schema, wishes), lines)


def first_watermark(bounds: LogBounds, binding: Binding) -> Watermark:
    """The watermark of a table that holds nothing yet: the log start of every partition."""
    return Watermark(
        cluster_id=bounds.cluster_id,
        topic=topic_name(bounds.topic),
        topic_id=bounds.topic_id,
        next=OffsetVector.of((each.partition, each.log_start) for each in bounds.partitions),
        epochs=bounds.epochs,
        shape=binding.shape,
        run=str(uuid.uuid4()),
    )


def _described(column: Column) -> str:
    source = f"  from field {spelled(column.keys[-1])}" if column.keys else ""
    return f"{column.name}  {column.type}{source}"
