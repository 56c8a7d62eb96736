"""Packs tails while little arrives, so that nobody waits for a core."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from weakref import WeakKeyDictionary

from planner.errors import FederationError
from proxy.tail.generations import Generation

_log = logging.getLogger(__name__)

#: Rows/s. A tail that grows faster is packed afterwards: a fifth of what a follower reaches on one core.
_LITTLE_ROWS_PER_S = 20_000
#: Pause after memory ran out.
_PAUSE_S = 30.0


class Packing:
    """Packs the full segments of tails. One thread calls ``work``, any may call ``stop``."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._stopped = threading.Event()
        #: Where each tail ended at the last look, and when that was.
        self._last_ends: WeakKeyDictionary[Generation, tuple[int, float]] = WeakKeyDictionary()

    def work(self, tails: Iterable[Generation]) -> None:
        """Pack all that is full, but no tail that is growing: it waits for a later call."""
        for generation in tails:
            while not self._stopped.is_set() and self._is_calm(generation):
                if generation.writing.acquire(blocking=False):
                    try:
                        generation.close_last()
                    finally:
                        generation.writing.release()
                if not self._packed(generation):
                    break

    def stop(self) -> None:
        """Pack nothing more after the segment under way."""
        self._stopped.set()

    def _is_calm(self, generation: Generation) -> bool:
        """Whether few rows were added since the last look; False at the first."""
        now, end = self._clock(), sum(generation.stops().values())
        before, at = self._last_ends.get(generation, (None, now))
        if now < at:
            return False  # it is paused
        self._last_ends[generation] = (end, now)
        if before is None or generation.writing.locked():
            return False
        return end - before <= _LITTLE_ROWS_PER_S * max(now - at, 1.0)

    def _packed(self, generation: Generation) -> bool:
        try:
            return generation.pack()
        except FederationError as error:
            _log.info(
                "the tail of %s is not packed for now: %s", generation.table, error.message
            )
            self._last_ends[generation] = (0, self._clock() + _PAUSE_S)
            return False
