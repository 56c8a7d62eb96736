"""Who gets the next slot of what all users share: decided in one way, for calls, logins, loads, planning and streams.

No user takes the last slot: each may have ``_SHARE`` times as many as are free. So a single user gets most of them, each of
many an equal number, and a user who has none gets one as long as any is free. Nothing is reserved, and users need
not be counted.

``Slots`` refuses who gets none. In a ``Queue`` he waits: a free slot goes to the owner with the fewest, and of equals to
the one who waits longest. A user who sends hundreds waits for his own, and others pass.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass

from planner.errors import Overloaded
from proxy.session import Cancellation, Deadline

#: One user alone gets three quarters.
_SHARE = 3

#: Characters of a statement from which on it is long.
LONG_CHARS = 4_096
#: Seconds of rest due for a second of planning; how many may be postponed.
_RESTS, _CREDIT_S = 3.0, 3.0
_MAX_REST_S = 10.0
#: How long a user counts as active after a statement.
_ASKING_S = 1.0
#: How often the first of those who wait looks whether a rest is over.
_REST_LOOK_S = 0.1
_NO_TURN = "the statement waited {:g} s for others of yours, of which few are planned at a time; send fewer at once."


def has_share(own: int, in_use: int, total: int) -> bool:
    """Whether a user who has ``own`` of those ``in_use`` may have one more."""
    free = total - in_use
    return free > 0 and own <= _SHARE * free


class Slots:
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
            _take_one(self._in_use, owner)

    @contextlib.contextmanager
    def slot(self, owner: Hashable) -> Iterator[None]:
        """Have one for the time of the block.

        Raises:
            Overloaded: as ``take``.
        """
        self.take(owner)
        try:
            yield
        finally:
            self.leave(owner)


@dataclass(eq=False, slots=True)
class Waiter:
    """One who has a slot of a queue or waits for it, from ``Queue.enter`` to ``Queue.leave``.

    ``wake`` is called when it gets its slot, has to leave or is the first. It must not block. ``number`` is the order of
    arrival. One that ``is_displaced`` had to leave the queue to another owner.
    """

    owner: Hashable
    most: int | None
    wake: Callable[[], None]
    number: int
    has_slot: bool = False
    is_displaced: bool = False


class Queue:
    """At most ``total`` slots at one time, which are waited for. Thread-safe.

    Where ``_may_take`` depends on more than slots that are left, the first who waits looks again each ``look_s``. Only he:
    two hundred who looked twice a second had much of Python's lock.
    """

    def __init__(self, total: int = sys.maxsize, *, look_s: float = math.inf) -> None:
        self._total = total
        self._look_s = look_s
        self._lock = threading.Lock()
        self._in_use: Counter[Hashable] = Counter()
        #: Of each owner in the order they came.
        self._waiting: dict[Hashable, deque[Waiter]] = {}
        self._numbers = itertools.count()

    @property
    def waiting(self) -> int:
        with self._lock:
            return self._count_waiting()

    def enter(self, owner: Hashable, most: int | None, wake: Callable[[], None]) -> Waiter:
        """Take a slot, or begin to wait for one. The owner may have ``most``; None: a share."""
        with self._lock:
            return self._enter(owner, most, wake)

    def leave(self, waiter: Waiter) -> None:
        """Free the slot of ``waiter``, or have it wait no more."""
        with self._lock:
            self._end(waiter)

    def wait(
        self, waiter: Waiter, woken: threading.Event, cancelling: Cancellation, until_s: float
    ) -> None:
        """Wait until ``waiter``, whose ``wake`` sets ``woken``, has its slot or has to leave, or until a time of ``time.monotonic``.

        Raises:
            FederationError: the call was given up.
        """
        with cancelling.interrupting(woken.set):
            while (left_s := until_s - time.monotonic()) > 0:
                with self._lock:
                    woken.clear()
                    if waiter.has_slot or waiter.is_displaced:
                        break
                    is_first = self._first() is waiter
                cancelling.check()
                if not woken.wait(min(left_s, self._look_s) if is_first else left_s):
                    with self._lock:
                        self._admit()
        cancelling.check()

    def _enter(self, owner: Hashable, most: int | None, wake: Callable[[], None]) -> Waiter:
        waiter = Waiter(owner, most, wake, next(self._numbers))
        if not self._waiting and self._is_free_for(waiter):  # mostly
            self._give(waiter)
            return waiter
        self._waiting.setdefault(owner, deque()).append(waiter)
        self._admit()
        return waiter

    def _is_free_for(self, waiter: Waiter) -> bool:
        return self._in_use.total() < self._total and self._may_take(waiter.owner, waiter.most)

    def _give(self, waiter: Waiter) -> None:
        self._in_use[waiter.owner] += 1
        waiter.has_slot = True
        waiter.wake()

    def _may_take(self, owner: Hashable, most: int | None) -> bool:
        own = self._in_use[owner]
        return has_share(own, self._in_use.total(), self._total) if most is None else own < most

    def _admit(self) -> None:
        """Give out what is free."""
        while self._waiting and self._in_use.total() < self._total:
            heads = [line[0] for line in self._waiting.values()]
            able = [head for head in heads if self._may_take(head.owner, head.most)]
            if not able:
                return
            chosen = min(able, key=lambda waiter: (self._in_use[waiter.owner], waiter.number))
            self._remove(chosen)
            self._give(chosen)

    def _end(self, waiter: Waiter) -> None:
        if waiter.has_slot:
            waiter.has_slot = False
            _take_one(self._in_use, waiter.owner)
            self._admit()
        elif not waiter.is_displaced:
            self._remove(waiter)

    def _remove(self, waiter: Waiter) -> None:
        line = self._waiting[waiter.owner]
        line.remove(waiter)
        if not line:
            del self._waiting[waiter.owner]
        if self._waiting:
            self._first().wake()

    def _first(self) -> Waiter:
        return min((line[0] for line in self._waiting.values()), key=lambda head: head.number)

    def _count_waiting(self) -> int:
        return sum(map(len, self._waiting.values()))


def _take_one(counts: Counter[Hashable], owner: Hashable) -> None:
    counts[owner] -= 1
    if not counts[owner]:
        del counts[owner]


class PlanningQueue(Queue):
    """Lets each user plan one short and one long statement at a time.

    Planning needs the interpreter's lock, which prefers no thread: with nine statements of 100 KB of one user at work,
    others waited for several of them, again and again. In parallel they are no faster.

    A user's long statements may use one second of processor time, then a quarter of the time while other users are active:
    few statements of others are delayed.

    A slot is for steps that compute. A statement that waits for a catalog or a broker has none, so a slow one delays
    only those who need it.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        processor_s: Callable[[], float] = time.thread_time,
    ) -> None:
        """``processor_s`` is the time that the calling thread computed."""
        super().__init__(look_s=_REST_LOOK_S)
        self._clock = clock
        self._processor_s = processor_s
        #: Of each owner: until when its rests would last, had they been taken.
        self._rests: dict[Hashable, float] = {}
        #: The last user to ask and the one before, with their times.
        self._latest: list[tuple[Hashable, float]] = []

    @contextlib.contextmanager
    def slot(self, user: Hashable, sql: str, deadline: Deadline) -> Iterator[None]:
        """Do the block while no other of the user's statements is in one: of the long ones if this is long, else of the short ones.

        Raises:
            FederationError: the call was given up, or its time was over before it had a slot.
        """
        owner = user, len(sql) >= LONG_CHARS
        woken = threading.Event()
        with self._lock:
            others = [latest for latest in self._latest if latest[0] != user]
            self._latest = [(user, self._clock()), *others[:1]]
            waiter = self._enter(owner, 1, woken.set)
        try:
            if not waiter.has_slot:
                until_s = time.monotonic() + deadline.left_s
                with deadline.waiting("turn"):
                    self.wait(waiter, woken, deadline.cancellation, until_s)
            if not waiter.has_slot:
                raise deadline.exceeded(_NO_TURN)
            began_s = self._processor_s()
            try:
                yield
            finally:
                if owner[1]:
                    self._rest(owner, self._processor_s() - began_s)
        finally:
            self.leave(waiter)

    def _may_take(self, owner: Hashable, most: int | None) -> bool:
        return super()._may_take(owner, most) and not self._has_to_rest(owner)

    def _rest(self, owner: Hashable, took_s: float) -> None:
        with self._lock:
            now = self._clock()
            self._rests = {each: until for each, until in self._rests.items() if until > now}
            until = self._rests.get(owner, now) + _RESTS * took_s
            self._rests[owner] = min(until, now + _CREDIT_S + _MAX_REST_S)

    def _has_to_rest(self, owner: Hashable) -> bool:
        """Whether the next slot of ``owner`` has to wait for the time of others, who ask."""
        if owner not in self._rests:
            return False
        now = self._clock()
        return now + _CREDIT_S < self._rests[owner] and any(
            (user, True) != owner and now < at + _ASKING_S for user, at in self._latest
        )
