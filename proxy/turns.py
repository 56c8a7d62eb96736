"""Long statements of one user are planned one after the other, each as long as its own time allows.

Planning is Python's work, and reading the tree of a text of 100 KB keeps the interpreter's lock for a tenth of a second
in one piece. Of several threads that want that lock none is preferred: with nine such statements of one user at work others
waited for several of them, again and again. Together they are no faster.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from planner.errors import DeadlineExceeded

#: Characters of a statement from which on it waits for its turn.
LONG_CHARS = 4_096
_LOOK_S = 0.1


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
    def one(
        self, user: str | None, sql: str, check: Callable[[], None], limit_s: float
    ) -> Iterator[None]:
        """Do the block when no other long statement of ``user`` is in one; ``check`` raises where nobody waits any more.

        Raises:
            DeadlineExceeded: it was not its turn within ``limit_s``.
        """
        if len(sql) < LONG_CHARS:
            yield
            return
        until = time.monotonic() + limit_s
        with self._lock:
            turn = self._turns.setdefault(user, _Turn())
            turn.users += 1
        try:
            while not turn.lock.acquire(timeout=_LOOK_S):
                check()
                if time.monotonic() >= until:
                    raise DeadlineExceeded(
                        f"the statement waited {limit_s:g} s for other long ones of yours, which are planned one after "
                        f"the other; send fewer at once.",
                        timeout_s=limit_s,
                    )
            try:
                yield
            finally:
                turn.lock.release()
        finally:
            with self._lock:
                turn.users -= 1
                if not turn.users:
                    del self._turns[user]
