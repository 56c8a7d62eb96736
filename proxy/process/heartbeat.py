"""When a process that does not answer is to be replaced: decided by what its supervisor saw, and when."""

from __future__ import annotations

#: A process that has answered before and is silent for so long answers nobody.
MAX_SILENCE_S = 10.0
#: Who looks so much later than he meant to was not running himself: a machine was paused, or has no processor left.
MAX_LATENESS_S = 1.0


class Heartbeat:
    """The answers of one process. Times are of one monotonic clock, in seconds."""

    def __init__(
        self, *, began_s: float, interval_s: float, max_silence_s: float = MAX_SILENCE_S
    ) -> None:
        """``interval_s`` is how often somebody means to ``look``."""
        self._max_silence_s = max_silence_s
        self._interval_s = interval_s
        self._looked_s = began_s
        self._silent_since_s = began_s
        self._answers = False

    def look(self, now_s: float, *, answered: bool) -> bool:
        """Note whether an answer came since the last look; return whether the process is to be replaced.

        One that has not answered yet is starting. A look that comes late begins the silence anew: the process may not
        have run either.
        """
        if answered:
            self._answers = True
        if answered or now_s - self._looked_s > self._interval_s + MAX_LATENESS_S:
            self._silent_since_s = now_s
        self._looked_s = now_s
        return self._answers and now_s - self._silent_since_s >= self._max_silence_s
