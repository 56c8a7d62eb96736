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
        self._places = [
            place for index, column in enumerate(schema) for place in _floats((index,), column)
        ]
        self.by_id: dict[int, int] = {number: 0 for _, number in self._places}

    def add(self, rows: pa.Table) -> None:
        for place, number in self._places:
            column: Any = rows.column(place[0])
            if place[1:]:
                column = pc.struct_field(column, list(place[1:]))
            self.by_id[number] += pc.sum(pc.is_nan(column)).as_py() or 0


def _floats(place: tuple[int, ...], column: pa.Field) -> Iterator[tuple[tuple[int, ...], int]]:
    if pa.types.is_floating(column.type):
        yield place, field_id(column)
    elif pa.types.is_struct(column.type):
        for index in range(column.type.num_fields):
            yield from _floats((*place, index), column.type.field(index))


def leaf_paths(schema: pa.Schema) -> dict[str, Leaf]:
    """Return all, in Parquet's order."""
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, schema).close()
    described = pq.read_metadata(pa.BufferReader(sink.getvalue())).schema
    paths = [described.column(index).path for index in range(len(described))]
    return dict(zip(paths, leaves(schema), strict=True))
