"""What a client has set, what it gets, and until when: the values that a statement carries from protocol to engine."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Literal, Protocol
from zoneinfo import available_timezones

import pyarrow as pa

from planner.errors import Cancelled, DeadlineExceeded, FederationError

OptionValue = str | bool | int | float | tuple[str, ...]
TableKind = Literal["TABLE", "VIEW"]
#: Field metadata keys of ``Browsing.table_schema``: a column's comment, and its SQL type name where the Arrow
#: type does not say it (UUID, JSON).
COMMENT = b"comment"
TYPE_NAME = b"type_name"


@functools.cache
def time_zones() -> frozenset[str]:
    """The names that a session's time zone may have. Once: Python walks through 600 files, 14 ms of its lock."""
    return frozenset(available_timezones())


@dataclass(frozen=True, slots=True)
class Session:
    """What a client has set, as one statement sees it: a value, replaced and never changed.

    ``id`` names the session in logs; it is not the token. ``user`` is None for anonymous callers; ``groups`` are what the
    credentials say the user belongs to. None in ``catalog``, ``schema`` or ``time_zone`` means not set;
    ``Browsing.configure`` fills in the default. ``freshness``, ``wait_for`` and ``cut`` are texts of ``planner.seam.freshness`` and ``planner.seam.time_travel``; None: live,
    nothing, none. ``after``, ``max_endpoints`` and ``is_whole`` are of one call only: what its caller has seen before
    (``planner.seam.incremental``), among how many readers it would share the answer out, and whether it is to be refused
    where anything of a table is hidden from it.
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
    max_endpoints: int = 1
    is_whole: bool = False

    @property
    def zone(self) -> str:
        return self.time_zone or "UTC"

    @property
    def payer(self) -> Hashable:
        """Whose slot planning takes: the user's; anonymous sessions have one each."""
        return self.user or (self.id,)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A checked statement.

    ``parameter_schema`` has one field per parameter, in order. JDBC binds nothing to a null-typed field, and
    writes milliseconds under any declared unit, so: ``int64`` for every integer, ``timestamp[ms]`` and
    ``time32[ms]`` for times, utf8 where the type is unknown (docs/internals/protocol.md).
    """

    dataset_schema: pa.Schema
    parameter_schema: pa.Schema


@dataclass(frozen=True, slots=True)
class Planned:
    """A statement with everything its answer depends on. The ticket is opaque here and sealed by the backend.

    ``app_metadata`` goes out with the FlightInfo: the text of the cut it reads (``planner.seam.time_travel``), empty where
    it reads no table; to one who follows, the position the answer ends at.
    ``expires_at_us`` is microseconds since 1970; None: never. ``shares`` are tickets of disjoint shares that together are
    the answer, where it was asked for in shares and can be had so.
    """

    ticket: bytes
    schema: pa.Schema
    app_metadata: bytes = b""
    expires_at_us: int | None = None
    shares: tuple[bytes, ...] = ()


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
    catalog: str
    schema: str
    name: str
    kind: TableKind = "TABLE"
    comment: str | None = None


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


#: What a statement may wait for, in words for people (docs/system-tables.md).
WAITS = ("turn", "cut", "slot", "tail", "client")
#: What a statement out of time is told, with its limit.
RAN_LONGER = "the statement ran longer than {:g} s; narrow it, or raise its limit."
WAITED_FOR_TAIL = (
    "the statement waited longer than {:g} s for its tail; try again, or raise its limit."
)
WAITED_FOR_CATALOG = (
    "the statement waited longer than {:g} s for a catalog; try again, or raise its limit."
)


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
            for interrupt in self._interrupts:
                interrupt()

    def check(self) -> None:
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


class Deadline:
    """The time that one call has for its statement, and its cancellation. Thread-safe.

    Made once, where the call arrives, and handed down to all that works for it.
    """

    def __init__(
        self,
        limit_s: float,
        cancellation: Cancellation | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limit_s = limit_s
        self.cancellation = cancellation or Cancellation()
        self._clock = clock
        #: By ``clock``.
        self.end_s = clock() + limit_s
        #: What its statement waits for just now, one of ``WAITS``; None: nothing that is known.
        self.waits_for: str | None = None

    @property
    def left_s(self) -> float:
        return max(0.0, self.end_s - self._clock())

    @property
    def is_over(self) -> bool:
        return self._clock() >= self.end_s

    def patience_s(self) -> float:
        """Return ``left_s`` for a wait that ends with it. Raises the cancellation's reason once the call was given up."""
        self.cancellation.check()
        return self.left_s

    def check(self, words: str = RAN_LONGER) -> None:
        """Raise if the call was given up, or its time is over: in ``words``, with its limit.

        Raises:
            FederationError: the cancellation's reason, or DeadlineExceeded.
        """
        self.cancellation.check()
        if self.is_over:
            raise self.exceeded(words)

    def exceeded(self, words: str = RAN_LONGER) -> DeadlineExceeded:
        return DeadlineExceeded(words.format(self.limit_s), timeout_s=self.limit_s)

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Say in this block what the statement waits for: one of ``WAITS``."""
        before, self.waits_for = self.waits_for, what
        try:
            yield
        finally:
            self.waits_for = before

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the clock in this block, which waits for the client or for its turn."""
        began_s = self._clock()
        try:
            yield
        finally:
            self.end_s += self._clock() - began_s
