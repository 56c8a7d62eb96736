"""One client's session as the server keeps it: what it has set, prepared, and been given tickets for."""

from __future__ import annotations

import dataclasses
import hashlib
import secrets
import threading
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TypeAlias

import pyarrow as pa
from cachetools import FIFOCache

from planner.errors import Cancelled, LimitExceeded, RequestError
from proxy.access.authentication.callers import Caller
from proxy.flightsql.state.calls import Call
from proxy.session import Prepared, Session

# A tool that never closes its statements is stopped here, not by the server's memory.
MAX_STATEMENTS = 1_000
#: Tickets a session remembers, so that they can be cancelled; older ones are good, but not to be cancelled.
MAX_TICKETS = 1_000
#: Answers to calls made at the same moment each carry a cookie, and the client keeps any one of them.
_MAX_COOKIES = 4


#: What a session is found by. A tuple: parts that were joined could be split in another way.
Key: TypeAlias = tuple[Hashable, ...]


def of_token(token: str) -> Key:
    """The key of the session that a bearer token of this server opens."""
    return ("token", token)


class UnknownHandle(RequestError):
    """A prepared statement or running query this session does not have."""


class Fate(Enum):
    PLANNED = auto()
    FETCHED = auto()
    CANCELLED = auto()


@dataclass(frozen=True, slots=True)
class Statement:
    """A prepared statement, with the one row of parameters bound last.

    ``is_change``: it changes the session and has no answer (``session_sql``).
    """

    sql: str
    prepared: Prepared
    is_change: bool = False
    parameters: pa.RecordBatch | None = None


@dataclass(eq=False, slots=True)
class ClientSession:
    """One session. ``session`` is the value statements see; it is replaced whole. Thread-safe.

    ``key`` is what the session is found by. ``cookies`` lead to it too.
    """

    key: Key
    identity: Caller
    session: Session
    used_s: float
    calls: set[Call] = field(default_factory=set)
    cookies: deque[str] = field(default_factory=lambda: deque(maxlen=_MAX_COOKIES))
    _statements: dict[bytes, Statement] = field(default_factory=dict)
    _tickets: FIFOCache[bytes, Fate] = field(default_factory=lambda: FIFOCache(MAX_TICKETS))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def token(self) -> str | None:
        kind, *rest = self.key
        return str(rest[0]) if kind == "token" else None

    def keep(self, statement: Statement) -> bytes:
        """Keep a prepared statement and return its handle.

        Raises:
            LimitExceeded: the session has ``MAX_STATEMENTS`` open.
        """
        handle = secrets.token_bytes(16)
        with self._lock:
            if len(self._statements) >= MAX_STATEMENTS:
                raise LimitExceeded(
                    f"This session has {MAX_STATEMENTS} prepared statements open. Close some."
                )
            self._statements[handle] = statement
        return handle

    def statement(self, handle: bytes) -> Statement:
        """Return a prepared statement.

        Raises:
            UnknownHandle: closed, or prepared in another session.
        """
        with self._lock:
            statement = self._statements.get(handle)
        if statement is None:
            raise UnknownHandle(
                "This session has no such prepared statement: it was closed, or its session ended. "
                "Prepare it again."
            )
        return statement

    def bind(self, handle: bytes, parameters: pa.RecordBatch | None) -> None:
        """Replace the bound parameters.

        Raises:
            UnknownHandle: as ``statement``.
        """
        bound = dataclasses.replace(self.statement(handle), parameters=parameters)
        with self._lock:
            if handle in self._statements:
                self._statements[handle] = bound

    def forget(self, handle: bytes) -> None:
        """Close a prepared statement; closing it twice is fine."""
        with self._lock:
            self._statements.pop(handle, None)

    def planned(self, ticket: bytes) -> None:
        with self._lock:
            self._tickets[_digest(ticket)] = Fate.PLANNED

    def check(self, ticket: bytes) -> None:
        """Refuse a ticket that was cancelled.

        Raises:
            Cancelled: it was.
        """
        with self._lock:
            if self._tickets.get(_digest(ticket)) is Fate.CANCELLED:
                raise Cancelled("The statement was cancelled.")

    def fetched(self, ticket: bytes) -> None:
        """Note that a ticket is being redeemed. One this session was not given passes: any replica redeems it.

        Raises:
            Cancelled: it was cancelled before.
        """
        digest = _digest(ticket)
        with self._lock:
            fate = self._tickets.get(digest)
            if fate is Fate.CANCELLED:
                raise Cancelled("The statement was cancelled.")
            if fate is not None:
                self._tickets[digest] = Fate.FETCHED

    def cancel(self, ticket: bytes) -> Fate | None:
        """Make a ticket void; return what it was before, None where this session was not given it."""
        digest = _digest(ticket)
        with self._lock:
            fate = self._tickets.get(digest)
            if fate is not None:
                self._tickets[digest] = Fate.CANCELLED
            return fate


def _digest(ticket: bytes) -> bytes:
    # A ticket holds the whole statement: a session remembers a thousand of them by their digests.
    return hashlib.sha256(ticket).digest()
