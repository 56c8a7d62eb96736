"""Remembers recent measurements of logs, for statements that accept an older answer."""

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
class MeasuredBounds:
    """One round of measuring. Every record committed before ``requested_at`` (monotonic) is within its bounds."""

    bounds: Mapping[str, LogBounds]
    requested_at: float


class BoundsCache:
    """Measures logs and remembers the rounds. Thread-safe."""

    def __init__(self, log: Log, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._lock = threading.Lock()
        self._rounds: OrderedDict[frozenset[str], MeasuredBounds] = OrderedDict()

    def measure(self, topics: Sequence[str]) -> Mapping[str, LogBounds]:
        """As ``planner.ports.Log.measure``."""
        # Read the clock before sending: the answer is no older than this.
        requested_at = self._clock()
        bounds = self._log.measure(topics)
        key = frozenset(topics)
        with self._lock:
            self._rounds[key] = MeasuredBounds(bounds, requested_at)
            self._rounds.move_to_end(key)
            while len(self._rounds) > MAX_ROUNDS:
                self._rounds.popitem(last=False)
        return bounds

    def remembered(self, topics: Sequence[str], max_age_s: float) -> MeasuredBounds | None:
        """Return the newest round that measured all of these topics together, if it is young enough."""
        needed, oldest = set(topics), self._clock() - max_age_s
        with self._lock:
            candidates = [measured for key, measured in self._rounds.items() if needed <= key]
        newest = max(candidates, key=lambda measured: measured.requested_at, default=None)
        return newest if newest is not None and newest.requested_at >= oldest else None

    def age_s(self, measured: MeasuredBounds) -> float:
        return self._clock() - measured.requested_at

    def forget(self) -> None:
        """Drop all measurements: some of what they name turned out to be gone."""
        with self._lock:
            self._rounds.clear()
