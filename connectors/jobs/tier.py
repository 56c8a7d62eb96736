"""Tiers each table of a loop: measures its log, decides whether it is due, and publishes what one round moves."""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

from connectors.jobs import events
from connectors.jobs.loop import JobTable, TableLoop
from connectors.jobs.round import RoundResult, not_bound, tier_once
from planner.errors import FederationError, StalePlan, TombstonesExpired
from planner.evolution.changes import Evolving
from planner.names import TableName, by_cluster
from planner.offsets import OffsetRange, OffsetVector
from planner.ports import Log, Staged, TieringTarget, TopicSource
from planner.seam.binding import Binding
from planner.seam.cut import LogBounds, Pin, check_log, check_topic
from planner.tiering.plan import TieringBudget
from planner.tiering.schedule import Backfill
from planner.tiering.triggers import ColdSurvey, Lag, LogRetention, Trigger, decide, measure_lag

#: After a conflict another tierer has advanced the watermark: continue from there at once.
CONFLICT_ATTEMPTS = 5
#: Topics seldom change their settings: they are read once in this many reads of the tables.
_READS_PER_RETENTION = 10
#: Records of the first publish of a long ``drain``: the first rows are visible soon after Spark has started.
_START_ROWS = 1_000_000
#: Why ``drain`` publishes.
_DRAIN = Trigger("age", 1.0)
#: Records sampled per partition to learn their size; and the estimate when none is readable.
_SAMPLE_OFFSETS = 100
_SAMPLE_PARTITIONS = 4
_GUESSED_BYTES = 200.0
_SAMPLE_TIMEOUT_S = 5.0
#: Records are counted up to so many, where a cleaner may have removed some.
_COUNTED_OFFSETS, _COUNT_TIMEOUT_S = 1_000_000, 30.0
#: Log starts are compared over this time: retention removes whole segments, with long pauses.
_PACE_S = 60.0

IsDue = Callable[[Pin, LogBounds], bool]


@dataclass(kw_only=True, eq=False)
class TieringTable(JobTable):
    """``pin`` and ``survey`` are read again with the table's facts, ``retention`` after ``retention_fresh_until_s``.

    ``caught_up_at_s`` is the last time that the log's end was, or must have been, at the watermark, in seconds since 1970;
    all other times are of the loop's clock.
    """

    target: TieringTarget
    pin: Pin | None = None
    survey: ColdSurvey = field(default_factory=ColdSurvey)
    retention: LogRetention = field(default_factory=LogRetention)
    retention_fresh_until_s: float = 0.0
    caught_up_at_s: float = 0.0
    bytes_per_offset: float = 0.0
    #: Why it was last due.
    trigger: Trigger | None = None
    #: Why nothing is published but what has a record at each offset.
    unproven: TombstonesExpired | None = None
    #: Why new schemas could not be taken up, as it was told.
    not_followed: str | None = None
    #: Of a keyed table: the watermark that the log ended at.
    _caught_up: OffsetVector | None = None
    _earlier: LogBounds | None = None
    _earlier_s: float = 0.0
    _backfill_from_s: float | None = None
    _backfilled: int = 0

    @property
    def pinned(self) -> Pin:
        assert self.pin is not None  # noqa: S101 - it was read
        return self.pin

    @property
    def binding(self) -> Binding:
        assert self.pinned.binding is not None  # noqa: S101 - as ``TieringJob.read`` checks
        return self.pinned.binding

    def lag(
        self, log: Log, pin: Pin, bounds: LogBounds, *, clock_s: float, now_s: float
    ) -> Lag:
        """Turn a measurement into the table's lag.

        Raises:
            TombstonesExpired, TailGap, LogTruncated, TopicRecreated, ClusterChanged: as ``measure_lag``.
        """
        if not self.bytes_per_offset:
            self.bytes_per_offset = sampled_bytes(log, bounds) or _GUESSED_BYTES
        published_s, mark = self.survey.published_at_s, pin.watermark
        if mark is not None and mark.mode == "upsert":
            # What waits since an earlier publish may have deletes of then, also after a rollback to that.
            published_s = mark.published_s
            if mark.next != self._caught_up:
                self._caught_up, self.caught_up_at_s = mark.next, 0.0
        if not self.caught_up_at_s:
            # Without a time of the last publish, the lag counts as new.
            self.caught_up_at_s = now_s if published_s is None else published_s
        measured = partial(
            measure_lag,
            *(pin, bounds, self.survey),
            bytes_per_offset=self.bytes_per_offset,
            # Clocks of other machines may be ahead.
            age_s=max(0.0, now_s - max(published_s or 0.0, self.caught_up_at_s)),
        )
        elapsed_s = clock_s - self._earlier_s
        retention = replace(self.retention, earlier=self._earlier, elapsed_s=elapsed_s)
        self.unproven = None
        try:
            lag = measured(retention)
        except TombstonesExpired as error:
            if not has_every_record(log, pin, bounds):
                raise
            self.unproven = error
            lag = measured(replace(retention, deletes_s=math.inf))
        if not lag.rows:
            self.caught_up_at_s = now_s
        if self._earlier is None or clock_s - self._earlier_s >= _PACE_S:
            self._earlier, self._earlier_s = bounds, clock_s
        return lag

    def check(self, staged: Staged) -> None:
        """Check that a cleaner removed no delete before it was read, if that may be.

        Raises TombstonesExpired: some offset had no record by then.
        """
        if self.unproven is not None and staged.outcomes.records < staged.plan.offsets:
            raise self.unproven

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


