"""One cut for every table of a statement, under the freshness its session asks for (docs/internals/seam.md).

Pin each table, measure all logs in one round, decide. Tables of the past are cut one by one (``time_travel``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from cachetools import FIFOCache

from connectors.iceberg.pin_cache import PinCache
from planner.cut import LogBounds, Pin, TableCut, cold_cut, plan_cut
from planner.errors import (
    BadParameter,
    Inconsistent,
    NotYetCommitted,
    SnapshotExpired,
    StalePlan,
    UnknownTopic,
)
from planner.freshness import (
    LIVE,
    Freshness,
    Uncovered,
    caught_up,
    parse_freshness,
    parse_wait_for,
    uncovered,
)
from planner.names import TableName
from planner.offsets import OffsetVector
from planner.ports import ColdStore
from planner.statement.references import CutKey
from planner.ticket import TicketTable
from planner.time_travel import AtCut, parse_cut
from planner.watermark import Watermark
from proxy.deadline import Deadline
from proxy.engine.engine import Engine
from proxy.query.parsing import ParsedStatement
from proxy.query.time_travel import TimeTravel, When
from proxy.session import Session
from proxy.tail.tails import Tails

#: Between two looks at a log whose record is waited for: from this, doubled, up to that.
_FIRST_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 0.25


@dataclass(frozen=True, slots=True)
class FreshnessContract:
    """What a session asks of its statements, read from its settings.

    ``past``: of the cut every table is read at that has no AT of its own.
    """

    freshness: Freshness = LIVE
    wait_for: Mapping[str, OffsetVector] | None = None
    past: AtCut | None = None

    def __str__(self) -> str:
        return str(self.freshness) if self.past is None else "cut"

    @classmethod
    def of(cls, session: Session) -> FreshnessContract:
        """Read the settings.

        Raises:
            BadParameter: one is malformed, or two contradict each other.
        """
        if session.cut is not None and session.wait_for is not None:
            raise BadParameter(
                "cut and wait_for contradict each other: a cut that was taken does not wait."
            )
        if session.cut is not None and session.after is not None:
            raise BadParameter("a statement that is followed cannot be read at a cut.")
        freshness = LIVE if session.freshness is None else parse_freshness(session.freshness)
        if session.after is not None and freshness.side is None:
            # An older round may end before what its caller has seen.
            freshness = LIVE
        return cls(
            freshness,
            None if session.wait_for is None else parse_wait_for(session.wait_for),
            None if session.cut is None else parse_cut(session.cut),
        )


@dataclass(frozen=True, slots=True)
class Cuts:
    """The cuts of one statement. ``log_age_s``: since the logs of tables as they are were measured, if they were."""

    by_key: Mapping[CutKey, TableCut]
    log_age_s: float | None = None


class SnapshotCutter:
    """Thread-safe."""

    def __init__(
        self,
        *,
        pins: PinCache,
        bounds: BoundsCache,
        tails: Tails,
        store: ColdStore,
        engine: Engine,
    ) -> None:
        self._pins = pins
        self._bounds = bounds
        self._time_travel = TimeTravel(
            pins=pins,
            measure=bounds.measure,
            cut_now=lambda table: cut_tables(pins, bounds, [table])[table],
            tails=tails,
            store=store,
            engine=engine,
        )

    def pins(
        self, parsed: ParsedStatement, contract: FreshnessContract, when: When
    ) -> dict[CutKey, Pin]:
        """Return what each table's columns are at its moment. No log is asked."""
        pins: dict[CutKey, Pin] = {}
        for table, at in parsed.keys:
            moment = contract.past if at is None else self._time_travel.moment(at, when)
            pins[table, at] = (
                self._pins.get(table)
                if moment is None
                else self._time_travel.pin(table, moment)
            )
        return pins

    def cut(
        self,
        parsed: ParsedStatement,
        contract: FreshnessContract,
        when: When,
        deadline: Deadline,
    ) -> Cuts:
        """Cut every table: those as they are in one round, those of the past each by itself.

        Raises:
            NotYetCommitted: a record that was to be waited for did not come in time.
            FederationError: of the pins, the logs or the decisions.
        """
        by_key: dict[CutKey, TableCut] = {}
        as_is = [table for table, at in parsed.keys if at is None and contract.past is None]
        age_s = None
        if as_is:
            cuts, age_s = self._current(as_is, parsed.cold_only, contract, deadline)
            by_key |= {(table, None): cut for table, cut in cuts.items()}
        for table, at in parsed.keys:
            moment = contract.past if at is None else self._time_travel.moment(at, when)
            if moment is not None:
                by_key[table, at] = self._time_travel.cut(table, moment, deadline)
        return Cuts(by_key, age_s)

    def _current(
        self,
        tables: Sequence[TableName],
        cold_only: Collection[TableName],
        contract: FreshnessContract,
        deadline: Deadline,
    ) -> tuple[Mapping[TableName, TableCut], float | None]:
        wait_for = contract.wait_for or {}
        if contract.freshness.max_staleness_s is not None:
            remembered = cut_remembered(
                self._pins,
                self._bounds,
                tables,
                cold_only=cold_only,
                max_age_s=contract.freshness.max_staleness_s,
            )
            if remembered is not None and _missing(wait_for, remembered[0]) is None:
                return remembered
        pause_s = _FIRST_PAUSE_S
        while True:
            cuts = cut_tables(self._pins, self._bounds, tables, cold_only=cold_only)
            missing = _missing(wait_for, cuts)
            if missing is None:
                measured = any(
                    cut.hot is not None for name, cut in cuts.items() if name not in cold_only
                )
                return cuts, 0.0 if measured else None
            deadline.cancellation.check()
            if deadline.is_over:
                raise NotYetCommitted(
                    f"{missing.topic}/{missing.partition}: the record at offset {missing.offset} was waited for "
                    f"{deadline.limit_s:g} s, and committed records end at {missing.end}; if it was sent in a "
                    f"transaction, commit that first, then try again.",
                    topic=missing.topic,
                    partition=missing.partition,
                    offset=missing.offset,
                    log_end=missing.end,
                )
            time.sleep(min(pause_s, deadline.left_s))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _missing(
    wait_for: Mapping[str, OffsetVector], cuts: Mapping[TableName, TableCut]
) -> Uncovered | None:
    uncovered_ends = (uncovered(wait_for, cut) for cut in cuts.values())
    return next((missing for missing in uncovered_ends if missing is not None), None)


