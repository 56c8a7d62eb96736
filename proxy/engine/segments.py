"""Native tables that outlive a statement: decoded rows, inserted once, read by many statements.

Native, because Arrow tables cannot be scanned faithfully (``proxy.engine.relations``), and copying the tail into every
statement costs more than the statement. A segment lives in a schema that no statement can name. Spilled segments live
in a database file, which DuckDB reads by blocks; each packed one in a database in memory of its own, dropped with it,
so that no two of them ever wait for one another.

Parsing, binding and planning an insert take three times as long as inserting a hundred rows. So that statement is
prepared once a table. It reads a stream at a fixed place in memory, where each append puts a new one.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa

from planner.errors import FederationError
from planner.sql_text import identifier, literal
from planner.type_text import sql_type
from proxy.engine.errors import translate

_SCHEMA = "tail_segments"
_DISK = "tail_disk"
_DISK_FILE = "tails.duckdb"
_PACKED = "tail_packed_"
#: More than a tail can take. By default DuckDB checkpoints after every 16 MB committed, within a commit, and all
#: writers wait: up to 5 s on a busy machine, and twice the CPU per row (DuckDB 1.5.5).
_NO_CHECKPOINT = "1TB"


class Segments:
    """Segments of one engine. Thread-safe; one writer per segment at a time."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, scratch: Path | None = None
    ) -> None:
        """``scratch`` is a folder of ours alone, for segments on disk; before the engine is locked."""
        self._connection = connection
        self._numbers = itertools.count(1)
        self._appenders = Appenders(connection)
        #: Counts tables created and dropped.
        self._layout = 0
        self._file = None if scratch is None else scratch / _DISK_FILE
        connection.execute(f"SET GLOBAL checkpoint_threshold = '{_NO_CHECKPOINT}'")
        connection.execute(f"CREATE SCHEMA {_SCHEMA}")
        if self._file is not None:
            connection.execute(f"ATTACH {literal(str(self._file))} AS {_DISK}")

    def close(self) -> None:
        """Release the engine; nothing more can be appended."""
        self._appenders.close()

    @property
    def has_disk(self) -> bool:
        return self._file is not None

    def memory_bytes(self) -> int:
        """Bytes of all segments in memory, as the engine counts its blocks."""
        query = "SELECT memory_usage_bytes FROM duckdb_memory() WHERE tag = 'IN_MEMORY_TABLE'"
        return self._number(query)

    def disk_bytes(self) -> int:
        """Bytes of the scratch database on disk. Space of dropped segments is reused, not given back."""
        if self._file is None:
            return 0
        files = (self._file, self._file.with_name(f"{self._file.name}.wal"))
        free = self._number(
            f"SELECT free_blocks * block_size FROM pragma_database_size() WHERE database_name = '{_DISK}'"  # noqa: S608
        )
        return sum(file.stat().st_size for file in files if file.exists()) - free

    def create(self, schema: pa.Schema) -> str:
        """Create an empty segment and return its name, ready to stand in a FROM clause."""
        name = f"{_SCHEMA}.s{next(self._numbers)}"
        columns = ", ".join(
            f"{identifier(field.name)} {sql_type(field.type)}" for field in schema
        )
        self._execute(f"CREATE TABLE {name} ({columns})")
        return name

    def copy_to_disk(self, name: str) -> str:
        """Copy a segment to the scratch database and return the copy's name.

        Raises:
            FederationError: the disk is full, or the engine could not.
        """
        copied = f"{_DISK}.main.s{next(self._numbers)}"
        self._execute(f"CREATE TABLE {copied} AS FROM {name}")
        self._checkpoint_disk()
        return copied

    def pack(self, names: Sequence[str]) -> str:
        """Copy the rows of segments, in this order, to one that takes a fifth of the memory; return its name.

        Readers and droppers of the segments do not wait for it, nor do writers of others. Until it is done it takes as
        much memory as they do.

        Raises:
            FederationError: memory is out, or a segment is dropped already. Nothing is left behind.
        """
        database = f"{_PACKED}{next(self._numbers)}"
        packed = f"{database}.main.s"
        rows = " UNION ALL ".join(f"FROM {name}" for name in names)
        self._execute(f"ATTACH ':memory:' AS {database}")
        try:
            self._execute(f"CREATE TABLE {packed} AS {rows}")
            # This compresses them, and frees the copy.
            self._execute(f"CHECKPOINT {database}")
        except BaseException:
            self.drop(packed)
            raise
        return packed

    @contextlib.contextmanager
    def appending(
        self, name: str, schema: pa.Schema
    ) -> Iterator[Callable[[pa.RecordBatch], None]]:
        """Yield a function that appends batches of ``schema``; all become visible at the end, or none.

        Raises:
            FederationError: the engine could not hold the rows (``LimitExceeded`` when memory is out).
        """
        try:
            with self._appenders.lent(name, schema, self._layout) as appender:
                appender.begin(self._layout)
                yield appender.append
                appender.commit()
        except duckdb.Error as error:
            raise translate(error) from error

    def delete(self, name: str, where: str) -> int:
        return self._number(f"DELETE FROM {name} WHERE {where}")  # noqa: S608 - ours

    def drop(self, name: str) -> None:
        """Free a segment. Statements that already read it go on; none may start to."""
        self._appenders.drop(name)
        database = name.partition(".")[0]
        if database.startswith(_PACKED):
            self._execute(f"DETACH {database}")
            return
        self._execute(f"DROP TABLE {name}")
        if database == _DISK:
            self._checkpoint_disk()

    def _checkpoint_disk(self) -> None:
        """Checkpoint the file and the memory; free the blocks of dropped segments."""
        # If one cannot run now, the next does its work.
        with contextlib.suppress(FederationError):
            self._execute(f"CHECKPOINT {_DISK}")

    @contextlib.contextmanager
    def _cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        try:
            with self._connection.cursor() as cursor:
                yield cursor
        except duckdb.Error as error:
            raise translate(error) from error

    def _number(self, sql: str) -> int:
        with self._cursor() as cursor:
            row = cursor.execute(sql).fetchone()
            return int(row[0]) if row else 0

    def _execute(self, sql: str) -> None:
        with self._cursor() as cursor:
            cursor.execute(sql)
            self._layout += 1


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
        self._address = _address_of(self._stream, _STREAM)
        self._cursor = connection.cursor()
        try:
            self._cursor.register("arriving", self._stream)
            self._cursor.execute(self._insert)
        except BaseException:
            self._cursor.close()
            raise
        # Only looked at for its schema so far.
        pa.RecordBatchReader._import_from_c(self._address)

    def begin(self, layout: int) -> None:
        self._cursor.execute("BEGIN TRANSACTION")
        if layout != self._layout:
            # A plan made before a table came or went is made anew, and not kept, on each execution.
            self._execute(self._insert, _nothing(self._schema))
            pa.RecordBatchReader._import_from_c(self._address)
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
        rows.to_reader()._export_to_c(self._address)
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
