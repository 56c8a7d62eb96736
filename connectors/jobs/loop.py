"""Runs the rounds of a job over many tables, unattended: those that are due, a bounded number at a time.

A table that fails waits longer each time and stops no other. Facts of a table between its rounds may be out of date:
a round decides by new ones.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from connectors.jobs import events
from planner.errors import CatalogUnavailable, FederationError, InternalError, Unavailable
from planner.names import TableName
from planner.tiering.schedule import Urgent, backoff_s, choose

#: How often the loop checks whether a round has ended or it should stop.
_TICK_S = 0.1
#: An unchanged failure is reported again after this time: silence would look like an end.
TELL_AGAIN_S = 60.0


@dataclass
class Failing:
    """Failures in a row of one thing: since when, when it is tried again, and when that is worth a line.

    Times are of the loop's clock.
    """

    count: int = 0
    _since_s: float = 0.0
    _line: tuple[str, str] | None = None
    _line_s: float = 0.0

    def add(
        self,
        table: TableName | None,
        error: FederationError,
        clock_s: float,
        *,
        jitter: float = 1.0,
        retry_s: float | None = None,
    ) -> events.TableFailed:
        """Count one more. ``retry_s``: when it is tried again, if that does not depend on how often it has failed."""
        if not self.count:
            self._since_s = clock_s
        self.count += 1
        if retry_s is None:
            retry_s = backoff_s(self.count, jitter, passes=isinstance(error, Unavailable))
        what = type(error).__name__, error.message
        is_first = what != self._line or clock_s - self._line_s >= TELL_AGAIN_S
        if is_first:
            self._line, self._line_s = what, clock_s
        return events.TableFailed(
            table, error, retry_s, self.count, clock_s - self._since_s, is_first=is_first
        )

    def end(self) -> bool:
        """Note a success; return whether there were failures."""
        had = self.count > 0
        self.count, self._line = 0, None
        return had


@dataclass(kw_only=True, eq=False)
class JobTable:
    """One table of a job between rounds: its facts are read again after ``fresh_until_s``, of the loop's clock."""

    name: TableName
    fresh_until_s: float = 0.0
    failing: Failing = field(default_factory=Failing)
    #: Whether the last failure was a round's: facts that can be read then prove nothing.
    round_failed: bool = False
    next_try_s: float = 0.0


T = TypeVar("T", bound=JobTable)


class Job(Protocol[T]):
    """Says which tables there are, whether a round of one is due and why, and runs it.

    While a round of a table runs, only ``cancel`` is called for it.
    """

    #: Names the job's process in messages, and says what a round that failed by a fault of ours has not done.
    name: ClassVar[str]
    outcome: ClassVar[str]

    def tables(self) -> Iterable[TableName]:
        """List the tables; raises FederationError."""

    def open(self, name: TableName) -> T:
        """Begin with a table."""

    def read(self, table: T) -> None:
        """Read the facts of a table that decide whether it is due; raises FederationError."""

    def due(self, tables: Sequence[T], loop: TableLoop[T]) -> Iterator[tuple[T, Urgent | None]]:
        """Yield the tables that can be decided on and how urgent a round is, or None; the others' failures go to ``loop``."""

    def run(self, table: T, loop: TableLoop[T]) -> events.Event | None:
        """Run one round in a thread of the pool, for what was due; return what it did, if anything."""

    def drain(self, table: T, loop: TableLoop[T]) -> None:
        """Run rounds in a thread of the pool until there is nothing left to do."""

    def cancel(self, table: T) -> None:
        """Make a running round end soon."""


@dataclass(frozen=True, slots=True)
class LoopLimits:
    """``at_once`` bounds the tables worked on at one time.

    ``refresh_s`` is the greatest age of a table's facts and of the list of tables. ``stop_s`` is how long a stop waits for
    running rounds before it cancels them; they then have as long again to clean up.
    """

    at_once: int = 2
    poll_s: float = 2.0
    refresh_s: float = 60.0
    stop_s: float = 10.0


