"""Which topic belongs to which table: the table's ``thermocline.*`` properties.

Checks that a binding declares epoch units and floors for times alone.
"""

from __future__ import annotations

import functools
import hashlib
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import pyarrow as pa

from planner.errors import BadBinding, ShapeMismatch
from planner.names import (
    CLUSTER_NAME,
    KAFKA_ERROR,
    KAFKA_KEY,
    KAFKA_VALUE,
    RESERVED_IN_CHANGES,
    Envelope,
    TableName,
    shell_word,
    topic_address,
)
from planner.schema import Column, EpochUnit, TableSchema, field_id_if_any, nested_paths
from planner.seam.boundary import RetentionBoundary
from planner.seam.formats import (
    FORMATS,
    JsonFormat,
    RawFormat,
    RecordFormat,
    bad_property,
    one_of,
)
from planner.seam.keys import (
    KEY_OPTIONS,
    MODE,
    UPSERT_OPTIONS,
    Mode,
    RecordKey,
    Upsert,
    change_schema,
)
from planner.seam.watermark import Watermark
from planner.type_text import type_text

OnError = Literal["fail", "null", "skip"]

TOPIC = "thermocline.topic"
KAFKA = "thermocline.kafka"
FORMAT = "thermocline.format"
ON_ERROR = "thermocline.on_error"
MAX_TAIL_ROWS = "thermocline.max_tail_rows"
MAX_TAIL_BYTES = "thermocline.max_tail_bytes"

#: Which rows are too old (see planner.maintenance.retention). Programs that know no boundary refuse a table with one.
RETENTION_DAYS = "thermocline.retention_days"
RETENTION_COLUMN = "thermocline.retention_column"

#: Properties below are for the tierer alone and change no row (see planner.tiering.triggers).
TIER_PREFIX = "thermocline.tier."

#: Properties below are for maintenance alone and change no row (see planner.maintenance.options).
MAINTAIN_PREFIX = "thermocline.maintain."
MAINTAIN_MODE = MAINTAIN_PREFIX + "mode"
PIN_GRACE_S = MAINTAIN_PREFIX + "pin_grace_s"
#: Longer than what a server promises by default: a live answer is good for an hour, and an answer may take another.
DEFAULT_PIN_GRACE_S = 7_200
#: More is no number of seconds that anything lasts.
_MAX_DIGITS = 12
#: Of 2^63. Python refuses to read thousands.
_MAX_DIGITS_64 = 19

#: Mirror of the head's watermark text; never trusted alone (see planner.seam.resolver).
MIRROR = "thermocline.watermark"

#: In the answers of our own Iceberg REST catalog: the text of the cut that the table ends at.
LIVE_CUT = "thermocline.cut"

#: Among the properties that such a catalog tells its clients.
LIVE = "thermocline.live"
_OPTIONS = (TOPIC, KAFKA, FORMAT, MODE, ON_ERROR)

#: Changes whenever a decoder of ours gives another value for the same bytes.
DECODER_VERSION = 1


