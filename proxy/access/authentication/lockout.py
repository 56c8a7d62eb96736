"""Wrong passwords cost their user time: guesses at one are bounded, from anywhere.

pyarrow shows a login's headers and not its address, so attempts are counted by user alone. Lest strangers keep a
user out by failing in his name, a password that was right before is still checked while new ones are refused; a
session that is open is not asked for one; and no pause is longer than ``MAX_PAUSE_S``.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass

from cachetools import LRUCache

from proxy.access.authentication.callers import Caller, Unauthenticated, Verify

#: So many wrong passwords in a row are typing errors.
FREE_TRIES = 5
#: The pause after the first one too many doubles with each further one up to the longest.
FIRST_PAUSE_S = 1.0
MAX_PAUSE_S = 60.0
#: Failures are forgotten when none was added for so long.
FORGOTTEN_AFTER_S = 900.0
#: Users and passwords remembered, the latest.
_MAX_REMEMBERED = 10_000


@dataclass(slots=True)
class _Failures:
    count: int = 0
    last_s: float = 0.0
    checking: bool = False

    @property
    def pause_s(self) -> float:
        surplus = self.count - FREE_TRIES
        # The exponent is bounded first: a float's is, too.
        return (
            min(MAX_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(surplus, 32)) if surplus >= 0 else 0.0
        )


class Lockout:
    """A ``Verify`` that asks another one, less and less often for a user who fails. Thread-safe."""

    def __init__(self, verify: Verify, clock_s: Callable[[], float]) -> None:
        self._verify = verify
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._secret = secrets.token_bytes(32)
        self._failures: LRUCache[str, _Failures] = LRUCache(_MAX_REMEMBERED)
        #: Digests of what was right since the start. Not the passwords themselves.
        self._right: LRUCache[bytes, None] = LRUCache(_MAX_REMEMBERED)

    def __call__(self, user: str, password: str) -> Caller | None:
        """Return who that is.

        Raises:
            Unauthenticated: too many wrong passwords were given for this user; says how long to wait.
        """
        digest = self._digest(user, password)
        alone = self._enter(user, digest)
        identity = None
        try:
            identity = self._verify(user, password)
        finally:
            with self._lock:
                failures = self._failures.get(user)
                if alone and failures is not None:
                    failures.checking = False
        with self._lock:
            if identity is None:
                self._failed(user)
            else:
                self._failures.pop(user, None)
                self._right[digest] = None
        return identity

    def remembers(self, user: str, password: str) -> bool:
        """Whether this password was right since the start, among the latest of those."""
        digest = self._digest(user, password)
        with self._lock:
            return digest in self._right

    def _digest(self, user: str, password: str) -> bytes:
        text = f"{len(user)} {user}{password}"
        return hmac.digest(self._secret, text.encode("utf-8", "replace"), hashlib.sha256)

    def _enter(self, user: str, digest: bytes) -> bool:
        """Let an attempt pass, or refuse it; True: it is the only one for this user until it is checked."""
        now_s = self._clock_s()
        with self._lock:
            failures = self._failures.get(user)
            if failures is None or digest in self._right:
                return False
            if now_s - failures.last_s > FORGOTTEN_AFTER_S:
                del self._failures[user]
                return False
            left_s = failures.last_s + failures.pause_s - now_s
            # Beyond the free tries one at a time, or a hundred at once would pass at the end of each pause.
            if failures.count >= FREE_TRIES and (left_s > 0 or failures.checking):
                raise Unauthenticated(
                    f"Too many wrong passwords were given for this user. Try again in "
                    f"{max(1, math.ceil(left_s))} s.",
                    user=user,
                )
            if failures.count < FREE_TRIES:
                return False
            failures.checking = True
            return True

    def _failed(self, user: str) -> None:
        failures = self._failures.get(user) or _Failures()
        failures.count += 1
        failures.last_s = self._clock_s()
        self._failures[user] = failures
