"""``thermocline create``: an Iceberg table bound to a topic, with its first watermark."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import click
import pyarrow as pa

from connectors.decoding.avro.columns import columns_from
from connectors.decoding.fields import VALUE
from connectors.decoding.framing import Side
from connectors.decoding.json.renames import read_renames, with_fields
from connectors.decoding.json.wishes import Wishes, declared_columns, unfit_renames
from connectors.decoding.plain import PLAIN_TYPES
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
from planner.seam.formats import FORMATS, AvroFormat, JsonFormat, JsonMode, RecordFormat
from planner.seam.keys import KeyFormat
from planner.seam.watermark import Watermark
from planner.sql_text import FieldPath, read_path, spell, spelled, split_name
from planner.type_text import parse_type, type_text
from thermocline.config.settings import Settings, load
from thermocline.inferring import (
    inferred_columns,
    newest_records,
    refuse_ids_in_headers,
    refused,
    report,
)
from thermocline.key_columns import KeyOptions, new_key
from thermocline.options import option, options, takes
from thermocline.schema_columns import described, left_out, registered, schema_of_records

FormatName = Literal["json", "avro", "raw", "string"]


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
        help="A column, in Iceberg's spelling of types; with --infer or avro, an exception.",
    )
    infer: bool = option(help="Take the columns from the topic's newest records.")
    format: FormatName | None = option(
        default=None,
        help="What records are: json; avro with columns from a schema registry; raw bytes or a string, as the one column "
        "value. Default: json, and with --infer what the newest records are.",
    )
    schema: str | None = option(
        metavar="SUBJECT[:VERSION]",
        help="Of avro: the schema that columns come from; default: the newest of subject TOPIC-value.",
    )
    registry: str = option(
        default="",
        metavar="NAME",
        help="Of avro, also of keys: the registry, of [schema_registries.NAME]; default: that of [schema_registry].",
    )
    schema_fixed: bool = option(
        help="Of avro: records have no schema id in front; all have this version of the schema."
    )
    record: str | None = option(
        metavar="FULL.NAME",
        help="Of avro: the records that become rows, where the topic has several kinds.",
    )
    key_format: KeyFormat | None = option(
        default=None,
        help="What keys of records are, which fill a column then; default: they fill none.",
    )
    key_column: str | None = option(
        metavar="NAME[:TYPE]",
        help="The column of keys, of json with its type; default: key.",
    )
    key_schema: str | None = option(
        metavar="SUBJECT[:VERSION]",
        help="Of avro: the schema of all keys; default: the newest of subject TOPIC-key.",
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
        if not (self.infer or self.columns or self.format in ("avro", *PLAIN_TYPES)):
            raise BadConfig(
                "give --infer, or --format avro, raw or string, or each column with --column."
            )
        if self.leave_out and not (self.infer or self.format in ("avro", *PLAIN_TYPES)):
            raise BadConfig(
                "--leave-out goes with --infer or --format avro: other columns are those of --column."
            )
        if cluster := cluster_of(self.topic):
            raise BadConfig(
                f"--topic {self.topic!r} is not a name a Kafka topic can have; a cluster is named with --kafka {cluster}."
            )

    def check_format(self, name: str) -> None:
        """Raise BadConfig for an option that means nothing for records of this format."""
        of_avro = {
            "--schema": self.schema,
            "--registry": self.registry if self.key_format != "avro" else "",
            "--schema-fixed": self.schema_fixed,
            "--record": self.record,
        }
        if name in PLAIN_TYPES:
            self._check_plain(name, of_avro)
        for option_name, value in of_avro.items():
            if value and name == "json":
                or_keys = " or --key-format avro" if option_name == "--registry" else ""
                raise BadConfig(
                    f"{option_name} means nothing for records of JSON; it goes with --format avro{or_keys}."
                )
        if self.json_mode and name == "avro":
            raise BadConfig("--json-mode means nothing for records of Avro; leave it out.")

    def _check_plain(self, name: str, of_avro: Mapping[str, object]) -> None:
        others = {
            **of_avro,
            "--infer": self.infer,
            "--column": self.columns,
            "--leave-out": self.leave_out,
            "--epoch": self.epochs,
            "--floor": self.floors,
            "--json-mode": self.json_mode,
        }
        for option_name, value in others.items():
            if value:
                raise BadConfig(
                    f"{option_name} means nothing for --format {name}, whose records are the one column {VALUE} "
                    f"{type_text(PLAIN_TYPES[name])}; leave it out."
                )

    def key(self) -> KeyOptions | None:
        return KeyOptions.of(self.key_format, self.key_column, self.key_schema)

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
    key = chosen.key()
    if chosen.format or not chosen.infer:
        chosen.check_format(chosen.format or "json")
    wishes = chosen.wishes()
    with KafkaClusters(settings.require_clusters()) as log:
        address = chosen.binding(JsonFormat()).address
        bounds = log.measure([address])[address]
        payload = _find(settings, chosen, wishes, log, bounds)
        if key is not None:
            payload = _with_key(payload, key, settings, chosen)
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
    schema = schema.of_rows(chosen.record)
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
