"""The way in: what a call's headers say, whose session it belongs to, which token and cookie it is answered."""

from __future__ import annotations

import base64
import contextlib
import ctypes
import secrets
import threading
import time
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from pyarrow import flight

from proxy.access.authentication.callers import (
    Bearer,
    ByCertificate,
    Caller,
    Unauthenticated,
    identify,
    login_of,
)
from proxy.access.fairness import Slots
from proxy.access.limits import Rate, ServerPolicy
from proxy.flightsql.errors import Boundary
from proxy.flightsql.messages import UnknownCommand
from proxy.flightsql.service import Request
from proxy.flightsql.state.calls import Calls
from proxy.flightsql.state.client_session import ALIASES, OF_ONE_CALL, SETTINGS, ClientSession
from proxy.flightsql.state.sessions import Opening, Sessions
from proxy.flightsql.state.tokens import is_session_token
from proxy.ops.call_record import CallRecord
from proxy.session import Deadline, Session

#: What the caller has seen before: with it a statement is followed (``planner.seam.incremental``).
AFTER = "thermocline-after"
#: At most how many endpoints an answer may have; without it, it has one.
MAX_ENDPOINTS = "thermocline-max-endpoints"
#: Whether the statement is refused where anything of its tables is hidden from the caller.
WHOLE = "thermocline-whole"
_COOKIE = "thermocline_session"
#: Headers that say what a session starts with.
_OPENING = frozenset((*ALIASES, *SETTINGS))
_PER_CALL = frozenset(OF_ONE_CALL)
#: Passwords that are checked or wait for it: a second's worth.
_MAX_LOGINS = 64
#: Calls with the same credentials come in one after the other: a hundred at once would all want Python's lock, and each
#: call of others would wait for as many of them whenever it wants it again. By hash; a collision waits a moment longer.
_ENTRIES = 256
#: User and groups of an unknown caller.
_ANYBODY: tuple[None, frozenset[str]] = (None, frozenset())
#: Between two Handshakes with the same credentials.
_HANDSHAKE_S = 0.02


class _Entry:
    """Where calls with the same credentials come in."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._handshakes = threading.Lock()
        self._next_s = 0.0

    def pace(self) -> None:
        """Wait until the next Handshake may be done; one after a while waits for nothing, and other calls never do."""
        with self._handshakes:
            now = time.monotonic()
            time.sleep(max(self._next_s - now, 0.0))
            self._next_s = max(self._next_s, now) + _HANDSHAKE_S


class Handshake(flight.ServerAuthHandler):  # type: ignore[misc]  # pyarrow has no types
    """Makes the Handshake call exist; ``CallGate`` does the work for all calls alike."""

    def authenticate(self, outgoing: Any, incoming: Any) -> None:
        """Accept."""

    def is_valid(self, token: bytes) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class _Caller:
    """What a call's headers say: its session, or who it is and where its session would start."""

    who: ClientSession | ByCertificate | Caller
    opening: Opening
    cookie: str | None
    offered: str | None


class CallMiddleware(flight.ServerMiddleware):  # type: ignore[misc]  # pyarrow has no types
    def __init__(
        self, entry: CallGate, caller: _Caller, answer: dict[str, str], record: CallRecord
    ) -> None:
        super().__init__()
        self._entry = entry
        self._caller = caller
        self._answer = answer
        is_upload = record.method == flight.FlightMethod.DO_PUT.name
        self.call = entry.calls.begin(record, _owner(caller.who, is_upload=is_upload))
        if is_upload:
            # Its first message comes before ``enter``.
            self.call.await_upload(entry.policy.limits_of(*_names(caller.who)).upload_idle_s)
        # gRPC has one thread for all of a call. Last: what is refused above is never completed.
        self._thread_state = ThreadState()

    def enter(self, context: flight.ServerCallContext) -> Request:
        """Find the caller's session; from here on the client's leaving is noticed."""
        client = self._entry.client(self._caller, context)
        self.call.record.entered(client.session, context.peer())
        self._entry.calls.assign(self.call, client.session.user)
        self.call.proceed()
        limits = self._entry.policy.limits_of(client.session.user, client.session.groups)
        self.call.max_failures_per_s = limits.max_failures_per_s
        self._entry.rate.spend(client.session.user, limits.max_calls_per_s)
        self._entry.sessions.enter(client, self.call)
        if limits.answer_timeout_s is not None:
            self.call.expire(limits.answer_timeout_s)
        self.call.watch(context.is_cancelled)
        deadline = self.call.deadline = Deadline(limits.timeout_s, self.call.cancellation)
        return Request(client, self.call, limits, deadline)

    def sending_headers(self) -> dict[str, str]:
        return self._answer

    def call_completed(self, exception: BaseException | None) -> None:
        # After the last batch of a stream, too, and when the client left.
        try:
            self._entry.calls.end(self.call)
        finally:
            self._thread_state.let_go()


