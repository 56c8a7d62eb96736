"""How soon a call that failed is answered.

A refusal costs the server as much as a small answer, and takes no share of memory, time or places: whoever made mistakes
as fast as he can had most of Python's lock (eight threads with forged messages: others waited four times as long as alone).
So each user is told only so many failures a second. Further ones wait, each for a second at most; what succeeds never
does, nor does anything of others.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

#: Failures a second of one user that are told at once, and for how many seconds' worth of them in a row.
PER_S, BURST_S = 20.0, 5.0
#: No failure waits longer, however many there are.
MAX_PAUSE_S = 1.0
#: Who failed longest ago is forgotten first.
_MAX_OWNERS = 10_000


class Failures:
    """Counts the failures of each owner. Thread-safe."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._lock = threading.Lock()
        #: When the next failure of each would be told, were there no burst. Who failed last is at the end.
        self._due_s: OrderedDict[Hashable, float] = OrderedDict()

    def pause_s(self, owner: Hashable, per_s: float | None = PER_S) -> float:
        """Count a failure; return for how many seconds it is not told yet. 0 without a limit.

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
