"""A person who logged in: connections of the stock driver with that login, and what the server answers to it.

The console has no rights of its own: all that a page shows is what the server answered this person.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TypeAlias

import adbc_driver_flightsql.dbapi as flight_sql
import pyarrow as pa
from adbc_driver_flightsql import StatementOptions

from connectors.flight_server import DriverError, NoServer, NotLetIn, connect, to_ours
from planner.errors import FederationError

#: How long what a page shows is good for: the server is asked once in it, however many tabs are open.
POLL_S = 1.0
#: Longer where answers take long, as those of a busy server do: so many times what they take, up to this.
_REST, _MAX_POLL_S = 20.0, 10.0
#: A page's own statement that takes longer is an error of that page.
_PAGE_TIMEOUT_S = 15.0
#: Pages of one person that are remembered for ``POLL_S``.
_MAX_POLLS = 64
#: Connections that wait for the next statement. One more is closed after use.
_MAX_IDLE = 4
_HEADER = "adbc.flight.sql.rpc.call_header."
_TIMEOUTS = {
    StatementOptions.TIMEOUT_QUERY.value: _PAGE_TIMEOUT_S,
    StatementOptions.TIMEOUT_FETCH.value: _PAGE_TIMEOUT_S,
}
Document: TypeAlias = dict[str, object]


@dataclass(frozen=True, slots=True)
class LoginForm:
    """What a person logged in with: a name and a password, a token, or nothing where the server asks for none."""

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ConsoleTarget:
    """Where the server is. ``root_certificates`` is PEM, None for those of the system."""

    uri: str
    root_certificates: str | None = field(default=None, repr=False)


@dataclass(slots=True)
class Poll:
    """One answer for all tabs of a page; waited for without a thread. ``previous_s`` is what the answer before took."""

    answer: Future[Document] = field(default_factory=Future)
    began_s: float = field(default_factory=time.monotonic)
    previous_s: float = 0.0
    took_s: float = 0.0

    @property
    def due_s(self) -> float:
        """How long until the server is asked again, 0 or less: now. One slow answer changes nothing, as the first is."""
        period_s = max(POLL_S, min(_MAX_POLL_S, _REST * min(self.previous_s, self.took_s)))
        return period_s - (time.monotonic() - self.began_s)

    def work(self, ask: Callable[[], Document]) -> None:
        """Ask, and let all who wait have the document or the error."""
        try:
            document = ask()
        except Exception as error:  # noqa: BLE001 - raised where the answer is waited for
            self.answer.set_exception(error)
        else:
            self.took_s = time.monotonic() - self.began_s
            self.answer.set_result(document)


class Person:
    """Thread-safe. Close it at logout."""

    def __init__(self, server: ConsoleTarget, credentials: LoginForm) -> None:
        """Log in.

        Raises:
            NotLetIn: the server does not take the credentials.
            NoServer: it does not answer.
        """
        self._server = server
        self._credentials = credentials
        self._lock = threading.Lock()
        self._idle: list[flight_sql.Connection] = []
        self._is_closed = False
        self._polls: OrderedDict[str, Poll] = OrderedDict()
        self._digests: OrderedDict[str, None] = OrderedDict()
        # Not asked again where it is refused: the server counts wrong passwords.
        [row] = self._ask("SELECT current_user AS name", None, None).to_pylist()
        self.name: str = row["name"] or credentials.user or ""

    @contextlib.contextmanager
    def cursor(
        self, cut: str | None = None, *, changes_session: bool = False
    ) -> Iterator[flight_sql.Cursor]:
        """Lend a cursor, whose statements read ``cut`` if there is one; what the driver raises becomes ours.

        A connection that met the end of its server, or of its session, is not used again; nor is one whose session a
        statement changes.
        """
        connection = self._connection()
        is_usable = False
        try:
            with _ours(), connection.cursor() as cursor:
                if cut is not None:
                    cursor.adbc_statement.set_options(**{f"{_HEADER}thermocline-cut": cut})
                yield cursor
            is_usable = not changes_session
        except (NoServer, NotLetIn):
            self._forget_idle()
            raise
        except FederationError:
            is_usable = not changes_session
            raise
        finally:
            self._give_back(connection, is_usable=is_usable)

    def ask(
        self, sql: str, cut: str | None = None, parameters: Sequence[str] | None = None
    ) -> pa.Table:
        """Return the whole answer of a page's own statement. Raises FederationError: the server's sentence.

        Once more where the server was started again: the first connection is of its life before.
        """
        self._note(sql)
        try:
            return self._ask(sql, cut, parameters)
        except (NoServer, NotLetIn):
            return self._ask(sql, cut, parameters)

    def own_digests(self) -> list[str]:
        """Return the SHA-256 of the texts that pages asked lately, as the server names statements without their text."""
        with self._lock:
            return list(self._digests)

    def _note(self, sql: str) -> None:
        digest = hashlib.sha256(sql.encode()).hexdigest()
        with self._lock:
            self._digests[digest] = None
            self._digests.move_to_end(digest)
            while len(self._digests) > _MAX_POLLS:
                self._digests.popitem(last=False)

    def _ask(self, sql: str, cut: str | None, parameters: Sequence[str] | None) -> pa.Table:
        with self.cursor(cut) as cursor:
            statement = cursor.adbc_statement
            statement.set_options(**{key: str(value) for key, value in _TIMEOUTS.items()})
            if parameters is None:
                # A text alone is two calls of the server; the cursor prepares it first, and closes that: four.
                statement.set_sql_query(sql)
                stream, _ = statement.execute_query()
                return pa.RecordBatchReader.from_stream(stream).read_all()
            cursor.execute(sql, parameters)
            return cursor.fetch_arrow_table()

    def poll(self, page: str) -> tuple[Poll, bool]:
        """Return what a page shows in this second, and whether the caller is to answer it: tabs of one page share an answer.

        It is answered by one ``Poll.work``.
        """
        with self._lock:
            poll = self._polls.get(page)
            if poll is not None and not (poll.answer.done() and poll.due_s <= 0):
                return poll, False
            poll = self._polls[page] = Poll(previous_s=0.0 if poll is None else poll.took_s)
            self._polls.move_to_end(page)
            while len(self._polls) > _MAX_POLLS:
                self._polls.popitem(last=False)
            return poll, True

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
        self._forget_idle()

    def _connection(self) -> flight_sql.Connection:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        credentials = self._credentials
        with _ours():
            return connect(
                self._server.uri,
                user=credentials.user,
                password=credentials.password,
                token=credentials.token,
                root_certificates=self._server.root_certificates,
                large_rows=True,
            )

    def _give_back(self, connection: flight_sql.Connection, *, is_usable: bool) -> None:
        with self._lock:
            if is_usable and not self._is_closed and len(self._idle) < _MAX_IDLE:
                self._idle.append(connection)
                return
        _close(connection)

    def _forget_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            _close(connection)


@contextlib.contextmanager
def _ours() -> Iterator[None]:
    try:
        yield
    except (DriverError, pa.ArrowException, OSError) as error:
        raise to_ours(error) from error


def _close(connection: flight_sql.Connection) -> None:
    try:
        connection.close()
    except DriverError:
        # The server has gone. Else the finaliser tries again, and prints the traceback.
        connection._closed = True
