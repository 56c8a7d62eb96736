"""How fast a topic is read, for those who wait for the rest of it."""

from __future__ import annotations

from collections import deque

#: Older steps say nothing of now.
_WINDOW_S = 30.0
_STEPS = 64


class ReadingRate:
    """The last steps of one follower. One thread notes them, any may ask. Times are of one monotonic clock."""

    def __init__(self) -> None:
        self._steps: deque[tuple[float, int]] = deque(maxlen=_STEPS)

    def note(self, offsets: int, now_s: float) -> None:
        """Note that ``offsets`` were added just now."""
        self._steps.append((now_s, offsets))

    def per_s(self, now_s: float) -> float | None:
        """Return the offsets added in a second, lately; None where fewer than two steps were taken."""
        steps = [step for step in self._steps.copy() if now_s - step[0] <= _WINDOW_S]
        took_s = steps[-1][0] - steps[0][0] if steps else 0.0
        # What the first one added was read before it.
        return sum(offsets for _, offsets in steps[1:]) / took_s if took_s > 0 else None
