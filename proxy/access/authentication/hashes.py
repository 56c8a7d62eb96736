"""Passwords against their argon2 hashes: the one place that knows argon2."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from collections.abc import Callable

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from cachetools import TTLCache

from planner.errors import Overloaded

#: A check takes 64 MiB and some 50 ms on purpose, so a flood of logins must not run all at once.
MAX_CHECKS = 2
MAX_WAIT_S = 5.0
#: Some clients send the password with every call: one that was right is not computed again this long.
REMEMBERED_S = 300.0
_MAX_REMEMBERED = 4096

_HASHER = PasswordHasher()


def make_hash(password: str) -> str:
    return _HASHER.hash(password)


def is_hash(text: str) -> bool:
    try:
        _HASHER.check_needs_rehash(text)
    except InvalidHashError:
        return False
    return True


class Passwords:
    """Checks passwords. Thread-safe."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._checks = threading.BoundedSemaphore(MAX_CHECKS)
        self._lock = threading.Lock()
        self._secret = secrets.token_bytes(32)
        # Digests of what was right. Not the passwords themselves.
        self._right: TTLCache[bytes, None, float] = TTLCache(
            _MAX_REMEMBERED, REMEMBERED_S, clock_s
        )
        self._nobody = make_hash(secrets.token_hex(16))

    def matches(self, stored: str | None, password: str) -> bool:
        """Whether ``password`` is the one behind ``stored``. None, for no such user, takes as long and is False.

        Raises:
            Overloaded: too many other passwords are being checked.
        """
        digest = hmac.digest(
            self._secret, f"{stored}\0{password}".encode("utf-8", "replace"), hashlib.sha256
        )
        with self._lock:
            if stored is not None and digest in self._right:
                return True
        if not self._checks.acquire(timeout=MAX_WAIT_S):
            raise Overloaded("Too many logins are being checked. Try again in a few seconds.")
        try:
            right = _verify(stored or self._nobody, password) and stored is not None
        finally:
            self._checks.release()
        if right:
            with self._lock:
                self._right[digest] = None
        return right


def _verify(stored: str, password: str) -> bool:
    try:
        return _HASHER.verify(stored, password)
    except (VerificationError, InvalidHashError, UnicodeEncodeError):
        return False