@dataclass(kw_only=True, eq=False)
class TableLoop(Generic[T]):
    """Runs in the thread that calls ``run`` or ``drain``, once; rounds run in threads of its own.

    ``check`` is called before every look and after every failure; its errors end the loop, because no table can be worked
    on. ``clock`` is monotonic. ``beside`` are loops in other threads that stop with this one.
    """

    job: Job[T] = field(kw_only=False)
    listeners: Sequence[events.Listener]
    limits: LoopLimits
    check: Callable[[], None] = lambda: None
    clock: Callable[[], float] = time.monotonic
    random_share: Callable[[], float] = random.random
    beside: Sequence[TableLoop[Any]] = ()

    def __post_init__(self) -> None:
        self._tables: dict[TableName, T] = {}
        self._listed_until_s = 0.0
        self._list_failing = Failing()
        self._running: dict[TableName, Future[events.Event | None]] = {}
        self.stopping = False

    def tell(self, event: events.Event) -> None:
        for listener in self.listeners:
            listener(event)

    def stop(self) -> None:
        """Make ``run`` or ``drain`` end soon. Safe in any thread and in a signal handler: it takes no lock."""
        self.stopping = True
        for loop in self.beside:
            loop.stop()

    def run(self) -> None:
        """Run rounds of due tables until ``stop``.

        Raises:
            FederationError: as ``check``.
        """
        look_at_s = self.clock()
        try:
            with self._pool(self._running) as pool:
                while not self.stopping:
                    ended = self._collect()
                    clock_s = self.clock()
                    if clock_s >= look_at_s or ended:
                        self._check_all()
                        self._list(clock_s)
                        due, at_once = self._due(clock_s), self.limits.at_once
                        for name in choose(due, set(self._running), at_once=at_once):
                            table = self._tables[name]
                            self._running[name] = pool.submit(self.job.run, table, self)
                        look_at_s = clock_s + self.limits.poll_s
                    time.sleep(min(_TICK_S, self.limits.poll_s))
        finally:
            self._collect()

    def drain(self) -> int:
        """Work on every table until nothing is left to do; return how many tables there are.

        Raises:
            FederationError: the first failure, once the other tables are done; theirs are told as ``DrainFailed``.
        """
        self._add(self.job.tables())
        rounds: dict[TableName, Future[None]] = {}
        with self._pool(rounds) as pool:
            for name, table in self._tables.items():
                rounds[name] = pool.submit(self.job.drain, table, self)
            while not self.stopping and not all(future.done() for future in rounds.values()):
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
                self.tell(events.DrainFailed(name, self._ours(name, failures[name])))
            raise failures[first]
        return len(rounds)

    def _check_all(self) -> None:
        """Check what all tables need; without it every round would fail."""
        try:
            self.check()
        except FederationError:
            self.stopping = True
            raise

    @contextlib.contextmanager
    def _pool(self, rounds: Mapping[TableName, Future[Any]]) -> Iterator[ThreadPoolExecutor]:
        """Yield the threads for rounds; in the end wait for running rounds, cancel late ones and wait for their clean-up."""
        pool = ThreadPoolExecutor(self.limits.at_once, thread_name_prefix=self.job.name)
        try:
            yield pool
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            _, late = wait(rounds.values(), self.limits.stop_s)
            for name, future in rounds.items():
                if future in late:
                    self.job.cancel(self._tables[name])
            wait(late, self.limits.stop_s)

    # --- which tables there are ---

    def _list(self, clock_s: float) -> None:
        """Add new tables, and drop some that are gone."""
        if clock_s < self._listed_until_s:
            return
        # An installation without a table waits for its first.
        rest_s = self.limits.refresh_s if self._tables else self.limits.poll_s
        self._listed_until_s = clock_s + rest_s
        try:
            names = tuple(self.job.tables())
        except FederationError as error:
            # The present tables go on: the list is needed only for new ones.
            self.tell(self._list_failing.add(None, error, clock_s, retry_s=rest_s))
            return
        self._list_failing.end()
        self._add(names)
        for name in set(self._tables) - set(names) - set(self._running):
            del self._tables[name]
            self.tell(events.TableRemoved(name))

    def _add(self, names: Iterable[TableName]) -> None:
        for name in names:
            if name not in self._tables:
                self._tables[name] = self.job.open(name)

    # --- what is due ---

    def _due(self, clock_s: float) -> dict[TableName, Urgent]:
        due = {}
        for table, trigger in self.job.due(self._fresh(clock_s), self):
            if trigger is not None:
                due[table.name] = trigger
            if not table.round_failed:
                self._recovered(table)
        return due

    def _fresh(self, clock_s: float) -> list[T]:
        """Return the tables to decide on, their facts read again where too old.

        Of a catalog that does not answer only one table is tried: each may take its whole timeout.
        """
        silent: set[str] = set()
        fresh = []
        for name, table in self._tables.items():
            if self.stopping:
                break
            if name in self._running or clock_s < table.next_try_s or name.catalog in silent:
                continue
            if clock_s >= table.fresh_until_s:
                with self.guarded(table):
                    try:
                        self.job.read(table)
                    except CatalogUnavailable:
                        silent.add(name.catalog)
                        raise
                    table.fresh_until_s = clock_s + self.limits.refresh_s
            if clock_s < table.fresh_until_s:
                fresh.append(table)
        return fresh

    # --- results of rounds ---

    def _collect(self) -> bool:
        """Take the results of ended rounds; return whether there were any."""
        ended = [name for name, future in self._running.items() if future.done()]
        for name in ended:
            future = self._running.pop(name)
            table = self._tables[name]
            # However it ended, the facts are out of date.
            table.fresh_until_s = 0.0
            if future.cancelled():
                continue
            with self.guarded(table, in_round=True):
                done = future.result()
                self._recovered(table)
                if done is not None:
                    self.tell(done)
        return bool(ended)

    def _recovered(self, table: T) -> None:
        table.round_failed = False
        if table.failing.end():
            self.tell(events.TableRecovered(table.name))

    @contextlib.contextmanager
    def guarded(self, table: T, *, in_round: bool = False) -> Iterator[None]:
        """Turn a failure inside into a wait of this table alone."""
        try:
            yield
        except Exception as raised:  # noqa: BLE001 - the other tables go on after any
            error = self._ours(table.name, raised)
            if self.stopping:
                return
            self._check_all()
            table.round_failed = table.round_failed or in_round
            table.fresh_until_s = 0.0
            clock_s = self.clock()
            failed = table.failing.add(table.name, error, clock_s, jitter=self.random_share())
            table.next_try_s = clock_s + failed.retry_s
            self.tell(failed)

    def _ours(self, table: TableName, error: BaseException) -> FederationError:
        if isinstance(error, FederationError):
            return error
        return InternalError(
            f"{table}: {type(error).__name__} in the {self.job.name}; {self.job.outcome}, report it.",
            table=str(table),
        )
