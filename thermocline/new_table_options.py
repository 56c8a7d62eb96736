"""What ``thermocline create`` is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

import pyarrow as pa

from connectors.decoding.fields import VALUE
from connectors.decoding.json.renames import read_renames
from connectors.decoding.json.wishes import Wishes
from connectors.decoding.plain import PLAIN_TYPES
from connectors.iceberg.create import RESERVED_NAMES
from planner.errors import BadConfig
from planner.names import METADATA_COLUMNS, Envelope, cluster_of
from planner.schema import EpochUnit
from planner.seam.binding import Binding, OnError
from planner.seam.formats import JsonMode, RecordFormat
from planner.seam.keys import KeyFormat, KeyFrom, Mode
from planner.sql_text import FieldPath, read_path, spell, split_name
from planner.type_text import parse_type, type_text
from thermocline.key_columns import KeyOptions
from thermocline.keyed_options import KeyedOptions
from thermocline.options import option, options

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
    mode: Mode = option(
        default="append",
        show_default=True,
        help="append: a row for each record; upsert: a row for each key, its newest.",
    )
    keys: tuple[str, ...] = option(
        "--key",
        metavar="NAME[:TYPE]",
        help="Of upsert: a column of the key, with its type where values do not have it.",
    )
    key_from: KeyFrom | None = option(
        default=None,
        help="Of upsert: what has the key's columns, keys of records or their values; default: key.",
    )
    envelope: Envelope | None = option(
        default=None, help="Of upsert: what is around rows in values; default: none."
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
            "--schema-fixed": self.schema_fixed,
            "--record": self.record,
        }
        of_registry = {"--registry": self.registry if self.key_format != "avro" else ""}
        of_json = {"--json-mode": self.json_mode}
        if name == "json":
            why = "means nothing for records of JSON; it goes with --format avro"
            _refuse(of_avro, f"{why}.")
            _refuse(of_registry, f"{why} or --key-format avro.")
        elif name == "avro":
            _refuse(of_json, "means nothing for records of Avro; leave it out.")
        else:
            of_columns = {
                "--infer": self.infer,
                "--column": self.columns,
                "--leave-out": self.leave_out,
                "--epoch": self.epochs,
                "--floor": self.floors,
            }
            _refuse(
                {**of_avro, **of_registry, **of_columns, **of_json},
                f"means nothing for --format {name}, whose records are the one column {VALUE} "
                f"{type_text(PLAIN_TYPES[name])}; leave it out.",
            )

    def keyed(self) -> KeyedOptions | None:
        """Return what is said of the key of a keyed table; None: the table has a row for each record."""
        of_upsert = {
            "--key": self.keys,
            "--key-from": self.key_from,
            "--envelope": self.envelope,
        }
        if self.mode == "append":
            _refuse(of_upsert, "goes with --mode upsert.")
            return None
        if self.key_column is not None:
            raise BadConfig(
                "--key-column is for --mode append; in a keyed table keys fill the columns of --key."
            )
        if self.infer and self.envelope == "debezium":
            raise BadConfig(
                "--infer takes columns from whole values, and with --envelope debezium the row is inside; give each column "
                "with --column."
            )
        return KeyedOptions.of(
            self.keys, self.key_from, self.envelope, self.key_format, self.key_schema
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


def _refuse(options: Mapping[str, object], why: str) -> None:
    """Raise BadConfig for the first of these options that says something."""
    for name, value in options.items():
        if value:
            raise BadConfig(f"{name} {why}")


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
