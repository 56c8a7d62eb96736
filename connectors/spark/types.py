"""Spark's types of a table's columns, and the columns of one schema out of rows written with another."""

from __future__ import annotations

import math
from collections.abc import Collection

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType, StructField, StructType

from connectors.spark.columns import spark_type
from planner.schema import TableSchema, field_id, project
from planner.spark_names import backticked


def struct_type(schema: TableSchema) -> StructType:
    """Return the columns as Iceberg's Spark catalog shows them, all nullable."""
    return StructType(
        [StructField(column.name, data_type(column.type)) for column in schema.columns]
    )


def data_type(kind: pa.DataType) -> DataType:
    return from_arrow_type(spark_type(kind), prefer_timestamp_ntz=True)


def floating_fields(schema: TableSchema) -> frozenset[int]:
    """Return the ids of floating columns, and of floating fields of structs."""
    ids: set[int] = set()
    pending = [(column.field_id, column.type) for column in schema.columns]
    while pending:
        number, kind = pending.pop()
        if pa.types.is_floating(kind):
            ids.add(number)
        elif pa.types.is_struct(kind):
            pending += [(field_id(field), field.type) for field in kind]
    return frozenset(ids)


def projected(
    schema: TableSchema, own: TableSchema, opaque: Collection[int] = ()
) -> list[SparkColumn]:
    """Return the columns of ``schema``, read of rows that Spark shows with ``own``: by field id, at every level.

    Fields of the ids ``opaque``, which are floating, are expressions that no statistics of files answer. A column that stays
    what it is has no alias: Spark keeps those below a union, and then reads row by row what it could read in columns.
    """
    columns = []
    for each in project(schema, own):
        kind = each.column.type
        if each.source is None:
            value = F.lit(None).cast(data_type(kind))
        else:
            source = F.col(backticked(each.source.name))
            value = _converted(source, each.source.type, kind, opaque)
            if each.column.field_id in opaque:
                value = _opaque(value, kind)
            if value is source and each.source.name == each.column.name:
                columns.append(source)
                continue
        columns.append(value.alias(each.column.name))
    return columns


def _opaque(value: SparkColumn, kind: pa.DataType) -> SparkColumn:
    """The same value (NaN stays NaN), in a form whose conditions Spark does not push down."""
    return F.nanvl(value, F.lit(math.nan).cast(data_type(kind)))


def _converted(
    value: SparkColumn, own: pa.DataType, kind: pa.DataType, opaque: Collection[int] = ()
) -> SparkColumn:
    has_opaque = pa.types.is_struct(kind) and any(_is_opaque(each, opaque) for each in kind)
    if own.equals(kind, check_metadata=True) and not has_opaque:
        return value
    if pa.types.is_struct(kind):
        return _struct(value, own, kind, opaque)
    if pa.types.is_list(kind):
        return F.transform(
            value, lambda each: _converted(each, own.value_type, kind.value_type)
        )
    if pa.types.is_map(kind):
        keys = F.transform_keys(
            value, lambda key, _: _converted(key, own.key_type, kind.key_type)
        )
        return F.transform_values(
            keys, lambda _, each: _converted(each, own.item_type, kind.item_type)
        )
    return value.cast(data_type(kind))


def _is_opaque(field: pa.Field, opaque: Collection[int]) -> bool:
    if pa.types.is_struct(field.type):
        return any(_is_opaque(each, opaque) for each in field.type)
    return field_id(field) in opaque


def _struct(
    value: SparkColumn, own: pa.DataType, kind: pa.DataType, opaque: Collection[int]
) -> SparkColumn:
    by_id = {field_id(field): field for field in own}
    fields = []
    for field in kind:
        source = by_id.get(field_id(field))
        column = (
            F.lit(None).cast(data_type(field.type))
            if source is None
            else _converted(value.getField(source.name), source.type, field.type, opaque)
        )
        if source is not None and field_id(field) in opaque:
            column = _opaque(column, field.type)
        fields.append(column.alias(field.name))
    return F.when(value.isNotNull(), F.struct(*fields))
