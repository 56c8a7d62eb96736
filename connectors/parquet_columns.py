"""Counts NaN values: a Parquet footer does not, and its bounds leave them out.

Leaf columns of a Parquet file by the paths that Parquet gives them, which options of its writer go by.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from planner.column_statistics import Leaf, leaves
from planner.schema import field_id


class NanCounts:
    """NaN values by field id, of columns and fields of structs. The schema has field ids."""

    def __init__(self, schema: pa.Schema) -> None:
        self._paths = [
            path for index, column in enumerate(schema) for path in _floats((index,), column)
        ]
        self.by_id: dict[int, int] = {number: 0 for _, number in self._paths}

    def add(self, rows: pa.Table) -> None:
        for path, number in self._paths:
            column: Any = rows.column(path[0])
            if path[1:]:
                column = pc.struct_field(column, list(path[1:]))
            self.by_id[number] += pc.sum(pc.is_nan(column)).as_py() or 0


def _floats(path: tuple[int, ...], column: pa.Field) -> Iterator[tuple[tuple[int, ...], int]]:
    if pa.types.is_floating(column.type):
        yield path, field_id(column)
    elif pa.types.is_struct(column.type):
        for index in range(column.type.num_fields):
            yield from _floats((*path, index), column.type.field(index))


def leaf_paths(schema: pa.Schema) -> dict[str, Leaf]:
    """Return all, in Parquet's order."""
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, schema).close()
    described = pq.read_metadata(pa.BufferReader(sink.getvalue())).schema
    paths = [described.column(index).path for index in range(len(described))]
    return dict(zip(paths, leaves(schema), strict=True))
