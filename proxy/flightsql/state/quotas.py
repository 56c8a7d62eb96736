"""What one user may take: places to stream, calls in a second, rows, bytes and time."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import threading
import time
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from planner.errors import LimitExceeded, Overloaded
from proxy.access.authentication.callers import Access
from proxy.access.shares import has_share
from proxy.flightsql.state.calls import Call
from proxy.flightsql.state.failures import PER_S
from proxy.ops.call_record import CallRecord

#: Longest pause that is recommended, and the weight of the latest in how long places are held.
_MAX_RETRY_S = 60
_SMOOTHING = 0.2
#: Buckets of users that have not called for long are dropped when there are more than this.
_MAX_BUCKETS = 10_000
#: Statements a user may have at work at first, beside other users. More of them at once are not faster.
FIRST_AT_WORK = max(4, 2 * len(os.sched_getaffinity(0)))
#: A statement shorter than the first raises its user's number at work by one, one longer than the second halves it.
_QUICK_S, _LONG_S = 1.0, 5.0
#: Forget a user this long after the last statement. Remember at most this many.
_GONE_S = 600.0
_MAX_USERS = 1_000
#: How often the first of those who wait looks whether slow readers have left room.
_LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class UserLimits:
    """Limits of one user, of each by himself; anonymous callers count as one user together. None: only the server's.

    A statement through ADBC's DB-API takes four calls. Up to two seconds' worth may come at once. Calls that fail beyond
    ``max_failures_per_s`` are answered later (``proxy.flightsql.state.failures``).
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
    max_failures_per_s: float | None = PER_S


#: (user, groups) -> what that user may take. Fast, and the same as long as the settings are.
LimitsOf = Callable[[str | None, frozenset[str]], UserLimits]


def unlimited(user: str | None, groups: frozenset[str]) -> UserLimits:
    """A ``LimitsOf``: only the server's own."""
    return UserLimits()


@dataclass(slots=True)
class ServerPolicy:
    """What may change while a server runs. Read anew by every call; its fields are replaced, never changed."""

    access: Access
    limits_of: LimitsOf = unlimited


def check_size(record: CallRecord, limits: UserLimits) -> None:
    """Refuse an answer that grew too large.

    Raises:
        LimitExceeded: more rows or bytes than one answer may have.
    """
    for what, sent, limit in (
        ("rows", record.rows, limits.max_rows),
        ("bytes", record.bytes, limits.max_bytes),
    ):
        if limit is not None and sent > limit:
            raise LimitExceeded(
                f"The answer has more than {limit:,} {what}, which is what one statement may take. Aggregate or "
                f"LIMIT it, or raise max_result_{what}.",
                limit=limit,
            )


class _Waiting:
    """A statement in the queue. ``woken`` is set when it has its place, is the first, and when its call is given up."""

    def __init__(self, user: str | None, most: int | None) -> None:
        self.user = user
        self.most = most
        self.woken = threading.Event()
        self.has_place = False
        #: It had to leave the queue to another user.
        self.is_displaced = False


class _Place:
    """A place that is left once."""

    def __init__(self, release: Callable[[float], None]) -> None:
        self._release = release
        self._since_s = time.monotonic()
        self._in_use = threading.Lock()
        self._in_use.acquire()

    def leave(self) -> None:
        with contextlib.suppress(RuntimeError):  # left before
            self._in_use.release()
            self._release(time.monotonic() - self._since_s)


