"""Few statements of one user are planned at a time, of long ones a single one, each as long as its own time allows.

Planning is Python's work, and reading the tree of a text of 100 KB keeps the interpreter's lock for a tenth of a second
in one piece. Of several threads that want that lock none is preferred: with nine such statements of one user at work others
waited for several of them, again and again. Together they are no faster.

A turn is for steps that compute. Whoever waits for a catalog or a broker has none, so that a slow one holds up only
those who need it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from proxy.deadline import Deadline

#: Characters of a statement from which on it is long.
LONG_CHARS = 4_096
#: Short ones at a time: the engine's part of the work needs no interpreter.
SHORT_AT_ONCE = 2
_LOOK_S = 0.1
_NO_TURN = "the statement waited {:g} s for others of yours, of which few are planned at a time; send fewer at once."


class _Turn:
    """Statements of one user that are in a turn, and those that wait for one as well."""

    __slots__ = ("at_work", "changed", "users")

    def __init__(self, lock: threading.Lock) -> None:
        self.at_work = self.users = 0
        self.changed = threading.Condition(lock)


class Turns:
    """Thread-safe. ``None`` stands for anonymous callers, who are one user."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: By user, and whether the statements are long.
        self._turns: dict[tuple[str | None, bool], _Turn] = {}

    @contextlib.contextmanager
    def one(self, user: str | None, sql: str, deadline: Deadline) -> Iterator[None]:
        """Do the block when few enough statements of ``user`` are in one.

        Raises:
            FederationError: the call was given up, or its time was over before its turn.
        """
        is_long = len(sql) >= LONG_CHARS
        key = user, is_long
        with self._lock:
            turn = self._turns.get(key)
            if turn is None:
                turn = self._turns[key] = _Turn(self._lock)
            turn.users += 1
        try:
            with self._lock:
                while turn.at_work >= (1 if is_long else SHORT_AT_ONCE):
                    deadline.check(_NO_TURN)
                    turn.changed.wait(_LOOK_S)
                turn.at_work += 1
            try:
                yield
            finally:
                with self._lock:
                    turn.at_work -= 1
                    turn.changed.notify()
        finally:
            with self._lock:
                turn.users -= 1
                if not turn.users:
                    del self._turns[key]
