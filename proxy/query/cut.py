"""One cut for every table of a statement, under the freshness its session asks for (docs/internals/seam.md).

Pin each table, measure all logs in one round, decide. Tables of the past are cut one by one (``time_travel``).

Cuts of the past: of a snapshot, of a time, of another statement (planner.seam.time_travel decides).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Self

import pyarrow as pa

from connectors.cuts import BoundsCache, PastCuts, WaitFor, current_cuts, cut_tables
from connectors.iceberg.pin_cache import PinCache
from planner.errors import BadParameter, FederationError, SnapshotExpired
from planner.names import KAFKA_OFFSET, KAFKA_PARTITION, KAFKA_TIMESTAMP, Side, TableName
from planner.offsets import OffsetVector
from planner.ports import ArrowRelation, ColdStore, SqlRelation
from planner.reading.filters import Condition
from planner.seam.cut import Pin, TableCut, cold_cut
from planner.seam.freshness import LIVE, Freshness, parse_freshness, parse_wait_for
from planner.seam.incremental import check_followed, narrow, parse_after
from planner.seam.time_travel import (
    AtCut,
    AtTime,
    AtVersion,
    Moment,
    ended,
    parse_cut,
    parse_version,
)
from planner.statement.references import AtClause, CutKey
from planner.statement.row_expression import row_of
from planner.ticket import TicketTable
from proxy.engine.engine import Engine
from proxy.engine.relations import Relation
from proxy.query.parsing import ParsedStatement
from proxy.session import WAITED_FOR_TAIL, Deadline, Session
from proxy.tail.tails import Tails


@dataclass(frozen=True, slots=True)
class FreshnessContract:
    """What a session asks of its statements, read from its settings.

    ``past``: of the cut every table is read at that has no AT of its own.
    """

    freshness: Freshness = LIVE
    wait_for: Mapping[str, OffsetVector] = field(default_factory=dict)
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
        if session.after is not None and freshness.side is Side.BOTH:
            # An older round may end before what its caller has seen.
            freshness = LIVE
        return cls(
            freshness,
            {} if session.wait_for is None else parse_wait_for(session.wait_for),
            None if session.cut is None else parse_cut(session.cut),
        )


@dataclass(frozen=True, slots=True)
class Cuts:
    """The cuts of one statement. ``log_age_s``: since the logs of tables as they are were measured, if they were."""

    by_key: Mapping[CutKey, TableCut]
    log_age_s: float | None = None

    def narrowed(self, after: str, sides: Collection[str]) -> Cuts:
        """Return the cuts without what a follower of the statement has read, who is at the position ``after``.

        Raises:
            FederationError: as ``check_followed`` and ``narrow``.
        """
        position = parse_after(after)
        check_followed([table for (table, _), cut in self.by_key.items() if cut.hot], sides)
        narrowed = {key: narrow(cut, position) for key, cut in self.by_key.items()}
        return replace(self, by_key=narrowed)


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
            past=PastCuts(pins, bounds.measure),
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
            cuts, age_s = current_cuts(
                self._pins,
                self._bounds,
                as_is,
                cold_only=parsed.cold_only,
                max_staleness_s=contract.freshness.max_staleness_s,
                wait=WaitFor(contract.wait_for, deadline.limit_s, deadline.patience_s),
            )
            by_key |= {(table, None): cut for table, cut in cuts.items()}
        for table, at in parsed.keys:
            moment = contract.past if at is None else self._time_travel.moment(at, when)
            if moment is not None:
                by_key[table, at] = self._time_travel.cut(table, moment, deadline)
        return Cuts(by_key, age_s)

    def cut_table(
        self, table: TableName, contract: FreshnessContract, deadline: Deadline
    ) -> TableCut:
        """Cut one table as a statement that names it would.

        Raises:
            BadParameter: the cut that is asked for does not name the table; or of the table its tail alone is asked for.
            NotYetCommitted, FederationError: as ``cut``.
        """
        side = contract.freshness.side
        if side is Side.TAIL:
            raise BadParameter("freshness tail has no meaning here; ask for live or cold.")
        if contract.past is not None:
            return self._time_travel.cut(table, contract.past, deadline)
        cuts, _ = current_cuts(
            self._pins,
            self._bounds,
            [table],
            cold_only=(table,) if side is Side.COLD else (),
            max_staleness_s=contract.freshness.max_staleness_s,
            wait=WaitFor(contract.wait_for, deadline.limit_s, deadline.patience_s),
        )
        return cuts[table]

    def pin_of(self, cut: TableCut) -> Pin:
        """Return the pin that a cut was made from, also one of the past.

        Raises:
            FederationError: as ``PinCache.pin_at``.
        """
        return self._pins.pin_at(cut.cold_reference)

    def forget(self, table: TableName) -> None:
        """After a file or offsets turned out to be gone: pin again, measure again."""
        self._bounds.forget()
        self._pins.refresh(table)


def redeem_tables(pins: PinCache, tables: Sequence[TicketTable]) -> dict[CutKey, TableCut]:
    """Build the cuts a ticket names again, on any replica. The log is not measured.

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


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