class Slots:
    """Places for statements that stream: so many in all and for each user; some more wait. Thread-safe.

    A free place goes to the user with the fewest, and among those to the statement that waits longest: a user who sends
    hundreds waits for his own statements, and others pass. A user without a limit of his own has a share
    (``proxy.access.shares``), so that there is a place for the next user.

    Of those, as long as others use the server too, only ``first`` may be at work at the same time (not waiting for their
    readers), and more once his statements have turned out to be short: thirty costly ones at once would hold up all others,
    and none of them would be done sooner.
    """

    def __init__(
        self, count: int, *, wait_s: float, max_waiting: int = 256, first: int = FIRST_AT_WORK
    ) -> None:
        self._first = first
        self._at_work: dict[str | None, int] = {}
        self._holders: defaultdict[str | None, set[Call]] = defaultdict(set)
        #: When each user came last, the latest at the end.
        self._came_s: OrderedDict[str | None, float] = OrderedDict()
        self._count = count
        self._wait_s = wait_s
        self._max_waiting = max_waiting
        self._lock = threading.Lock()
        self._in_use: Counter[str | None] = Counter()
        #: In the order they came.
        self._waiting: list[_Waiting] = []
        #: How long places were held lately, for the hint when to retry.
        self._busy_s = 0.0

    def take(self, call: Call, user: str | None, most: int | None) -> None:
        """Take a place until the call ends or is given up; the user may have ``most``.

        Raises:
            Overloaded: none came free within ``wait_s``, or too many wait already.
            Cancelled: the client left while waiting.
        """
        call.cancellation.check()
        self._note(user)
        if not self._take_at_once(user, most):
            self._wait(call, user, most)
        with self._lock:
            self._holders[user].add(call)
        place = _Place(lambda busy_s: self._release(call, user, busy_s))
        call.resources.callback(place.leave)
        # A client that does not read keeps its call, but not its place.
        call.resources.enter_context(call.cancellation.interrupting(place.leave))

    def _take_at_once(self, user: str | None, most: int | None) -> bool:
        """Take a place where nobody waits for one, which is nearly always."""
        with self._lock:
            in_use = self._in_use
            if self._waiting or in_use.total() >= self._count:
                return False
            if not self._may_take(user, most):
                return False
            in_use[user] += 1
            return True

    def _may_take(self, user: str | None, most: int | None) -> bool:
        own = self._in_use[user]
        if most is not None:
            return own < most
        if not has_share(own, self._in_use.total(), self._count):
            return False
        if own < self._first or not self._has_others(user):
            return True
        at_work = own - sum(call.awaits_client for call in self._holders[user])
        return at_work < self._at_work.get(user, self._first)

    def _note(self, user: str | None) -> None:
        with self._lock:
            self._came_s[user] = time.monotonic()
            self._came_s.move_to_end(user)
            if len(self._came_s) > _MAX_USERS:
                gone, _ = self._came_s.popitem(last=False)
                self._at_work.pop(gone, None)

    def _has_others(self, user: str | None) -> bool:
        since_s = time.monotonic() - _GONE_S
        latest = itertools.islice(reversed(self._came_s.items()), 2)
        return any(other != user and came_s > since_s for other, came_s in latest)

    def _displace(self, user: str | None) -> bool:
        """Drop the newest waiting statement of the user with most of them; False if ``user`` has as many."""
        waiting = Counter(waiter.user for waiter in self._waiting)
        largest, count = waiting.most_common(1)[0]
        if count <= waiting[user]:
            return False
        last = next(waiter for waiter in reversed(self._waiting) if waiter.user == largest)
        self._leave_queue(last)
        last.is_displaced = True
        last.woken.set()
        return True

    def _wait(self, call: Call, user: str | None, most: int | None) -> None:
        waiting = _Waiting(user, most)
        with self._lock:
            self._waiting.append(waiting)
            self._admit()
            if (
                not waiting.has_place
                and len(self._waiting) > self._max_waiting
                and not self._displace(user)
            ):
                self._leave_queue(waiting)
                raise self._overloaded(
                    f"{self._max_waiting} statements wait for a place already, which is what max_queued allows."
                )
        try:
            with call.cancellation.interrupting(waiting.woken.set):
                self._await_place(call, waiting, time.monotonic() + self._wait_s)
            call.cancellation.check()
        except BaseException:
            self._give_up(waiting)
            raise
        if not self._give_up(waiting, keep=True):
            with self._lock:
                raise self._overloaded(
                    "The queue for a place (max_queued) is full, and most of what waits there is yours."
                    if waiting.is_displaced
                    else self._refusal(user, most)
                )

    def _await_place(self, call: Call, waiting: _Waiting, until: float) -> None:
        """Wait for a place, or until the call is given up or the queue is to be left.

        Only the first looks whether slow readers have left room: two hundred who looked, twice a second, had much of
        Python's lock.
        """
        while (left_s := until - time.monotonic()) > 0:
            with self._lock:
                waiting.woken.clear()
                is_over = waiting.has_place or waiting.is_displaced
                is_first = not is_over and self._waiting[0] is waiting
            if is_over or call.cancellation.reason is not None:
                return
            if not waiting.woken.wait(min(left_s, _LOOK_S) if is_first else left_s):
                with self._lock:
                    self._admit()

    def resize(self, count: int, *, wait_s: float, max_waiting: int) -> None:
        """Change the number of places, as running statements end; statements that wait already keep their time limit."""
        with self._lock:
            self._count, self._wait_s, self._max_waiting = count, wait_s, max_waiting
            self._admit()

    @property
    def waiting(self) -> int:
        with self._lock:
            return len(self._waiting)

    def _leave_queue(self, waiting: _Waiting) -> None:
        self._waiting.remove(waiting)
        if self._waiting:
            self._waiting[0].woken.set()

    def _give_up(self, waiting: _Waiting, *, keep: bool = False) -> bool:
        """Leave the queue; a place that was given meanwhile is kept, or goes on to the next. Returns whether."""
        with self._lock:
            if waiting.is_displaced:
                return False
            if not waiting.has_place:
                self._leave_queue(waiting)
            elif not keep:
                self._free(waiting.user)
            return waiting.has_place

    def _release(self, call: Call, user: str | None, busy_s: float) -> None:
        with self._lock:
            self._holders[user].discard(call)
            if not self._holders[user]:
                del self._holders[user]
            at_work = self._at_work.get(user, self._first)
            if busy_s < _QUICK_S:
                self._at_work[user] = min(self._count, at_work + 1)
            elif busy_s > _LONG_S:
                self._at_work[user] = max(self._first, at_work // 2)
            self._busy_s += (busy_s - self._busy_s) * _SMOOTHING
            self._free(user)

    def _free(self, user: str | None) -> None:
        self._in_use[user] -= 1
        if not self._in_use[user]:
            del self._in_use[user]
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._in_use.total() < self._count:
            whose = {(waiter.user, waiter.most) for waiter in self._waiting}
            may = {pair for pair in whose if self._may_take(*pair)}
            able = [waiter for waiter in self._waiting if (waiter.user, waiter.most) in may]
            if not able:
                return
            # Of equals ``min`` takes the first: the one that waits longest.
            chosen = min(able, key=lambda waiter: self._in_use[waiter.user])
            self._leave_queue(chosen)
            self._in_use[chosen.user] += 1
            chosen.has_place = True
            chosen.woken.set()

    def _refusal(self, user: str | None, most: int | None) -> str:
        if most is not None and self._in_use[user] >= most:
            return (
                f"You have {most} statements running, which is what max_streams_per_user allows; none "
                f"ended within {self._wait_s:g} s."
            )
        if most is None and self._in_use.total() < self._count:
            return (
                f"You have {self._in_use[user]} statements running, a share of max_streams that leaves others a place; "
                f"none ended within {self._wait_s:g} s."
            )
        return f"All {self._count} places for running statements (max_streams) were taken for {self._wait_s:g} s."

    def _overloaded(self, why: str) -> Overloaded:
        """Add a retry hint: about how long the statements that wait now will take."""
        turns = 1 + len(self._waiting) / self._count
        retry_s = min(_MAX_RETRY_S, max(1, math.ceil(self._busy_s * turns)))
        return Overloaded(f"{why} Retry in about {retry_s} s.", retry_after_s=retry_s)


class Rate:
    """A token bucket for each user. Thread-safe."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._lock = threading.Lock()
        # User -> (what was left, when, when it is full again).
        self._buckets: dict[str | None, tuple[float, float, float]] = {}

    def spend(self, user: str | None, per_s: float | None) -> None:
        """Count one call.

        Raises:
            Overloaded: too many in too short a time.
        """
        if per_s is None:
            return
        burst = max(1.0, 2 * per_s)
        now_s = self._clock_s()
        with self._lock:
            left, then_s, _ = self._buckets.get(user, (burst, now_s, 0.0))
            left = min(burst, left + (now_s - then_s) * per_s)
            if left < 1:
                raise Overloaded(
                    f"You made more than {per_s:g} calls in a second. Slow down, or raise "
                    f"max_calls_per_s_per_user."
                )
            self._buckets[user] = (left - 1, now_s, now_s + (burst - left + 1) / per_s)
            if len(self._buckets) > _MAX_BUCKETS:
                self._buckets = {
                    owner: bucket
                    for owner, bucket in self._buckets.items()
                    if bucket[2] > now_s
                }
