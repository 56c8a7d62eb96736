"""How much answers that are still good may take: so many, and so many bytes of files; of both each user has a share.

Cuts that readers name have room of their own: a reader may make them up, and none may keep out a load of the table as it is.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Hashable, Iterable

from planner.errors import Overloaded
from proxy.access.shares import has_share

#: Of all tables: each takes one or two kilobytes of memory.
MAX_LIVE_ANSWERS = 40_000
MAX_NAMED_ANSWERS = 10_000
#: Bytes of live files of all tables, unless configured. Files of named cuts have a part of them.
MAX_LIVE_BYTES = 64 << 30
_NAMED_PART = 16


class Room:
    """Thread-safe."""

    def __init__(self, what: str, max_answers: int, max_bytes: int) -> None:
        """``what`` the answers are of, a plural."""
        self._what = what
        self._lock = threading.Lock()
        self._answers = _Ledger(max_answers)
        self._bytes = _Ledger(max_bytes)

    def check(self, user: str | None) -> None:
        """Make sure that one more answer may be written for a user.

        Raises:
            Overloaded: too many are still good, of all users or of this one; or their files are too large.
        """
        with self._lock:
            if not self._answers.has_room(user):
                raise Overloaded(
                    f"{self._answers.of[user]:,} answers of {self._what} that you asked for are still good, of {self._answers.total:,} "
                    f"in all; what is left is for others. Load less often, or lower iceberg_rest.live_ttl_s."
                )
            if not self._bytes.has_room(user):
                raise Overloaded(
                    f"{self._bytes.of[user]:,} bytes of files of {self._what} that you asked for are still good, of "
                    f"{self._bytes.total:,} in all; what is left is for others. Load less often, or raise "
                    f"iceberg_rest.max_live_bytes."
                )

    def add_answer(self, answer: Hashable, user: str | None) -> None:
        with self._lock:
            self._answers.add(answer, user, 1)

    def add_file(self, path: str, user: str | None, size: int) -> None:
        """Count a file that was written for a user; ``size`` are bytes."""
        with self._lock:
            self._bytes.add(path, user, size)

    def forget(self, answers: Iterable[Hashable], paths: Iterable[str]) -> None:
        """Count these no more; those that were never counted here are passed over."""
        with self._lock:
            for answer in answers:
                self._answers.remove(answer)
            for path in paths:
                self._bytes.remove(path)


class _Ledger:
    """Who has how much of a total."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.of: Counter[str | None] = Counter()
        self._entries: dict[Hashable, tuple[str | None, int]] = {}
        self._in_use = 0

    def has_room(self, user: str | None) -> bool:
        return has_share(self.of[user], self._in_use, self.total)

    def add(self, key: Hashable, user: str | None, amount: int) -> None:
        self._entries[key] = user, amount
        self.of[user] += amount
        self._in_use += amount

    def remove(self, key: Hashable) -> None:
        user, amount = self._entries.pop(key, (None, 0))
        self._in_use -= amount
        self.of[user] -= amount
        if not self.of[user]:
            del self.of[user]


class Rooms:
    """Room for tables as they are, and for cuts that readers name."""

    def __init__(self, max_bytes: int = MAX_LIVE_BYTES) -> None:
        named = max_bytes // _NAMED_PART
        self.live = Room("tables as they are", MAX_LIVE_ANSWERS, max_bytes - named)
        self.named = Room("named cuts", MAX_NAMED_ANSWERS, named)

    def forget(self, answers: Iterable[Hashable], paths: Iterable[str]) -> None:
        """Count these no more, in both rooms."""
        answers, paths = tuple(answers), tuple(paths)
        for room in (self.live, self.named):
            room.forget(answers, paths)
