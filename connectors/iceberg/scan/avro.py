"""Reads Avro files as Arrow tables, by DuckDB's avro extension: 100,000 manifest entries in 1.6 s on two cores, where
pyiceberg takes 5 (docs/decisions/0012-our-own-list-of-cold-files.md).

The extension, 1.5.5, takes a read error for the end of the file: a truncated file gives fewer rows and no error. So
the caller must know how many rows there are.
"""

from __future__ import annotations

import contextlib
import itertools
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa

from connectors import duckdb_extensions

#: DuckDB reserves room for a whole batch of rows, a million by default, and the table keeps it: 112 MB for the columns
#: of a manifest of one file (DuckDB 1.5.5). Longer files give several batches.
_MAX_RESERVED_ROWS = 100_000


class AvroReader:
    """Thread-safe; ``close`` removes its scratch files."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._numbers = itertools.count()

    def read(self, file: Path, columns: str, rows: int) -> pa.Table:
        """Return ``columns``, SQL expressions, over the rows of an Avro file, of which ``rows`` are expected.

        Raises:
            duckdb.Error: it is not Avro, or has no such columns.
        """
        with contextlib.closing(self._opened()[0]) as cursor:
            return cursor.execute(
                f"SELECT {columns} FROM read_avro(?)",  # noqa: S608 - expressions of our own
                [str(file)],
            ).to_arrow_table(max(1, min(rows, _MAX_RESERVED_ROWS)))

    @contextlib.contextmanager
    def scratch(self, content: bytes) -> Iterator[Path]:
        file = self._opened()[1] / f"{next(self._numbers)}.avro"
        try:
            file.write_bytes(content)
            yield file
        finally:
            file.unlink(missing_ok=True)

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            if self._scratch is not None:
                self._scratch.cleanup()
            self._connection = self._scratch = None

    def _opened(self) -> tuple[duckdb.DuckDBPyConnection, Path]:
        with self._lock:
            if self._connection is None or self._scratch is None:
                # One thread: callers bring their own, and a manifest is one task.
                connection = duckdb.connect(
                    ":memory:",
                    config={
                        "threads": "1",
                        "autoinstall_known_extensions": "false",
                        "autoload_known_extensions": "false",
                    },
                )
                duckdb_extensions.load(connection, duckdb_extensions.AVRO)
                connection.execute("SET GLOBAL TimeZone = 'UTC'")
                self._connection = connection
                self._scratch = tempfile.TemporaryDirectory(prefix="thermocline-avro-")
            return self._connection.cursor(), Path(self._scratch.name)
