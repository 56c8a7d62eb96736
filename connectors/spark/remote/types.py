"""Columns of a server's answer as Spark holds them: an answer may have any type that DuckDB has."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from connectors.spark.columns import inner_types, to_spark
from planner.errors import UnsupportedType

_PLAIN: dict[pa.DataType, pa.DataType] = {
    pa.string_view(): pa.string(),
    pa.large_string(): pa.string(),
    pa.binary_view(): pa.binary(),
    pa.large_binary(): pa.binary(),
    pa.uuid(): pa.string(),
    # Spark's numbers have signs.
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}


def spark_schema(schema: pa.Schema) -> StructType:
    """Return the schema of a DataFrame for an answer.

    Raises:
        UnsupportedType: Spark has nothing for a column.
    """
    fields = []
    for each in schema:
        try:
            kind = from_arrow_type(served_type(each.type), prefer_timestamp_ntz=True)
        except PySparkException as error:
            raise UnsupportedType(
                f"Spark has no type for column {each.name}, of type {each.type}; cast it in the query.",
                column=each.name,
            ) from error
        fields.append(StructField(each.name, kind))
    return StructType(fields)


def served_type(kind: pa.DataType) -> pa.DataType:
    """The Arrow type of ``kind`` in Spark; ``kind`` itself where Spark has it, or nothing for it."""
    plain = _PLAIN.get(kind)
    if plain is not None:
        return plain
    if isinstance(kind, pa.BaseExtensionType):
        return served_type(kind.storage_type)
    if types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_large_list(kind) or types.is_fixed_size_list(kind):
        kind = pa.list_(kind.value_field)
    return inner_types(kind, served_type)


def in_spark(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with the types of ``spark_schema``.

    Raises:
        UnsupportedType: a value lies outside what Spark's type holds.
    """
    columns, fields = [], []
    for column, each in zip(to_spark(rows).columns, rows.schema, strict=True):
        kind = served_type(each.type)
        if isinstance(column.type, pa.BaseExtensionType):
            column = column.storage
        try:
            if column.type != kind:
                # Of nanoseconds Spark keeps the microseconds.
                is_fine = types.is_timestamp(column.type) and column.type.unit == "ns"
                column = column.cast(kind, safe=not is_fine)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise UnsupportedType(
                f"Spark does not hold a value of column {each.name}, of type {each.type}; cast it in the query.",
                column=each.name,
            ) from error
        columns.append(column)
        fields.append(pa.field(each.name, kind))
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
