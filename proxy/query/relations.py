"""The rows a statement reads: which relations stand for its tables at their cuts."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from connectors.iceberg.pin_cache import PinCache
from planner.errors import UnknownTable
from planner.names import KAFKA_OFFSET, KAFKA_PARTITION, KAFKA_TIMESTAMP
from planner.offsets import OffsetRange
from planner.ports import ArrowRelation, ColdStore, SqlRelation
from planner.reading.filters import EVERYTHING, PLACES, ScanFilter, needed_ranges, rows_within
from planner.reading.shares import EVERY_FILE, FileSpan, ScanPart
from planner.schema import TableSchema
from planner.seam.cut import Increment, Pin, TableCut
from planner.seam.seam_table import SEAM_SCHEMA, seam_rows
from planner.statement.references import CutKey, ResolvedTable, Virtual, quoted
from planner.statement.scope import fold
from proxy.access.policy import AccessPolicy, VisibleTable
from proxy.catalog import information_schema
from proxy.catalog.browser import Browser
from proxy.deadline import WAITED_FOR_TAIL, Deadline
from proxy.engine.engine import Engine
from proxy.engine.relations import CONSTANT_NAME, Relation
from proxy.engine.statement_cache import StatementCache
from proxy.query.file_pruning import StatementContext, scan_filter
from proxy.query.parsing import ParsedStatement, listing_name, relation_name
from proxy.session import Session
from proxy.tail.segment import LeasedTail
from proxy.tail.tails import Tails


@dataclass(frozen=True, slots=True)
class Relations:
    """Relations of cuts. Thread-safe."""

    pins: PinCache
    store: ColdStore
    tails: Tails
    engine: Engine
    browser: Browser
    access: AccessPolicy
    _once: StatementCache = field(default_factory=StatementCache, init=False)

    def empty(
        self,
        session: Session,
        parsed: ParsedStatement,
        pin_or_cut: Mapping[CutKey, Pin] | Mapping[CutKey, TableCut],
    ) -> list[Relation]:
        """Relations without rows, of the types a statement over ``pin_or_cut`` reads.

        Raises:
            PermissionsMismatch, NotAllowed: as ``proxy.access.policy.AccessPolicy.visible_table``.
        """
        return [
            Relation(relation_name(table), self._empty(session, table, pin_or_cut[table.key]))
            for table in parsed.tables
        ] + [
            Relation(listing_name(name), information_schema.SCHEMAS[name])
            for name in parsed.browsed
        ]

    def relations(
        self,
        session: Session,
        parsed: ParsedStatement,
        cuts: Mapping[CutKey, TableCut],
        context: StatementContext,
        deadline: Deadline,
        stack: contextlib.ExitStack,
        *,
        is_cold_counted: bool = False,
        part: ScanPart | None = None,
    ) -> list[Relation]:
        """Name the rows of every side the statement reads; ``stack`` gives the tails back.

        Waits for the tails, no longer than until the deadline. ``is_cold_counted``: without cold rows (``cold_rows``).
        ``part``: no rows but those of that part of its one table.
        """
        tails: dict[CutKey, LeasedTail] = {}
        check = partial(deadline.check, WAITED_FOR_TAIL)
        visible = {
            table: self.visible_table(session, table, cuts[table.key])
            for table in parsed.tables
        }
        names = {
            table.key: _names(parsed.columns, cuts[table.key], visible[table])
            for table in parsed.tables
        }
        filters = {
            table: self.scan_filter(session, table, cuts[table.key], parsed, context)
            for table in parsed.tables
        }
        any_rows = _any_rows(parsed, cuts, visible)
        for table in parsed.tables:
            cut = cuts[table.key]
            if table.virtual in (None, "tail") and cut.new_hot and table.key not in tails:
                ranges = _part(parsed, table, cut, filters[table], part)
                tail = self.tails.read(cut, check, names[table.key], ranges, any_rows)
                tails[table.key] = stack.enter_context(tail)
        is_enough = any_rows is not None and any(
            tail.least_rows >= any_rows for tail in tails.values()
        )
        has_cold = not is_cold_counted and not is_enough
        return [
            self._relation(
                table,
                cuts[table.key],
                _tail_rows(tails.get(table.key), is_newest_first=is_enough),
                filters[table],
                visible[table],
                names[table.key],
                _uncompared(parsed, names[table.key]),
                may_equal_zero=parsed.may_equal_zero,
                has_constant=_hides_constant(parsed, names[table.key]),
                has_cold=has_cold,
                files=EVERY_FILE if part is None else part.files,
            )
            for table in parsed.tables
        ] + [self._listing(name, session) for name in parsed.browsed]

    def pieces(
        self,
        session: Session,
        parsed: ParsedStatement,
        cut: TableCut,
        context: StatementContext,
    ) -> tuple[Sequence[tuple[int, int]] | None, Sequence[OffsetRange]]:
        """Return what the rows of a statement's one table can be shared out by: files (``file_places``), ranges of the tail.

        Raises:
            FederationError: as ``planner.ports.ColdStore.scan``.
        """
        [table] = parsed.tables
        side = _side(table, cut)
        ranges = cut.new_hot if side in (None, "tail") else ()
        if side == "tail" or not (cut.is_cold_whole or cut.new_cold):
            return (), ranges
        rows = self.scan_filter(session, table, cut, parsed, context)
        return self.store.file_places(cut.cold, rows), ranges

    def cold_rows(
        self, session: Session, parsed: ParsedStatement, cuts: Mapping[CutKey, TableCut]
    ) -> int | None:
        """Count the cold rows that a bare count counts, from what their files say; None: they must be read."""
        if not parsed.is_bare_count or len(parsed.tables) != 1:
            return None
        table = parsed.tables[0]
        cut = cuts[table.key]
        visible = self.visible_table(session, table, cut)
        if _side(table, cut) not in (None, "cold") or not _is_plain(cut, visible):
            return None
        return self.store.count_rows(cut.cold)

    def has_tail(self, parsed: ParsedStatement, cuts: Mapping[CutKey, TableCut]) -> bool:
        """Whether the statement reads any of its tables' tails."""
        return any(
            cut.hot is not None and cut.hot.ranges and _side(table, cut) != "cold"
            for table in parsed.tables
            for cut in (cuts[table.key],)
        )

    def visible_table(
        self, session: Session, table: ResolvedTable, pin_or_cut: Pin | TableCut
    ) -> VisibleTable:
        """Return what a session sees of a table.

        Raises:
            PermissionsMismatch, NotAllowed: as ``proxy.access.policy.AccessPolicy.visible_table``.
        """
        return self.access.visible_table(session, table, _columns(pin_or_cut))

    def scan_filter(
        self,
        session: Session,
        table: ResolvedTable,
        cut: TableCut,
        parsed: ParsedStatement,
        context: StatementContext,
    ) -> ScanFilter:
        """Return which rows can matter; of a side without files, only what depends on the places of records is worked out.

        A condition on a masked column is one on its mask, which files have no statistics of.
        """
        has_files = table.virtual != "tail" and cut.cold.snapshot_id is not None
        if table.virtual == "seam" or not (has_files or _names_places(parsed, table)):
            return EVERYTHING
        places, schema = parsed.places_of[table], self.visible_table(session, table, cut).plain
        filtered = partial(scan_filter, self.engine, context, places, schema)
        if not all(conjunct.is_fixed for place in places for conjunct in place):
            return filtered()
        key = (places, cut.table_uuid, schema.schema_id, schema.names, context.time_zone)
        return self._once.get(key, filtered, chars=parsed.chars)

    def _relation(
        self,
        table: ResolvedTable,
        cut: TableCut,
        tail: tuple[SqlRelation, ...],
        rows: ScanFilter,
        visible: VisibleTable,
        names: Sequence[str] | None,
        uncompared: frozenset[str],
        *,
        may_equal_zero: bool,
        has_constant: bool,
        has_cold: bool,
        files: FileSpan,
    ) -> Relation:
        parts: list[SqlRelation | ArrowRelation] = []
        if table.virtual == "seam":
            seam = seam_rows(cut, self.pins.facts(cut.table), self.tails.facts(cut))
            parts.append(ArrowRelation(pa.Table.from_pylist(seam, schema=SEAM_SCHEMA)))
        side = _side(table, cut)
        if has_cold and side in (None, "cold") and not files.is_empty:
            if cut.is_cold_whole:
                parts.append(self.store.scan(cut.cold, rows, names, files))
            elif cut.new_cold:
                scan = self.store.scan(cut.cold, rows, span=files)
                parts.append(narrowed(scan, cut.new_cold, cut.increment))
        if side in (None, "tail"):
            if cut.increment is not None and not cut.increment.is_everything:
                parts.extend(narrowed(part, cut.new_hot, cut.increment) for part in tail)
            else:
                parts.extend(tail)
        schema = _schema(table, cut)
        if names is not None and isinstance(schema, TableSchema):
            schema = pa.schema([schema.arrow.field(name) for name in names])
        return Relation(
            relation_name(table),
            schema,
            tuple(parts),
            visible.access_filter,
            uncompared,
            may_equal_zero or visible.access_filter is not None,
            has_constant,
        )

    def _empty(
        self, session: Session, table: ResolvedTable, pin_or_cut: Pin | TableCut
    ) -> TableSchema | pa.Schema:
        schema = _schema(table, pin_or_cut)
        visible = self.visible_table(session, table, pin_or_cut)
        return visible.schema if isinstance(schema, TableSchema) else schema

    def _listing(self, name: str, session: Session) -> Relation:
        rows = information_schema.rows(name, self.browser, session)
        return Relation(listing_name(name), rows.schema, (ArrowRelation(rows),))


