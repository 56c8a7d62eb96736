"""One connection to a server, over the stock ADBC driver: statements in, whole answers out."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import adbc_driver_flightsql.dbapi as flight_sql
import pyarrow as pa

from thermocline_client.answer import StatementAnswer
from thermocline_client.calls import apart
from thermocline_client.connecting import CALL_HEADER
from thermocline_client.errors import AnswerError, to_ours

T = TypeVar("T")
#: (rows so far, seconds), on the thread that waits.
Progress = Callable[[int, float], None]

#: Headers of one call, by the name of the setting.
_CONTRACT = ("freshness", "cut", "wait_for")


class Connection:
    """Asks one statement at a time; not thread-safe. The caller closes, or leaves the ``with`` block."""

    def __init__(self, uri: str, driver: flight_sql.Connection) -> None:
        self.uri = uri
        self._driver = driver

    def ask(
        self,
        sql: str,
        *,
        progress: Progress | None = None,
        **contract: str | None,
    ) -> StatementAnswer:
        """Run one statement and read its answer whole; Ctrl-C cancels it on the server.

        ``freshness``, ``cut`` and ``wait_for`` are of this statement alone. For an answer larger than memory take
        the driver's own reader (``docs/clients.md``).

        Raises:
            AnswerError: the server's sentence; the connection is closed.
            TypeError: another keyword.
        """
        headers = _headers(contract)
        if self._driver._closed:
            raise AnswerError("this connection is closed; connect again.", "FailedPrecondition")
        began_s = time.monotonic()
        batches: list[pa.RecordBatch] = []
        rows = 0

        def read(cursor: flight_sql.Cursor) -> pa.Schema:
            nonlocal rows
            # A text alone is two calls of the server; the cursor's own way prepares it first, and closes that: four.
            statement = cursor.adbc_statement
            statement.set_sql_query(sql)
            stream, _ = statement.execute_query()
            # As of ADBC 1.0, whose stream has no capsule.
            reader = pa.RecordBatchReader._import_from_c(stream.address)
            for batch in reader:
                batches.append(batch)
                rows += batch.num_rows
            return reader.schema

        def tick() -> None:
            if progress is not None:
                progress(rows, time.monotonic() - began_s)

        with self._cursor(headers) as cursor:
            schema = self._apart(lambda: read(cursor), cursor.adbc_cancel, tick)
        ended_s = time.monotonic()
        table = pa.Table.from_batches(batches, schema)
        return StatementAnswer(sql, table, ended_s - began_s, ended_s, self)

    def close(self) -> None:
        """Close the session. A server that has gone is no error."""
        with contextlib.suppress(flight_sql.Error):
            self._driver.close()
        # Else the finaliser tries again, and prints a traceback.
        self._driver._closed = True

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def _cursor(self, headers: Mapping[str, str]) -> Any:
        with self._driver.cursor() as cursor:
            if headers:
                cursor.adbc_statement.set_options(**headers)
            yield cursor

    def _apart(
        self, call: Callable[[], T], cancel: Callable[[], None], tick: Callable[[], None]
    ) -> T:
        try:
            return apart(call, cancel, tick)
        except (flight_sql.Error, pa.ArrowException, OSError) as error:
            raise to_ours(error, self.uri) from None


def _headers(contract: Mapping[str, str | None]) -> dict[str, str]:
    for name in contract:
        if name not in _CONTRACT:
            raise TypeError(f"ask() takes {', '.join(_CONTRACT)}, and not {name}.")
    return {
        f"{CALL_HEADER}thermocline-{name.replace('_', '-')}": value
        for name, value in contract.items()
        if value is not None
    }


def opened(uri: str, options: dict[str, str]) -> Connection:
    """Make the driver's connection, on this thread: it calls no server before the first statement.

    Raises:
        AnswerError: an option is refused.
    """
    try:
        return Connection(uri, flight_sql.connect(uri, db_kwargs=options, autocommit=True))
    except flight_sql.Error as error:
        raise to_ours(error, uri) from None
