"""SQL of a slice's rows, as our own list of files has them or DuckDB's extension reads them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow as pa

from connectors.iceberg.scan.footers import Written
from connectors.iceberg.scan.planner import FileList
from connectors.iceberg.scan.projection import renamed_sql
from connectors.store.locations import local_path, plain
from planner.ports import ArrowRelation, SqlRelation
from planner.schema import Column
from planner.seam.cut import ColdSlice
from planner.sql_text import identifier, literal
from planner.type_text import sql_type

#: The largest row count that DuckDB is told; a larger one is damaged metadata.
_MAX_ESTIMATE = 10**12


def relation_of(cold: ColdSlice, files: FileList, names: Collection[str] | None) -> SqlRelation:
    without_nan, without_zero = (
        frozenset(column.name for column in cold.schema.columns if column.field_id in fields)
        for fields in (files.without_nan, files.without_zero)
    )
    columns = [each for each in cold.schema.columns if names is None or each.name in names]
    return SqlRelation(
        read_sql(columns, files), without_nan=without_nan, without_zero=without_zero
    )


def no_rows(cold: ColdSlice) -> ArrowRelation:
    """No rows. Not by ``empty_table``, which makes arrays for each column: 0.2 to 0.6 ms."""
    return ArrowRelation(pa.Table.from_batches([], cold.schema.arrow))


def scan_sql(cold: ColdSlice, opaque: Collection[int] = (), *, is_head: bool = True) -> str:
    """Return a SELECT of the slice's columns, in order, over DuckDB's iceberg extension.

    Conditions on ``opaque`` fields are kept from it: it would take them for a reason to leave out files.
    """
    columns = ", ".join(
        f"CASE WHEN {name} IS NULL THEN NULL ELSE {name} END AS {name}"
        if column.field_id in opaque
        else name
        for column in cold.schema.columns
        for name in (identifier(column.name),)
    )
    version = "" if is_head else f", snapshot_from_id => {cold.snapshot_id}"
    return f"SELECT {columns} FROM iceberg_scan({literal(cold.metadata_location)}{version})"  # noqa: S608


def read_sql(columns: Sequence[Column], files: FileList) -> str:
    """Return a SELECT of columns over Parquet files, found by field id; by name where the files allow it.

    By name is the better way (DuckDB 1.5.5). Given a schema it opens no file before it runs, so it does not know how many
    row groups a single file has, and reads them all on one thread; of a struct it reads all fields, for one that is
    filtered twice as long; and each column takes 0.05 ms to bind.

    The order of joins depends on about how many rows there are: without, DuckDB takes a thousand for each file of a
    schema that is given.
    Directories named like ``day=3`` say nothing: partition values stand in the files.
    """
    names = ", ".join(_renamed(column, files.written) for column in columns)
    listed = ", ".join(literal(str(local_path(path) or plain(path))) for path in files.paths)
    schema = "" if files.by_name else f"schema = {_by_field_id(columns, files.written)}, "
    return (
        f"SELECT {names} FROM read_parquet([{listed}], {schema}"  # noqa: S608 - quoted
        f"hive_partitioning = false, explicit_cardinality = {min(max(files.rows, 1), _MAX_ESTIMATE)})"
    )


def _by_field_id(columns: Sequence[Column], written: Written) -> str:
    fields = ", ".join(
        f"{column.field_id}: {{name: {literal(column.name)}, "
        f"type: {literal(sql_type(written.get(column.field_id, column.type)))}, default_value: NULL}}"
        for column in columns
    )
    return f"MAP {{{fields}}}"


def _renamed(column: Column, written: Written) -> str:
    name, kind = identifier(column.name), written.get(column.field_id)
    return name if kind is None else f"{renamed_sql(column.name, kind, column.type)} AS {name}"
