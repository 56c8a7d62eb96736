"""Where logs start and end, measured for statements: one round for all who wait, and the rounds that were."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from cachetools import FIFOCache

from connectors.iceberg.refreshed_value import again
from planner.errors import FederationError
from planner.seam.cut import LogBounds

#: Sets of topics whose last round is kept.
MAX_ROUNDS = 64
#: How long a statement waits for a round of others, in seconds. Brokers are faster, or far away, or they hang.
PATIENCE_S = 0.1


class Measures(Protocol):
    """The part of ``planner.ports.Log`` that cuts need."""

    def measure(self, topics: Sequence[str]) -> Mapping[str, LogBounds]: ...


@dataclass(frozen=True, slots=True)
class MeasuredBounds:
    """One round of measuring. Every record committed before ``requested_at`` (monotonic) is within its bounds."""

    bounds: Mapping[str, LogBounds]
    requested_at: float


@dataclass(slots=True, eq=False)
class _Round:
    """A round that others wait for. It begins when the one before it ends, and the first who waits leads it."""

    waiting: list[threading.Event] = field(default_factory=list)
    is_over: bool = False
    bounds: Mapping[str, LogBounds] | None = None
    error: FederationError | None = None


class BoundsCache:
    """Measures logs and remembers the rounds, for statements that accept an older answer. Thread-safe.

    Who asks for topics that are being measured shares the next round with all others who do: it begins after each of them
    asked. Other topics are measured apart, as their brokers may be others.
    """

    def __init__(self, log: Measures, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._lock = threading.Lock()
        self._rounds: FIFOCache[frozenset[str], MeasuredBounds] = FIFOCache(MAX_ROUNDS)
        #: The next round of topics that are being measured.
        self._next: dict[frozenset[str], _Round] = {}

    def measure(self, topics: Sequence[str]) -> Mapping[str, LogBounds]:
        """Return bounds with all that was committed before the call. Raises as ``planner.ports.Log.measure``."""
        key, woken = frozenset(topics), threading.Event()
        with self._lock:
            shared = self._next.get(key)
            if shared is None:
                self._next[key] = _Round()
            else:
                shared.waiting.append(woken)
        if shared is None:
            return self._lead(topics, _Round())
        if not (woken.wait(PATIENCE_S) or self._stays(shared, woken)):
            return self._measured(topics)
        if not shared.is_over:
            return self._lead(topics, shared)
        if shared.error is not None:
            raise again(shared.error) from shared.error
        # Of an error of ours nothing is said to others.
        return self._measured(topics) if shared.bounds is None else shared.bounds

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

    def _stays(self, shared: _Round, woken: threading.Event) -> bool:
        """Leave a round that does not come; True: it has just begun or ended."""
        with self._lock:
            if woken not in shared.waiting:
                return True
            shared.waiting.remove(woken)
            return False

    def _lead(self, topics: Sequence[str], led: _Round) -> Mapping[str, LogBounds]:
        """Measure for all who wait for this round; then the first who waits for the next one leads that."""
        try:
            led.bounds = self._measured(topics)
        except FederationError as error:
            led.error = error
            raise
        finally:
            key = frozenset(topics)
            with self._lock:
                led.is_over = True
                woken, led.waiting = led.waiting, []
                if (following := self._next.pop(key)).waiting:
                    self._next[key] = _Round()
                    woken.append(following.waiting.pop(0))
            for event in woken:
                event.set()
        return led.bounds

    def _measured(self, topics: Sequence[str]) -> Mapping[str, LogBounds]:
        # Read the clock before sending: the answer is no older than this.
        requested_at = self._clock()
        bounds = self._log.measure(topics)
        with self._lock:
            self._rounds[frozenset(topics)] = MeasuredBounds(bounds, requested_at)
        return bounds
