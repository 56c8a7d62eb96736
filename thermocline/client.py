"""A client of a Thermocline server, over the stock ADBC driver: results as batches, errors as ours.

The driver's calls block where no signal reaches them, so rows are read on a thread of their own and Ctrl-C
ends a statement at once, also on the server. Statements of one text are told apart by the engine's own tokens.
"""

from __future__ import annotations

import contextlib
import queue
import re
import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import adbc_driver_flightsql.dbapi as flight_sql
import pyarrow as pa

from connectors.flight_server import NoServer, connect, to_ours
from planner.sql_text import literal
from proxy.flightsql import messages
from thermocline_client.calls import TICK_S, apart

T = TypeVar("T")
#: A batch; or what ended an answer: its error, or None at its end.
_Item: TypeAlias = pa.RecordBatch | BaseException | None

#: The header that says what a follower has seen (``proxy.flightsql.middleware``).
AFTER = "thermocline-after"

#: Batches read ahead of the writer.
_READ_AHEAD_BATCHES = 4

_HEADER = "adbc.flight.sql.rpc.call_header."


class ClientAnswer:
    """The rows of one statement, read once."""

    def __init__(self, cursor: flight_sql.Cursor) -> None:
        self._cursor = cursor
        self._reader = cursor.fetch_record_batch()
        self.schema: pa.Schema = self._reader.schema

    def batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Yield every batch; closing the iterator early cancels the statement.

        Raises:
            FederationError: what ended the answer early; what was yielded is not the whole of it.
        """
        arrived: queue.Queue[_Item] = queue.Queue(_READ_AHEAD_BATCHES)
        abandoned = threading.Event()
        reading = threading.Thread(
            target=_read, args=(self._reader, arrived, abandoned), name="answer", daemon=True
        )
        reading.start()
        whole = False
        try:
            while (item := _next(arrived)) is not None:
                if isinstance(item, BaseException):
                    raise to_ours(item) from item
                yield item
            whole = True
        finally:
            if not whole:
                abandoned.set()
                with contextlib.suppress(flight_sql.Error):
                    self._cursor.adbc_cancel()
                while reading.is_alive():  # it may wait for room
                    with contextlib.suppress(queue.Empty):
                        arrived.get(timeout=TICK_S)
            reading.join()


def _next(arrived: queue.Queue[_Item]) -> _Item:
    """Wait in short steps: a signal another thread took is seen between two of them. The driver's threads do take them."""
    while True:
        with contextlib.suppress(queue.Empty):
            return arrived.get(timeout=TICK_S)


def _read(
    reader: pa.RecordBatchReader, arrived: queue.Queue[_Item], abandoned: threading.Event
) -> None:
    last: BaseException | None = None
    try:
        for batch in reader:
            arrived.put(batch)
            if abandoned.is_set():
                return
    except BaseException as error:  # noqa: BLE001 - raised again by the reading thread
        last = error
    arrived.put(last)


@dataclass(frozen=True)
class FollowRound:
    """One round of a followed statement. ``position`` is where the next one starts, once this one is read."""

    _connection: flight_sql.Connection
    _partition: bytes = field(repr=False)
    position: str

    @contextlib.contextmanager
    def read(self) -> Iterator[ClientAnswer]:
        """Open the round's rows; raises FederationError as ``Client.ask``."""
        with self._connection.cursor() as cursor:
            _apart(lambda: cursor.adbc_read_partition(self._partition), cursor.adbc_cancel)
            yield ClientAnswer(cursor)