def has_every_record(log: Log, pin: Pin, bounds: LogBounds) -> bool:
    """Whether each untiered offset has a record: then no cleaner removed a delete. Of very many it is not looked at.

    Raises FederationError: as ``Log.fetch`` and ``check_log``.
    """
    if pin.watermark is None:
        raise ValueError(f"{pin.table} is not bound to a topic")
    untiered = check_log(pin.table, pin.watermark, bounds)
    offsets = sum(map(len, untiered))
    if offsets > _COUNTED_OFFSETS:
        return False
    source = TopicSource(bounds.topic, bounds.topic_id)
    batches = log.fetch(source, untiered, timeout_s=_COUNT_TIMEOUT_S)
    records: int = sum(batch.num_rows for batch in batches)
    return records == offsets


def sampled_bytes(log: Log, bounds: LogBounds) -> float | None:
    """Return the mean size of a record's value, from a few of the newest; None when none could be read."""
    newest = [
        OffsetRange(at.partition, max(at.log_start, at.log_end - _SAMPLE_OFFSETS), at.log_end)
        for at in bounds.partitions
        if at.log_end > at.log_start
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


@dataclass(frozen=True, slots=True)
class RoundLimits:
    """``max_rows`` bounds one publish of one table; ``publish_s`` is about how long one of ``drain`` takes at most."""

    max_rows: int = 8_000_000
    split_rows: int = 500_000
    publish_s: float = 30.0


@dataclass(kw_only=True, eq=False)
class TieringJob:
    """``connectors.jobs.loop.Job`` that tiers.

    ``tables`` lists the bound tables; ``retentions`` says what brokers keep of topics, where they tell. ``adjust`` may
    replace a table's own options. ``follow`` brings new schemas of its writers into a table, every time or now and then (None:
    not now). ``now_s`` is in seconds since 1970.
    """

    name: ClassVar[str] = "tierer"
    outcome: ClassVar[str] = "nothing was published"

    log: Log = field(kw_only=False)
    tables: Callable[[], Iterable[TableName]]
    open_target: Callable[[TableName], TieringTarget]
    limits: RoundLimits = RoundLimits()
    retentions: Callable[[Sequence[str]], Mapping[str, LogRetention]] = lambda _: {}
    adjust: Callable[[ColdSurvey], ColdSurvey] = lambda survey: survey
    follow: Callable[[TableName, Binding], Sequence[Evolving] | None] = lambda *_: None
    now_s: Callable[[], float] = time.time

    def open(self, name: TableName) -> TieringTable:
        return TieringTable(name=name, target=self.open_target(name))

    def read(self, table: TieringTable) -> None:
        pin = table.target.pin()
        if pin.binding is None:
            raise not_bound(table.name)
        if pin.watermark is not None:
            check_topic(table.name, pin.watermark, pin.binding.topic)
        table.survey = self.adjust(table.target.survey())
        table.pin = pin

    def due(
        self, tables: Sequence[TieringTable], loop: TableLoop[TieringTable]
    ) -> Iterator[tuple[TieringTable, Trigger | None]]:
        clock_s = loop.clock()
        for table in tables:
            with loop.guarded(table):
                self._follow(table, loop)
        self._read_retentions(tables, clock_s, loop.limits.refresh_s)
        for table, bounds in self._measured(tables, loop):
            with loop.guarded(table):
                lag = table.lag(
                    self.log, table.pinned, bounds, clock_s=clock_s, now_s=self.now_s()
                )
                loop.tell(events.TableMeasured(table.name, lag, table.binding))
                table.trigger = table.due(lag, table.binding)
                yield table, table.trigger

    def _follow(self, table: TieringTable, loop: TableLoop[TieringTable]) -> None:
        try:
            done = self.follow(table.name, table.binding)
        except FederationError as error:
            if error.message != table.not_followed:
                table.not_followed = error.message
                loop.tell(events.SchemasNotFollowed(table.name, error))
            return
        if done is None:
            return
        table.not_followed = None
        if done:
            # A round begins with the newest facts anyway; these are for the next look.
            table.fresh_until_s = 0.0
            changes = itertools.chain.from_iterable(each.changes for each in done)
            loop.tell(events.TableEvolved(table.name, tuple(changes)))

    def _read_retentions(
        self, tables: Sequence[TieringTable], clock_s: float, refresh_s: float
    ) -> None:
        """Request all topics at once, so silent brokers cost one wait."""
        overdue = [table for table in tables if clock_s >= table.retention_fresh_until_s]
        if not overdue:
            return
        retentions = self.retentions(sorted({table.binding.address for table in overdue}))
        for table in overdue:
            table.retention = retentions.get(table.binding.address, table.retention)
            table.retention_fresh_until_s = clock_s + _READS_PER_RETENTION * refresh_s

    def _measured(
        self, tables: Sequence[TieringTable], loop: TableLoop[TieringTable]
    ) -> list[tuple[TieringTable, LogBounds]]:
        """Measure each cluster in one round; where that fails each topic alone, so that only its own table suffers."""
        bounds: dict[str, LogBounds] = {}
        for topics in by_cluster(sorted({table.binding.address for table in tables})).values():
            with contextlib.suppress(FederationError):
                bounds |= self.log.measure(topics)
        for table in tables:
            topic = table.binding.address
            if topic not in bounds and not loop.stopping:
                with loop.guarded(table):
                    bounds |= self.log.measure([topic])
        addressed = ((table, table.binding.address) for table in tables)
        return [(table, bounds[topic]) for table, topic in addressed if topic in bounds]

    def run(
        self, table: TieringTable, loop: TableLoop[TieringTable]
    ) -> events.RoundPublished | None:
        """Publish once, unless the table is no longer due."""
        trigger = table.trigger or _DRAIN

        def still_due(pin: Pin, bounds: LogBounds) -> bool:
            lag = table.lag(self.log, pin, bounds, clock_s=loop.clock(), now_s=self.now_s())
            return pin.binding is not None and table.due(lag, pin.binding) is not None

        done = self._attempt(table, still_due, self._budget(table), loop)
        if not done.published:
            return None
        backfill = table.published(done, loop.clock())
        return events.RoundPublished(table.name, done, trigger, backfill)

    def drain(self, table: TieringTable, loop: TableLoop[TieringTable]) -> None:
        """Publish until the log's end, as it was when the last round was planned, is reached."""
        table.survey = self.adjust(table.target.survey())
        budget = replace(self._budget(table), start_rows=_START_ROWS)

        def has_all_deletes(pin: Pin, bounds: LogBounds) -> bool:
            """Raise TombstonesExpired if a keyed table may lack some."""
            if pin.binding is not None and pin.binding.upsert is not None:
                address = pin.binding.address
                table.retention = self.retentions([address]).get(address, table.retention)
                table.lag(self.log, pin, bounds, clock_s=loop.clock(), now_s=self.now_s())
            return True

        while True:
            done = self._attempt(table, has_all_deletes, budget, loop)
            if done.published:
                rows = min(self._budget(table).max_rows, done.offsets_in(self.limits.publish_s))
                budget = replace(budget, max_rows=rows, start_rows=None)
                backfill = table.published(done, loop.clock())
                loop.tell(events.RoundPublished(table.name, done, _DRAIN, backfill))
            if loop.stopping or done.lag == 0 or not done.published:
                return

    def cancel(self, table: TieringTable) -> None:
        table.target.cancel()

    def _budget(self, table: TieringTable) -> TieringBudget:
        most = self.limits.max_rows
        rows = min(most, table.survey.options.max_rows or most)
        return TieringBudget(max_rows=rows, split_rows=self.limits.split_rows)

    def _attempt(
        self,
        table: TieringTable,
        is_due: IsDue,
        budget: TieringBudget,
        loop: TableLoop[TieringTable],
    ) -> RoundResult:
        for attempt in itertools.count(1):
            try:
                size = table.bytes_per_offset or 1.0
                return tier_once(
                    *(self.log, table.target, budget),
                    bytes_per_offset=size,
                    is_due=is_due,
                    check=table.check,
                )
            except StalePlan as error:
                loop.tell(events.RoundRefused(table.name, error))
                if attempt >= CONFLICT_ATTEMPTS or loop.stopping:
                    raise
        raise AssertionError