def _names(
    columns: frozenset[str] | None, cut: TableCut, visible: VisibleTable
) -> tuple[str, ...] | None:
    """The columns of a table that a statement can read, at least one; None: all of them."""
    # Where rows are left out, their places are compared.
    is_plain = cut.increment is None and (cut.is_cold_whole or not cut.new_cold)
    if columns is None or visible.access_filter is not None or not is_plain:
        return None
    names = cut.cold.schema.names
    return tuple(name for name in names if fold(name) in columns) or names[:1]


def _tail_rows(tail: LeasedTail | None, *, is_newest_first: bool) -> tuple[SqlRelation, ...]:
    """The rows of a tail. Where any of them do, the newest come first: older ones may be packed."""
    relations = () if tail is None else tail.relations
    return relations[::-1] if is_newest_first else relations


def _uncompared(parsed: ParsedStatement, names: Sequence[str] | None) -> frozenset[str]:
    """The columns that a statement reads and does not compare; none where it may read all, or a policy has a say."""
    compared = parsed.compared_columns
    if names is None or compared is None:
        return frozenset()
    return frozenset(name for name in names if fold(name) not in compared)


def _hides_constant(parsed: ParsedStatement, names: Sequence[str] | None) -> bool:
    """Whether a statement would not see one column more than ``names``: it names all that it reads, and not this one."""
    return names is not None and CONSTANT_NAME not in (parsed.columns or ())


