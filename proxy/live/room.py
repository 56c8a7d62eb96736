"""How much answers that are still good may take: so many, and so many bytes of files; of both each user has a share.

Cuts that readers name have room of their own: a reader may make them up, and none may keep out a load of the table as it is.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Hashable, Iterable

from planner.errors import Overloaded
from proxy.access.fairness import has_share

#: Of all tables: each takes one or two kilobytes of memory.
MAX_LIVE_ANSWERS = 40_000
MAX_NAMED_ANSWERS = 10_000
#: Bytes of live files of all tables, unless configured. Files of named cuts have a part of them.
MAX_LIVE_BYTES = 64 << 30
_NAMED_PART = 16
#: Sizes are known once files are written, so loads at the same time go beyond the total. For users with little there is
#: this part of the total more, and of what is left of that each may have a part.
_SPARE = 4
_PART_OF_SPARE = 4


class Room:
    """Thread-safe."""

    def __init__(self, what: str, max_answers: int, max_bytes: int) -> None:
        """``what`` the answers are of, a plural."""
        self._what = what
        self._lock = threading.Lock()
        self._answers = _Ledger(max_answers)
        self._bytes = _Ledger(max_bytes, max_bytes // _SPARE)

    def check(self, user: str | None) -> None:
        """Make sure that one more file or answer may be written for a user.

        Raises:
            Overloaded: too many are still good, of all users or of this one; or their files are too large.
        """
        with self._lock:
            for ledger, what, remedy in (
                (self._answers, "answers", "lower iceberg_rest.live_ttl_s"),
                (self._bytes, "bytes of files", "raise iceberg_rest.max_live_bytes"),
            ):
                if not ledger.has_room(user):
                    raise Overloaded(ledger.refusal(user, f"{what} of {self._what}", remedy))

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
    """Who has how much of a total. Of the ``spare`` beyond it only users get some who have little."""

    def __init__(self, total: int, spare: int = 0) -> None:
        self._total = total
        self._spare = spare
        self._of: Counter[str | None] = Counter()
        self._entries: dict[Hashable, tuple[str | None, int]] = {}
        self._in_use = 0

    def has_room(self, user: str | None) -> bool:
        own, left = self._of[user], self._total + self._spare - self._in_use
        return has_share(own, self._in_use, self._total) or own * _PART_OF_SPARE < left

    def refusal(self, user: str | None, what: str, remedy: str) -> str:
        """Say why there is no room for a user, and what to do; ``what`` is counted, a plural."""
        own, in_use = self._of[user], f"{self._in_use:,}"
        if not own:
            return (
                f"Other users have {in_use} {what} that are still good, which is all there may be. Try again later, or "
                f"{remedy}."
            )
        return (
            f"{own:,} {what} that you asked for are still good, and {in_use} of all users, of {self._total:,}; what is left "
            f"is for others. Load less often, or {remedy}."
        )

    def add(self, key: Hashable, user: str | None, amount: int) -> None:
        self._entries[key] = user, amount
        self._of[user] += amount
        self._in_use += amount

    def remove(self, key: Hashable) -> None:
        user, amount = self._entries.pop(key, (None, 0))
        self._in_use -= amount
        self._of[user] -= amount
        if not self._of[user]:
            del self._of[user]


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