class CallGate(flight.ServerMiddlewareFactory):  # type: ignore[misc]  # pyarrow has no types
    """Lets calls in: reads their headers, gives out tokens and cookies."""

    def __init__(
        self, sessions: Sessions, calls: Calls, policy: ServerPolicy, rate: Rate
    ) -> None:
        super().__init__()
        self.sessions = sessions
        self.calls = calls
        self.policy = policy
        self.rate = rate
        self._logins = Slots(_MAX_LOGINS, "logins")
        #: Apart for tokens and for the rest: a password takes long to check.
        self._entries = tuple(tuple(_Entry() for _ in range(_ENTRIES)) for _ in range(2))

    def start_call(self, info: flight.CallInfo, headers: dict[str, list[Any]]) -> Any:
        record = CallRecord(info.method.name)
        entry = self._entry(str(next(iter(headers.get("authorization", ())), "")))
        try:
            if info.method == flight.FlightMethod.HANDSHAKE:
                entry.pace()
            with Boundary(record), entry.lock:
                return self._started(info.method, headers, record)
        except Exception:
            self.calls.refuse(record, self.policy.limits_of(*_ANYBODY).max_failures_per_s)
            raise

    def _entry(self, authorization: str) -> _Entry:
        is_token = authorization[:7].lower() == "bearer "
        return self._entries[is_token][hash(authorization) % _ENTRIES]

    def _started(
        self, method: flight.FlightMethod, headers: dict[str, list[Any]], record: CallRecord
    ) -> CallMiddleware:
        if method == flight.FlightMethod.DO_EXCHANGE:
            # Here, as later it would wait for a message first.
            raise UnknownCommand("This server does not have DoExchange.")
        who = self._who([_text(value) for value in headers.get("authorization", ())])
        opening = _opening(headers)
        answer = {}
        cookie = offered = None
        if method == flight.FlightMethod.HANDSHAKE:
            self.calls.check_open()
            # Java reads the token here, Go and C++ too.
            answer["authorization"] = f"Bearer {self._token(who, opening)}"
        elif not isinstance(who, ClientSession):
            cookie = _cookie(headers)
            if cookie is None or not self.sessions.has_cookie(cookie):
                offered = secrets.token_urlsafe(24)
                answer["set-cookie"] = f"{_COOKIE}={offered}"
        entered = CallMiddleware(self, _Caller(who, opening, cookie, offered), answer, record)
        entered.call.after = _header(headers, AFTER)
        entered.call.max_endpoints = _last(headers, MAX_ENDPOINTS)
        entered.call.whole = _last(headers, WHOLE)
        entered.call.settings = _settings(headers)
        return entered

    def admitted(self, authorization: str | None) -> Session:
        """Let a caller of another protocol in: the same users, tokens and calls a second.

        Raises:
            Unauthenticated: unknown to this server; or a certificate, which only Flight reads.
            Unavailable, Overloaded: the server is about to stop, or the user calls too often.
        """
        self.calls.check_open()
        with self._entry(authorization or "").lock:
            who = self._proved(authorization)
        if isinstance(who, ByCertificate):
            raise Unauthenticated(
                "Here a user name and a password, or a token, identify the caller; certificates do over Flight."
            )
        session = (
            who.session if isinstance(who, ClientSession) else Session("", who.user, who.groups)
        )
        limits = self.policy.limits_of(session.user, session.groups)
        self.rate.spend(session.user, limits.max_calls_per_s)
        return session

    def remembers(self, user: str, password: str) -> bool:
        """Whether a password needs no check that takes long: it was right before, or there are no passwords."""
        access = self.policy.access
        return access.verify is None or access.remembers(user, password)

    def log_in(self, user: str, password: str) -> str:
        """Start a session as a Handshake does; return its token.

        Raises:
            Unauthenticated: unknown user or wrong password.
            Unavailable, Overloaded: as ``admitted``, or there are too many sessions.
        """
        self.calls.check_open()
        authorization = f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"
        entry = self._entry(authorization)
        entry.pace()
        with entry.lock:
            return self._token(self._proved(authorization), {})

    def client(self, caller: _Caller, context: flight.ServerCallContext) -> ClientSession:
        """The session of a call, started where there is none yet."""
        who = caller.who
        if isinstance(who, ClientSession):
            return who
        if isinstance(who, ByCertificate):
            # The first subject alternative name, else the common name.
            who = Caller(context.peer_identity().decode("utf-8", "replace"))
        return self.sessions.of_connection(
            context.peer(), who, caller.opening, caller.cookie, caller.offered
        )

    def _who(self, authorizations: list[str]) -> ClientSession | ByCertificate | Caller:
        """Who calls. One whose session is over and who sends a password beside its token needs no new login.

        Raises:
            Unauthenticated: unknown to this server.
        """
        try:
            return self._proved(authorizations[0] if authorizations else None)
        except Unauthenticated:
            for other in authorizations[1:]:
                if other.lower().startswith("basic "):
                    return self._proved(other)
            raise

    def _proved(self, authorization: str | None) -> ClientSession | ByCertificate | Caller:
        access = self.policy.access
        login = login_of(authorization)
        # Without a password there is nothing to check that would take time.
        with contextlib.nullcontext() if login is None else self._logins.slot(login[0]):
            proof = identify(authorization, access)
        if not isinstance(proof, Bearer):
            return proof
        caller = self.sessions.of_token(proof.token) or access.of_token(proof.token)
        if caller is None and access.is_open and not is_session_token(proof.token):
            # Some clients always send a token, "None" where they were given none. One of a session that is over is
            # refused all the same: what was set in it is gone, which its client must notice.
            return Caller()
        if caller is None:
            raise Unauthenticated(
                "The token or its session is unknown or over: closed, idle for too long, or of another server. "
                "Connect again."
            )
        return caller

    def _token(self, who: ClientSession | ByCertificate | Caller, opening: Opening) -> str:
        """The token a Handshake answers: a new session's, or the one it came with."""
        if isinstance(who, ClientSession):
            return who.token or ""
        if isinstance(who, ByCertificate):
            raise Unauthenticated(
                "Here a certificate identifies the caller; no Handshake is needed."
            )
        return self.sessions.open(who, opening)


