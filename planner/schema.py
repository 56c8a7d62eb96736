"""The schema of a table: columns with field ids, identical on both sides of the seam.

Types are pyarrow types; a nested field carries its id in the field metadata ``PARQUET:field_id``, as pyarrow
and Iceberg readers do. The mapping to Iceberg types is one to one (Iceberg spec, "Primitive Types"):
fixed(n) is ``binary(n)``, uuid is ``pa.uuid()``, timestamps are microseconds, timestamptz has zone "UTC".

Finds the columns of one schema of a table in another, by field id: names and places change, ids do not.

How much memory the rows of a batch take.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pyarrow as pa

from planner.errors import BadBinding, UnsupportedType
from planner.names import (
    KAFKA_ERROR,
    KAFKA_HEADERS,
    KAFKA_KEY,
    KAFKA_OFFSET,
    KAFKA_PARTITION,
    KAFKA_TIMESTAMP,
    KAFKA_VALUE,
    LEADING_COLUMNS,
    METADATA_COLUMNS,
    TableName,
)

EpochUnit = Literal["s", "ms", "us", "ns"]

#: Key of the field id in the metadata of an Arrow field.
FIELD_ID = b"PARQUET:field_id"

TIMESTAMPTZ = pa.timestamp("us", tz="UTC")

#: Types without parameters, by their names in the Iceberg spec.
PRIMITIVES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": TIMESTAMPTZ,
    "string": pa.string(),
    "binary": pa.binary(),
    "uuid": pa.uuid(),
}

HEADERS_TYPE = pa.list_(
    pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
)

#: Type of each metadata column.
METADATA_TYPES: dict[str, pa.DataType] = {
    KAFKA_PARTITION: pa.int32(),
    KAFKA_OFFSET: pa.int64(),
    KAFKA_TIMESTAMP: TIMESTAMPTZ,
    KAFKA_KEY: pa.binary(),
    KAFKA_HEADERS: HEADERS_TYPE,
    KAFKA_VALUE: pa.binary(),
    KAFKA_ERROR: pa.string(),
}

#: Other types a metadata column may have: Iceberg lets an int be widened, and never narrowed again.
_WIDENED_TYPES: dict[str, pa.DataType] = {KAFKA_PARTITION: pa.int64()}

#: One batch of log records before decoding: what ``Log.fetch`` yields and a decoder takes. A null value is a
#: tombstone. Key and headers are null unless the fetch asked for them. Sorted by offset within a partition.
RAW_SCHEMA = pa.schema(
    [
        pa.field(KAFKA_PARTITION, pa.int32(), nullable=False),
        pa.field(KAFKA_OFFSET, pa.int64(), nullable=False),
        pa.field(KAFKA_TIMESTAMP, TIMESTAMPTZ),
        pa.field(KAFKA_KEY, pa.binary()),
        pa.field(KAFKA_HEADERS, HEADERS_TYPE),
        pa.field(KAFKA_VALUE, pa.binary()),
    ]
)


@dataclass(frozen=True, slots=True)
class Column:
    """One top-level column.

    ``keys`` are the names under which a record may carry the value, first present wins: the current name
    and every name the table's name mapping (``schema.name-mapping.default``) still lists, so a rename does
    not lose the rows written under the old name. ``epoch_unit`` is set where numbers in records are times.
    """

    field_id: int
    name: str
    type: pa.DataType
    required: bool = False
    doc: str | None = None
    keys: tuple[str, ...] = ()
    epoch_unit: EpochUnit | None = None

    @property
    def is_metadata(self) -> bool:
        return self.name in METADATA_COLUMNS


@dataclass(frozen=True, slots=True)
class TableSchema:
    """The columns of one Iceberg schema id, in table order. ``identifier`` are the ids of Iceberg's identifier fields."""

    schema_id: int
    columns: tuple[Column, ...]
    identifier: frozenset[int] = frozenset()
    _fingerprint: str = field(default="", init=False, repr=False, compare=False)
    _arrow: pa.Schema | None = field(default=None, init=False, repr=False, compare=False)

    def __hash__(self) -> int:
        """By the id: all columns would be hashed, four times for each look into a cache."""
        return hash((self.schema_id, len(self.columns)))

    @property
    def fingerprint(self) -> str:
        """Hash of all that decides which part of a record becomes which value: names and former names, at every level,
        types, ids, units.

        A schema id is not enough: Iceberg gives back the old one when a change is undone, while former names stay, and
        the name mapping may change alone. Comments are left out. Computed once.
        """
        if not self._fingerprint:
            facts = [_facts(column) for column in self.columns]
            text = json.dumps(facts, separators=(",", ":"))
            digest = hashlib.sha256(text.encode()).hexdigest()[:16]
            object.__setattr__(self, "_fingerprint", digest)
        return self._fingerprint

    @property
    def arrow(self) -> pa.Schema:
        """The Arrow schema, field ids in ``PARQUET:field_id``. Computed once."""
        if self._arrow is None:
            fields = [
                pa.field(
                    column.name,
                    column.type,
                    nullable=not column.required,
                    metadata={FIELD_ID: str(column.field_id)},
                )
                for column in self.columns
            ]
            object.__setattr__(self, "_arrow", pa.schema(fields))
        return self._arrow

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def payload(self) -> tuple[Column, ...]:
        """The columns that come from the record's value."""
        return tuple(column for column in self.columns if not column.is_metadata)

    def has(self, name: str) -> bool:
        return name in self.names


