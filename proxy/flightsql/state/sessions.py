"""What the server remembers of its clients: which session a call belongs to, and when sessions end.

A bearer token that this server gave out is the key of exactly one session. A caller without one (anonymous, by
certificate, with a token of another server, or sending its password with every call) has the session of its
cookie, or of its connection where it keeps no cookies. Few clients say goodbye, so sessions end by idleness.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field

from cachetools import FIFOCache

from planner.errors import Cancelled, Overloaded
from proxy.access.authentication.callers import Caller, Unauthenticated
from proxy.access.limits import ServerPolicy
from proxy.flightsql.backend import Browsing
from proxy.flightsql.state.calls import Call
from proxy.flightsql.state.client_session import ClientSession, Key, of_token, with_settings
from proxy.flightsql.state.tokens import SessionTokens, local_token
from proxy.session import Session

#: Tokens remembered as void, the latest.
MAX_VOID = 100_000

#: What a session starts with: the settings among the headers of its first call.
Opening = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """Servers with one ``session_secret`` and the same users take each other's session tokens; without one, none."""

    max_sessions: int = 10_000
    idle_timeout_s: float = 1_800.0
    session_secret: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class SessionState:
    """``idle_s``: since its last call ended; 0 while one runs. ``calls`` run now."""

    session: Session
    open_s: float
    idle_s: float
    calls: int


