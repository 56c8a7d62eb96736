"""One statement of a user is planned at a time, beside one that is long, each as long as its own time allows.

Planning is Python's work, and reading the tree of a text of 100 KB keeps the interpreter's lock for a tenth of a second
in one piece. Of several threads that want that lock none is preferred: with nine such statements of one user at work others
waited for several of them, again and again. Together they are no faster.

A turn is for steps that compute. Whoever waits for a catalog or a broker has none, so that a slow one holds up only
those who need it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Hashable, Iterator

from proxy.deadline import Deadline
from proxy.session import Session

#: Characters of a statement from which on it is long.
LONG_CHARS = 4_096
_LOOK_S = 0.1
_NO_TURN = "the statement waited {:g} s for others of yours, of which few are planned at a time; send fewer at once."


class _Turn:
    """Statements of one user that are in a turn, and those that wait for one as well."""

    __slots__ = ("changed", "is_busy", "users")

    def __init__(self, lock: threading.Lock) -> None:
        self.is_busy, self.users = False, 0
        self.changed = threading.Condition(lock)


class Turns:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: By owner, and whether the statements are long.
        self._turns: dict[tuple[Hashable, bool], _Turn] = {}

    @contextlib.contextmanager
    def one(self, session: Session, sql: str, deadline: Deadline) -> Iterator[None]:
        """Do the block when no other statement of the session's user is in one: no long one if this is long, else no short one.

        Raises:
            FederationError: the call was given up, or its time was over before its turn.
        """
        # Nobody is to be spared from anonymous callers but one another.
        key = session.user or (session.id,), len(sql) >= LONG_CHARS
        with self._lock:
            turn = self._turns.get(key)
            if turn is None:
                turn = self._turns[key] = _Turn(self._lock)
            turn.users += 1
        try:
            with self._lock:
                while turn.is_busy:
                    deadline.check(_NO_TURN)
                    turn.changed.wait(_LOOK_S)
                turn.is_busy = True
            try:
                yield
            finally:
                with self._lock:
                    turn.is_busy = False
                    turn.changed.notify()
        finally:
            with self._lock:
                turn.users -= 1
                if not turn.users:
                    del self._turns[key]
