"""A tierer's state of one table between rounds, and the lag by a measurement of its log."""

from __future__ import annotations

from dataclasses import dataclass, field

from connectors.jobs.backoff import Failing
from connectors.jobs.round import RoundResult
from planner.errors import FederationError
from planner.names import TableName
from planner.offsets import OffsetRange
from planner.ports import Log, TieringTarget, TopicSource
from planner.seam.binding import Binding
from planner.seam.cut import LogBounds, Pin
from planner.tiering.schedule import Backfill
from planner.tiering.triggers import (
    ColdSurvey,
    Lag,
    LogRetention,
    Trigger,
    decide,
    measure_lag,
)

#: Records sampled per partition to learn their size; and the estimate when none is readable.
_SAMPLE_OFFSETS = 100
_SAMPLE_PARTITIONS = 4
_GUESSED_BYTES = 200.0
_SAMPLE_TIMEOUT_S = 5.0
#: Log starts are compared over this time: retention removes whole segments, with long pauses.
_PACE_S = 60.0


@dataclass
class TieringState:
    """One table. ``pin`` and ``survey`` may be out of date until ``fresh_until_s``; afterwards they are read again, and
    ``retention`` after ``retention_fresh_until_s``.

    ``caught_up_at_s`` is the last time that the log's end was, or must have been, at the watermark, in seconds since 1970;
    all other times are of the service's own clock.
    """

    name: TableName
    target: TieringTarget
    pin: Pin | None = None
    survey: ColdSurvey = field(default_factory=ColdSurvey)
    retention: LogRetention = field(default_factory=LogRetention)
    fresh_until_s: float = 0.0
    retention_fresh_until_s: float = 0.0
    caught_up_at_s: float = 0.0
    bytes_per_offset: float = 0.0
    failing: Failing = field(default_factory=Failing)
    #: Whether the last failure was a round's: a successful measurement then proves nothing.
    round_failed: bool = False
    next_try_s: float = 0.0
    _earlier: LogBounds | None = None
    _earlier_s: float = 0.0
    _backfill_from_s: float | None = None
    _backfilled: int = 0

    @property
    def pinned(self) -> Pin:
        if self.pin is None:
            raise AssertionError
        return self.pin

    @property
    def binding(self) -> Binding:
        binding = self.pinned.binding
        if binding is None:
            raise AssertionError
        return binding

    def lag(
        self, log: Log, pin: Pin, bounds: LogBounds, *, clock_s: float, now_s: float
    ) -> Lag:
        """Turn a measurement into the table's lag.

        Raises:
            TailGap, LogTruncated, TopicRecreated, ClusterChanged: as ``measure_lag``.
        """
        if not self.bytes_per_offset:
            self.bytes_per_offset = sampled_bytes(log, bounds) or _GUESSED_BYTES
        if not self.caught_up_at_s:
            # Without a time of the last publish, the lag counts as new.
            published_at_s = self.survey.published_at_s
            self.caught_up_at_s = now_s if published_at_s is None else published_at_s
        lag = measure_lag(
            pin,
            bounds,
            self.survey,
            bytes_per_offset=self.bytes_per_offset,
            # Clocks of other machines may be ahead.
            age_s=max(0.0, now_s - max(self.survey.published_at_s or 0.0, self.caught_up_at_s)),
            retention=self.retention,
            earlier=self._earlier,
            elapsed_s=clock_s - self._earlier_s,
        )
        if not lag.rows:
            self.caught_up_at_s = now_s
        if self._earlier is None or clock_s - self._earlier_s >= _PACE_S:
            self._earlier, self._earlier_s = bounds, clock_s
        return lag

    def due(self, lag: Lag, binding: Binding) -> Trigger | None:
        return decide(lag, self.survey, binding, self.retention)

    def published(self, done: RoundResult, clock_s: float) -> Backfill | None:
        """Learn from a publish; return the progress of a table that was more than one publish behind."""
        if done.plan.offsets:
            self.bytes_per_offset = done.log_bytes / done.plan.offsets
        if self._backfill_from_s is None:
            if not done.lag:
                return None
            self._backfill_from_s = clock_s - done.stage_s - done.publish_s
            self._backfilled = 0
        self._backfilled += done.plan.offsets
        backfill = Backfill(self._backfilled, done.lag, clock_s - self._backfill_from_s)
        if not done.lag:
            self._backfill_from_s = None
        return backfill


def sampled_bytes(log: Log, bounds: LogBounds) -> float | None:
    """Return the mean size of a record's value, from a few of the newest; None when none could be read."""
    newest = [
        OffsetRange(
            part.partition, max(part.log_start, part.log_end - _SAMPLE_OFFSETS), part.log_end
        )
        for part in bounds.partitions
        if part.log_end > part.log_start
    ][:_SAMPLE_PARTITIONS]
    size = rows = 0
    try:
        source = TopicSource(bounds.topic, bounds.topic_id)
        for batch in log.fetch(source, newest, timeout_s=_SAMPLE_TIMEOUT_S):
            size += batch.column("kafka_value").nbytes
            rows += batch.num_rows
    except FederationError:
        # The round itself will report what is wrong.
        return None
    return size / rows if rows else None
