"""Compare the ranges of one fetch with the log's bounds, before and after reading them."""

from __future__ import annotations

import time
from collections.abc import Sequence

from connectors.kafka.bounds import BoundsReader
from planner.errors import LogTruncated
from planner.offsets import OffsetRange
from planner.ports import TopicSource
from planner.seam.cut import LogBounds
from planner.seam.range_check import check_ranges

# How long an end below a range's stop may be the old answer of a replica before it counts as truncation.
_STALE_END_S = 0.5
_PAUSE_S = 0.05
# The check after reading gets this much even when reading used up the deadline.
_MIN_CHECK_S = 0.5


class Guard:
    """One fetch's view of the log. The first round is sent at once and read later."""

    def __init__(
        self,
        bounds: BoundsReader,
        source: TopicSource,
        ranges: Sequence[OffsetRange],
        *,
        timeout_s: float,
    ) -> None:
        self._bounds = bounds
        self._topic = source.topic
        self._ranges = ranges
        self._topic_id = source.topic_id
        self._checked = False
        self._first = bounds.begin([self._topic], deadline=time.monotonic() + timeout_s)

    def check_before(self) -> None:
        """Check the round sent at the start; only the first call does anything.

        Raises:
            OffsetsExpired, LogTruncated, TopicRecreated: the log cannot give these ranges.
            UnknownTopic, LogUnavailable: see ``planner.ports.Log.measure``.
        """
        if not self._checked:
            self._check(self._bounds.settle(self._first)[self._topic])
            self._checked = True

    def check_again(self, timeout_s: float) -> None:
        """Measure and check anew. Raises as ``check_before``."""
        deadline = time.monotonic() + max(timeout_s, _MIN_CHECK_S)
        self._check(self._bounds.measure([self._topic], deadline=deadline)[self._topic])
        self._checked = True

    def _check(self, bounds: LogBounds) -> None:
        self._topic_id = self._topic_id or bounds.topic_id
        stale_until = time.monotonic() + _STALE_END_S
        while True:
            try:
                return check_ranges(bounds, self._ranges, self._topic_id)
            except LogTruncated:
                if time.monotonic() >= stale_until:
                    raise
            time.sleep(_PAUSE_S)
            again = self._bounds.measure([self._topic], deadline=stale_until + _MIN_CHECK_S)
            bounds = again[self._topic]
