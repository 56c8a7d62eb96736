"""A row is found by its partition's value, whatever its type, in manifests of each reader: DuckDB's and pyiceberg's."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.transforms import IdentityTransform

from planner.ports import SqlRelation
from planner.reading.filters import Condition
from tests.harness.file_lake import Lake, slice_of
from tests.harness.type_borders import BORDERS, Borders, Comparison

#: pyiceberg writes no partition of a uuid, of NaN, nor of a text that is too long for the name of a folder.
_TYPES = [borders for borders in BORDERS if borders.name != "uuid"]


def _is_written(value: Any) -> bool:
    return value == value and not (isinstance(value, str) and len(value) > 16)


@pytest.mark.parametrize(
    ("codec", "most"),
    [("gzip", 1_000), ("zstandard", 1_000), ("gzip", 0)],
    ids=["DuckDB", "pyiceberg", "the extension"],
)
@pytest.mark.parametrize("borders", _TYPES, ids=lambda borders: borders.name)
def test_a_row_is_found_by_the_value_of_its_partition(
    lake_of_files: Lake,
    duck: duckdb.DuckDBPyConnection,
    monkeypatch: pytest.MonkeyPatch,
    borders: Borders,
    codec: str,
    most: int,
) -> None:
    monkeypatch.setattr("connectors.iceberg.scan.planner.MAX_LISTED_FILES", most)
    schema = pa.schema([("id", pa.int64()), ("v", borders.kind)])
    table = lake_of_files.catalog.create_table(
        "n.t", schema=schema, properties={"write.avro.compression-codec": codec}
    )
    with table.update_spec() as update:
        update.add_field("v", IdentityTransform(), "v")
    values = [value for value in borders.values if _is_written(value)]
    content = {"id": [*range(len(values))], "v": pa.array(values, borders.kind)}
    table.append(pa.table(content, schema))
    store = lake_of_files.store()
    for number, value in enumerate(values):
        equal = Condition("v", "=", (pa.scalar(value, borders.kind),))
        part = store.scan(slice_of(store), ((equal,),))
        assert isinstance(part, SqlRelation), value
        assert ("iceberg_scan" in part.sql) == (not most)
        condition = Comparison(borders, "v", "=", (value,)).of_duckdb()
        ids = duck.execute(f"SELECT id FROM ({part.sql}) WHERE {condition}").fetchall()
        assert (number,) in ids, value