@dataclass(frozen=True, slots=True)
class Binding:
    """How the records of a topic become rows of a table.

    ``kafka`` names the topic's cluster in the settings, ``[kafka_clusters.<name>]``; empty: ``[kafka]``.
    ``skips`` are (partition, offset) of records that become no row, even if they decode; records whose row is before
    ``boundary`` become none either. Both come from the watermark (``under``), not from properties: both sides of a seam
    read them from the same snapshot. ``key``: keys of records fill a column, or those of a keyed table's key. ``upsert``: the
    table is keyed. ``table_uuid`` is that of the table it was read from, and decides no row.
    """

    topic: str
    format: RecordFormat = field(default_factory=JsonFormat)
    on_error: OnError = "fail"
    max_tail_rows: int | None = None
    max_tail_bytes: int | None = None
    skips: tuple[tuple[int, int], ...] = ()
    kafka: str = ""
    key: RecordKey | None = None
    boundary: RetentionBoundary | None = None
    table_uuid: str = field(default="", compare=False)
    upsert: Upsert | None = None

    @property
    def mode(self) -> Mode:
        """How records become rows: each is one, or the newest change of each key decides."""
        return "append" if self.upsert is None else "upsert"

    @property
    def key_fields(self) -> tuple[int, ...]:
        """Ids of the columns of a keyed table's key; of another table none."""
        return () if self.upsert is None else self.upsert.key

    @property
    def envelope(self) -> Envelope:
        """What is around rows in the records' values."""
        return "none" if self.upsert is None else self.upsert.envelope

    def under(self, mark: Watermark | None) -> Binding:
        """Return the binding with what a watermark says of records; None: as properties alone have it."""
        if mark is None:
            return replace(self, skips=(), boundary=None)
        return replace(self, skips=mark.skipped, boundary=mark.boundary)

    @property
    def address(self) -> str:
        """The topic for programs that may know several clusters (``planner.names``)."""
        return topic_address(self.kafka, self.topic)

    @property
    def shape(self) -> str:
        """Hash of all that decides which row a record has become, except the schema, which the cut pins."""
        return shape_under(self, self.format.forms)

    def key_column(self, schema: TableSchema) -> Column | None:
        """Return the column that keys of records fill; None: there is none, or it was dropped."""
        number = None if self.key is None else self.key.column
        return next((each for each in schema.payload if each.field_id == number), None)

    @property
    def null_policy_columns(self) -> tuple[str, ...]:
        """The metadata columns that error policy ``null`` needs: they have what a bad record was, its key where that may be bad."""
        is_key_read = self.key is not None and self.key.format != RawFormat.name
        return (KAFKA_VALUE, KAFKA_ERROR, *((KAFKA_KEY,) if is_key_read else ()))

    def gives_rows_of(self, shape: str, schema: TableSchema) -> bool:
        """Return whether every record is the same row under this binding as under one with ``shape``."""
        if shape == self.shape or not isinstance(self.format, JsonFormat):
            return shape == self.shape
        return shape == shape_under(self, 1) and self.format.reads_as_at_first(schema)

    def properties(self) -> dict[str, str]:
        """The table properties of this binding; ``parse_binding`` reads them back equal, but for what a watermark says."""
        properties = {
            TOPIC: self.topic,
            FORMAT: self.format.name,
            MODE: self.mode,
            ON_ERROR: self.on_error,
            **self.format.properties,
            **({} if self.key is None else self.key.properties),
            **({} if self.upsert is None else self.upsert.properties),
            KAFKA: self.kafka or None,
            MAX_TAIL_ROWS: self.max_tail_rows,
            MAX_TAIL_BYTES: self.max_tail_bytes,
        }
        return {key: str(value) for key, value in properties.items() if value is not None}


@functools.lru_cache(maxsize=1024)
def shape_under(binding: Binding, forms: int) -> str:
    """Return ``Binding.shape`` where strict decoding takes these forms. Cached, since statements need it."""
    facts: dict[str, object] = {
        "decoder": DECODER_VERSION,
        "format": binding.format.name,
        "mode": binding.mode,
        "on_error": binding.on_error,
        **binding.format.shape(binding.on_error, forms),
    }
    if binding.key is not None:
        facts["key"] = binding.key.properties
    if binding.upsert is not None:
        facts["upsert"] = binding.upsert.properties
    if binding.skips:
        facts["skips"] = [list(item) for item in binding.skips]
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def parse_binding(table: TableName, properties: Mapping[str, str]) -> Binding | None:
    """Read the binding from table properties. None when the table names no topic.

    Raises:
        BadBinding: a value is not allowed, or a ``thermocline.*`` key is unknown (a typing error there
            would silently change the table's rows); or the table is a live one, which has its tail already.
    """
    if LIVE_CUT in properties:
        what = "this is a live table; point at the catalog it comes from."
        raise bad_property(table, LIVE_CUT, what)
    if TOPIC not in properties:
        return None
    record_format = FORMATS[one_of(table, properties, FORMAT, tuple(FORMATS), JsonFormat.name)]
    own = (*_OPTIONS, *record_format.options)
    retention = (RETENTION_DAYS, RETENTION_COLUMN)
    sizes = (MAX_TAIL_ROWS, MAX_TAIL_BYTES)
    options = (*own, *KEY_OPTIONS, *UPSERT_OPTIONS, *sizes, *retention, MIRROR)
    for key in properties:
        if (
            key.startswith("thermocline.")
            and key not in options
            and not key.startswith((*record_format.prefixes, TIER_PREFIX, MAINTAIN_PREFIX))
        ):
            *names, last = (*options, *(f"{each}<field id>" for each in record_format.prefixes))
            what = f"unknown property {key}; known are {', '.join(names)} and {last}."
            raise bad_property(table, key, what)
    has_no_key = properties.keys().isdisjoint(KEY_OPTIONS)
    is_plain = properties.get(MODE) in (None, "append")
    is_plain = is_plain and properties.keys().isdisjoint(UPSERT_OPTIONS)
    upsert = None if is_plain else Upsert.parse(table, properties)
    if upsert is not None and RETENTION_DAYS in properties:
        what = (
            f"property {RETENTION_DAYS} is not for a keyed table, whose rows do not age out: each stays until its key is deleted; "
            f"unset it."
        )
        raise bad_property(table, RETENTION_DAYS, what)
    return Binding(
        topic=properties[TOPIC],
        format=record_format.parse(table, properties),
        on_error=one_of(table, properties, ON_ERROR, get_args(OnError), "fail"),  # type: ignore[arg-type]
        max_tail_rows=count_property(table, properties, MAX_TAIL_ROWS),
        max_tail_bytes=count_property(table, properties, MAX_TAIL_BYTES),
        kafka=_cluster(table, properties),
        key=None if has_no_key else RecordKey.parse(table, properties),
        upsert=upsert,
    )


