"""Columns of one schema in another of the same table."""

from __future__ import annotations

import pyarrow as pa

from planner.schema import Column, TableSchema, project


def test_columns_are_known_by_their_ids() -> None:
    own = TableSchema(0, (Column(4, "host", pa.string()), Column(5, "bytes", pa.int32())))
    renamed = Column(4, "machine", pa.string())
    newer = Column(6, "host", pa.string())
    widened = Column(5, "bytes", pa.int64())
    projected = project(TableSchema(1, (newer, widened, renamed)), own)
    assert [(each.column, each.source) for each in projected] == [
        (newer, None),
        (widened, own.columns[1]),
        (renamed, own.columns[0]),
    ]
