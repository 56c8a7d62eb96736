"""One cut for every table of a statement, under the freshness its session asks for (docs/internals/seam.md).

Pin each table, measure all logs in one round, decide. Tables of the past are cut one by one: of a snapshot, of a time, of
another statement (``planner.seam.time_travel`` decides).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from connectors.cuts import PastCuts, WaitFor, current_cuts, cut_pinned, cut_tables
from connectors.iceberg.pin_cache import PinCache
from planner.errors import (
    BadParameter,
    ColdStoreUnavailable,
    FederationError,
    Inconsistent,
    OffsetsExpired,
    SnapshotExpired,
    StalePlan,
    UnsupportedFile,
    keep_history,
)
from planner.names import KAFKA_OFFSET, KAFKA_PARTITION, KAFKA_TIMESTAMP, Side, TableName
from planner.offsets import OffsetVector
from planner.ports import ArrowRelation, SqlRelation
from planner.reading.filters import Condition
from planner.reading.parsed_statement import ParsedStatement
from planner.seam.cut import Pin, TableCut, cold_cut
from planner.seam.freshness import LIVE, Freshness, parse_freshness, parse_wait_for
from planner.seam.incremental import check_followed, narrow, parse_after
from planner.seam.time_travel import (
    AtCut,
    AtTime,
    AtVersion,
    Moment,
    check_not_expired,
    ended,
    parse_cut,
    parse_version,
)
from planner.statement.references import AtClause, CutKey
from planner.statement.row_expression import row_of
from planner.ticket import TicketTable
from proxy.engine.errors import with_tables
from proxy.engine.macros import When
from proxy.engine.relations import Relation
from proxy.engine.running import working_for, working_user
from proxy.query.relations import Sources
from proxy.session import WAITED_FOR_TAIL, Deadline, Session

_ROWS = "rows"
_GONE = (SnapshotExpired, OffsetsExpired)


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

    @property
    def is_live(self) -> bool:
        """Whether a statement waits for nothing and reads no past, but what its own text says of it."""
        return (self.past, self.freshness.max_staleness_s) == (None, None) and not self.wait_for

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

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._pins, self._bounds = sources.pins, sources.bounds
        self._past = PastCuts(self._pins, self._bounds.measure)

    def pins(
        self, parsed: ParsedStatement, contract: FreshnessContract, when: When
    ) -> dict[CutKey, Pin]:
        """Return what each table's columns are at its moment. No log is asked."""
        return {
            (table, at): self._pin(table, self._moment(at, contract, when))
            for table, at in parsed.keys
        }

    def pinned(self, parsed: ParsedStatement) -> dict[CutKey, Pin] | None:
        """Return the pins of tables as they are; None: one is read at a moment, or a catalog has to be asked."""
        pins = self._pins.pinned([table for table, _ in parsed.keys])
        if pins is None or any(at is not None for _, at in parsed.keys):
            return None
        return {(table, None): pin for table, pin in pins.items()}

    def cut_pinned(self, parsed: ParsedStatement, pins: Mapping[CutKey, Pin]) -> Cuts | None:
        """Cut tables from what ``pinned`` returned, without a catalog; None: they have to be pinned again.

        Raises:
            FederationError: of the logs.
        """
        by_table = {table: pin for (table, _), pin in pins.items()}
        try:
            cuts = cut_pinned(by_table, self._bounds, parsed.cold_only)
        except (Inconsistent, StalePlan):
            return None
        return Cuts({(table, None): cut for table, cut in cuts.items()})

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
        moments = {key: self._moment(key[1], contract, when) for key in parsed.keys}
        as_is = [table for (table, _), moment in moments.items() if moment is None]
        age_s = None
        if as_is:
            cuts, age_s = self._as_is(as_is, contract, deadline, parsed.cold_only)
            by_key |= {(table, None): cut for table, cut in cuts.items()}
        for key, moment in moments.items():
            if moment is not None:
                by_key[key] = self._cut_at(key[0], moment, deadline)
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
            return self._cut_at(table, contract.past, deadline)
        cold_only = (table,) if side is Side.COLD else ()
        return self._as_is([table], contract, deadline, cold_only)[0][table]

    def _as_is(
        self,
        tables: Sequence[TableName],
        contract: FreshnessContract,
        deadline: Deadline,
        cold_only: Collection[TableName],
    ) -> tuple[Mapping[TableName, TableCut], float | None]:
        return current_cuts(
            self._pins,
            self._bounds,
            tables,
            cold_only=cold_only,
            max_staleness_s=contract.freshness.max_staleness_s,
            wait=WaitFor(contract.wait_for, deadline.limit_s, deadline.patience_s),
        )

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

    @contextmanager
    def repinning(self, tables: Collection[TableName]) -> Iterator[None]:
        """After a file or offsets turned out to be gone, pin again: the client's next try must not meet it.

        What the engine and the store say of files does not say whose they are: it gets the tables' names.
        """
        try:
            yield
        except (*_GONE, ColdStoreUnavailable, UnsupportedFile) as error:
            for table in tables if isinstance(error, _GONE) else ():
                with suppress(FederationError):
                    self.forget(table)
            raise with_tables(error, tables) from error

    # --- the past ---

    def _moment(
        self, at: AtClause | None, contract: FreshnessContract, when: When
    ) -> Moment | None:
        """Work out the moment that a table is read at; None: as it is.

        Raises:
            BadParameter: an AT clause says no snapshot, cut or time.
        """
        if at is None:
            return contract.past
        if at.unit.upper() == "VERSION":
            return parse_version(at.tree["value"]["value"])
        time = "epoch_us(CAST(c0 AS TIMESTAMPTZ)) AS t"
        try:
            row = self._sources.engine.evaluate(row_of([at.tree]), time, {}, when)
        except FederationError as error:
            raise BadParameter("AT (TIMESTAMP => ...) takes a time.") from error
        time_us = row["t"][0].as_py()
        if time_us is None:
            raise BadParameter("AT (TIMESTAMP => ...) takes a time, not NULL.")
        return AtTime(time_us)

    def _pin(self, table: TableName, moment: Moment | None) -> Pin:
        """Return a pin with the columns the table has at that moment; of a cut's rows it says nothing."""
        if isinstance(moment, AtVersion):
            return self._pins.pin_version(table, moment.snapshot_id)
        pin = self._pins.get(table)
        if isinstance(moment, AtTime):
            return pin if pin.binding is not None else self._past.then(pin, moment)
        return pin if moment is None else self._past.exact(moment.of(table), pin) or pin

    def _cut_at(self, table: TableName, moment: Moment, deadline: Deadline) -> TableCut:
        """Cut a table as it was.

        Raises:
            CutExpired: that moment is not kept any more, or the table was another one.
            NotForKeyedTables: a time, of a keyed table.
            FederationError: of the pins, the log or the tail.
        """
        if isinstance(moment, AtVersion):
            return cold_cut(self._pins.pin_version(table, moment.snapshot_id))
        if isinstance(moment, AtCut):
            return self._past.cut(moment.of(table))
        pin = self._pins.get(table)
        if pin.binding is None:
            return cold_cut(self._past.then(pin, moment))
        if pin.binding.upsert is not None:
            raise keep_history(table, "AT (TIMESTAMP => ...)")
        cut = cut_tables(self._pins, self._bounds, [table])[table]
        check_not_expired(cut, moment.time_us)
        return ended(cut, self._first(cut, moment.time_us, deadline))

    def _first(self, cut: TableCut, time_us: int, deadline: Deadline) -> OffsetVector:
        """Return the first offset of a row of that time or later, per partition that has one.

        Not what Kafka answers for a time: where retention has removed the record, that would be the log's start;
        and the answer must not depend on which records are tiered.
        """
        engine = self._sources.engine
        since = pa.scalar(time_us, pa.timestamp("us", tz="UTC"))
        sources: list[SqlRelation | ArrowRelation] = []
        with ExitStack() as stack:
            stack.enter_context(working_for(deadline, working_user()))
            if cut.cold.snapshot_id is not None:
                since_filter = ((Condition(KAFKA_TIMESTAMP, ">=", (since,)),),)
                sources.append(self._sources.store.scan(cut.cold, since_filter))
            if cut.new_hot:
                check = partial(deadline.check, WAITED_FOR_TAIL)
                sources += stack.enter_context(self._sources.tails.read(cut, check)).relations
            document = engine.parse(
                f"SELECT {KAFKA_PARTITION} AS part, min({KAFKA_OFFSET}) AS first FROM {_ROWS} "  # noqa: S608
                f"WHERE {KAFKA_TIMESTAMP} >= make_timestamptz({time_us}) GROUP BY ALL"
            )
            result = engine.run(document, [Relation(_ROWS, cut.cold.schema, tuple(sources))])
            rows = [row for batch in stack.enter_context(result) for row in batch.to_pylist()]
        return OffsetVector.of((row["part"], row["first"]) for row in rows)


def redeem_tables(pins: PinCache, tables: Sequence[TicketTable]) -> dict[CutKey, TableCut]:
    """Build the cuts a ticket names again, on any replica. The log is not measured.

    Raises:
        SnapshotExpired: the table, its metadata file or its watermark is not the ticket's any more.
        FederationError: of the pins.
    """
    cuts: dict[CutKey, TableCut] = {}
    for table in tables:
        pin = pins.pin_at(table)
        try:
            cuts[table.key] = table.cut(pin)
        except ValueError as error:
            raise SnapshotExpired(
                f"{table.table}: the table is not what the ticket was issued for any more; plan the statement again.",
                table=str(table.table),
                snapshot_id=table.snapshot_id,
            ) from error
    return cuts
