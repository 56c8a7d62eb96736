"""The rows a statement reads: carries out what is decided of each table (``planner.reading.plan``).

Also what its constants depend on, the files that its conditions leave out, and what it returns and takes: its columns,
and the types of its parameters.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from connectors import file_conditions
from connectors.bounds_cache import BoundsCache
from connectors.iceberg.pin_cache import PinCache
from planner.errors import BadParameter
from planner.names import Side, TableName
from planner.offsets import OffsetRange
from planner.ports import ArrowRelation, ColdStore, SqlRelation
from planner.reading.filters import EVERYTHING, ScanFilter
from planner.reading.parsed_statement import Listing, ParsedStatement
from planner.reading.plan import (
    ColdMode,
    ColumnRead,
    ReadShare,
    TableRead,
    plan_read,
    schema_of,
    side_of,
)
from planner.reading.shares import split_read
from planner.schema import TableSchema
from planner.seam.binding import Binding
from planner.seam.cut import ColdSlice, Pin, TableCut
from planner.seam.schemas_table import SCHEMAS_SCHEMA, SchemaFacts, schema_rows
from planner.seam.seam_table import (
    SEAM_SCHEMA,
    SNAPSHOTS_SCHEMA,
    seam_rows,
    snapshot_rows,
)
from planner.statement.ast import Node, parameters
from planner.statement.conditions import Positions
from planner.statement.expansion_limits import Breadth, check_breadth
from planner.statement.references import CutKey, ResolvedTable
from proxy.access.policy import AccessPolicy, VisibleTable
from proxy.catalog.browser import LISTING_SCHEMAS, Browser, listing_rows
from proxy.catalog.system_tables import SYSTEM, SYSTEM_SCHEMAS, SystemTables
from proxy.engine.describe import Parameter, bound
from proxy.engine.engine import Engine
from proxy.engine.macros import When
from proxy.engine.relations import Changes, Relation
from proxy.engine.statement_cache import StatementCache
from proxy.query.parsing import listing_name, relation_name
from proxy.session import WAITED_FOR_TAIL, Deadline, Prepared, Session
from proxy.tail.segment import LeasedTail
from proxy.tail.tails import Tails


@dataclass(frozen=True, slots=True)
class Sources:
    """What statements read: pins, files, logs and decoded tails of tables, in one engine."""

    pins: PinCache
    store: ColdStore
    bounds: BoundsCache
    tails: Tails
    engine: Engine
    schema_facts: Callable[[TableName, Binding | None], list[SchemaFacts]] = lambda *_: []


@dataclass(frozen=True, slots=True)
class Relations:
    """Relations of cuts. Thread-safe."""

    sources: Sources
    browser: Browser
    access: AccessPolicy
    system: SystemTables = field(default_factory=SystemTables)
    _once: StatementCache = field(default_factory=StatementCache, init=False)

    def empty(
        self,
        session: Session,
        parsed: ParsedStatement,
        pin_or_cut: Mapping[CutKey, Pin] | Mapping[CutKey, TableCut],
    ) -> list[Relation]:
        """Relations without rows, of the types a statement over ``pin_or_cut`` reads.

        Raises:
            UnknownTable: as ``planner.reading.plan.side_of``.
            PermissionsMismatch, NotAllowed: as ``proxy.access.policy.AccessPolicy.visible_table``.
        """
        return [
            Relation(relation_name(table), self._empty(session, table, pin_or_cut[table.key]))
            for table in parsed.tables
        ] + [Relation(listing_name(each), _schema_of(each)) for each in parsed.browsed]

    def reads(
        self,
        session: Session,
        parsed: ParsedStatement,
        cuts: Mapping[CutKey, TableCut],
        context: StatementContext | None,
        share: ReadShare | None = None,
    ) -> dict[ResolvedTable, TableRead]:
        """Decide what is read of every table; what manifests tell of cold rows that are not read is looked up.

        No rows are left out without ``context``, which has the parameters. ``share``: no rows but those of that share of the
        one table.

        Raises:
            FederationError: as ``planner.ports.ColdStore.count_rows``.
        """
        reads = {}
        for table in parsed.tables:
            cut = cuts[table.key]
            visible = self.visible_table(session, table, cut)
            read = plan_read(
                parsed.needs,
                table,
                cut,
                is_open=visible.access_filter is None,
                rows=EVERYTHING
                if context is None
                else self._filter(parsed, table, cut, visible.plain, context),
                share=share,
            )
            if read.cold is ColdMode.COUNTED:
                read = read.counted(
                    self.sources.store.count_rows(cut.cold),
                    partial(self.sources.store.bounds, cut.cold),
                )
            reads[table] = read
        return reads

    def relations(
        self,
        session: Session,
        parsed: ParsedStatement,
        reads: Mapping[ResolvedTable, TableRead],
        deadline: Deadline,
        stack: contextlib.ExitStack,
    ) -> list[Relation]:
        """Name the rows of every side the statement reads; ``stack`` gives the tails back.

        Waits for the tails, no longer than until the deadline.
        """
        tails: dict[CutKey, LeasedTail] = {}
        check = partial(deadline.check, WAITED_FOR_TAIL)
        with deadline.waiting("tail"):
            for table, read in reads.items():
                if read.tail and table.key not in tails:
                    tails[table.key] = stack.enter_context(
                        self.sources.tails.read(
                            read.cut, check, read.tail_names, _leased(read), read.any_rows
                        )
                    )
        return [
            self._relation(session, table, read, tails.get(table.key))
            for table, read in reads.items()
        ] + [self._listing(each, session, deadline) for each in parsed.browsed]

    def shares(
        self,
        reads: Mapping[ResolvedTable, TableRead],
        count: int,
        *,
        statement_time_us: int,
        hides_count: bool,
    ) -> tuple[ReadShare, ...]:
        """Split what a statement reads into at most ``count`` shares, whose answers together are its answer.

        None: it has one share only. ``hides_count``: as ``planner.reading.shares.split_read``.

        Raises:
            FederationError: as ``planner.ports.ColdStore.scan``.
        """
        read = next((read for read in reads.values() if read.is_divisible), None)
        if read is None:
            return ()
        store = self.sources.store
        files = store.file_positions(read.cut.cold, read.rows) if read.scans_cold else ()
        return split_read(
            read, files, count, statement_time_us=statement_time_us, hides_count=hides_count
        )

    def visible_table(
        self, session: Session, table: ResolvedTable, pin_or_cut: Pin | TableCut
    ) -> VisibleTable:
        """Return what a session sees of a table.

        Raises:
            PermissionsMismatch, NotAllowed: as ``proxy.access.policy.AccessPolicy.visible_table``.
        """
        return self.access.visible_table(session, table, _columns(pin_or_cut))

    def _filter(
        self,
        parsed: ParsedStatement,
        table: ResolvedTable,
        cut: TableCut,
        plain: TableSchema,
        context: StatementContext,
    ) -> ScanFilter:
        """Return which rows can matter; of a side without files, only what depends on their offsets is worked out.

        ``plain``: a condition on a masked column is one on its mask, which files have no statistics of.
        """
        if table.side.is_facts or not (
            table in parsed.needs.offset_bound or self._has_files(table.side, cut.cold)
        ):
            return EVERYTHING
        positions = parsed.positions_of[table]
        filtered = partial(scan_filter, self.sources.engine, context, positions, plain)
        if not all(conjunct.is_fixed for position in positions for conjunct in position):
            return filtered()
        key = (positions, cut.table_uuid, plain.schema_id, plain.names, context.when.time_zone)
        return self._once.get(key, filtered, chars=parsed.chars)

    def _has_files(self, side: Side, cold: ColdSlice) -> bool:
        if side is Side.TAIL or cold.snapshot_id is None:
            return False
        # A table that is not tiered yet has an empty snapshot.
        return self.sources.store.count_rows(cold) != 0

    def _relation(
        self, session: Session, table: ResolvedTable, read: TableRead, tail: LeasedTail | None
    ) -> Relation:
        cut, sources = read.cut, self.sources
        rows: list[SqlRelation | ArrowRelation] = []
        if read.side is Side.SEAM:
            seam = seam_rows(cut, sources.pins.facts(cut.table), sources.tails.facts(cut))
            rows.append(ArrowRelation(pa.Table.from_pylist(seam, schema=SEAM_SCHEMA)))
        elif read.side is Side.SCHEMAS:
            facts = sources.schema_facts(cut.table, cut.binding)
            ranges = sources.tails.ranges_of_ids(cut)
            schemas = schema_rows(cut.binding, facts, cut.hot, ranges)
            rows.append(ArrowRelation(pa.Table.from_pylist(schemas, schema=SCHEMAS_SCHEMA)))
        elif read.side is Side.SNAPSHOTS:
            snapshots = snapshot_rows(sources.pins.retained(cut.table))
            rows.append(ArrowRelation(pa.Table.from_pylist(snapshots, schema=SNAPSHOTS_SCHEMA)))
        if tail is not None:
            read = read.with_tail(tail.least_rows)
        if read.cold is ColdMode.WHOLE:
            rows.append(sources.store.scan(cut.cold, read.rows, read.cold_names, read.files))
        elif read.cold is ColdMode.RANGES:
            scan = sources.store.scan(cut.cold, read.rows, span=read.files)
            rows.append(scan.within(read.cold_ranges, read.since_us))
        elif read.cold_extremes:
            rows.append(SqlRelation(read.cold_extremes, is_native=True))
        changes = None
        if tail is not None and read.key:
            beside = ColumnRead(read.cold_names)
            changes = Changes(str(cut.table), tail.relations, tail.superseded, read.key, beside)
        elif tail is not None and read.tail:
            hot = tail.relations[::-1] if read.newest_first else tail.relations
            is_new = cut.increment is not None and not cut.increment.is_everything
            rows += [each.within(read.tail, read.since_us) for each in hot] if is_new else hot
        return Relation(
            relation_name(table),
            schema_of(read.side, cut.cold.schema),
            tuple(rows),
            self.visible_table(session, table, cut).access_filter,
            read.columns,
            changes,
        )

    def _empty(
        self, session: Session, table: ResolvedTable, pin_or_cut: Pin | TableCut
    ) -> TableSchema | pa.Schema:
        side = side_of(table, pin_or_cut)
        return schema_of(side, self.visible_table(session, table, pin_or_cut).schema)

    def _listing(self, listing: Listing, session: Session, deadline: Deadline) -> Relation:
        schema, name = listing
        rows = (
            self.system.rows(name, session, deadline)
            if schema == SYSTEM
            else listing_rows(name, self.browser, session)
        )
        return Relation(listing_name(listing), rows.schema, (ArrowRelation(rows),))


def _schema_of(listing: Listing) -> pa.Schema:
    schema, name = listing
    return SYSTEM_SCHEMAS[name] if schema == SYSTEM else LISTING_SCHEMAS[name]


def _leased(read: TableRead) -> Sequence[OffsetRange]:
    """Return the ranges of the cut that have the records of a read; a follower's begin inside of them."""
    if read.cut.increment is None or read.cut.hot is None:
        return read.tail
    partitions = {span.partition for span in read.tail}
    return [span for span in read.cut.hot.ranges if span.partition in partitions]


