"""Long statements of one user are planned one after the other, each as long as its own time allows.

Planning is Python's work, and reading the tree of a text of 100 KB keeps the interpreter's lock for a tenth of a second
in one piece. Of several threads that want that lock none is preferred: with nine such statements of one user at work others
waited for several of them, again and again. Together they are no faster.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from proxy.deadline import Deadline

#: Characters of a statement from which on it waits for its turn.
LONG_CHARS = 4_096
_LOOK_S = 0.1
_NO_TURN = "the statement waited {:g} s for other long ones of yours, which are planned one after the other; send fewer at once."


class _Turn:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0


class Turns:
    """Thread-safe. ``None`` stands for anonymous callers, who are one user."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turns: dict[str | None, _Turn] = {}

    @contextlib.contextmanager
    def one(self, user: str | None, sql: str, deadline: Deadline) -> Iterator[None]:
        """Do the block when no other long statement of ``user`` is in one.

        Raises:
            FederationError: the call was given up, or its time was over before its turn.
        """
        if len(sql) < LONG_CHARS:
            yield
            return
        with self._lock:
            turn = self._turns.setdefault(user, _Turn())
            turn.users += 1
        try:
            while not turn.lock.acquire(timeout=_LOOK_S):
                deadline.check(_NO_TURN)
            try:
                yield
            finally:
                turn.lock.release()
        finally:
            with self._lock:
                turn.users -= 1
                if not turn.users:
                    del self._turns[user]
