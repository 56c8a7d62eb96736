"""One client's session as the server keeps it: what it has set, prepared, and been given tickets for.

What a client may set in its session: by SetSessionOptions, by a header of its first call, or by SQL's SET.

Every value may come as text (Flight.proto asks for that); what is set is told back in its own type.
"""

from __future__ import annotations

import dataclasses
import hashlib
import secrets
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TypeAlias

import pyarrow as pa
from cachetools import FIFOCache

from planner.errors import BadParameter, Cancelled, LimitExceeded, RequestError
from planner.seam.freshness import parse_freshness, parse_wait_for
from planner.seam.time_travel import parse_cut
from proxy.access.authentication.callers import Caller
from proxy.flightsql.outgoing import HUGEINTS, MAX_MESSAGE_BYTES, PROFILES, UNITS
from proxy.flightsql.state.calls import Call
from proxy.session import OptionValue, Prepared, Session

#: A tool that never closes its statements is stopped here, not by the server's memory.
MAX_STATEMENTS = 1_000
#: Tickets a session remembers, so that they can be cancelled; older ones are good, but not to be cancelled.
MAX_TICKETS = 1_000
#: Answers to calls made at the same moment each carry a cookie, and the client keeps any one of them.
_MAX_COOKIES = 4
_LARGEST_MESSAGE_BYTES = 2**31 - 1
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
    opened_s: float
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
        if self._pass(ticket, Fate.FETCHED) is Fate.CANCELLED:
            raise Cancelled("The statement was cancelled.")

    def cancel(self, ticket: bytes) -> Fate | None:
        """Make a ticket void; return what it was before, None where this session was not given it."""
        return self._pass(ticket, Fate.CANCELLED)

    def _pass(self, ticket: bytes, fate: Fate) -> Fate | None:
        """Give a ticket that was not cancelled another fate; return the one before."""
        digest = _digest(ticket)
        with self._lock:
            before = self._tickets.get(digest)
            if before not in (None, Fate.CANCELLED):
                self._tickets[digest] = fate
            return before


def _digest(ticket: bytes) -> bytes:
    # A ticket holds the whole statement: a session remembers a thousand of them by their digests.
    return hashlib.sha256(ticket).digest()


def _text(name: str, value: OptionValue) -> OptionValue:
    if not isinstance(value, str):
        raise BadParameter(f"The session option {name} takes a text.")
    return value


def _freshness(name: str, value: OptionValue) -> OptionValue:
    return str(parse_freshness(str(_text(name, value))))


def _parsed(parse: Callable[[str], object]) -> Callable[[str, OptionValue], OptionValue]:
    """A text that ``parse`` takes."""

    def read(name: str, value: OptionValue) -> OptionValue:
        parse(str(_text(name, value)))
        return value

    return read


def _one_of(*choices: str) -> Callable[[str, OptionValue], OptionValue]:
    def read(name: str, value: OptionValue) -> OptionValue:
        if not isinstance(value, str) or value.lower() not in choices:
            raise BadParameter(f"The session option {name} is one of {', '.join(choices)}.")
        return value.lower()

    return read


def _message_bytes(name: str, value: OptionValue) -> OptionValue:
    try:
        size = int(value) if isinstance(value, int | str) else 0
    except ValueError:
        size = 0
    if isinstance(value, bool) or not MAX_MESSAGE_BYTES <= size <= _LARGEST_MESSAGE_BYTES:
        raise BadParameter(
            f"The session option {name} is a number of bytes from {MAX_MESSAGE_BYTES} to {_LARGEST_MESSAGE_BYTES}."
        )
    return size


#: Settings the backend goes by; the others are of this layer and live in ``Session.options``.
_OF_THE_BACKEND = ("catalog", "schema", "time_zone", "freshness", "wait_for", "cut")
#: Headers that set something for their own call only, beside those of a session's first call.
OF_ONE_CALL = {
    "thermocline-freshness": "freshness",
    "thermocline-wait-for": "wait_for",
    "thermocline-cut": "cut",
}
#: In the order they take effect: a schema is looked for in the catalog set with it.
SETTINGS: Mapping[str, Callable[[str, OptionValue], OptionValue]] = {
    "catalog": _text,
    "schema": _text,
    "time_zone": _text,
    "freshness": _freshness,
    "wait_for": _parsed(parse_wait_for),
    "cut": _parsed(parse_cut),
    "profile": _one_of(*PROFILES),
    "hugeint": _one_of(*HUGEINTS),
    "timestamp_unit": _one_of(*UNITS),
    "max_message_bytes": _message_bytes,
}
#: Other names the same things go by: Power BI's connector sends a database, DuckDB and Postgres say TimeZone.
ALIASES = {"database": "catalog", "timezone": "time_zone", "search_path": "schema"}
#: More readers than this of one answer would be slower, and keep others waiting.
MAX_ENDPOINTS = 64


def endpoints(text: str | None) -> int:
    """Return how many endpoints the answer of a call may have.

    Raises:
        BadParameter: it is no number from 1 to ``MAX_ENDPOINTS``.
    """
    if text is None:
        return 1
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= MAX_ENDPOINTS):
        raise BadParameter(
            f"The header thermocline-max-endpoints is a number from 1 to {MAX_ENDPOINTS}."
        )
    return int(text)


def is_whole(text: str | None) -> bool:
    """Return whether a call asks for whole tables only.

    Raises:
        BadParameter: it is neither true nor false.
    """
    if text not in (None, "true", "false"):
        raise BadParameter("The header thermocline-whole is true or false.")
    return text == "true"


def with_settings(
    session: Session, changes: Iterable[tuple[str, OptionValue | None]]
) -> Session:
    """The session with settings changed, in the order of ``SETTINGS``; None sets back to the default.

    Raises:
        BadParameter: a value is not possible.
    """
    requested = dict(changes)
    for name, read in SETTINGS.items():
        if name in requested:
            value = requested[name]
            session = _with(session, name, None if value is None else read(name, value))
    return session


def _with(session: Session, name: str, value: OptionValue | None) -> Session:
    if name == "catalog" and value != session.catalog:
        # The former catalog's schema means nothing in another one.
        session = dataclasses.replace(session, schema=None)
    if name in _OF_THE_BACKEND:
        changed: Session = dataclasses.replace(session, **{name: value})  # type: ignore[arg-type]
        return changed
    options = {key: option for key, option in session.options.items() if key != name}
    if value is not None:
        options[name] = value
    return dataclasses.replace(session, options=options)


def settings_of(session: Session) -> dict[str, OptionValue]:
    """What is set, defaults of the backend included."""
    settings = {name: getattr(session, name) for name in _OF_THE_BACKEND} | dict(
        session.options
    )
    return {name: value for name, value in settings.items() if value is not None}


def max_message_bytes(session: Session) -> int:
    value = session.options.get("max_message_bytes")
    return value if isinstance(value, int) else MAX_MESSAGE_BYTES
