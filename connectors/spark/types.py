"""Spark's types of a table's columns, and the columns of one schema out of rows written with another."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType, StructField, StructType

from connectors.spark.by_field_id import field_id
from connectors.spark.columns import spark_type
from planner.projection import project
from planner.schema import TableSchema


def struct_type(schema: TableSchema) -> StructType:
    """Return the columns as Iceberg's Spark catalog shows them, all nullable."""
    return StructType(
        [StructField(column.name, data_type(column.type)) for column in schema.columns]
    )


def data_type(kind: pa.DataType) -> DataType:
    return from_arrow_type(spark_type(kind), prefer_timestamp_ntz=True)


def quoted(name: str) -> str:
    """Return one name as Spark SQL writes it, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def projected(schema: TableSchema, own: TableSchema) -> list[SparkColumn]:
    """Return the columns of ``schema``, read of rows that Spark shows with ``own``: by field id, at every level."""
    columns = []
    for each in project(schema, own):
        kind = each.column.type
        if each.source is None:
            value = F.lit(None).cast(data_type(kind))
        else:
            value = _converted(F.col(quoted(each.source.name)), each.source.type, kind)
        columns.append(value.alias(each.column.name))
    return columns


def _converted(value: SparkColumn, own: pa.DataType, kind: pa.DataType) -> SparkColumn:
    if own.equals(kind, check_metadata=True):
        return value
    if pa.types.is_struct(kind):
        return _struct(value, own, kind)
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


def _struct(value: SparkColumn, own: pa.DataType, kind: pa.DataType) -> SparkColumn:
    by_id = {field_id(field): field for field in own}
    fields = []
    for field in kind:
        source = by_id.get(field_id(field))
        part = (
            F.lit(None).cast(data_type(field.type))
            if source is None
            else _converted(value.getField(source.name), source.type, field.type)
        )
        fields.append(part.alias(field.name))
    return F.when(value.isNotNull(), F.struct(*fields))
