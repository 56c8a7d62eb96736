"""Sorts rows by what Iceberg's writer tells partitions apart by, where Spark does not (``planner.tiering.layout``).

The transforms are Iceberg's own functions, which every catalog of its has in Spark.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from connectors.spark.metadata import quoted
from planner.names import TableName
from planner.tiering.layout import RowKey, RowOrder

_FUNCTIONS = {
    "year": "years",
    "month": "months",
    "day": "days",
    "hour": "hours",
    "bucket": "bucket",
    "truncate": "truncate",
}


def in_order(rows: DataFrame, table: TableName, order: RowOrder, *, shuffle: bool) -> DataFrame:
    """Return ``rows`` sorted within each of Spark's partitions, which have all rows of a table's partition after a shuffle."""
    keys = [_value(key, table) for key in order.partition]
    if shuffle:
        rows = rows.repartition(*keys)
    return rows.sortWithinPartitions(*keys, *(_directed(key, table) for key in order.sort))


def _value(key: RowKey, table: TableName) -> Column:
    """What is the same for two rows only if they are of one partition."""
    return _own(key).cast("string") if key.is_plain_float else _transformed(key, table)


def _directed(key: RowKey, table: TableName) -> Column:
    value = _transformed(key, table)
    if key.descending:
        return value.desc_nulls_first() if key.nulls_first else value.desc_nulls_last()
    return value.asc_nulls_first() if key.nulls_first else value.asc_nulls_last()


def _transformed(key: RowKey, table: TableName) -> Column:
    if key.transform == "identity":
        return _own(key)
    value = _own(key)
    if key.is_uuid_bucket:
        # Its hash is that of its bytes (Iceberg spec, "32-bit Hash Requirements").
        value = F.unhex(F.replace(value, F.lit("-")))
    arguments = () if key.number is None else (F.lit(key.number),)
    name = quoted((table.catalog, "system", _FUNCTIONS[key.transform]))
    return F.call_function(name, *arguments, value)


def _own(key: RowKey) -> Column:
    return F.col(quoted(key.path))