class Measures(Protocol):
    """The part of ``planner.ports.Log`` that cuts need."""

    def measure(self, topics: Sequence[str]) -> Mapping[str, LogBounds]: ...


def cut_tables(
    pins: PinCache,
    log: Measures,
    tables: Sequence[TableName],
    *,
    cold_only: Collection[TableName] = (),
) -> dict[TableName, TableCut]:
    """Pin first, measure second, decide; after a refusal re-pin once and measure again.

    The logs of ``cold_only`` tables are not asked: their snapshot is all the statement reads.

    An old pin meets a log that retention has moved past it whenever tiering and retention both went on: the
    newest pin then answers. What is refused twice is true.

    Raises:
        FederationError: of the pins, the log or the decision.
    """
    try:
        return _cut({table: pins.get(table) for table in tables}, log, cold_only)
    except (Inconsistent, StalePlan):
        return _cut({table: pins.refresh(table) for table in tables}, log, cold_only)


def cut_remembered(
    pins: PinCache,
    bounds_cache: BoundsCache,
    tables: Sequence[TableName],
    *,
    cold_only: Collection[TableName] = (),
    max_age_s: float,
) -> tuple[dict[TableName, TableCut], float | None] | None:
    """Cut tables as of a round measured at most ``max_age_s`` ago; return them with its age. No log is asked.

    None: there is no such round, or it does not fit the tables any more.

    Raises:
        FederationError: of the pins.
    """
    pinned = {table: pins.get(table) for table in tables}
    marks = _marks(pinned, cold_only)
    if not marks:
        return {table: cold_cut(pin) for table, pin in pinned.items()}, None
    measured = bounds_cache.remembered([mark.address for mark in marks.values()], max_age_s)
    if measured is None:
        return None
    try:
        cuts = {
            table: plan_cut(pin, caught_up(measured.bounds[marks[table].address], marks[table]))
            if table in marks
            else cold_cut(pin)
            for table, pin in pinned.items()
        }
    except Inconsistent:
        return None
    return cuts, bounds_cache.age_s(measured)