def _columns(pin_or_cut: Pin | TableCut) -> TableSchema:
    return pin_or_cut.schema if isinstance(pin_or_cut, Pin) else pin_or_cut.cold.schema


@dataclass(frozen=True, slots=True)
class StatementContext:
    """What constants depend on: the statement as it came, its parameters in order, its time."""

    document: Node
    values: Sequence[Parameter]
    when: When


def scan_filter(
    engine: Engine, asking: StatementContext, positions: Positions, schema: TableSchema
) -> ScanFilter:
    """Return what rows of one table must meet, at any of the positions that name it, to matter."""

    def evaluate(constants: Node, columns: str) -> pa.Table:
        values = bound(asking.document, asking.values)
        needed = {name: values[name] for name in parameters(constants)}
        return engine.evaluate(constants, columns, needed, asking.when)

    values = dict(zip(parameters(asking.document), asking.values, strict=False))
    return file_conditions.scan_filter(
        evaluate, positions, schema, values, asking.when.microseconds
    )


class Signatures:
    """Binds statements over empty relations of the types they read; nothing is executed. Thread-safe.

    Binding depends on nothing else, and takes 5 ms: what was prepared is not bound again to be planned.
    """

    def __init__(self, relations: Relations) -> None:
        self._relations = relations
        self._engine = relations.sources.engine
        self._cache = StatementCache()

    def cached(
        self,
        session: Session,
        parsed: ParsedStatement,
        pins: Mapping[CutKey, Pin],
        parameters: pa.RecordBatch | None,
    ) -> Prepared | None:
        """Return what ``prepared`` does if ``columns`` binds nothing: the statement was bound before, or one that binds alike."""
        if parameters is not None and parsed.may_type_columns:
            return None
        empty = tuple(self._relations.empty(session, parsed, pins))
        return self._cache.cached((parsed.first, empty, session.zone), Prepared)

    def prepared(
        self,
        session: Session,
        parsed: ParsedStatement,
        pins_or_cuts: Mapping[CutKey, Pin] | Mapping[CutKey, TableCut],
    ) -> Prepared:
        """Describe a statement whose parameters are not bound: their types, and those of the columns, are a guess.

        Raises:
            RequestError: it does not bind.
        """
        empty = tuple(self._relations.empty(session, parsed, pins_or_cuts))
        first = parsed.first

        def described() -> Prepared:
            breadths = {relation.name: Breadth.of(relation.arrow) for relation in empty}
            document = first.over(empty)
            check_breadth(document, breadths)
            result, types = self._engine.describe(document, empty, time_zone=session.zone)
            return Prepared(
                result, pa.schema(list(zip(parameters(document), types, strict=True)))
            )

        return self._cache.get((first, empty, session.zone), described, chars=parsed.chars)

    def columns(
        self,
        session: Session,
        parsed: ParsedStatement,
        cuts: Mapping[CutKey, TableCut],
        parameters: pa.RecordBatch | None,
        *,
        is_bound: bool,
    ) -> pa.Schema:
        """Return the columns that a statement answers with these parameters: clients hold the stream against them.

        Raises:
            BadParameter: ``is_bound``, and they are too many or too few.
            RequestError: it does not bind.
        """
        prepared = self.prepared(session, parsed, cuts)
        if is_bound:
            check_count(parameters, prepared)
        if not is_bound or parameters is None or not parsed.may_type_columns:
            return prepared.dataset_schema
        empty = self._relations.empty(session, parsed, cuts)
        return self._engine.describe_bound(
            parsed.over(empty),
            empty,
            [column[0] for column in parameters.columns],
            time_zone=session.zone,
        )


def check_count(parameters: pa.RecordBatch | None, prepared: Prepared) -> None:
    """Raise BadParameter where more parameters are bound, or fewer, than a statement has."""
    expected = prepared.parameter_schema
    count = 0 if parameters is None else parameters.num_columns
    if count != len(expected):
        raise BadParameter(
            f"the statement has {len(expected)} parameters and {count} are bound.",
            expected=len(expected),
            given=count,
        )
