"""Runs of the query page: each runs on a thread of its own and gathers rows until it ends, is full, or is cancelled."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections import OrderedDict
from typing import Literal

import adbc_driver_flightsql.dbapi as flight_sql
import pyarrow as pa

from connectors.flight_server import DriverError
from planner.errors import (
    Cancelled,
    FederationError,
    InternalError,
    LimitExceeded,
    UnknownTable,
)
from thermocline.console.person import Person

#: Rows and bytes of one answer in this process; what comes after them is not fetched.
MAX_ROWS = 100_000
MAX_BYTES = 64 << 20
#: Answers of one login that can still be scrolled, and statements of it that run at once.
_MAX_ANSWERS = 3
_MAX_RUNNING = 3
#: Of all logins together: statements that run, and bytes of answers.
_MAX_RUNNING_OF_ALL = 24
_MAX_BYTES_OF_ALL = 1 << 30
State = Literal["running", "finished", "failed", "cancelled"]
#: What statements begin with that leave their session as it is; after others it is ended.
_READING = ("SELECT", "FROM", "WITH", "VALUES", "EXPLAIN", "DESCRIBE", "SHOW", "TABLE")
#: The metadata of an answer's schema that names its cut.
_CUT = b"thermocline.cut"


class AnswerRoom:
    """What all logins of a console share: so many statements at once, so many bytes of answers. Thread-safe."""

    def __init__(
        self, max_running: int = _MAX_RUNNING_OF_ALL, max_bytes: int = _MAX_BYTES_OF_ALL
    ) -> None:
        self._lock = threading.Lock()
        self._max_running = max_running
        self._max_bytes = max_bytes
        self._running = 0
        #: The oldest first.
        self._sizes: OrderedDict[Run, int] = OrderedDict()

    def enter(self) -> None:
        """Count a statement that begins. Raises LimitExceeded: too many run."""
        with self._lock:
            if self._running >= self._max_running:
                raise LimitExceeded(
                    f"{self._max_running} statements run from this console; try again when one of them has ended."
                )
            self._running += 1

    def leave(self) -> None:
        with self._lock:
            self._running -= 1

    def grow(self, run: Run, size: int) -> None:
        """Count bytes of an answer; where that makes too many, the oldest answers go whose statements have ended."""
        with self._lock:
            self._sizes[run] = self._sizes.get(run, 0) + size
            for old in list(self._sizes):
                if sum(self._sizes.values()) <= self._max_bytes:
                    return
                if old.state != "running":
                    del self._sizes[old]
                    old.drop()

    def forget(self, run: Run) -> None:
        with self._lock:
            self._sizes.pop(run, None)


class Run:
    """One execution. Read by threads of requests while its own thread adds rows."""

    def __init__(self, person: Person, room: AnswerRoom, sql: str, cut: str | None) -> None:
        """Begin it. Raises LimitExceeded: there is no room for one more."""
        room.enter()
        self._room = room
        self._person = person
        self._sql = sql
        self._requested_cut = cut
        self._cursor: flight_sql.Cursor | None = None
        self._batches: list[pa.RecordBatch] = []
        self._began_s = time.monotonic()
        self._ended_s: float | None = None
        self._is_cancelled = False
        self._bytes = 0
        self.state: State = "running"
        self.schema: pa.Schema | None = None
        self.rows = 0
        self.is_whole = False
        self.is_dropped = False
        self.error: FederationError | None = None
        self._thread = threading.Thread(target=self._run, name="console-statement", daemon=True)
        self._thread.start()

    @property
    def elapsed_s(self) -> float:
        return (self._ended_s or time.monotonic()) - self._began_s

    @property
    def cut(self) -> str | None:
        """The text that names the answer's cut, once it is known."""
        metadata = None if self.schema is None else self.schema.metadata
        text = (metadata or {}).get(_CUT, b"").decode()
        return text or None

    def table(self, start: int = 0, stop: int | None = None) -> pa.Table:
        """Return rows ``start <= row < stop`` of those that have arrived."""
        if self.schema is None:
            return pa.table({})
        table = pa.Table.from_batches(list(self._batches), self.schema)
        return table.slice(start, None if stop is None else max(0, stop - start))

    def drop(self) -> None:
        """Forget the rows, for others' to have room."""
        self.is_dropped = True
        self._batches = []

    def cancel(self) -> None:
        """End it on the server, too; what has arrived stays."""
        self._is_cancelled = True
        cursor = self._cursor
        if cursor is not None and self.state == "running":
            with contextlib.suppress(DriverError):
                cursor.adbc_cancel()

    def _run(self) -> None:
        try:
            reads = self._sql.lstrip("( \t\r\n")[:8].upper().startswith(_READING)
            with self._person.cursor(self._requested_cut, changes_session=not reads) as cursor:
                self._cursor = cursor
                if not self._is_cancelled:
                    cursor.execute(self._sql)
                    self._gather(cursor)
                self._cursor = None
            self.state = "cancelled" if self._is_cancelled else "finished"
        except FederationError as error:
            is_mine = isinstance(error, Cancelled) and self._is_cancelled
            self.error = None if is_mine else error
            self.state = "cancelled" if self._is_cancelled else "failed"
        except Exception as error:  # noqa: BLE001 - a thread's end is shown, not lost
            self.error = InternalError(f"the console met {type(error).__name__}; report it.")
            self.state = "cancelled" if self._is_cancelled else "failed"
        finally:
            self._cursor = None
            self._ended_s = time.monotonic()
            self._room.leave()

    def _gather(self, cursor: flight_sql.Cursor) -> None:
        reader = cursor.fetch_record_batch()
        self.schema = reader.schema
        for batch in reader:
            if self._is_cancelled:
                return
            room = MAX_ROWS - self.rows
            self._batches.append(batch.slice(0, room))
            self.rows += min(room, batch.num_rows)
            self._bytes += batch.nbytes
            self._room.grow(self, batch.nbytes)
            if batch.num_rows > room or self._bytes > MAX_BYTES:
                with contextlib.suppress(DriverError):
                    cursor.adbc_cancel()
                return
        self.is_whole = True


class Runs:
    """Those of one login, the newest few. Thread-safe."""

    def __init__(self, person: Person, room: AnswerRoom) -> None:
        self._person = person
        self._room = room
        self._lock = threading.Lock()
        self._statements: OrderedDict[str, Run] = OrderedDict()

    def start(self, sql: str, cut: str | None) -> str:
        """Start a statement and return its id.

        Raises:
            LimitExceeded: too many of this login are running.
        """
        with self._lock:
            running = [each for each in self._statements.values() if each.state == "running"]
            if len(running) >= _MAX_RUNNING:
                raise LimitExceeded(
                    f"{_MAX_RUNNING} statements of this login are running; cancel one, or wait for it."
                )
            name = secrets.token_urlsafe(9)
            self._statements[name] = Run(self._person, self._room, sql, cut)
            ended = [key for key, each in self._statements.items() if each.state != "running"]
            for key in ended[: max(0, len(self._statements) - _MAX_ANSWERS)]:
                self._room.forget(self._statements.pop(key))
            return name

    def statement(self, name: str) -> Run:
        """Return one of them. Raises UnknownTable: it is of another login, or its answer was dropped for newer ones."""
        with self._lock:
            statement = self._statements.get(name)
        if statement is None or statement.is_dropped:
            raise UnknownTable(
                "this answer is no longer in the console's memory; run the statement again."
            )
        return statement

    def close(self) -> None:
        with self._lock:
            statements = list(self._statements.values())
            self._statements.clear()
        for statement in statements:
            statement.cancel()
            self._room.forget(statement)
