"""Tokens of sessions: sealed, so that any replica with the same secret takes one that another gave out.

A token says whose session it opens and where the session starts; what was set on it later, prepared or cancelled
stays with the replica it was said to. It says nothing secret, and nothing a client could change.

Layout: ``"tc1." + base64url(JSON) + "." + base64url(HMAC-SHA256 of the former)``.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from proxy.access.authentication.callers import Caller

#: Of tokens with a seal, and of those that only the server knows that gave them out.
_VERSION, _LOCAL = "tc1", "tc0"
#: A replica takes another's token for so long; a session that is in use lasts longer where it is.
LIFETIME_S = 12 * 3600
MAX_TOKEN_CHARS = 8_192


def local_token() -> str:
    """Return a token without a seal."""
    return f"{_LOCAL}.{secrets.token_urlsafe(32)}"


def is_session_token(token: str) -> bool:
    """Whether a server of this kind gave a token out, by its form alone."""
    return token.startswith((f"{_LOCAL}.", f"{_VERSION}."))


@dataclass(frozen=True, slots=True)
class Minted:
    """What a token says: who logged in, by which password, and where the session starts."""

    user: str | None
    proof: str
    opening: Mapping[str, str]


class SessionTokens:
    """Mints and reads tokens. Thread-safe."""

    def __init__(self, secret: bytes, now_s: Callable[[], float]) -> None:
        """``now_s`` is the time since 1970, the same on all replicas."""
        # Its own key: a tag of one kind of thing must never fit another.
        self._key = hmac.digest(secret, b"thermocline session token", hashlib.sha256)
        self._now_s = now_s

    def mint(self, identity: Caller, opening: Mapping[str, str]) -> str:
        claims = {
            "id": secrets.token_hex(16),
            "user": identity.user,
            "proof": self._proof(identity),
            "opening": dict(opening),
            "until": int(self._now_s() + LIFETIME_S),
        }
        body = _text(json.dumps(claims, separators=(",", ":"), sort_keys=True).encode())
        return f"{_VERSION}.{body}.{_text(self._tag(body))}"

    def read(self, token: str) -> Minted | None:
        """Return what a token says; None if it is none of ours, altered, or too old."""
        parts = token.split(".")
        if len(token) > MAX_TOKEN_CHARS or len(parts) != 3 or parts[0] != _VERSION:
            return None
        try:
            tag = base64.urlsafe_b64decode(parts[2] + "==")
        except (binascii.Error, ValueError):
            return None
        if not hmac.compare_digest(tag, self._tag(parts[1])):
            return None
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=="))
        if claims["until"] < self._now_s():
            return None
        return Minted(claims["user"], claims["proof"], claims["opening"])

    def is_of(self, minted: Minted, identity: Caller) -> bool:
        """Whether a token was minted for this identity, proved by the password that is stored now."""
        is_current = identity.user is None or identity.stored is not None
        return is_current and hmac.compare_digest(minted.proof, self._proof(identity))

    def _proof(self, identity: Caller) -> str:
        # Keyed: a thief of a token cannot guess at the password with it.
        said = json.dumps([identity.user, (identity.stored or b"").decode("utf-8", "replace")])
        return hmac.digest(self._key, said.encode(), hashlib.sha256).hex()

    def _tag(self, body: str) -> bytes:
        return hmac.digest(self._key, body.encode("utf-8", "replace"), hashlib.sha256)


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
