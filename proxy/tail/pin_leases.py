"""Which watermarks statements still use: rows above the lowest of them stay."""

from __future__ import annotations

from planner.offsets import OffsetVector
from planner.watermark import Watermark


class PinsInUse:
    """The watermarks of one table seen in the last ``keep_s`` seconds, and always the last one seen.

    Tiering replaces a pin, but tickets planned with it are still to be opened. One thread at a time may note, any may
    read.
    """

    def __init__(self, keep_s: float) -> None:
        self._keep_s = keep_s
        self._used_at: dict[OffsetVector, float] = {}
        self._lowest: dict[int, int] = {}

    def note(self, watermark: Watermark, now: float) -> None:
        """Note a pin in use; ``now`` is a monotonic time."""
        self._used_at.pop(watermark.next, None)
        self._used_at = {
            used: at for used, at in self._used_at.items() if now - at < self._keep_s
        } | {watermark.next: now}
        first, *others = map(OffsetVector.as_dict, self._used_at)
        # A partition that is not in a watermark is newer: all of it is needed.
        self._lowest = {
            partition: min(offset, *(other.get(partition, 0) for other in others))
            if others
            else offset
            for partition, offset in first.items()
        }

    def offset(self, partition: int) -> int:
        """First offset a cut of these pins can need."""
        return self._lowest.get(partition, 0)
