"""How soon a call that failed is answered.

A refusal costs as much as a small answer and counts against no quota. A user who made mistakes as fast as possible had
most of Python's lock (eight threads with forged messages: others waited four times as long as alone). So each user gets
``PER_S`` failures a second answered at once; further ones wait up to a second each. Successful calls and other users
never wait.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

#: Failures a second of one user that are answered at once, and how many seconds' worth of them in a burst.
PER_S, BURST_S = 20.0, 5.0
#: No failure waits longer, however many there are.
MAX_PAUSE_S = 1.0
#: Beyond this, the owner whose last failure is oldest is forgotten.
_MAX_OWNERS = 10_000


class Failures:
    """Counts the failures of each owner. Thread-safe."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._lock = threading.Lock()
        #: When the next failure of each would be answered, were there no burst; the latest to fail is last.
        self._due_s: OrderedDict[Hashable, float] = OrderedDict()

    def pause_s(self, owner: Hashable, per_s: float | None = PER_S) -> float:
        """Count a failure; return how many seconds to wait before answering it. 0 without a limit.

        A flood leaves no debt: nobody waits for longer than ``MAX_PAUSE_S``.
        """
        if per_s is None:
            return 0.0
        with self._lock:
            now_s = self._clock_s()
            due_s = max(self._due_s.pop(owner, now_s), now_s)
            pause_s = min(max(due_s - now_s - BURST_S, 0.0), MAX_PAUSE_S)
            self._due_s[owner] = min(due_s, now_s + BURST_S + MAX_PAUSE_S) + 1 / per_s
            if len(self._due_s) > _MAX_OWNERS:
                self._due_s.popitem(last=False)
            return pause_s
