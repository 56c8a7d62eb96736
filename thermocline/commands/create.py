"""``thermocline create``: an Iceberg table bound to a topic, with its first watermark."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import click
import pyarrow as pa

from connectors.decoding.avro.columns import columns_from
from connectors.decoding.json.renames import read_renames
from connectors.decoding.json.wishes import Wishes, declared_columns
from connectors.iceberg.create import RESERVED_NAMES, NewTable, create_table
from connectors.kafka.clusters import KafkaClusters
from connectors.registry.options import section_of
from connectors.registry.registries import SchemaRegistries
from planner.errors import BadConfig
from planner.names import (
    KAFKA_HEADERS,
    KAFKA_KEY,
    METADATA_COLUMNS,
    TableName,
    cluster_of,
    first_of,
    topic_name,
)
from planner.offsets import OffsetVector
from planner.ports import Log
from planner.schema import METADATA_TYPES, Column, EpochUnit
from planner.seam.binding import Binding, OnError
from planner.seam.cut import LogBounds
from planner.seam.formats import JsonFormat, JsonMode, RecordFormat
from planner.seam.watermark import Watermark
from planner.sql_text import FieldPath, read_path, spell, spelled, split_name
from planner.type_text import parse_type
from thermocline.config.settings import Settings, load
from thermocline.inferring import inferred_columns, newest_records, refused, report
from thermocline.options import option, options, takes
from thermocline.schema_columns import described, left_out, registered, schema_of_records

FormatName = Literal["json", "avro"]


@options
class NewTableOptions:
    """What ``create`` is asked for; names of columns are paths, ``a.b`` inside others."""

    topic: str = option(required=True, help="The Kafka topic whose records become rows.")
    kafka: str = option(
        default="",
        metavar="NAME",
        help="The topic's cluster, of [kafka_clusters.NAME]; default: that of [kafka].",
    )
    columns: tuple[str, ...] = option(
        "--column",
        metavar="NAME:TYPE",
        help="A column, in Iceberg's spelling of types; with --infer, an exception.",
    )
    infer: bool = option(help="Take the columns from the topic's newest records.")
    format: FormatName | None = option(
        default=None,
        help="What records are: json, or avro with columns from a schema registry. Default: json, and with --infer "
        "what the newest records are.",
    )
    schema: str | None = option(
        metavar="SUBJECT[:VERSION]",
        help="Of avro: the schema that columns come from; default: the newest of subject TOPIC-value.",
    )
    registry: str = option(
        default="",
        metavar="NAME",
        help="Of avro: the registry, of [schema_registries.NAME]; default: that of [schema_registry].",
    )
    schema_fixed: bool = option(
        help="Of avro: records have no schema id in front; all have this version of the schema."
    )
    record: str | None = option(
        metavar="FULL.NAME",
        help="Of avro: the records that become rows, where the topic has several kinds.",
    )
    leave_out: tuple[str, ...] = option(
        metavar="NAME",
        help="With --infer or avro: a field that becomes no column; a.b inside others.",
    )
    renames: tuple[str, ...] = option(
        "--rename",
        metavar="FIELD=COLUMN",
        help="The column of an outermost field that has another name; other options say the column.",
    )
    epochs: tuple[str, ...] = option(
        "--epoch",
        metavar="NAME=s|ms|us|ns",
        help="Numbers of this column are times; a.b inside others.",
    )
    floors: tuple[str, ...] = option(
        "--floor",
        metavar="NAME",
        help="Times of this column lose what is below a microsecond; else such a record is bad.",
    )
    partition_by: tuple[str, ...] = option(
        metavar="TERM", help="day(x), hour(x), bucket(16, x), truncate(8, x), x."
    )
    sort_by: tuple[str, ...] = option(metavar="TERM", help="Order of rows inside a file.")
    on_error: OnError = option(
        default="fail", show_default=True, help="What a record that does not decode becomes."
    )
    json_mode: JsonMode | None = option(default=None, help="Of json; default: strict.")
    with_key: bool = option(help="Keep the record's key as column kafka_key.")
    with_headers: bool = option(help="Keep the record's headers as column kafka_headers.")
    comment: str | None = option(help="Description of the table.")
    replaces: bool = option(
        "--replace",
        help="Drop the table first, where it is over the same topic and has no rows yet.",
    )

    def check(self) -> None:
        """Raise BadConfig for options that contradict each other."""
        if not (self.infer or self.columns or self.format == "avro"):
            raise BadConfig("give --infer, or each column with --column.")
        if self.leave_out and not (self.infer or self.format == "avro"):
            raise BadConfig(
                "--leave-out goes with --infer: other columns are those of --column."
            )
        if cluster := cluster_of(self.topic):
            raise BadConfig(
                f"--topic {self.topic!r} is not a name a Kafka topic can have; a cluster is named with --kafka {cluster}."
            )

    def check_format(self, name: str) -> None:
        """Raise BadConfig for an option that means nothing for records of this format."""
        options = {
            "--schema": self.schema,
            "--registry": self.registry,
            "--schema-fixed": self.schema_fixed,
            "--record": self.record,
        }
        for option_name, value in options.items():
            if value and name == "json":
                raise BadConfig(
                    f"{option_name} means nothing for records of JSON; it goes with --format avro."
                )
        if self.json_mode and name == "avro":
            raise BadConfig("--json-mode means nothing for records of Avro; leave it out.")

    def binding(self, form: RecordFormat) -> Binding:
        return Binding(self.topic, form, on_error=self.on_error, kafka=self.kafka)

    def wishes(self) -> Wishes:
        return Wishes(
            columns=tuple(map(_column, self.columns)),
            leave_out=tuple(map(read_path, self.leave_out)),
            epochs=tuple(map(_epoch, self.epochs)),
            floors=tuple(map(read_path, self.floors)),
            renames=read_renames(self.renames),
            lenient=self.json_mode == "lenient",
            reserved=RESERVED_NAMES.union(METADATA_COLUMNS),
        )


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
    if chosen.format or not chosen.infer:
        chosen.check_format(chosen.format or "json")
    wishes = chosen.wishes()
    with KafkaClusters(settings.require_clusters()) as log:
        address = chosen.binding(JsonFormat()).address
        bounds = log.measure([address])[address]
        payload = _find(settings, chosen, wishes, log, bounds)
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


def _find(
    settings: Settings, chosen: NewTableOptions, wishes: Wishes, log: Log, bounds: LogBounds
) -> _Payload:
    if chosen.format == "avro":
        return _of_registry(settings, chosen, wishes, ())
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
    if not (chosen.format is None and ids):
        chosen.check_format("json")
    inferred = inferred_columns(newest, wishes, binding, settings.registries)
    lines = report(newest, inferred, settings.clusters, binding.address)
    return _Payload(inferred.columns, binding, list(map(_described, inferred.columns)), lines)


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


def _column(text: str) -> tuple[FieldPath, pa.DataType]:
    path, kind = split_name(text, ":")
    if not (all(path) and kind):
        raise BadConfig(f"--column {text!r} is not NAME:TYPE.", column=text)
    return path, parse_type(kind)


def _epoch(text: str) -> tuple[FieldPath, EpochUnit]:
    path, unit = split_name(text, "=")
    if not all(path) or unit not in get_args(EpochUnit):
        raise BadConfig(
            f"--epoch {text}: write NAME=UNIT; units are s, ms, us, ns.", column=spell(path)
        )
    return path, unit  # type: ignore[return-value]
