"""Threads that check passwords, and nothing else: to check one takes long on purpose, and a stranger may ask for it.

Passwords that were right before have threads of their own: who tries others keeps out neither them nor requests
without a password.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from proxy.access.shares import Shares

#: Of each kind. Argon2 checks two at a time, with threads of its own (``proxy.access.authentication.hashes``).
_THREADS = 2
#: At work or waiting, of all users, of each a share. New ones: two seconds' worth. The others wait for no check.
_MAX_NEW = 64
_MAX_PROVED = 1_024


class Logins:
    """Thread-safe; the caller closes it."""

    def __init__(self) -> None:
        self._new = Shares(_MAX_NEW, "logins"), _threads("new")
        self._proved = Shares(_MAX_PROVED, "logins"), _threads("proved")

    def close(self) -> None:
        """End the threads, without waiting for their work."""
        for _, threads in (self._new, self._proved):
            threads.shutdown(wait=False, cancel_futures=True)

    @contextlib.contextmanager
    def one(self, user: str, *, is_proved: bool) -> Iterator[ThreadPoolExecutor]:
        """Lend the threads for one login. ``is_proved``: the password was right before.

        Raises:
            Overloaded: too many are there already, or of this user.
        """
        shares, threads = self._proved if is_proved else self._new
        with shares.one(user):
            yield threads


def _threads(kind: str) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix=f"iceberg-rest-{kind}-logins")
