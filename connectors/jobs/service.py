"""Tiers many tables, unattended: measures all, publishes the ones that are due, a bounded number at a time.

A table that fails waits longer each time and stops no other. What the loop knows of a table between rounds may be out
of date: every round pins and decides again.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace

from connectors.jobs import events
from connectors.jobs.backoff import Failing
from connectors.jobs.round import RoundResult, always, not_bound, tier_once
from connectors.jobs.table_state import TieringState
from planner.errors import CatalogUnavailable, FederationError, InternalError, StalePlan
from planner.names import TableName, by_cluster
from planner.ports import Log, TieringTarget
from planner.seam.cut import LogBounds, Pin, check_topic
from planner.tiering.plan import TieringBudget
from planner.tiering.schedule import choose
from planner.tiering.triggers import ColdSurvey, LogRetention, Trigger

#: After a conflict another tierer has advanced the watermark: continue from there at once.
CONFLICT_ATTEMPTS = 5
#: How often the loop checks whether a round has ended or it should stop.
_TICK_S = 0.1
#: Topics seldom change their settings: they are read once in this many reads of the tables.
_READS_PER_RETENTION = 10
#: Records of the first publish of a long ``drain``: the first rows are visible soon after Spark has started.
_START_ROWS = 1_000_000
#: Why ``drain`` publishes.
_DRAIN = Trigger("age", 1.0)

IsDue = Callable[[Pin, LogBounds], bool]


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """``max_rows`` bounds one publish of one table, ``at_once`` the tables worked on at one time.

    ``publish_s`` is about how long a publish of ``drain`` takes at most, by the pace of the one before.
    ``refresh_s`` is the greatest age of a table's facts and of the list of tables. ``stop_s`` is how long a
    stop waits for running rounds before it cancels them; they then have as long again to clean up.
    """

    max_rows: int = 8_000_000
    split_rows: int = 500_000
    at_once: int = 2
    poll_s: float = 2.0
    publish_s: float = 30.0
    refresh_s: float = 60.0
    stop_s: float = 10.0


@dataclass(kw_only=True, eq=False)
class TieringService:
    """Runs in the thread that calls ``run`` or ``drain``, once; rounds run in threads of its own.

    ``discover`` lists the bound tables; ``retentions`` says what brokers keep of topics, where they tell.
    ``adjust`` may replace a table's own options. ``check`` is called before every look and after every failure;
    its errors end the service, because no table can be tiered. ``now_s`` is in seconds since 1970, ``clock`` is
    monotonic.
    """

    log: Log = field(kw_only=False)
    discover: Callable[[], Iterable[TableName]]
    open_target: Callable[[TableName], TieringTarget]
    listeners: Sequence[events.Listener]
    limits: ServiceLimits
    retentions: Callable[[Sequence[str]], Mapping[str, LogRetention]] = lambda _: {}
    adjust: Callable[[ColdSurvey], ColdSurvey] = lambda survey: survey
    check: Callable[[], None] = lambda: None
    clock: Callable[[], float] = time.monotonic
    now_s: Callable[[], float] = time.time
    random_share: Callable[[], float] = random.random

    def __post_init__(self) -> None:
        self._tables: dict[TableName, TieringState] = {}
        self._listed_until_s = 0.0
        self._list_failing = Failing()
        self._running: dict[TableName, tuple[Future[RoundResult], Trigger]] = {}
        self._stopping = False

    def _tell(self, event: events.Event) -> None:
        for listener in self.listeners:
            listener(event)

    def stop(self) -> None:
        """Make ``run`` or ``drain`` end soon. Safe in any thread and in a signal handler: it takes no lock."""
        self._stopping = True

    def run(self) -> None:
        """Tier due tables until ``stop``.

        Raises:
            FederationError: as ``check``.
        """
        look_at_s = self.clock()
        with self._pool() as pool:
            while not self._stopping:
                ended = self._collect()
                clock_s = self.clock()
                if clock_s >= look_at_s or ended:
                    self._check_all()
                    self._list(clock_s)
                    due = self._due(clock_s)
                    for name in choose(due, set(self._running), at_once=self.limits.at_once):
                        round_ = pool.submit(self._round, self._tables[name])
                        self._running[name] = round_, due[name]
                    look_at_s = clock_s + self.limits.poll_s
                time.sleep(min(_TICK_S, self.limits.poll_s))

    def drain(self) -> int:
        """Tier every table up to the log's end; return how many tables there are.

        Raises:
            FederationError: the first failure, once the other tables are done; theirs are told as ``DrainFailed``.
        """
        self._add(self.discover())
        with self._pool() as pool:
            for name, table in self._tables.items():
                self._running[name] = pool.submit(self._drain, table), _DRAIN
            rounds = {name: future for name, (future, _) in self._running.items()}
            while not self._stopping and not all(future.done() for future in rounds.values()):
                time.sleep(_TICK_S)
        failures = {
            name: error
            for name, future in rounds.items()
            if future.done() and not future.cancelled() and (error := future.exception())
        }
        if failures:
            self._check_all()
            first, *others = failures
            for name in others:
                self._tell(events.DrainFailed(name, _ours(name, failures[name])))
            raise failures[first]
        return len(rounds)

    def _check_all(self) -> None:
        """Check what all tables need; without it every round would fail."""
        try:
            self.check()
        except FederationError:
            self._stopping = True
            raise

    @contextlib.contextmanager
    def _pool(self) -> Iterator[ThreadPoolExecutor]:
        pool = ThreadPoolExecutor(self.limits.at_once, thread_name_prefix="tier")
        try:
            yield pool
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            self._end_rounds()

    def _end_rounds(self) -> None:
        """Let running rounds finish; past the bound, cancel them and wait for their clean-up."""
        _, late = wait([future for future, _ in self._running.values()], self.limits.stop_s)
        if late:
            for name, (future, _) in self._running.items():
                if future in late:
                    self._tables[name].target.cancel()
            wait(late, self.limits.stop_s)
        self._collect()

    # --- which tables there are ---

    def _list(self, clock_s: float) -> None:
        """Add new tables, and drop some that are gone."""
        if clock_s < self._listed_until_s:
            return
        # An installation without a table waits for its first.
        rest_s = self.limits.refresh_s if self._tables else self.limits.poll_s
        self._listed_until_s = clock_s + rest_s
        try:
            names = tuple(self.discover())
        except FederationError as error:
            # The present tables go on: the list is needed only for new ones.
            self._tell(self._list_failing.add(None, error, clock_s, retry_s=rest_s))
            return
        self._list_failing.end()
        self._add(names)
        for name in set(self._tables) - set(names) - set(self._running):
            del self._tables[name]
            self._tell(events.TableRemoved(name))

    def _add(self, names: Iterable[TableName]) -> None:
        for name in names:
            if name not in self._tables:
                self._tables[name] = TieringState(name, self.open_target(name))

    # --- what is due ---

    def _due(self, clock_s: float) -> dict[TableName, Trigger]:
        looked = self._refreshed(clock_s)
        due = {}
        for name, bounds in self._measured(looked).items():
            table = self._tables[name]
            with self._guarded(table):
                lag = table.lag(
                    self.log, table.pinned, bounds, clock_s=clock_s, now_s=self.now_s()
                )
                self._tell(events.TableMeasured(name, lag, table.binding))
                trigger = table.due(lag, table.binding)
                if trigger is not None:
                    due[name] = trigger
                if not table.round_failed:
                    self._recovered(table)
        return due

    def _refreshed(self, clock_s: float) -> list[TieringState]:
        """Return the tables to measure, their facts read again where too old.

        Of a catalog that does not answer only one table is tried: each may take its whole timeout.
        """
        silent: set[str] = set()
        looked = []
        for name, table in self._tables.items():
            if self._stopping:
                break
            if name in self._running or clock_s < table.next_try_s or name.catalog in silent:
                continue
            if table.pin is None or clock_s >= table.fresh_until_s:
                with self._guarded(table):
                    try:
                        self._read(table)
                    except CatalogUnavailable:
                        silent.add(name.catalog)
                        raise
                    table.fresh_until_s = clock_s + self.limits.refresh_s
            if clock_s < table.fresh_until_s:
                looked.append(table)
        self._ask_retentions(looked, clock_s)
        return looked

    def _read(self, table: TieringState) -> None:
        pin = table.target.pin()
        if pin.binding is None:
            raise not_bound(table.name)
        if pin.watermark is not None:
            check_topic(table.name, pin.watermark, pin.binding.topic)
        table.survey = self.adjust(table.target.survey())
        table.pin = pin

    def _ask_retentions(self, looked: Sequence[TieringState], clock_s: float) -> None:
        """Request all topics at once, so silent brokers cost one wait."""
        overdue = [table for table in looked if clock_s >= table.retention_fresh_until_s]
        if not overdue:
            return
        retentions = self.retentions(sorted({table.binding.address for table in overdue}))
        for table in overdue:
            table.retention = retentions.get(table.binding.address, LogRetention())
            table.retention_fresh_until_s = (
                clock_s + _READS_PER_RETENTION * self.limits.refresh_s
            )

    def _measured(self, tables: Sequence[TieringState]) -> dict[TableName, LogBounds]:
        """Measure each cluster in one round; where that fails each topic alone, so that only its own table suffers."""
        bounds: dict[str, LogBounds] = {}
        for topics in by_cluster(sorted({table.binding.address for table in tables})).values():
            with contextlib.suppress(FederationError):
                bounds |= self.log.measure(topics)
        for table in tables:
            topic = table.binding.address
            if topic not in bounds and not self._stopping:
                with self._guarded(table):
                    bounds |= self.log.measure([topic])
        return {
            table.name: bounds[table.binding.address]
            for table in tables
            if table.binding.address in bounds
        }

    # --- rounds, in threads of the pool ---

    def _round(self, table: TieringState) -> RoundResult:
        """Publish once, unless the table is no longer due."""

        def still_due(pin: Pin, bounds: LogBounds) -> bool:
            lag = table.lag(self.log, pin, bounds, clock_s=self.clock(), now_s=self.now_s())
            return pin.binding is not None and table.due(lag, pin.binding) is not None

        return self._attempt(table, still_due, self._budget(table))

    def _drain(self, table: TieringState) -> RoundResult:
        """Publish until the log's end, as it was when the last round was planned, is reached."""
        table.survey = self.adjust(table.target.survey())
        budget = replace(self._budget(table), start_rows=_START_ROWS)
        while True:
            done = self._attempt(table, always, budget)
            if done.published:
                most = self._budget(table).max_rows
                budget = replace(
                    budget,
                    max_rows=min(most, done.offsets_in(self.limits.publish_s)),
                    start_rows=None,
                )
                backfill = table.published(done, self.clock())
                self._tell(events.RoundPublished(table.name, done, _DRAIN, backfill))
            if self._stopping or done.lag == 0 or not done.published:
                return done

    def _budget(self, table: TieringState) -> TieringBudget:
        most = self.limits.max_rows
        return TieringBudget(
            max_rows=min(most, table.survey.options.max_rows or most),
            split_rows=self.limits.split_rows,
        )

    def _attempt(
        self, table: TieringState, is_due: IsDue, budget: TieringBudget
    ) -> RoundResult:
        for attempt in itertools.count(1):
            try:
                return tier_once(
                    self.log,
                    table.target,
                    budget,
                    bytes_per_offset=table.bytes_per_offset or 1.0,
                    is_due=is_due,
                )
            except StalePlan as error:
                self._tell(events.RoundRefused(table.name, error))
                if attempt >= CONFLICT_ATTEMPTS or self._stopping:
                    raise
        raise AssertionError

    # --- results of rounds ---

    def _collect(self) -> bool:
        """Take the results of ended rounds; return whether there were any."""
        ended = [name for name, (future, _) in self._running.items() if future.done()]
        for name in ended:
            future, trigger = self._running.pop(name)
            table = self._tables[name]
            # Whatever happened, the facts are out of date.
            table.fresh_until_s = 0.0
            if future.cancelled() or trigger is _DRAIN:
                continue
            with self._guarded(table, in_round=True):
                done = future.result()
                self._recovered(table)
                if done.published:
                    backfill = table.published(done, self.clock())
                    self._tell(events.RoundPublished(name, done, trigger, backfill))
        return bool(ended)

    def _recovered(self, table: TieringState) -> None:
        table.round_failed = False
        if table.failing.end():
            self._tell(events.TableRecovered(table.name))

    @contextlib.contextmanager
    def _guarded(self, table: TieringState, *, in_round: bool = False) -> Iterator[None]:
        """Turn a failure inside into a wait of this table alone."""
        try:
            yield
        except Exception as raised:  # noqa: BLE001 - whatever it is, the other tables go on
            error = _ours(table.name, raised)
            if self._stopping:
                return
            self._check_all()
            table.round_failed = table.round_failed or in_round
            table.fresh_until_s = 0.0
            clock_s = self.clock()
            failed = table.failing.add(table.name, error, clock_s, jitter=self.random_share())
            table.next_try_s = clock_s + failed.retry_s
            self._tell(failed)


def _ours(table: TableName, error: BaseException) -> FederationError:
    if isinstance(error, FederationError):
        return error
    return InternalError(
        f"{table}: {type(error).__name__} in the tierer; nothing was published, report it.",
        table=str(table),
    )
