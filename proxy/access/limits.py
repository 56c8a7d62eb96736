"""What one user may take, with or without others: sessions, streams, calls and failures a second, rows, bytes and time."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from planner.errors import LimitExceeded, Overloaded
from proxy.access.authentication.callers import Access

#: Failures a second of one user that are answered at once, and how many seconds' worth of them in a burst.
FAILURES_PER_S, FAILURES_BURST_S = 20.0, 5.0
#: No failure waits longer, however many there are.
MAX_PAUSE_S = 1.0
#: Beyond this, the owner who came longest ago is forgotten.
_MAX_OWNERS = 10_000
#: Of sums of times.
_ROUNDING_S = 1e-6


@dataclass(frozen=True, slots=True)
class UserLimits:
    """Limits of one user, of each by himself; anonymous callers count as one user together. None: only the server's.

    A statement through ADBC's DB-API takes four calls. Up to two seconds' worth may come at once. Calls that fail beyond
    ``max_failures_per_s`` are answered later (``Failures``).
    ``timeout_s`` is the time a statement may spend in the engine, ``answer_timeout_s`` the time until its last row
    has been read, however slow the reader. A client may send nothing of an upload for ``upload_idle_s``, and read
    nothing of an answer for ``reader_idle_s``.
    """

    max_sessions: int | None = None
    max_streams: int | None = None
    max_calls_per_s: float | None = None
    timeout_s: float = 300.0
    answer_timeout_s: float | None = None
    max_rows: int | None = None
    max_bytes: int | None = None
    upload_idle_s: float = 30.0
    reader_idle_s: float | None = 600.0
    max_failures_per_s: float | None = FAILURES_PER_S

    def check_size(self, rows: int, size: int) -> None:
        """Refuse an answer that grew too large; ``size`` are its bytes.

        Raises:
            LimitExceeded: more rows or bytes than one answer may have.
        """
        for what, sent, limit in (
            ("rows", rows, self.max_rows),
            ("bytes", size, self.max_bytes),
        ):
            if limit is not None and sent > limit:
                raise LimitExceeded(
                    f"The answer has more than {limit:,} {what}, which is what one statement may take. Aggregate or "
                    f"LIMIT it, or raise max_result_{what}.",
                    limit=limit,
                )


#: (user, groups) -> what that user may take. Fast, and the same as long as the settings are.
LimitsOf = Callable[[str | None, frozenset[str]], UserLimits]


def unlimited(_user: str | None, _groups: frozenset[str]) -> UserLimits:
    """A ``LimitsOf``: only the server's own."""
    return UserLimits()


@dataclass(slots=True)
class ServerPolicy:
    """What may change while a server runs. Read anew by every call; its fields are replaced, never changed."""

    access: Access
    limits_of: LimitsOf = unlimited


class _Due:
    """When the next of each owner would be due if all came evenly. Thread-safe."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._lock = threading.Lock()
        #: The latest to come is last.
        self._due_s: OrderedDict[Hashable, float] = OrderedDict()

    def _ahead_s(self, owner: Hashable) -> float:
        now_s = self._clock_s()
        return max(self._due_s.get(owner, now_s) - now_s, 0.0)

    def _note(self, owner: Hashable, ahead_s: float) -> None:
        self._due_s[owner] = self._clock_s() + ahead_s
        self._due_s.move_to_end(owner)
        if len(self._due_s) > _MAX_OWNERS:
            self._due_s.popitem(last=False)


class Rate(_Due):
    """Refuses calls of an owner who makes too many in a second."""

    def spend(self, owner: Hashable, per_s: float | None) -> None:
        """Count one call.

        Raises:
            Overloaded: too many in too short a time.
        """
        if per_s is None:
            return
        burst_s = max(1.0, 2 * per_s) / per_s
        with self._lock:
            ahead_s = self._ahead_s(owner) + 1 / per_s
            if ahead_s > burst_s + _ROUNDING_S:
                raise Overloaded(
                    f"You made more than {per_s:g} calls in a second. Slow down, or raise "
                    f"max_calls_per_s_per_user."
                )
            self._note(owner, ahead_s)


class Failures(_Due):
    """How soon a call that failed is answered.

    A refusal costs as much as a small answer and counts against no quota. A user who made mistakes as fast as possible had
    most of Python's lock (eight threads with forged messages: others waited four times as long as alone). So each user
    gets so many failures a second answered at once; further ones wait up to ``MAX_PAUSE_S`` each. Successful calls and
    other users never wait.
    """

    def pause_s(self, owner: Hashable, per_s: float | None = FAILURES_PER_S) -> float:
        """Count a failure; return how many seconds to wait before answering it. 0 without a limit.

        A flood leaves no debt: no later failure waits longer for it.
        """
        if per_s is None:
            return 0.0
        with self._lock:
            ahead_s = self._ahead_s(owner)
            self._note(owner, min(ahead_s, FAILURES_BURST_S + MAX_PAUSE_S) + 1 / per_s)
            return min(max(ahead_s - FAILURES_BURST_S, 0.0), MAX_PAUSE_S)
