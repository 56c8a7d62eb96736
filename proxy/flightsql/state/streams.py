"""Who streams next: slots for statements whose rows are read, so many in all and for each user."""

from __future__ import annotations

import itertools
import math
import os
import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Hashable

from planner.errors import Overloaded
from proxy.access.fairness import Queue, Waiter
from proxy.flightsql.state.calls import Call

#: Longest pause that is recommended, and the weight of the latest in how long slots are in use.
_MAX_RETRY_S, _SMOOTHING = 60, 0.2
#: Statements a user may have at work at first, beside other users. More of them at once are not faster.
FIRST_AT_WORK = max(4, 2 * len(os.sched_getaffinity(0)))
#: A statement shorter than the first raises its user's number at work by one, one longer than the second halves it.
_QUICK_S, _LONG_S = 1.0, 5.0
#: Forget a user this long after the last statement. Remember at most this many.
_GONE_S, _MAX_USERS = 600.0, 1_000
#: How often the first of those who wait looks whether slow readers have left room.
_READER_LOOK_S = 0.5


class StreamQueue(Queue):
    """Slots for statements that stream; ``max_waiting`` further ones wait, each ``wait_s``.

    Of a user's share, as long as others use the server too, only ``first`` may be at work at the same time (not waiting for
    their readers), and more once his statements have turned out to be short: thirty costly ones at once would hold up
    all others, and none of them would be done sooner.
    """

    def __init__(
        self, count: int, *, wait_s: float, max_waiting: int = 256, first: int = FIRST_AT_WORK
    ) -> None:
        super().__init__(count, look_s=_READER_LOOK_S)
        self._wait_s = wait_s
        self._max_waiting = max_waiting
        self._first_at_work = first
        self._at_work: dict[Hashable, int] = {}
        self._holders: defaultdict[Hashable, set[Call]] = defaultdict(set)
        #: When each user came last, the latest at the end.
        self._came_s: OrderedDict[Hashable, float] = OrderedDict()
        #: How long slots were in use lately, for the hint when to retry.
        self._busy_s = 0.0

    def take(self, call: Call, user: str | None, most: int | None) -> None:
        """Take a slot until the call ends or is given up; the user may have ``most``.

        Raises:
            Overloaded: none came free within ``wait_s``, or too many wait already.
            Cancelled: the client left while waiting.
        """
        call.cancellation.check()
        woken = threading.Event()
        with self._lock:
            self._note(user)
            waiter = self._enter(user, most, woken.set)
            if (
                not waiter.has_slot
                and self._count_waiting() > self._max_waiting
                and not self._displace(user)
            ):
                self._end(waiter)
                raise self._overloaded(
                    f"{self._max_waiting} statements wait for a place already, which is what max_queued allows."
                )
        if not waiter.has_slot:
            try:
                self.wait(waiter, woken, call.cancellation, time.monotonic() + self._wait_s)
            except BaseException:
                self.leave(waiter)
                raise
        with self._lock:
            if not waiter.has_slot:
                self._end(waiter)
                raise self._overloaded(self._refusal(waiter))
            self._holders[user].add(call)
        since_s = time.monotonic()

        def leave() -> None:
            with self._lock:
                if waiter.has_slot:
                    self._learn(call, user, time.monotonic() - since_s)
                    self._end(waiter)

        call.resources.callback(leave)
        # A client that does not read keeps its call, but not its slot.
        call.resources.enter_context(call.cancellation.interrupting(leave))

    def resize(self, count: int, *, wait_s: float, max_waiting: int) -> None:
        """Change the number of slots, as running statements end; statements that wait already keep their time limit."""
        with self._lock:
            self._total, self._wait_s, self._max_waiting = count, wait_s, max_waiting
            self._admit()

    def _may_take(self, owner: Hashable, most: int | None) -> bool:
        if not super()._may_take(owner, most):
            return False
        own = self._in_use[owner]
        if most is not None or own < self._first_at_work or not self._has_others(owner):
            return True
        at_work = own - sum(call.awaits_client for call in self._holders[owner])
        return at_work < self._at_work.get(owner, self._first_at_work)

    def _note(self, user: str | None) -> None:
        self._came_s[user] = time.monotonic()
        self._came_s.move_to_end(user)
        if len(self._came_s) > _MAX_USERS:
            gone, _ = self._came_s.popitem(last=False)
            self._at_work.pop(gone, None)

    def _has_others(self, owner: Hashable) -> bool:
        since_s = time.monotonic() - _GONE_S
        latest = itertools.islice(reversed(self._came_s.items()), 2)
        return any(other != owner and came_s > since_s for other, came_s in latest)

    def _displace(self, user: str | None) -> bool:
        """Drop the newest waiting statement of the user with most of them; False if ``user`` has as many."""
        longest = max(self._waiting.values(), key=len)
        if len(longest) <= len(self._waiting[user]):
            return False
        last = longest[-1]
        self._remove(last)
        last.is_displaced = True
        last.wake()
        return True

    def _learn(self, call: Call, user: str | None, busy_s: float) -> None:
        """Note how long a call was busy, for what its user may have at work."""
        self._holders[user].discard(call)
        if not self._holders[user]:
            del self._holders[user]
        at_work = self._at_work.get(user, self._first_at_work)
        if busy_s < _QUICK_S:
            self._at_work[user] = min(self._total, at_work + 1)
        elif busy_s > _LONG_S:
            self._at_work[user] = max(self._first_at_work, at_work // 2)
        self._busy_s += (busy_s - self._busy_s) * _SMOOTHING

    def _refusal(self, waiter: Waiter) -> str:
        own, most = self._in_use[waiter.owner], waiter.most
        if waiter.is_displaced:
            return "The queue for a place (max_queued) is full, and most of what waits there is yours."
        if most is not None and own >= most:
            return (
                f"You have {most} statements running, which is what max_streams_per_user allows; none "
                f"ended within {self._wait_s:g} s."
            )
        if most is None and self._in_use.total() < self._total:
            return (
                f"You have {own} statements running, a share of max_streams that leaves others a place; "
                f"none ended within {self._wait_s:g} s."
            )
        return f"All {self._total} places for running statements (max_streams) were taken for {self._wait_s:g} s."

    def _overloaded(self, why: str) -> Overloaded:
        """Add a retry hint: about how long the statements that wait now will take."""
        rounds = 1 + self._count_waiting() / self._total
        retry_s = min(_MAX_RETRY_S, max(1, math.ceil(self._busy_s * rounds)))
        return Overloaded(f"{why} Retry in about {retry_s} s.", retry_after_s=retry_s)
