"""What the Flight SQL layer asks of the engine behind it.

The protocol layer knows messages, sessions, handles and statuses; a backend knows SQL, tables and tickets.
Neither knows the other's library. A backend raises errors of ``planner.errors``; anything else it raises is
reported to the client as an internal error without its text.

All methods may be called from many threads at once. Each gets the ``Cancellation`` of the client call it
serves, or is expected to be fast enough not to need one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Literal, Protocol

import pyarrow as pa

from planner.errors import Cancelled, FederationError

OptionValue = str | bool | int | float | tuple[str, ...]
TableKind = Literal["TABLE", "VIEW"]

#: Field metadata keys of ``Browsing.table_schema``: a column's comment, and its SQL type name where the Arrow
#: type does not say it (UUID, JSON).
COMMENT = b"comment"
TYPE_NAME = b"type_name"


@dataclass(frozen=True, slots=True)
class Session:
    """What a client has set, as one statement sees it: a value, replaced and never changed.

    ``id`` names the session in logs; it is not the token. ``user`` is None for anonymous callers; ``groups`` are
    what the credentials say the user belongs to. None in
    ``catalog``, ``schema`` or ``time_zone`` means not set; ``Browsing.configure`` fills in the default.
    ``freshness``, ``wait_for`` and ``cut`` are texts of ``planner.freshness`` and ``planner.time_travel``; None: live,
    nothing, none. ``after`` is of one call only: what its caller has seen before (``planner.incremental``). ``timeout_s`` is how
    long this user's statements may run where that is less than the server's limit.
    """

    id: str
    user: str | None = None
    groups: frozenset[str] = frozenset()
    catalog: str | None = None
    schema: str | None = None
    time_zone: str | None = None
    freshness: str | None = None
    wait_for: str | None = None
    cut: str | None = None
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    after: str | None = None
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A checked statement.

    ``parameter_schema`` has one field per parameter, in order. JDBC binds nothing to a null-typed field, and
    writes milliseconds whatever unit is declared, so: ``int64`` for every integer, ``timestamp[ms]`` and
    ``time32[ms]`` for times, utf8 where the type is unknown (docs/internals/protocol.md).
    """

    dataset_schema: pa.Schema
    parameter_schema: pa.Schema


@dataclass(frozen=True, slots=True)
class Planned:
    """A statement with everything its answer depends on. The ticket is opaque here and sealed by the backend.

    ``app_metadata`` goes out with the FlightInfo: the text of the cut it reads (``planner.time_travel``), empty where
    it reads no table; to one who follows, the position the answer ends at.
    ``expires_at_us`` is microseconds since 1970; None: never.
    """

    ticket: bytes
    schema: pa.Schema
    app_metadata: bytes = b""
    expires_at_us: int | None = None


@dataclass(frozen=True, slots=True)
class Renewed:
    """A ticket for the same answer as another one, good for longer."""

    ticket: bytes
    expires_at_us: int


@dataclass(frozen=True, slots=True)
class TicketSummary:
    """What was asked, for those who write it down: the text, and by table what of it is read, in short."""

    sql: str
    cuts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Table:
    """One row of the catalog tree."""

    catalog: str
    schema: str
    name: str
    kind: TableKind = "TABLE"
    comment: str | None = None


