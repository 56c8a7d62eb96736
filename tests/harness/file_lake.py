"""A catalog of one table in a folder, and stores over it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from connectors.iceberg.store import IcebergStore
from planner.names import TableName
from planner.reading.filters import Condition, ScanFilter
from planner.seam.cut import ColdSlice, cold_cut

NAME = TableName("c", ("n",), "t")
SCHEMA = pa.schema(
    [("id", pa.int64()), ("s", pa.string()), ("at", pa.struct([("x", pa.int32())]))]
)


class Lake:
    """A catalog with one table, and stores over it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.properties = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/c.db",
            "warehouse": f"file://{folder}",
        }
        self.catalog = SqlCatalog("c", **self.properties)
        self.catalog.create_namespace("n")
        self.stores: list[IcebergStore] = []

    def create(self, **properties: str) -> Table:
        return self.catalog.create_table("n.t", schema=SCHEMA, properties=properties)

    def store(self, **options: Any) -> IcebergStore:
        store = IcebergStore({"c": self.properties}, **options)
        self.stores.append(store)
        return store

    def files(self, pattern: str) -> list[Path]:
        return sorted(self.folder.rglob(pattern))


def rows(*ids: int) -> pa.Table:
    content = [{"id": number, "s": f"s{number}", "at": {"x": number}} for number in ids]
    return pa.Table.from_pylist(content, SCHEMA)


def equal_to(number: int) -> ScanFilter:
    return ((Condition("id", "=", (pa.scalar(number, pa.int64()),)),),)


def slice_of(store: IcebergStore) -> ColdSlice:
    return cold_cut(store.pin(NAME)).cold
