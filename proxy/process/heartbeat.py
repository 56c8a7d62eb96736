"""Decides when to replace a process that does not answer, from what its supervisor saw."""

from __future__ import annotations

#: A process that has answered before and is silent for this long is replaced.
MAX_SILENCE_S = 10.0
#: A supervisor whose look comes this much late was not running itself: the machine was paused or is overloaded.
MAX_LATENESS_S = 1.0


class Heartbeat:
    """The answers of one process. Times are of one monotonic clock, in seconds."""

    def __init__(
        self, *, began_s: float, interval_s: float, max_silence_s: float = MAX_SILENCE_S
    ) -> None:
        """``interval_s`` is the intended time between two calls of ``look``."""
        self._max_silence_s = max_silence_s
        self._interval_s = interval_s
        self._looked_s = began_s
        self._silent_since_s = began_s
        self._answers = False

    def look(self, now_s: float, *, answered: bool) -> bool:
        """Note whether an answer came since the last look; return whether to replace the process.

        A process that has never answered is starting. A late look begins the silence anew: the process may not have run
        either.
        """
        if answered:
            self._answers = True
        if answered or now_s - self._looked_s > self._interval_s + MAX_LATENESS_S:
            self._silent_since_s = now_s
        self._looked_s = now_s
        return self._answers and now_s - self._silent_since_s >= self._max_silence_s