_ROWS = "rows"


@dataclass(frozen=True, slots=True)
class When:
    """What the time of an AT clause depends on: ``now()``, and the zone of times without one."""

    statement_time: dt.datetime
    time_zone: str

    @classmethod
    def at(cls, now_us: int, time_zone: str) -> Self:
        """``now_us`` is microseconds since 1970."""
        return cls(_EPOCH + dt.timedelta(microseconds=now_us), time_zone)


@dataclass(frozen=True, slots=True)
class TimeTravel:
    """Thread-safe. ``cut_now`` cuts a table as it is."""

    pins: PinCache
    past: PastCuts
    cut_now: Callable[[TableName], TableCut]
    tails: Tails
    store: ColdStore
    engine: Engine

    def moment(self, at: AtClause, when: When) -> Moment:
        """Work out what an AT clause says.

        Raises:
            BadParameter: no snapshot, cut or time.
        """
        if at.unit.upper() == "VERSION":
            return parse_version(at.tree["value"]["value"])
        try:
            row = self.engine.evaluate(
                row_of([at.tree]),
                "epoch_us(CAST(c0 AS TIMESTAMPTZ)) AS t",
                {},
                statement_time=when.statement_time,
                time_zone=when.time_zone,
            )
        except FederationError as error:
            raise BadParameter("AT (TIMESTAMP => ...) takes a time.") from error
        time_us = row["t"][0].as_py()
        if time_us is None:
            raise BadParameter("AT (TIMESTAMP => ...) takes a time, not NULL.")
        return AtTime(time_us)

    def pin(self, table: TableName, moment: Moment) -> Pin:
        """Return a pin with the columns the table has at that moment; of a cut's rows it says nothing."""
        if isinstance(moment, AtVersion):
            return self.pins.pin_version(table, moment.snapshot_id)
        pin = self.pins.get(table)
        if isinstance(moment, AtTime):
            return pin if pin.binding is not None else self.past.then(pin, moment)
        return self.past.exact(moment.of(table), pin) or pin

    def cut(self, table: TableName, moment: Moment, deadline: Deadline) -> TableCut:
        """Cut a table as it was.

        Raises:
            CutExpired: that moment is not kept any more, or the table was another one.
            FederationError: of the pins, the log or the tail.
        """
        if isinstance(moment, AtVersion):
            return cold_cut(self.pins.pin_version(table, moment.snapshot_id))
        if isinstance(moment, AtCut):
            return self.past.cut(moment.of(table))
        pin = self.pins.get(table)
        if pin.binding is None:
            return cold_cut(self.past.then(pin, moment))
        cut = self.cut_now(table)
        return ended(cut, self._first(cut, moment.time_us, deadline))

    def _first(self, cut: TableCut, time_us: int, deadline: Deadline) -> OffsetVector:
        """Return the first offset of a row of that time or later, per partition that has one.

        Not what Kafka answers for a time: where retention has removed the record, that would be the log's start;
        and the answer must not depend on which records are tiered.
        """
        since = pa.scalar(time_us, pa.timestamp("us", tz="UTC"))
        since_filter = ((Condition(KAFKA_TIMESTAMP, ">=", (since,)),),)
        parts: list[SqlRelation | ArrowRelation] = []
        check = partial(deadline.check, WAITED_FOR_TAIL)
        with ExitStack() as stack:
            if cut.cold.snapshot_id is not None:
                parts.append(self.store.scan(cut.cold, since_filter))
            if cut.new_hot:
                parts += stack.enter_context(self.tails.read(cut, check)).relations
            document = self.engine.parse(
                f"SELECT {KAFKA_PARTITION} AS part, min({KAFKA_OFFSET}) AS first FROM {_ROWS} "  # noqa: S608
                f"WHERE {KAFKA_TIMESTAMP} >= make_timestamptz({time_us}) GROUP BY ALL"
            )
            result = self.engine.run(
                document,
                [Relation(_ROWS, cut.cold.schema, tuple(parts))],
                statement_time=_EPOCH,
                deadline=deadline,
            )
            rows = [row for batch in stack.enter_context(result) for row in batch.to_pylist()]
        return OffsetVector.of((row["part"], row["first"]) for row in rows)
