"""Decides who gets one more of something that all users share. No user ever takes the last.

Each user may have ``_PART`` times what is still free. So a single user gets most of it, each of many an equal part, and
a user who has none gets one as long as any is free. Nothing is reserved, and users need not be counted.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Hashable, Iterator

from planner.errors import Overloaded

#: One user alone gets three quarters.
_PART = 3


def has_share(own: int, in_use: int, total: int) -> bool:
    """Whether a user who has ``own`` of those ``in_use`` may have one more."""
    free = total - in_use
    return free > 0 and own <= _PART * free


class Shares:
    """At most ``total`` of ``what`` (a plural) at one time, and of those a share for each owner. Thread-safe."""

    def __init__(self, total: int, what: str) -> None:
        self._total = total
        self._what = what
        self._lock = threading.Lock()
        self._in_use: Counter[Hashable] = Counter()

    def take(self, owner: Hashable) -> None:
        """Count one more for ``owner``, who must call ``leave``.

        Raises:
            Overloaded: there are too many, or the owner has more than a share.
        """
        with self._lock:
            in_use, own = self._in_use.total(), self._in_use[owner]
            if in_use >= self._total:
                raise Overloaded(
                    f"The server answers too many {self._what} at once. Retry later."
                )
            if not has_share(own, in_use, self._total):
                raise Overloaded(
                    f"You have {own} {self._what} open at once; what is left is for others. End some, or retry later."
                )
            self._in_use[owner] += 1

    def leave(self, owner: Hashable) -> None:
        with self._lock:
            self._in_use[owner] -= 1
            if not self._in_use[owner]:
                del self._in_use[owner]

    @contextlib.contextmanager
    def one(self, owner: Hashable) -> Iterator[None]:
        """Have one for the time of the block.

        Raises:
            Overloaded: as ``take``.
        """
        self.take(owner)
        try:
            yield
        finally:
            self.leave(owner)
