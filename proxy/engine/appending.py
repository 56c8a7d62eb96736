"""Appends Arrow batches to one native table by a statement that is prepared once.

Parsing, binding and planning an insert take three times as long as inserting a hundred rows. So the statement is
prepared once. It reads a stream at a fixed place in memory, where each append puts a new one.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Iterator

import duckdb
import pyarrow as pa

from planner.sql_text import identifier
from planner.type_text import sql_type

#: Most prepared inserts: each is a connection of its own, of some 100 kB.
_MAX_APPENDERS = 64
_STREAM = b"arrow_array_stream"
_address_of = ctypes.pythonapi.PyCapsule_GetPointer
_address_of.restype, _address_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


class Appender:
    """One table's prepared insert, on a cursor of its own. Not thread-safe.

    After any failure the caller closes it: it may be in any state.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, name: str, schema: pa.Schema, layout: int
    ) -> None:
        """``layout`` changes with the tables of the database."""
        columns = ", ".join(
            f"CAST({identifier(field.name)} AS {sql_type(field.type)})" for field in schema
        )
        # RETURNING, though its result is not read: without it DuckDB collects rows in extra tables to keep the order
        # of parallel tasks, although there is one task: up to half of an insert's time (DuckDB 1.5.5).
        self._insert = (
            f"PREPARE append AS INSERT INTO {name} SELECT {columns} FROM arriving "  # noqa: S608 - our names
            "RETURNING NULL::BOOLEAN"
        )
        self._schema = schema
        self._layout = layout
        # A capsule, as any other Arrow object is first wrapped in a scanner of pyarrow's, which takes longer than
        # the insert (DuckDB 1.5.5). DuckDB takes its stream each time; what is left then is an empty place for one.
        self._stream = _nothing(schema).to_reader().__arrow_c_stream__()
        self._place = _address_of(self._stream, _STREAM)
        self._cursor = connection.cursor()
        try:
            self._cursor.register("arriving", self._stream)
            self._cursor.execute(self._insert)
        except BaseException:
            self._cursor.close()
            raise
        # Only looked at for its schema so far.
        pa.RecordBatchReader._import_from_c(self._place)

    def begin(self, layout: int) -> None:
        self._cursor.execute("BEGIN TRANSACTION")
        if layout != self._layout:
            # A plan made before a table came or went is made anew, and not kept, on each execution.
            self._execute(self._insert, _nothing(self._schema))
            pa.RecordBatchReader._import_from_c(self._place)
            self._layout = layout

    def append(self, batch: pa.RecordBatch) -> None:
        # The plan reads memory by the schema it was made for: any other is refused here.
        self._execute("EXECUTE append", pa.Table.from_batches([batch], self._schema))

    def commit(self) -> None:
        self._cursor.execute("COMMIT")

    def close(self) -> None:
        """Roll back the open transaction, and release the table."""
        self._cursor.close()

    def _execute(self, sql: str, rows: pa.Table) -> None:
        rows.to_reader()._export_to_c(self._place)
        self._cursor.execute(sql)


class Appenders:
    """Keeps the most recently used appenders. Thread-safe."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._appenders: dict[str, Appender] = {}

    @contextlib.contextmanager
    def lent(self, name: str, schema: pa.Schema, layout: int) -> Iterator[Appender]:
        """Lend a table's appender; it is kept unless something fails. ``layout``: see ``Appender``."""
        with self._lock:
            idle = self._appenders.pop(name, None)
        appender = idle or Appender(self._connection, name, schema, layout)
        try:
            yield appender
        except BaseException:
            appender.close()
            raise
        with self._lock:
            self._appenders[name] = appender
            oldest = list(self._appenders)[:-_MAX_APPENDERS]
        for each in oldest:
            self.drop(each)

    def drop(self, name: str) -> None:
        with self._lock:
            appender = self._appenders.pop(name, None)
        if appender is not None:
            appender.close()

    def close(self) -> None:
        for name in list(self._appenders):
            self.drop(name)


def _nothing(schema: pa.Schema) -> pa.Table:
    """No rows; ``empty_table`` makes none of a uuid inside a struct, list or map (pyarrow 26.0.1)."""
    return pa.Table.from_batches([], schema)