class Cancellation:
    """Whether the client call that something runs for is still wanted. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._reason: FederationError | None = None
        self._interrupts: list[Callable[[], None]] = []

    @property
    def reason(self) -> FederationError | None:
        """Why the call was given up; None while it is wanted."""
        return self._reason

    def request(self, reason: FederationError | None = None) -> None:
        """Give the call up: run the interrupts registered now. Only the first request counts."""
        with self._lock:
            if self._reason is not None:
                return
            self._reason = reason or Cancelled("The statement was cancelled.")
            interrupts = tuple(self._interrupts)
            for interrupt in interrupts:
                interrupt()

    def check(self) -> None:
        """Raise the reason if the call was given up."""
        if self._reason is not None:
            raise self._reason

    @contextmanager
    def interrupting(self, interrupt: Callable[[], None]) -> Iterator[None]:
        """Have ``interrupt`` called, from another thread, if the call is given up inside this block.

        It runs at most once, never after the block has ended, must not block and must not raise
        (``duckdb.DuckDBPyConnection.interrupt`` fits). Raises the reason if the call was given up before.
        """
        with self._lock:
            self.check()
            self._interrupts.append(interrupt)
        try:
            yield
        finally:
            with self._lock:
                self._interrupts.remove(interrupt)


class Stream(Protocol):
    """One execution of a ticket. Used by one thread at a time; its cancellation may come from any."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of every batch, field metadata included; ADBC refuses one that differs from ``Planned``'s."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield batches of about 2 MiB, without dictionary, view or run-end encoded columns (JDBC reads none).

        Called once. Ends normally only if the answer is whole; anything less raises.
        """

    def close(self) -> None:
        """Free what the execution holds. Idempotent; called after the end, an error, or halfway."""


class Browsing(Protocol):
    """What may be browsed and set. Thread-safe."""

    def configure(self, session: Session, before: Session | None = None) -> Session:
        """Check what a session has set and fill in the defaults for what it has not. Fast.

        Called when a session starts and whenever a client sets something. Catalog and schema that are those of
        ``before``, what it was until now, are not looked for again.

        Raises:
            RequestError: names the setting that cannot be served; the session keeps its former value.
        """

    def catalogs(self, session: Session) -> Sequence[str]:
        """Name the catalogs the session may see. From memory: tools ask before every query."""

    def schemas(self, session: Session) -> Sequence[tuple[str, str]]:
        """Name the (catalog, schema) pairs the session may see. From memory."""

    def tables(self, session: Session) -> Sequence[Table]:
        """List all tables and views the session may see, in any order. From memory."""

    def table_schema(self, session: Session, table: Table) -> pa.Schema:
        """The columns of a listed table, typed as a query returns them; see ``COMMENT``, ``TYPE_NAME``.

        Raises:
            UnknownTable: it went away since it was listed.
        """


class Backend(Protocol):
    """SQL and tickets, and what may be browsed beside them. Thread-safe."""

    @property
    def browsing(self) -> Browsing:
        """The tables, as the statements of the same session see them."""

    def prepare(self, session: Session, sql: str, cancellation: Cancellation) -> Prepared:
        """Check a statement and describe its answer and parameters, without executing it.

        Raises:
            RequestError: it does not parse or bind, or is not allowed (anything but a query).
        """

    def plan(
        self,
        session: Session,
        sql: str,
        parameters: pa.RecordBatch | None,
        cancellation: Cancellation,
    ) -> Planned:
        """Fix what one execution will read. ``parameters`` has exactly one row, any types; None: none bound.

        Called once for each client call that asks for an answer, or for its schema once parameters are bound.

        Raises:
            RequestError: as ``prepare``; BadParameter also where count or type of the parameters do not fit.
        """

    def update(
        self,
        session: Session,
        sql: str,
        rows: Iterable[pa.RecordBatch],
        cancellation: Cancellation,
    ) -> int:
        """Execute a statement that changes data, once for each row of ``rows``; how many rows it changed.

        Batches without columns bind nothing: clients send one where there are no parameters.

        Raises:
            UnsupportedStatement: this backend only reads.
        """

    def open(self, session: Session, ticket: bytes, cancellation: Cancellation) -> Stream:
        """Start executing a ticket; the caller closes the stream. ``ticket`` is hostile until checked.

        The cancellation stays in force while the stream is read.

        Raises:
            BadTicket: not issued by this server for this user, or altered.
            StalePlan: what it names is gone.
        """

    def renew(self, session: Session, ticket: bytes) -> Renewed:
        """Make a ticket good for longer. Fast; nothing is read again.

        Raises:
            BadTicket: as ``open``; also once it has expired.
        """

    def about(self, session: Session, ticket: bytes) -> TicketSummary:
        """Say what a ticket stands for, also once it has expired. Fast; nothing is read.

        Raises:
            BadTicket: not issued by this server for this user, or altered.
        """
