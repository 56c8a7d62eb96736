"""Native tables that outlive a statement: decoded rows, inserted once, read by many statements.

Native, because Arrow tables cannot be scanned faithfully (``proxy.engine.relations``), and copying the tail into every
statement costs more than the statement. A segment lives in a schema that no statement can name. Spilled segments live
in a database file, which DuckDB reads by blocks; each packed one in a database in memory of its own, dropped with it,
so that no two of them ever wait for one another.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa

from planner.errors import FederationError
from planner.sql_text import identifier, literal
from planner.type_text import sql_type
from proxy.engine.appending import Appenders
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

    def _number(self, sql: str) -> int:
        cursor = self._connection.cursor()
        try:
            row = cursor.execute(sql).fetchone()
            return int(row[0]) if row else 0
        except duckdb.Error as error:
            raise translate(error) from error
        finally:
            cursor.close()

    def _execute(self, sql: str) -> None:
        cursor = self._connection.cursor()
        try:
            cursor.execute(sql)
            self._layout += 1
        except duckdb.Error as error:
            raise translate(error) from error
        finally:
            cursor.close()
