"""Lets each user plan one short and one long statement at a time; others wait, up to their own deadlines.

Planning needs the interpreter's lock, which prefers no thread: with nine statements of 100 KB of one user at work,
others waited for several of them, again and again. In parallel they are no faster.

A user's long statements may use one second of processor time, then a quarter of the time while other users are active:
few statements of others are delayed.

A turn is for steps that compute. A statement that waits for a catalog or a broker holds none, so a slow one delays
only those who need it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field

from proxy.deadline import Deadline
from proxy.session import Session

#: Characters of a statement from which on it is long.
LONG_CHARS = 4_096
_LOOK_S = 0.1
#: Seconds of rest due for a second of planning; how many may be postponed.
_RESTS, _CREDIT_S = 3.0, 3.0
_MAX_REST_S = 10.0
#: How long a user counts as active after a statement.
_ASKING_S = 1.0
_NO_TURN = "the statement waited {:g} s for others of yours, of which few are planned at a time; send fewer at once."

_Key = tuple[Hashable, bool]


@dataclass(slots=True, eq=False)
class _Turn:
    """Statements of one user: whether one is in a turn, and those that wait, in the order they came."""

    is_busy: bool = False
    waiting: deque[threading.Event] = field(default_factory=deque)


@dataclass(eq=False)
class Turns:
    """Thread-safe. ``processor_s`` is the time that the calling thread computed."""

    clock: Callable[[], float] = time.monotonic
    processor_s: Callable[[], float] = time.thread_time

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        #: By owner, and whether the statements are long.
        self._turns: dict[_Key, _Turn] = {}
        #: Until when the rests of each would last, had they been taken.
        self._rests: dict[_Key, float] = {}
        #: The last user to ask and the one before, with their times.
        self._latest: list[tuple[Hashable, float]] = []

    @contextlib.contextmanager
    def one(self, session: Session, sql: str, deadline: Deadline) -> Iterator[None]:
        """Do the block when no other statement of the session's user is in one: no long one if this is long, else no short one.

        Raises:
            FederationError: the call was given up, or its time was over before its turn.
        """
        # Nobody is to be spared from anonymous callers but one another.
        owner = session.user or (session.id,)
        key = owner, len(sql) >= LONG_CHARS
        with self._lock:
            turn = self._turns.setdefault(key, _Turn())
            others = [latest for latest in self._latest if latest[0] != owner]
            self._latest = [(owner, self.clock()), *others[:1]]
            woken = None
            if turn.waiting or not self._begins(key, turn):
                woken = threading.Event()
                turn.waiting.append(woken)
        if woken is not None:
            self._wait(key, turn, woken, deadline)
        began_s = self.processor_s()
        try:
            yield
        finally:
            took_s = self.processor_s() - began_s
            with self._lock:
                if key[1]:
                    self._rest(key, took_s)
                turn.is_busy = False
                self._leave(key, turn)

    def _begins(self, key: _Key, turn: _Turn) -> bool:
        """Begin the next turn, unless one runs or a rest is due."""
        if turn.is_busy or self._rests_for(key):
            return False
        turn.is_busy = True
        return True

    def _wait(self, key: _Key, turn: _Turn, woken: threading.Event, deadline: Deadline) -> None:
        # Only the first in the queue polls the clock: 200 polling threads would delay everybody else.
        try:
            with deadline.cancellation.interrupting(woken.set):
                while True:
                    with self._lock:
                        woken.clear()
                        is_next = turn.waiting[0] is woken
                        if is_next and self._begins(key, turn):
                            turn.waiting.popleft()
                            return
                        rests = is_next and not turn.is_busy
                    deadline.check(_NO_TURN)
                    woken.wait(min(deadline.left_s, _LOOK_S) if rests else deadline.left_s)
        except BaseException:
            with self._lock:
                turn.waiting.remove(woken)
                self._leave(key, turn)
            raise

    def _leave(self, key: _Key, turn: _Turn) -> None:
        if not turn.is_busy and not turn.waiting:
            del self._turns[key]
        elif not turn.is_busy:
            turn.waiting[0].set()  # the next one looks again

    def _rest(self, key: _Key, took_s: float) -> None:
        now = self.clock()
        self._rests = {each: until for each, until in self._rests.items() if until > now}
        until = self._rests.get(key, now) + _RESTS * took_s
        self._rests[key] = min(until, now + _CREDIT_S + _MAX_REST_S)

    def _rests_for(self, key: _Key) -> bool:
        """Whether the next turn of ``key`` has to wait for the time of others, who ask."""
        now = self.clock()
        return now + _CREDIT_S < self._rests.get(key, now) and any(
            owner != key[0] and now < at + _ASKING_S for owner, at in self._latest
        )
