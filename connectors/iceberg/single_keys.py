"""Whether each key has one row in a snapshot of a keyed table, which no statistics tell: the columns of the key are read."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import duckdb
import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import Table

#: What grouping takes before it goes to disk.
_MEMORY = "512MB"
_TWICE = (
    "SELECT 1 FROM (SELECT {0}, count(*) AS rows FROM keys GROUP BY {0}) WHERE rows > 1 LIMIT 1"
)


def single_keys(table: Table, snapshot_id: int, key: tuple[int, ...]) -> bool | None:
    """Return whether no key, of columns by their ids, is twice in a snapshot; None where its files cannot be read."""
    schema = Schema(*(table.schema().find_field(field_id) for field_id in key))
    names = [f"k{at}" for at in range(len(key))]
    types = pa.schema(zip(names, schema_to_pyarrow(schema).types, strict=True))
    try:
        scan = ArrowScan(table.metadata, table.io, schema, AlwaysTrue())
        # Of several tasks at once it has all rows in memory.
        batches = (
            batch.rename_columns(names).cast(types)
            for task in table.scan(snapshot_id=snapshot_id).plan_files()
            for batch in scan.to_record_batches([task])
        )
        return not _twice(batches, types)
    except (ValueError, NotImplementedError):
        # Equality deletes, or a format or encoding that pyiceberg does not read.
        return None


def _twice(keys: Iterator[pa.RecordBatch], types: pa.Schema) -> bool:
    with (
        tempfile.TemporaryDirectory(prefix="thermocline-keys-") as folder,
        duckdb.connect(config={"memory_limit": _MEMORY, "temp_directory": folder}) as engine,
    ):
        engine.register("batch", types.empty_table())
        engine.execute("CREATE TABLE keys AS FROM batch")
        # Not a reader: what fails in one is DuckDB's error.
        for batch in keys:
            engine.register("batch", batch)
            engine.execute("INSERT INTO keys FROM batch")
        return engine.execute(_TWICE.format(", ".join(types.names))).fetchone() is not None