def _facts(column: Column) -> list[Any]:
    keys = column.keys or (column.name,)
    kind = _type_facts(column.type)
    return [column.field_id, column.name, column.required, keys, column.epoch_unit, kind]


def has_equal_values(before: Column, after: Column) -> bool:
    """Return whether a record has the same value for a column in two schemas of a table; it may have become optional."""
    return _facts(before) == _facts(replace(after, required=before.required))


def _type_facts(kind: pa.DataType) -> Any:
    """A type with the names and ids inside it: pyarrow's own comparison leaves out the ids."""
    if pa.types.is_struct(kind):
        return ["struct", *map(_nested_facts, kind)]
    if pa.types.is_list(kind):
        return ["list", _nested_facts(kind.value_field)]
    if pa.types.is_map(kind):
        return ["map", _nested_facts(kind.key_field), _nested_facts(kind.item_field)]
    return str(kind)


def _nested_facts(field: pa.Field) -> list[Any]:
    number = (field.metadata or {}).get(FIELD_ID, b"").decode()
    return [number, field.name, field.nullable, _type_facts(field.type)]


def nested_fields(kind: pa.DataType) -> list[pa.Field]:
    """Return the members of a struct, the ``element`` of a list, ``key`` and ``value`` of a map; of other types nothing."""
    if pa.types.is_struct(kind):
        return list(kind)
    if pa.types.is_list(kind):
        return [kind.value_field.with_name("element")]
    if pa.types.is_map(kind):
        return [kind.key_field.with_name("key"), kind.item_field.with_name("value")]
    return []


def nested_paths(path: str, kind: pa.DataType) -> list[tuple[str, pa.Field]]:
    """Return ``nested_fields`` of a value at ``path``, each with its path in messages: ``a.b``, ``a[]``, ``a.key``."""
    return [
        (f"{path}[]" if pa.types.is_list(kind) else f"{path}.{field.name}", field)
        for field in nested_fields(kind)
    ]


def field_id(field: pa.Field) -> int:
    """Return the id in the metadata of an Arrow field that has one; ids are positive (Iceberg spec, "Schemas and Data Types")."""
    return int(field.metadata[FIELD_ID])


def field_id_if_any(field: pa.Field) -> int | None:
    text = (field.metadata or {}).get(FIELD_ID)
    return None if text is None else int(text)


def check_federated(table: TableName, schema: TableSchema) -> None:
    """Refuse a schema that cannot be the same on both sides of the seam.

    Raises:
        BadBinding: a leading metadata column is missing or a metadata column has another type.
        UnsupportedType: a column is time, timestamp_ns, timestamptz_ns or of an unknown type. Spark 4.1
            cannot load such a table, so it could never be tiered.
    """
    by_name = {column.name: column for column in schema.columns}
    for name in LEADING_COLUMNS:
        if name not in by_name:
            raise BadBinding(
                f"{table}: the table is bound to a topic but has no column {name}; create it with "
                f"`thermocline create`, or add the column and tier from an empty table.",
                table=str(table),
                column=name,
            )
    for column in schema.columns:
        allowed = METADATA_TYPES.get(column.name), _WIDENED_TYPES.get(column.name)
        if column.is_metadata and column.type not in allowed:
            raise BadBinding(
                f"{table}: column {column.name} is {column.type}, it must be "
                f"{METADATA_TYPES[column.name]}; that name is reserved for log metadata.",
                table=str(table),
                column=column.name,
            )
        refused = _refused(column.type)
        if refused is not None:
            raise UnsupportedType(
                f"{table}: column {column.name} holds {refused}, which Spark cannot load, so the table cannot "
                f"be tiered; use timestamp or timestamptz in microseconds, or store the value as long or string.",
                table=str(table),
                column=column.name,
                type=refused,
            )


def _refused(kind: pa.DataType) -> str | None:
    """Name the first Iceberg type inside ``kind`` that the seam cannot carry, if any."""
    if pa.types.is_time(kind):
        return "time"
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return "timestamptz_ns" if kind.tz else "timestamp_ns"
    if pa.types.is_struct(kind) or pa.types.is_list(kind) or pa.types.is_map(kind):
        refused = (_refused(member.type) for member in nested_fields(kind))
        return next(filter(None, refused), None)
    parameterised = pa.types.is_decimal128(kind) or pa.types.is_fixed_size_binary(kind)
    return None if kind in PRIMITIVES.values() or parameterised else str(kind)


@dataclass(frozen=True, slots=True)
class ProjectedColumn:
    """A column, and what it was called in another schema of its table; None: it was added later, or dropped."""

    column: Column
    source: Column | None


def project(schema: TableSchema, own: TableSchema) -> tuple[ProjectedColumn, ...]:
    """Return the columns of ``schema`` as rows written with ``own`` have them, in the order of ``schema``."""
    by_id = {column.field_id: column for column in own.columns}
    return tuple(
        ProjectedColumn(column, by_id.get(column.field_id)) for column in schema.columns
    )


def size_of(batch: pa.RecordBatch) -> int:
    """Return the bytes of the rows of ``batch``, which may be a slice of a larger one: what ``nbytes`` says.

    Of 50 columns ``nbytes`` takes 220 us, and a small statement asks four times: this way it is 11 (pyarrow 26).
    """
    size: int = batch.to_struct_array().nbytes
    return size
