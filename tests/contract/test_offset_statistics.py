"""Which offsets the rows of a data file have, where its statistics do not say."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IntegerType, LongType, NestedField

from connectors.iceberg.offset_statistics import added_rows


def table_of(folder: Path, default: int | None) -> Table:
    """A table with a file of three rows that has neither partition nor offset; their columns have a default (format 3)."""
    options = {"uri": f"sqlite:///{folder}/c.db", "warehouse": f"file://{folder}"}
    catalog = SqlCatalog("c", **options)
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", Schema(NestedField(1, "id", LongType())))
    table.append(pa.table({"id": pa.array([1, 2, 3], pa.int64())}))
    with table.update_schema() as update:
        update.add_column("kafka_partition", IntegerType())
        update.add_column("kafka_offset", LongType())
    schema = table.schema()
    fields = [
        each.model_copy(update={"initial_default": default}) if each.field_id > 1 else each
        for each in schema.fields
    ]
    schema = Schema(*fields, schema_id=schema.schema_id)
    table.metadata = table.metadata.model_copy(update={"schemas": [schema]})
    return table


def test_a_default_is_no_offset(tmp_path: Path) -> None:
    """What a reader would fill in was never in the log."""
    for default in (None, 0):
        folder = tmp_path / str(default)
        folder.mkdir()
        table = table_of(folder, default)
        snapshot = table.current_snapshot()
        assert snapshot is not None
        rows = added_rows(table, snapshot.snapshot_id)
        assert rows is not None
        assert (rows.rows, rows.without_offset, list(rows.next)) == (3, 3, [])
