"""Iceberg types and Arrow types, one to one (Iceberg spec, "Primitive Types" and "Nested Types").

pyiceberg's own conversion gives large strings and large lists; the planner's vocabulary has one Arrow type
per Iceberg type, so the mapping is written here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyiceberg import types as ice
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import NameMapping, parse_mapping_from_json

from connectors.iceberg.errors import catalog_errors
from planner.errors import UnsupportedType
from planner.names import TableName
from planner.schema import FIELD_ID, Column, TableSchema

# Without timestamptz_ns, unknown, geometry, geography: DuckDB's iceberg extension 1.5.5 reads the first two and
# the last not at all, and geometry has no Arrow type.
_PRIMITIVES: tuple[tuple[ice.PrimitiveType, pa.DataType], ...] = (
    (ice.BooleanType(), pa.bool_()),
    (ice.IntegerType(), pa.int32()),
    (ice.LongType(), pa.int64()),
    (ice.FloatType(), pa.float32()),
    (ice.DoubleType(), pa.float64()),
    (ice.DateType(), pa.date32()),
    (ice.TimeType(), pa.time64("us")),
    (ice.TimestampType(), pa.timestamp("us")),
    (ice.TimestamptzType(), pa.timestamp("us", tz="UTC")),
    (ice.TimestampNanoType(), pa.timestamp("ns")),
    (ice.StringType(), pa.string()),
    (ice.BinaryType(), pa.binary()),
    (ice.UUIDType(), pa.uuid()),
)
_TO_ARROW = {str(kind): arrow for kind, arrow in _PRIMITIVES}
_TO_ICEBERG = {arrow: kind for kind, arrow in _PRIMITIVES}


def table_schema(table: TableName, schema: Schema, mapping: NameMapping | None) -> TableSchema:
    """Convert an Iceberg schema. ``mapping`` adds the names a record may use besides the current one.

    Raises UnsupportedType: a column is of a type no engine of ours shows.
    """
    names = (
        {} if mapping is None else {mapped.field_id: tuple(mapped.names) for mapped in mapping}
    )
    return TableSchema(
        schema.schema_id,
        tuple(
            Column(
                field_id=field.field_id,
                name=field.name,
                type=_arrow(table, field.name, field.field_type),
                required=field.required,
                doc=field.doc,
                keys=tuple(dict.fromkeys((field.name, *names.get(field.field_id, ())))),
            )
            for field in schema.fields
        ),
        frozenset(schema.identifier_field_ids),
    )


def parsed_schema(
    table: TableName, document: Mapping[str, Any], mapping: str | None
) -> TableSchema:
    """Read a schema's JSON form (Iceberg spec, "Schemas"), and that of the table's name mapping if it has one."""
    with catalog_errors(table.catalog, table):
        names = parse_mapping_from_json(mapping) if mapping else None
        return table_schema(table, Schema.model_validate(document), names)


def _arrow(table: TableName, column: str, kind: ice.IcebergType) -> pa.DataType:
    def nested(field: ice.NestedField) -> pa.Field:
        return pa.field(
            field.name,
            _arrow(table, column, field.field_type),
            nullable=not field.required,
            metadata={FIELD_ID: str(field.field_id)},
        )

    match kind:
        case ice.StructType():
            return pa.struct([nested(field) for field in kind.fields])
        case ice.ListType():
            return pa.list_(nested(kind.element_field))
        case ice.MapType():
            return pa.map_(nested(kind.key_field), nested(kind.value_field))
    arrow = arrow_type(kind)
    if arrow is not None:
        return arrow
    raise UnsupportedType(
        f"{table}: column {column} holds {kind}, which this program cannot read; drop the column or leave the "
        f"table out.",
        table=str(table),
        column=column,
        type=str(kind),
    )


def arrow_type(kind: ice.IcebergType) -> pa.DataType | None:
    match kind:
        case ice.DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
        case ice.FixedType():
            return pa.binary(len(kind))
    return _TO_ARROW.get(str(kind))


def iceberg_type(kind: pa.DataType, ids: Iterator[int]) -> ice.IcebergType:
    """Convert a type that passed ``planner.schema.check_federated``; nested fields take ids from ``ids``."""
    if pa.types.is_struct(kind):
        return ice.StructType(*(nested_field(field, ids) for field in kind))
    if pa.types.is_list(kind):
        return ice.ListType(
            element_id=next(ids),
            element_type=iceberg_type(kind.value_type, ids),
            element_required=not kind.value_field.nullable,
        )
    if pa.types.is_map(kind):
        return ice.MapType(
            key_id=next(ids),
            key_type=iceberg_type(kind.key_type, ids),
            value_id=next(ids),
            value_type=iceberg_type(kind.item_type, ids),
            value_required=not kind.item_field.nullable,
        )
    if pa.types.is_decimal128(kind):
        return ice.DecimalType(kind.precision, kind.scale)
    if pa.types.is_fixed_size_binary(kind):
        return ice.FixedType(kind.byte_width)
    return _TO_ICEBERG[kind]


def nested_field(field: pa.Field, ids: Iterator[int]) -> ice.NestedField:
    doc = (field.metadata or {}).get(b"doc")
    return ice.NestedField(
        field_id=next(ids),
        name=field.name,
        field_type=iceberg_type(field.type, ids),
        required=not field.nullable,
        doc=None if doc is None else doc.decode(),
    )
