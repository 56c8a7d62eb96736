"""What one user may take, with or without others: sessions, streams, calls and failures a second, rows, bytes and time.

Users whose statements ended the server's process are slowed down and refused. The next process must know them, so they are written to a file without a name that the supervisor made and each of its
children inherits. Long-running statements are noted there all the time, because a killed process cannot write. The
first end slows a user down, later ones lead to refusals for a while. A guess from those notes slows down only: a
short statement may have caused the crash.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

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

    A statement through ADBC's DB-API takes four calls. Up to two seconds' worth may come at once. Calls that fail
    beyond ``max_failures_per_s`` are answered later (``Failures``). ``timeout_s`` is the time a statement may spend in
    the engine, ``answer_timeout_s`` the time until its last row has been read, however slow the reader. A client may
    send nothing of an upload for ``upload_idle_s``, and read nothing of an answer for ``reader_idle_s``.
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
        for what, sent, limit in ("rows", rows, self.max_rows), ("bytes", size, self.max_bytes):
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


@dataclass(frozen=True, slots=True)
class Admins:
    """Who sees and cancels the statements of all: these users, and those of these groups."""

    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()

    def have(self, user: str | None, groups: frozenset[str]) -> bool:
        return user in self.users or not self.groups.isdisjoint(groups)


@dataclass(slots=True)
class ServerPolicy:
    """What may change while a server runs. Read anew by every call; its fields are replaced, never changed."""

    access: Access
    limits_of: LimitsOf = unlimited
    admins: Admins = Admins()


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


#: How long an end counts, and how long a user is slowed down after one.
_COUNTS_S, _SLOWED_S = 3600.0, 600.0
#: Statements that a slowed-down user may run at one time.
SLOWED_SLOTS = 2
#: How long a user is refused after the second end within the hour; four times as long after each further one.
_REFUSED_S, _MAX_REFUSED_S = 60.0, 900.0
#: How many of the latest ends are remembered, and in how many bytes.
_MAX_ENDS, _MAX_BYTES = 100, 1 << 16


class Blame:
    """Notes which users may be to blame, and judges which was. Thread-safe. ``None`` stands for anonymous callers.

    Anonymous callers are one user, and a server that admits them has no other: they are slowed down, never refused.
    """

    def __init__(
        self, file: int | None = None, *, now_s: Callable[[], float] = time.time
    ) -> None:
        """``file`` is the descriptor of the last process's notes; None: no notes outlive this process."""
        self._file = file
        self._now_s = now_s
        self._lock = threading.Lock()
        self._noted: dict[str | None, float] = {}
        #: User, time, and whether the blame is certain.
        self._ends: list[tuple[str | None, float, bool]] = []
        #: This process ends, and its user is noted.
        self._is_over = False
        left = _read(file)
        with contextlib.suppress(KeyError, TypeError, ValueError):
            self._ends = [(user, float(at_s), bool(sure)) for user, at_s, sure in left["ends"]]
            running = [(user, float(ran_s)) for user, ran_s in left["running"]]
            self._assign_largest(running, is_sure=False)
        self._write()

    def note(self, running: Mapping[str | None, float]) -> None:
        """Write down whose statements have run for long, and their seconds in all."""
        with self._lock:
            if self._is_over or not (running or self._noted):
                return
            self._noted = dict(running)
            self._write()

    def assign(self, user: str | None) -> None:
        """Write down that this process ends for a statement of ``user``."""
        with self._lock:
            self._add(user, is_sure=True)
            self._close()

    def acquit(self) -> None:
        """Write down that long-running statements are not why this process ends."""
        with self._lock:
            self._close()

    def assign_largest(self) -> None:
        """Blame the user with more running time than all others together, if there is one."""
        with self._lock:
            self._assign_largest(list(self._noted.items()), is_sure=True)
            self._close()

    def check(self, user: str | None) -> None:
        """Refuse a user whose statements ended the process again and again.

        Raises:
            Overloaded: says why, and until when.
        """
        until_s = self._refused_until_s(user)
        left_s = until_s - self._now_s()
        if left_s <= 0:
            return
        raise Overloaded(
            f"Statements of user {user!r} ended the server's process {len(self._of(user, only_sure=True))} times within an hour; none is "
            f"taken until {_time(until_s)}. Narrow them before you try again.",
            user=user,
            retry_after_s=int(left_s) + 1,
        )

    def most(self, user: str | None, limit: int | None) -> int | None:
        """How many statements a user may run at one time; ``limit`` unless slowed down."""
        ends = self._of(user)
        if not ends or self._now_s() > max(ends[-1] + _SLOWED_S, self._refused_until_s(user)):
            return limit
        return SLOWED_SLOTS if limit is None else min(SLOWED_SLOTS, limit)

    def _refused_until_s(self, user: str | None) -> float:
        ends = self._of(user, only_sure=True)
        if user is None or len(ends) < 2:
            return 0.0
        return ends[-1] + min(_MAX_REFUSED_S, _REFUSED_S * 4.0 ** (len(ends) - 2))

    def _of(self, user: str | None, *, only_sure: bool = False) -> list[float]:
        since_s = self._now_s() - _COUNTS_S
        return [
            at_s
            for name, at_s, is_sure in self._ends
            if name == user and at_s > since_s and (is_sure or not only_sure)
        ]

    def _assign_largest(
        self, running: list[tuple[str | None, float]], *, is_sure: bool
    ) -> None:
        if not running:
            return
        user, ran_s = max(running, key=lambda entry: entry[1])
        if ran_s * 2 > sum(seconds for _, seconds in running):
            self._add(user, is_sure=is_sure)

    def _add(self, user: str | None, *, is_sure: bool) -> None:
        self._ends = [*self._ends, (user, self._now_s(), is_sure)][-_MAX_ENDS:]

    def _close(self) -> None:
        self._is_over, self._noted = True, {}
        self._write()

    def _write(self) -> None:
        if self._file is None:
            return
        text = json.dumps({"ends": self._ends, "running": list(self._noted.items())}).encode()
        # Else the rest of a longer text would stay behind this one.
        os.pwrite(self._file, text[: _MAX_BYTES - 1].ljust(_MAX_BYTES), 0)


def new_file() -> int:
    """Open a file without a name, for ``Blame``; it ends with the last process that has it."""
    return os.memfd_create("thermocline-blame")


def _read(file: int | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        left = json.loads(os.pread(file, _MAX_BYTES, 0) or b"{}")
    except (OSError, ValueError):  # the process died while writing it
        return {}
    return left if isinstance(left, dict) else {}


def _time(at_s: float) -> str:
    return dt.datetime.fromtimestamp(at_s, dt.UTC).strftime("%H:%M:%S UTC")