def _cluster(table: TableName, properties: Mapping[str, str]) -> str:
    name = properties.get(KAFKA, "")
    if KAFKA in properties and not CLUSTER_NAME.fullmatch(name):
        what = f"property {KAFKA} is {name!r}; it must be the name of a section [kafka_clusters.<name>]."
        raise bad_property(table, KAFKA, what)
    return name


def count_property(
    table: TableName, properties: Mapping[str, str], key: str, *, least: Literal[0, 1] = 1
) -> int | None:
    """Read a whole number of 64 bits, ``least`` at least; None where the table does not say. Raises BadBinding for another text."""
    text = properties.get(key)
    if text is None:
        return None
    digits = text.lstrip("0") if text.isascii() and text.isdigit() else None
    if digits is not None and (len(digits) > _MAX_DIGITS_64 or int(digits or 0) >= 2**63):
        what = f"property {key} has {len(text)} digits; it must be a whole number below 2^63."
        raise bad_property(table, key, what)
    if digits is None or int(digits or 0) < least:
        limit = "above 0" if least else "from 0 on"
        what = f"property {key} is {text!r}; it must be a whole number {limit}."
        raise bad_property(table, key, what)
    return int(digits or 0)


def promised_s(properties: Mapping[str, str]) -> int | None:
    """Return the grace that servers go by: that of maintenance, or the default where a value does not fit and it stops.

    None: the table is not maintained.
    """
    if properties.get(MAINTAIN_MODE) == "off":
        return None
    text = properties.get(PIN_GRACE_S, "")
    is_number = text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS
    return (int(text) if is_number else 0) or DEFAULT_PIN_GRACE_S


def decoding_key(schema: TableSchema, binding: Binding) -> str:
    """Name the decoding of a table's records: schema with all accepted names, policies, decoder version, skips, boundary."""
    boundary = "" if binding.boundary is None else binding.boundary.key
    return f"{schema.fingerprint}.{binding.shape}{binding.format.beyond_shape}{boundary}"


def decoded_schema(schema: TableSchema, binding: Binding) -> pa.Schema:
    """Return what decoded records of a table have: its rows, or changes of them."""
    return schema.arrow if binding.upsert is None else change_schema(schema, binding.upsert)


def check_keyed(table: str, schema: TableSchema, binding: Binding) -> None:
    """Check the key of a keyed table; of another one there is nothing to check.

    Raises:
        BadBinding: the table has no key now, or another one than it was bound with; a column of it is optional, or of a type
            that has no equality of its own; a column has a name of ours; or bad records would be rows.
    """
    upsert = binding.upsert
    if upsert is None:
        return

    def bad(what: str, **facts: object) -> BadBinding:
        return BadBinding(f"{table}: {what}", table=table, **facts)

    if not schema.identifier:
        raise bad(
            "the table is keyed, but declares no key: set its columns as Iceberg's identifier fields, as "
            "`thermocline create --mode upsert --key` does."
        )
    if schema.identifier != frozenset(upsert.key):
        names = {column.field_id: column.name for column in schema.columns}
        now, then = (
            ", ".join(names.get(each, f"field {each}") for each in sorted(ids))
            for ids in (schema.identifier, upsert.key)
        )
        raise bad(
            f"the table's identifier fields are {now}, and it was bound with the key {then}, which its rows are one each "
            f"of; set the identifier fields back, or make another table for another key."
        )
    for each in schema.columns:
        if each.name.lower() in RESERVED_IN_CHANGES:
            raise bad(
                f"column {each.name} has a name that changes of a keyed table use; give it another one.",
                column=each.name,
            )
    columns = upsert.columns(schema)
    if len(columns) != len(upsert.key):
        raise bad("a field inside a column is part of the key; only whole columns can be.")
    for column in columns:
        why = _not_a_key(column)
        if why:
            raise bad(f"column {column.name} of the key {why}.", column=column.name)
    if binding.on_error == "null":
        raise bad(
            "error policy null is not for a keyed table: a row of NULLs would replace the good one of its key; choose policy "
            "fail or skip.",
            property=ON_ERROR,
        )