def _owner(who: ClientSession | ByCertificate | Caller, *, is_upload: bool) -> Hashable:
    """Return the owner whose share a call counts in before it is entered. Certificates are not known yet, so uploads,
    which may wait for their client at this point, must not keep out other calls.
    """
    return ("certificate", is_upload) if isinstance(who, ByCertificate) else _names(who)[0]


def _names(who: ClientSession | ByCertificate | Caller) -> tuple[str | None, frozenset[str]]:
    if isinstance(who, ByCertificate):
        return _ANYBODY
    session = who.session if isinstance(who, ClientSession) else who
    return session.user, session.groups


def _opening(headers: dict[str, list[Any]]) -> Opening:
    """The settings among a call's headers; a name of ours wins over an alias."""
    names = _OPENING & headers.keys()
    if not names:
        return {}
    settings = {name: _header(headers, name) for name in (*ALIASES, *SETTINGS) if name in names}
    return {ALIASES.get(name, name): value for name, value in settings.items() if value}


def _settings(headers: dict[str, list[Any]]) -> dict[str, str]:
    """What is set for this call only."""
    names = _PER_CALL & headers.keys()
    return {
        name: text
        for header, name in OF_ONE_CALL.items()
        if header in names and (text := _last(headers, header)) is not None
    }


def _last(headers: dict[str, list[Any]], name: str) -> str | None:
    """Return the last value: ADBC repeats a header that was set again, newest last."""
    values = headers.get(name)
    return _text(values[-1]) if values else None


def _header(headers: dict[str, list[Any]], name: str) -> str | None:
    values = headers.get(name)
    return _text(values[0]) if values else None


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _cookie(headers: dict[str, list[Any]]) -> str | None:
    """This server's cookie among those a client sent."""
    for line in headers.get("cookie", ()):
        for pair in str(line).split(";"):
            name, _, value = pair.strip().partition("=")
            if name == _COOKIE:
                return value.strip('"')
    return None


_ensure = ctypes.pythonapi.PyGILState_Ensure
_ensure.restype = ctypes.c_int
_release = ctypes.pythonapi.PyGILState_Release
_release.argtypes, _release.restype = [ctypes.c_int], None


class ThreadState:
    """Keeps what Python knows of a thread of gRPC's, from here until ``let_go`` is called there, once.

    A call enters Python some seven times: headers, method, each batch, its end. Python makes a state for a thread that it did
    not start each time it enters, with 16 KB of stack from the system, and throws it away when it leaves: 15 us, and the
    other processors are interrupted to forget the pages.
    """

    def __init__(self) -> None:
        # Counted as if Python had been entered once more.
        self._before = _ensure()
        self._thread = threading.get_ident()

    def let_go(self) -> None:
        # Elsewhere it would take away the state of the caller; the thread's own stays, a leak of 17 KB.
        if threading.get_ident() == self._thread:
            _release(self._before)
