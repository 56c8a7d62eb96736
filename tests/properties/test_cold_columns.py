"""Columns of files older than the schema: by our own list they are what the extension reads, whichever are asked for."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType, StructType

from connectors import duckdb_extensions as extensions
from connectors.iceberg.store import IcebergStore
from planner.names import TableName
from planner.ports import SqlRelation
from planner.reading.filters import EVERYTHING
from planner.seam.cut import cold_cut

NAME = TableName("c", ("n",), "t")
NAMES = ("a", "s", "x y")
KINDS = {
    "long": LongType(),
    "text": StringType(),
    "pair": StructType(NestedField(900, "p", LongType(), required=False)),
}
#: A change of the schema, or rows with a part of its columns: each step is what it can be by then.
Step = tuple[str, str, str]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("append", "add", "rename", "replace", "swap", "drop")),
        st.sampled_from(NAMES),
        st.sampled_from((*NAMES, *KINDS)),
    ),
    min_size=2,
    max_size=9,
)


def take(table: Table, step: Step, number: int) -> None:
    what, name, other = step
    names = {field.name for field in table.schema().fields}
    if what == "append":
        append(table, number, without=name)
    elif what == "add" and name not in names:
        with table.update_schema() as update:
            update.add_column(name, KINDS.get(other, LongType()))
    elif what == "rename" and name in names and other in NAMES and other not in names:
        with table.update_schema() as update:
            update.rename_column(name, other)
    elif what == "swap" and {name, other} <= names and name != other:
        for one, two in ((name, "between"), (other, name), ("between", other)):
            with table.update_schema() as update:
                update.rename_column(one, two)
    elif what in ("drop", "replace") and name in names:
        with table.update_schema() as update:
            update.delete_column(name)
        if what == "replace":
            take(table, ("add", name, other), number)


def append(table: Table, number: int, without: str) -> None:
    values = {"long": number, "string": f"t{number}", "struct": {"p": number}}
    fields = [field for field in table.schema().as_arrow() if field.name != without]
    row = {
        field.name: values[
            "struct"
            if pa.types.is_struct(field.type)
            else "long"
            if pa.types.is_int64(field.type)
            else "string"
        ]
        for field in fields
    }
    table.append(pa.Table.from_pylist([row], pa.schema(fields)))


@cache
def duck() -> duckdb.DuckDBPyConnection:
    """One for all examples: to load the extensions takes longer than to ask."""
    connection = duckdb.connect()
    extensions.load(connection, extensions.LOCAL)
    return connection


def answer(names: Sequence[str], sql: str) -> list[str]:
    listed = ", ".join(f'"{name}"' for name in names)
    return sorted(map(str, duck().execute(f"SELECT {listed} FROM ({sql})").fetchall()))


def compare(steps: list[Step], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        properties = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/c.db",
            "warehouse": Path(folder).as_uri(),
        }
        catalog = SqlCatalog("c", **properties)
        catalog.create_namespace("n")
        table = catalog.create_table(
            "n.t", pa.schema([("id", pa.int64()), ("a", pa.int64()), ("s", pa.string())])
        )
        store = IcebergStore({"c": properties})
        try:
            append(table, 0, without="")
            for number, step in enumerate(steps, 1):
                take(table, step, number)
            cold = cold_cut(store.pin(NAME)).cold
            every = [column.name for column in cold.schema.columns]
            chosen = data.draw(st.sets(st.sampled_from(every), min_size=1))
            names = [name for name in every if name in chosen]
            part = store.scan(cold, EVERYTHING, names)
            assert isinstance(part, SqlRelation)
            assert answer(names, part.sql) == answer(names, store.extension_sql(cold))
        finally:
            store.close()
            catalog.close()


@settings(max_examples=10, deadline=None)
@given(STEPS, st.data())
def test_any_columns_of_files_of_any_age_are_those_of_the_extension(
    steps: list[Step], data: st.DataObject
) -> None:
    compare(steps, data)


@pytest.mark.soak
@settings(max_examples=100, deadline=None, derandomize=False)
@given(STEPS, st.data())
def test_columns_of_more_tables_are_those_of_the_extension(
    steps: list[Step], data: st.DataObject
) -> None:
    compare(steps, data)