class Sessions:
    """All sessions of a server. Thread-safe."""

    def __init__(
        self,
        browsing: Browsing,
        policy: ServerPolicy,
        options: SessionOptions,
        clock_s: Callable[[], float],
    ) -> None:
        self._browsing = browsing
        self._clock_s = clock_s
        self._options = options
        self._policy = policy
        secret = options.session_secret
        self._tokens = None if secret is None else SessionTokens(secret, time.time)
        #: Tokens of sessions that ended here: they stay void, though their seal is good.
        self._void: FIFOCache[str, None] = FIFOCache(MAX_VOID)
        self._lock = threading.Lock()
        #: Least recently used first, per user too: logins are many, and every call waits for this lock.
        self._clients: OrderedDict[Key, ClientSession] = OrderedDict()
        self._of_user: dict[str | None, OrderedDict[Key, ClientSession]] = {}
        self._cookies: dict[str, ClientSession] = {}
        self._swept_s = clock_s()

    def open(self, identity: Caller, opening: Opening) -> str:
        """Start a session with these settings and return its bearer token.

        Raises:
            RequestError: the backend refuses what the session starts with.
            Overloaded: there are too many sessions, all of them at work.
        """
        token = local_token() if self._tokens is None else self._tokens.mint(identity, opening)
        self._start(of_token(token), identity, opening)
        return token

    def of_token(self, token: str) -> ClientSession | None:
        """Return the session of a bearer token; None if no replica gave it out, or the session is over.

        A session that another replica opened starts here where its token says.

        Raises:
            Unauthenticated: what the token was given for does not hold any more.
        """
        client = self._find(of_token(token)) or self._restored(token)
        if client is not None and not client.identity.holds():
            self.close(client, None)
            raise Unauthenticated(
                "What you logged in with is not valid any more: it expired, or was changed. Log in again."
            )
        return client

    def _restored(self, token: str) -> ClientSession | None:
        minted = None if self._tokens is None else self._tokens.read(token)
        if self._tokens is None or minted is None:
            return None
        with self._lock:
            if token in self._void:
                return None
        identity = self._policy.access.recalled(minted.user)
        if identity is None or not self._tokens.is_of(minted, identity):
            return None
        return self._start(of_token(token), identity, minted.opening)

    def has_cookie(self, cookie: str) -> bool:
        with self._lock:
            return cookie in self._cookies

    def of_connection(
        self,
        peer: str,
        identity: Caller,
        opening: Opening,
        cookie: str | None,
        offered: str | None,
    ) -> ClientSession:
        """Return the session of a call without a token, starting it where there is none.

        ``cookie`` is what the client sent, if anything; ``offered`` what this call's answer gives it.

        Raises:
            RequestError, Overloaded: as ``open``.
        """
        client = self._of_cookie(cookie, identity)
        if client is None:
            # The identity itself: names and groups are texts that others chose, so no text of theirs is a key.
            key = ("peer", peer, identity)
            client = self._find(key) or self._start(key, identity, opening)
        if offered is not None:
            self._give(client, offered)
        return client

    def enter(self, client: ClientSession, call: Call) -> None:
        """Count a call as the session's own until it ends."""
        with self._lock:
            client.calls.add(call)
        call.resources.callback(self._leave, client, call)

    def configure(self, client: ClientSession, session: Session) -> None:
        """Replace what the session has set.

        Raises:
            RequestError: the backend refuses it; nothing changed.
        """
        client.session = self._browsing.configure(session, client.session)

    def close(self, client: ClientSession, closing: Call | None) -> None:
        """End a session: its token is void, its statements are gone, calls but ``closing`` are given up."""
        with self._lock:
            self._drop(client)
            calls = client.calls - {closing}
        for call in calls:
            call.cancellation.request(Cancelled("The session was closed."))

    def prove_again(self) -> None:
        """After the ways to prove an identity changed: end the sessions of those who cannot prove theirs any more.

        Tokens and certificates come with every call or connection, so their sessions start anew by themselves.
        """
        with self._lock:
            clients = tuple(self._clients.values())
        for client in clients:
            before, now = client.identity, self._policy.access.recalled(client.identity.user)
            if now is None or now != before or now.stored != before.stored:
                self.close(client, None)
            else:
                client.identity = now

    def streaming(self, client: ClientSession, tickets: Container[bytes]) -> tuple[Call, ...]:
        """The session's calls that stream one of these tickets."""
        with self._lock:
            return tuple(call for call in client.calls if call.ticket in tickets)

    def states(self) -> list[SessionState]:
        """Describe all sessions, least recently used first."""
        with self._lock:
            now_s = self._clock_s()
            return [
                SessionState(
                    client.session,
                    now_s - client.opened_s,
                    0.0 if client.calls else now_s - client.used_s,
                    len(client.calls),
                )
                for client in self._clients.values()
            ]

    def _leave(self, client: ClientSession, call: Call) -> None:
        with self._lock:
            client.calls.discard(call)
            self._use(client)

    def _find(self, key: Key) -> ClientSession | None:
        with self._lock:
            self._expire()
            client = self._clients.get(key)
            if client is not None:
                self._use(client)
            return client

    def _use(self, client: ClientSession) -> None:
        client.used_s = self._clock_s()
        if client.key in self._clients:
            self._clients.move_to_end(client.key)
            self._of_user[client.session.user].move_to_end(client.key)

    def _of_cookie(self, cookie: str | None, identity: Caller) -> ClientSession | None:
        """The session a cookie leads to, unless it is another caller's."""
        with self._lock:
            client = None if cookie is None else self._cookies.get(cookie)
        if client is None or client.identity != identity:
            return None
        return self._find(client.key)

    def _give(self, client: ClientSession, cookie: str) -> None:
        with self._lock:
            if self._clients.get(client.key) is not client:
                return
            if len(client.cookies) == client.cookies.maxlen:
                self._cookies.pop(client.cookies[0], None)
            client.cookies.append(cookie)
            self._cookies[cookie] = client

    def _start(self, key: Key, identity: Caller, opening: Opening) -> ClientSession:
        session = self._browsing.configure(
            with_settings(
                Session(secrets.token_hex(4), user=identity.user, groups=identity.groups),
                opening.items(),
            )
        )
        with self._lock:
            self._expire()
            self._make_room(identity)
            now_s = self._clock_s()
            client = self._clients.setdefault(
                key, ClientSession(key, identity, session, now_s, now_s)
            )
            self._of_user.setdefault(session.user, OrderedDict())[key] = client
            return client

    def _drop(self, client: ClientSession) -> None:
        if self._clients.pop(client.key, None) is not None:
            own = self._of_user[client.session.user]
            del own[client.key]
            if not own:
                del self._of_user[client.session.user]
        if client.token is not None:
            self._void[client.token] = None
        for cookie in client.cookies:
            self._cookies.pop(cookie, None)

    def _expire(self) -> None:
        now_s = self._clock_s()
        if now_s - self._swept_s < self._options.idle_timeout_s / 100:
            return
        self._swept_s = now_s
        oldest_s = now_s - self._options.idle_timeout_s
        for client in tuple(self._clients.values()):
            if client.used_s >= oldest_s:
                break
            if not client.calls:
                self._drop(client)

    def _make_room(self, identity: Caller) -> None:
        """End the session that was idle longest where there are too many: of this user, or of all."""
        most = self._policy.limits_of(identity.user, identity.groups).max_sessions
        if most is not None:
            self._end_idlest(
                self._of_user.get(identity.user, {}),
                most,
                f"All {most} sessions one user may have are at work. Close some, or raise max_sessions_per_user.",
            )
        most = self._options.max_sessions
        refusal = f"All {most} sessions of this server are at work. Retry later."
        self._end_idlest(self._clients, most, refusal)

    def _end_idlest(
        self, clients: Mapping[Key, ClientSession], most: int, refusal: str
    ) -> None:
        if len(clients) >= most:
            idlest = next((client for client in clients.values() if not client.calls), None)
            if idlest is None:
                raise Overloaded(refusal)
            self._drop(idlest)
