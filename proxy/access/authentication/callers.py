"""Who may call: the ``authorization`` header, read the way every known client writes it.

How a password or a token is checked is not known here; ``proxy.access.authentication`` has the ways.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from planner.errors import FederationError


class Unauthenticated(FederationError):
    """No, wrong or outdated credentials."""


def _always() -> bool:
    return True


def _never(_user: str, _password: str) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Caller:
    """A caller. ``user`` is None for an anonymous one.

    ``stored`` is what is stored of the password that proved it; None where nothing is, or another thing did.

    ``holds`` says whether what proved the identity still does: the user was not removed, the token has not
    expired. It is asked at every call of a session, from any thread, and must be fast.
    """

    user: str | None = None
    groups: frozenset[str] = frozenset()
    holds: Callable[[], bool] = field(default=_always, compare=False)
    stored: bytes | None = field(default=None, compare=False, repr=False)


#: (user, password) -> who that is; None: no such user, or another password.
Verify = Callable[[str, str], Caller | None]
#: Whether (user, password) was right before: then it is mostly not computed again, and only who knows it can ask for that.
Remembers = Callable[[str, str], bool]
#: token -> who it was given to; None: not a token of this kind. One of this kind that is not valid raises
#: ``Unauthenticated``.
TokenCheck = Callable[[str], Caller | None]
#: user -> who that is when a password proves it; None: no such user.
Recall = Callable[[str], Caller | None]


@dataclass(frozen=True, slots=True)
class Access:
    """Every way to prove an identity on one listener.

    ``verify`` checks passwords; None: there are none. ``remembers`` knows those it found right. ``recall`` knows the
    users without one: for whom another replica's login has proved. ``tokens`` are asked in order about bearer tokens
    this server did not give out itself. With ``certificates`` a call without credentials is made by the subject of its
    client certificate; such a listener has no Handshake (pyarrow shows the certificate only without one), so passwords
    must come with every call. With ``allow_anonymous`` a call without credentials is served too, and where there are no
    users a client that insists on sending some, a token too, is served as anonymous: for loopback.
    """

    verify: Verify | None = None
    remembers: Remembers = _never
    recall: Recall | None = None
    tokens: tuple[TokenCheck, ...] = ()
    certificates: bool = False
    allow_anonymous: bool = False

    @property
    def is_open(self) -> bool:
        """True if the listener has no login and admits anonymous calls."""
        return (
            self.allow_anonymous
            and self.verify is None
            and not self.tokens
            and not self.certificates
        )

    def of_token(self, token: str) -> Caller | None:
        """Return who a token that is no session of this server was given to; None for an unknown one.

        Raises:
            Unauthenticated: a known kind of token, but not a valid one.
        """
        callers = (check(token) for check in self.tokens)
        return next((identity for identity in callers if identity is not None), None)

    def recalled(self, user: str | None) -> Caller | None:
        """Return a user who logged in at another replica."""
        if user is None:
            return Caller() if self.allow_anonymous else None
        return None if self.recall is None else self.recall(user)


@dataclass(frozen=True, slots=True)
class Bearer:
    token: str


@dataclass(frozen=True, slots=True)
class ByCertificate:
    """The name in the client certificate. Only the call itself shows it, not its headers."""


class FixedUsers:
    def __init__(self, users: Mapping[str, str]) -> None:
        self._passwords = {user: password.encode() for user, password in users.items()}

    def verify(self, user: str, password: str) -> Caller | None:
        expected = self._passwords.get(user)
        # Compared also for an unknown user, so that the time taken does not tell the two apart.
        same = hmac.compare_digest(password.encode(), expected or b"")
        return self.recall(user) if same else None

    def recall(self, user: str) -> Caller | None:
        stored = self._passwords.get(user)
        return None if stored is None else Caller(user, stored=stored)


def identify(header: str | None, access: Access) -> Bearer | ByCertificate | Caller:
    """Read one call's ``authorization`` header. A bearer token is returned unchecked.

    Raises:
        Unauthenticated: no credentials where some are needed, wrong ones, or an unknown kind.
    """
    if header is None:
        if access.certificates:
            return ByCertificate()
        if access.allow_anonymous:
            return Caller()
        raise Unauthenticated(
            "This server needs a user name and a password, or a bearer token; the call came with neither."
        )
    scheme, _, value = header.strip().partition(" ")
    if scheme.lower() == "bearer":
        return Bearer(value.strip())
    if scheme.lower() != "basic":
        raise Unauthenticated("Only basic and bearer authorization are understood here.")
    user, password = _basic(value)
    if access.verify is None and access.allow_anonymous:
        return Caller()
    identity = None if access.verify is None else access.verify(user, password)
    if identity is None:
        raise Unauthenticated("Unknown user or wrong password.", user=user)
    return identity


def login_of(header: str | None) -> tuple[str, str] | None:
    """The user and password of a call's ``authorization`` header; None: another kind, or a wrong one."""
    scheme, _, value = (header or "").strip().partition(" ")
    with contextlib.suppress(Unauthenticated):
        return _basic(value) if scheme.lower() == "basic" else None
    return None


def _basic(value: str) -> tuple[str, str]:
    # Go clients, ADBC among them, send base64 without its padding; surplus padding is ignored.
    try:
        decoded = base64.b64decode(value.strip() + "==")
    except (binascii.Error, ValueError):
        decoded = b""
    try:
        text = decoded.decode()
    except UnicodeDecodeError:  # what Node's btoa makes of ä; RFC 7617 names no charset
        text = decoded.decode("latin-1")
    user, colon, password = text.partition(":")
    if not colon:
        raise Unauthenticated("The basic authorization is not base64 of user:password.")
    return user, password
