"""Passwords against their argon2 hashes: the one place that knows argon2."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from planner.errors import Overloaded

#: A check takes 64 MiB and some 50 ms on purpose, so a flood of logins must not run all at once.
MAX_CHECKS = 2
MAX_WAIT_S = 5.0
#: Some clients send the password with every call: one that was right is not computed again this long.
REMEMBERED_S = 300.0
_MAX_REMEMBERED = 4096

_HASHER = PasswordHasher()


def make_hash(password: str) -> str:
    """Return the argon2id hash of a password, with its parameters and a salt of its own."""
    return _HASHER.hash(password)


def is_hash(text: str) -> bool:
    """Whether a text is a hash that ``Passwords`` can check."""
    try:
        _HASHER.check_needs_rehash(text)
    except InvalidHashError:
        return False
    return True


class Passwords:
    """Checks passwords. Thread-safe."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._checks = threading.BoundedSemaphore(MAX_CHECKS)
        self._lock = threading.Lock()
        self._secret = secrets.token_bytes(32)
        # Digest of what was right -> when it is forgotten. Not the passwords themselves.
        self._right: OrderedDict[bytes, float] = OrderedDict()
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
            until_s = self._right.get(digest)
        if stored is not None and until_s is not None and self._clock_s() < until_s:
            return True
        if not self._checks.acquire(timeout=MAX_WAIT_S):
            raise Overloaded("Too many logins are being checked. Try again in a few seconds.")
        try:
            right = _verify(stored or self._nobody, password) and stored is not None
        finally:
            self._checks.release()
        if right:
            with self._lock:
                self._right[digest] = self._clock_s() + REMEMBERED_S
                while len(self._right) > _MAX_REMEMBERED:
                    self._right.popitem(last=False)
        return right


def _verify(stored: str, password: str) -> bool:
    try:
        return _HASHER.verify(stored, password)
    except (VerificationError, InvalidHashError, UnicodeEncodeError):
        return False
