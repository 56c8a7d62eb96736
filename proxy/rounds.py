"""What logs were measured lately: for statements that may be answered as of then."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from planner.cut import LogBounds
from planner.ports import Log

#: Sets of topics whose last round is kept.
MAX_ROUNDS = 64


@dataclass(frozen=True, slots=True)
class Round:
    """One round of measuring. Every record committed before ``asked_at`` (monotonic) is within its bounds."""

    bounds: Mapping[str, LogBounds]
    asked_at: float


class Rounds:
    """Measures logs and remembers the rounds. Thread-safe."""

    def __init__(self, log: Log, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._lock = threading.Lock()
        self._held: OrderedDict[frozenset[str], Round] = OrderedDict()

    def measure(self, topics: Sequence[str]) -> Mapping[str, LogBounds]:
        """As ``planner.ports.Log.measure``."""
        # Taken before the question is sent: what is answered is no older than this.
        asked_at = self._clock()
        bounds = self._log.measure(topics)
        key = frozenset(topics)
        with self._lock:
            self._held[key] = Round(bounds, asked_at)
            self._held.move_to_end(key)
            while len(self._held) > MAX_ROUNDS:
                self._held.popitem(last=False)
        return bounds

    def remembered(self, topics: Sequence[str], max_age_s: float) -> Round | None:
        """Return the newest round that measured all of these topics together, if it is young enough."""
        wanted, oldest = set(topics), self._clock() - max_age_s
        with self._lock:
            held = [found for key, found in self._held.items() if wanted <= key]
        newest = max(held, key=lambda found: found.asked_at, default=None)
        return newest if newest is not None and newest.asked_at >= oldest else None

    def age_s(self, found: Round) -> float:
        return self._clock() - found.asked_at

    def forget(self) -> None:
        """Measure anew whatever is asked next: what was remembered turned out to be gone."""
        with self._lock:
            self._held.clear()