def _marks(
    pinned: Mapping[TableName, Pin], cold_only: Collection[TableName]
) -> dict[TableName, Watermark]:
    """The watermarks of the tables whose logs are read."""
    return {
        table: pin.watermark
        for table, pin in pinned.items()
        if pin.watermark is not None and table not in cold_only
    }


def _cut(
    pinned: Mapping[TableName, Pin], log: Measures, cold_only: Collection[TableName]
) -> dict[TableName, TableCut]:
    marks = _marks(pinned, cold_only)
    bounds = _measure(log, marks)
    return {
        table: plan_cut(pin, bounds[marks[table].address]) if table in marks else cold_cut(pin)
        for table, pin in pinned.items()
    }


def _measure(log: Measures, marks: Mapping[TableName, Watermark]) -> Mapping[str, LogBounds]:
    topics = sorted({mark.address for mark in marks.values()})
    try:
        return log.measure(topics) if topics else {}
    except UnknownTopic as error:
        missing = error.facts["topic"]
        table = next((name for name in sorted(marks) if marks[name].address == missing), None)
        if table is None:
            raise
        raise UnknownTopic(
            f"{table}: it is bound to topic {missing}, which the Kafka cluster does not have; point the server at "
            f"the right brokers, or bind a new table.",
            table=str(table),
            topic=missing,
        ) from error


def redeem_tables(pins: PinCache, tables: Sequence[TicketTable]) -> dict[CutKey, TableCut]:
    """Build the cuts a ticket names again, on whatever replica this is. The log is not measured.

    Raises:
        SnapshotExpired: the table, its metadata file or its watermark is not the ticket's any more.
        FederationError: of the pins.
    """
    return {table.key: _redeem(pins, table) for table in tables}


def _redeem(pins: PinCache, table: TicketTable) -> TableCut:
    pin = pins.pin_at(table)
    try:
        return table.cut(pin)
    except ValueError as error:
        raise SnapshotExpired(
            f"{table.table}: the table is not what the ticket was issued for any more; plan the statement again.",
            table=str(table.table),
            snapshot_id=table.snapshot_id,
        ) from error


#: Sets of topics whose last round is kept.
MAX_ROUNDS = 64


@dataclass(frozen=True, slots=True)
class MeasuredBounds:
    """One round of measuring. Every record committed before ``requested_at`` (monotonic) is within its bounds."""

    bounds: Mapping[str, LogBounds]
    requested_at: float


class BoundsCache:
    """Measures logs and remembers the rounds, for statements that accept an older answer. Thread-safe."""

    def __init__(self, log: Measures, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._lock = threading.Lock()
        self._rounds: FIFOCache[frozenset[str], MeasuredBounds] = FIFOCache(MAX_ROUNDS)

    def measure(self, topics: Sequence[str]) -> Mapping[str, LogBounds]:
        # Read the clock before sending: the answer is no older than this.
        requested_at = self._clock()
        bounds = self._log.measure(topics)
        with self._lock:
            self._rounds[frozenset(topics)] = MeasuredBounds(bounds, requested_at)
        return bounds

    def remembered(self, topics: Sequence[str], max_age_s: float) -> MeasuredBounds | None:
        """Return the newest round that measured all of these topics together, if it is young enough."""
        needed, oldest = set(topics), self._clock() - max_age_s
        with self._lock:
            candidates = [measured for key, measured in self._rounds.items() if needed <= key]
        newest = max(candidates, key=lambda measured: measured.requested_at, default=None)
        return newest if newest is not None and newest.requested_at >= oldest else None

    def age_s(self, measured: MeasuredBounds) -> float:
        return self._clock() - measured.requested_at

    def forget(self) -> None:
        """Drop all measurements: some of what they name turned out to be gone."""
        with self._lock:
            self._rounds.clear()