def check_mode(table: str, binding: Binding, mode: Mode) -> None:
    """Check that a table's rows are what its binding says; ``mode`` is that of its watermark.

    Raises:
        BadBinding: its mode was changed.
    """
    if binding.mode != mode:
        raise BadBinding(
            f"{table}: property {MODE} is {binding.mode}, but the table's rows were tiered as {mode}, by its watermark, and a "
            f"table never changes its mode; set it back, and make another table of the topic for the other mode "
            f"(`thermocline create`).",
            table=table,
            property=MODE,
        )


def shape_mismatch(table: str, binding: Binding, shape: str) -> ShapeMismatch:
    """Return the error of a table whose rows below the watermark were decoded with another ``shape``."""
    if binding.upsert is None:
        changed, way = "error policy, JSON mode, epoch units or floors", "shape accept"
    else:
        changed, way = "error policy, format, envelope or how keys are read", "rebuild"
    return ShapeMismatch(
        f"{table}: rows below the watermark were decoded with shape {shape}, the binding now asks for {binding.shape} (decoder "
        f"version, {changed} changed); restore the table properties, or move the shape on purpose with `thermocline {way} {shell_word(table)}`.",
        table=table,
        held=shape,
        asked=binding.shape,
    )


def _not_a_key(column: Column) -> str:
    """Say why a column cannot be one of a key; "" if it can."""
    if column.is_metadata:
        return "says where a record is, and not which row it changes"
    if pa.types.is_nested(column.type):
        return f"is {type_text(column.type)}, and only plain values can be a key"
    if pa.types.is_floating(column.type):
        return f"is {type_text(column.type)}, whose NaN and zeros are not equal alike everywhere; use a decimal or a text"
    return "" if column.required else "is optional, and every row has a key; make it required"


def check_times(table: str, schema: TableSchema, binding: Binding) -> None:
    """Check all payload columns and the fields inside them.

    Raises:
        BadBinding: an epoch unit or a floor is declared for a field that holds no time.
    """
    for path, kind, field_id, unit in _declared(schema, dict(binding.format.epoch_units)):
        is_timestamp = pa.types.is_timestamp(kind)
        if unit is not None and not (is_timestamp or pa.types.is_date(kind)):
            raise BadBinding(
                f"{table}: an epoch unit is declared for {path}, which is {type_text(kind)}; only date, timestamp and "
                f"timestamptz can have one: remove the property thermocline.epoch_unit.<field id>, or, while the table "
                f"has no rows, make it anew: `{_anew(table, binding, path, unit)}`.",
                table=table,
                column=path,
            )
        if field_id in binding.format.floors and not is_timestamp:
            raise BadBinding(
                f"{table}: a floor of times is declared for {path}, which is {type_text(kind)}; only timestamp and "
                f"timestamptz can have one.",
                table=table,
                column=path,
            )


def _declared(
    schema: TableSchema, units: Mapping[int, EpochUnit]
) -> Iterator[tuple[str, pa.DataType, int, EpochUnit | None]]:
    """Yield path, type, id and unit of each payload column and of the fields inside it; id 0: none yet."""
    for column in schema.payload:
        unit = units.get(column.field_id, column.epoch_unit)
        yield column.name, column.type, column.field_id, unit
        for path, member in _inside(nested_paths(column.name, column.type)):
            field_id = field_id_if_any(member) or 0
            yield path, member.type, field_id, units.get(field_id)


def _inside(fields: Sequence[tuple[str, pa.Field]]) -> Iterator[tuple[str, pa.Field]]:
    for path, member in fields:
        yield path, member
        yield from _inside(nested_paths(path, member.type))


def _anew(table: str, binding: Binding, path: str, unit: EpochUnit) -> str:
    """Return the command that makes the table anew with ``path`` as a time."""
    cluster = f" --kafka {binding.kafka}" if binding.kafka else ""
    return (
        f"thermocline create {shell_word(table)} --topic {binding.topic}{cluster} --replace --infer --epoch "
        f"{shlex.quote(f'{path}={unit}')}"
    )