class Client:
    """One connection. Not thread-safe; one answer at a time."""

    def __init__(self, connection: flight_sql.Connection) -> None:
        self._connection = connection

    @contextlib.contextmanager
    def ask(self, sql: str) -> Iterator[ClientAnswer]:
        """Run one statement. Raises FederationError: the server's sentence, in the family its status stands for."""
        with self._connection.cursor() as cursor:
            _apart(lambda: cursor.execute(sql), cursor.adbc_cancel)
            yield ClientAnswer(cursor)

    def rows(self, sql: str) -> Iterator[dict[str, Any]]:
        """Run one statement and yield its rows, values by column; raises FederationError as ``ask``."""
        with self.ask(sql) as answer:
            for batch in answer.batches():
                yield from batch.to_pylist()

    def set(self, name: str, value: str) -> None:
        """Change a setting of the session; raises FederationError as ``ask``."""
        list(self.rows(f"SET {name} = {literal(value)}"))

    def follow(self, sql: str, after: str) -> FollowRound:
        """Plan a statement over what is new after a position (``planner.seam.incremental``); nothing is read yet.

        Raises FederationError as ``ask``.
        """
        with self._connection.cursor() as cursor:
            cursor.adbc_statement.set_options(**{f"{_HEADER}{AFTER}": after})
            partitions, _ = _apart(
                lambda: cursor.adbc_execute_partitions(sql), cursor.adbc_cancel
            )
        # This server answers with one endpoint; ADBC hands it over as a FlightInfo of its own.
        [partition] = partitions
        info = messages.parse(messages.FlightInfo, partition)
        return FollowRound(self._connection, partition, info.app_metadata.decode())

    def tables(self) -> list[tuple[str, str, str]]:
        """List (catalog, schema, table) of everything the server shows, sorted."""
        listed = _apart(
            lambda: self._connection.adbc_get_objects(depth="tables").read_all().to_pylist(),
            self._connection.adbc_cancel,
        )
        return sorted(
            (catalog["catalog_name"], schema["db_schema_name"], table["table_name"])
            for catalog in listed
            for schema in catalog["catalog_db_schemas"] or ()
            for table in schema["db_schema_tables"] or ()
        )


@contextlib.contextmanager
def connected(
    uri: str, *, user: str | None = None, password: str | None = None, token: str | None = None
) -> Iterator[Client]:
    """Connect to a server.

    Raises:
        RequestError: user, password or token are refused.
        Unavailable: no server answers.
    """
    connection = _apart(lambda: connect(uri, user=user, password=password, token=token))
    try:
        yield Client(connection)
    except NoServer as error:
        raise NoServer(
            f"no server answers at {uri}; start one with `thermocline serve`, or name another with --server.",
            uri=uri,
        ) from error
    finally:
        try:
            connection.close()
        except flight_sql.Error:
            # The server has gone. Else the finaliser tries again, and prints the traceback.
            connection._closed = True


def _apart(call: Callable[[], T], cancel: Callable[[], None] | None = None) -> T:
    """Run a call of the driver's where Ctrl-C reaches it, and raise its errors as ours."""
    try:
        return apart(call, cancel)
    except Exception as error:
        raise to_ours(error) from error


def split(text: str) -> list[str]:
    """Return the statements of ``text`` without their semicolons; texts of comments alone are left out."""
    return [piece for piece, has_words in _pieces(text) if has_words]


def is_complete(text: str) -> bool:
    """Whether what was typed so far ends a statement: its last word is a semicolon, or there is none."""
    return not _pieces(text)[-1][1]


def _pieces(text: str) -> list[tuple[str, bool]]:
    """Return (piece, whether it has words); the last one is what follows the last semicolon."""
    if not re.search(r";|--|/\*", text):
        return [(text.strip(), bool(text.strip()))]
    # Not at the top: it takes a tenth of a second, which most statements need not wait.
    import duckdb

    # Offsets are of bytes. Of a quote or comment that is not closed there is no token, nor of what follows.
    raw = text.encode()
    end = len(raw) + 1
    pieces: list[tuple[str, bool]] = []
    begin, has_words = 0, False
    tokens = [offset for offset, _ in duckdb.tokenize(f"{text}\n;")]
    for offset in tokens:
        if offset == end:
            break
        if raw[offset : offset + 1] == b";":
            pieces.append((raw[begin:offset].decode().strip(), has_words))
            begin, has_words = offset + 1, False
        else:
            has_words = True
    is_open = tokens[-1:] != [end]
    pieces.append((raw[begin:].decode().strip(), has_words or is_open))
    return pieces
