"""Leaf columns of a Parquet file by the paths that Parquet gives them, which options of its writer go by."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from planner.column_statistics import Leaf, leaves


def leaf_paths(schema: pa.Schema) -> dict[str, Leaf]:
    """Return all, in Parquet's order."""
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, schema).close()
    described = pq.read_metadata(pa.BufferReader(sink.getvalue())).schema
    paths = [described.column(index).path for index in range(len(described))]
    return dict(zip(paths, leaves(schema), strict=True))