def _names_places(parsed: ParsedStatement, table: ResolvedTable) -> bool:
    """Whether a condition at each place that names a table is about partitions or offsets."""
    places = parsed.places_of[table]
    return all(any(fold(item.column) in PLACES for item in place) for place in places)


def _part(
    parsed: ParsedStatement,
    table: ResolvedTable,
    cut: TableCut,
    rows: ScanFilter,
    part: ScanPart | None,
) -> Sequence[OffsetRange] | None:
    """The ranges of a tail that a statement needs; None: all, as other places than this one may need the rest."""
    is_alone = sum(other.key == table.key for other in parsed.tables) == 1
    if cut.hot is None or not is_alone or not _names_places(parsed, table):
        return None if part is None else part.ranges
    return needed_ranges(cut.hot.ranges if part is None else part.ranges, rows)


def _is_plain(cut: TableCut, visible: VisibleTable) -> bool:
    """Whether a statement over a cut reads every row of the snapshot and of the tail as they are."""
    return visible.access_filter is None and cut.increment is None and cut.is_cold_whole


def _any_rows(
    parsed: ParsedStatement,
    cuts: Mapping[CutKey, TableCut],
    visible: Mapping[ResolvedTable, VisibleTable],
) -> int | None:
    """How many rows of its one table answer a statement, whichever they are; None: it depends on more.

    Where the tail has them they are in memory, and neither files nor what has not arrived yet is needed.
    """
    is_plain = all(_is_plain(cuts[table.key], each) for table, each in visible.items())
    return parsed.any_rows if len(parsed.tables) == 1 and is_plain else None


def _side(table: ResolvedTable, pin_or_cut: Pin | TableCut) -> Virtual | None:
    """The side that is read: a table without a topic has but one, whatever a contract says."""
    return None if table.by_contract and pin_or_cut.binding is None else table.virtual


def _schema(table: ResolvedTable, pin_or_cut: Pin | TableCut) -> TableSchema | pa.Schema:
    if _side(table, pin_or_cut) in ("tail", "seam") and pin_or_cut.binding is None:
        raise UnknownTable(
            f"{table.table} is not bound to a topic, so there is no "
            f"{quoted(f'{table.table.name}${table.virtual}')}.",
            table=str(table.table),
        )
    if table.virtual == "seam":
        return SEAM_SCHEMA
    return _columns(pin_or_cut)


def _columns(pin_or_cut: Pin | TableCut) -> TableSchema:
    return pin_or_cut.schema if isinstance(pin_or_cut, Pin) else pin_or_cut.cold.schema


def narrowed(
    part: SqlRelation | ArrowRelation,
    ranges: Sequence[OffsetRange],
    increment: Increment | None,
) -> SqlRelation | ArrowRelation:
    """Return the rows of ``part`` that lie in ``ranges`` (one a partition, at least one) and are young enough."""
    since_us = None if increment is None else increment.since_us
    if isinstance(part, ArrowRelation):
        # Of a table without rows, the one kind that stores have, nothing is asked: one condition for each partition.
        if not part.table.num_rows:
            return part
        return ArrowRelation(part.table.filter(_expression(since_us, ranges)))
    return replace(part, sql=rows_within(part.sql, ranges, since_us))


def _expression(since_us: int | None, ranges: Sequence[OffsetRange]) -> pc.Expression:
    partition, offset = pc.field(KAFKA_PARTITION), pc.field(KAFKA_OFFSET)
    inside = pc.scalar(False)
    for span in ranges:
        inside |= (partition == span.partition) & (offset >= span.start) & (offset < span.stop)
    if since_us is not None:
        since = pa.scalar(since_us, pa.timestamp("us", tz="UTC"))
        inside &= pc.field(KAFKA_TIMESTAMP) >= since
    return inside
