"""What is read of each table of a statement: one decision, one value (``TableRead``).

Facts in: the statement's needs, the cut, what the caller may see, a filter, a share. The rows of a ``TableRead`` answer the
statement as all rows of its side would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto

import pyarrow as pa

from planner.errors import UnknownTable, not_for_keyed
from planner.names import KAFKA_OFFSET, KAFKA_OP, KAFKA_PARTITION, Side
from planner.offsets import OffsetRange
from planner.reading.extremes import ROWS, extreme_rows, extremes_of
from planner.reading.filters import (
    EVERY_FILE,
    EVERYTHING,
    Bounds,
    FileSpan,
    ScanFilter,
    needed_ranges,
)
from planner.reading.needs import StatementNeeds
from planner.schema import TableSchema
from planner.seam.cut import Pin, TableCut
from planner.seam.schemas_table import SCHEMAS_SCHEMA
from planner.seam.seam_table import SEAM_SCHEMA, SNAPSHOTS_SCHEMA
from planner.statement.ast import fold
from planner.statement.references import ResolvedTable, quoted

#: Stands in front of the columns, for rows that are only counted: of these the engine reads the first column of a union
#: (DuckDB 1.5.5), of any type; all of a struct, where a condition reads one field.
CONSTANT_NAME = "__tc:row"

#: Columns of changes that say which of them are rows.
_DECIDING = (KAFKA_PARTITION, KAFKA_OFFSET, KAFKA_OP)


class ColdMode(Enum):
    """How the cold rows of a cut are read."""

    NONE = auto()
    #: By what manifests tell of them alone: their number, least and greatest values.
    COUNTED = auto()
    #: All rows of the snapshot, including rows that came from no record.
    WHOLE = auto()
    #: The rows of ``TableRead.cold_ranges``.
    RANGES = auto()


@dataclass(frozen=True, slots=True)
class ColumnRead:
    """Which columns of its rows a statement reads, and which statistics of files may answer it.

    ``names`` are in the table's order, at least one; None: all columns. The values of ``uncompared`` columns are compared
    with nothing. ``equals_zero``: those of others may be compared with a zero for equality. ``has_constant``: the rows have
    one column more, ``CONSTANT_NAME``, which the statement cannot see.
    """

    names: tuple[str, ...] | None = None
    uncompared: frozenset[str] = frozenset()
    equals_zero: bool = False
    has_constant: bool = False

    def floats_exact(
        self, without_nan: frozenset[str], without_zero: frozenset[str]
    ) -> frozenset[str]:
        """Return the floating columns of files whose statistics may answer.

        Bounds of files leave NaN out, and tell -0.0 from 0.0. ``without_nan`` and ``without_zero`` are as in
        ``planner.ports.SqlRelation``.
        """
        return (without_zero if self.equals_zero else without_nan) | self.uncompared

    def of(self, schema: pa.Schema) -> pa.Schema:
        """Return the fields of ``schema`` that are read."""
        if self.names is None:
            return schema
        return pa.schema([schema.field(name) for name in self.names])


ALL_COLUMNS = ColumnRead()


@dataclass(frozen=True, slots=True)
class ReadShare:
    """What one reader reads of a ``TableRead``: the cold rows of some files, and some of the tail's ranges.

    ``split`` names what the whole was split into: shares of one name are disjoint and complete.
    """

    files: FileSpan
    ranges: tuple[OffsetRange, ...]
    split: str = ""


@dataclass(frozen=True, slots=True)
class TableRead:
    """What is read of one table, at its cut.

    ``tail`` are the records of the log, one range a partition. ``any_rows``: any so many rows will do;
    with ``newest_first``, they come before older ones. ``since_us``: no records before that time, microseconds since 1970.
    ``rows``: others may be left out. ``cold_rows`` is the number of rows that are ``COUNTED``; where ``extremes`` are
    needed, columns, ``cold_extremes`` is a SELECT of rows that have their least and greatest values (empty: of none), and
    ``cold_rows`` how many more there are. ``is_divisible``: shares of it answer the statement, one after the other; such an
    answer ``tells_time`` if it depends on when it is asked. ``key`` are the names of a keyed table's key columns, where its
    tail is read: changes, of which the newest of each key decides.
    """

    side: Side
    cut: TableCut
    cold: ColdMode = ColdMode.NONE
    cold_ranges: tuple[OffsetRange, ...] = ()
    files: FileSpan = EVERY_FILE
    cold_rows: int = 0
    extremes: tuple[str, ...] = ()
    cold_extremes: str = ""
    tail: tuple[OffsetRange, ...] = ()
    since_us: int | None = None
    any_rows: int | None = None
    newest_first: bool = False
    rows: ScanFilter = EVERYTHING
    columns: ColumnRead = ALL_COLUMNS
    is_divisible: bool = False
    tells_time: bool = False
    key: tuple[str, ...] = ()

    @property
    def tail_names(self) -> tuple[str, ...] | None:
        """The columns of the tail that are read; None: all. Of changes also those that decide which are rows."""
        names = self.columns.names
        if names is None or not self.key:
            return names
        return (*dict.fromkeys((*names, *self.key, *_DECIDING)),)

    @property
    def cold_names(self) -> tuple[str, ...] | None:
        """The columns of files that are read; None: all. Beside changes also the key, and the partition of its row."""
        names = self.columns.names
        if names is None or not self.key:
            return names
        return (*dict.fromkeys((*names, *self.key, KAFKA_PARTITION)),)

    @property
    def scans_cold(self) -> bool:
        """Whether files of the snapshot are read."""
        return self.cold in (ColdMode.WHOLE, ColdMode.RANGES)

    def counted(self, rows: int | None, bounds_of: Callable[[str], Bounds | None]) -> TableRead:
        """Return what is read where ``rows`` are all cold ones, and files have these bounds; None: only reading tells."""
        if rows is None:
            return replace(self, cold=ColdMode.WHOLE)
        if not (rows and self.extremes):
            return replace(self, cold_rows=rows)
        columns = {}
        for name in self.extremes:
            bounds = bounds_of(name)
            column = None if bounds is None else extremes_of(bounds)
            if column is None:
                return replace(self, cold=ColdMode.WHOLE)
            columns[name] = column
        return replace(self, cold_rows=rows - ROWS, cold_extremes=extreme_rows(columns))

    def with_tail(self, least_rows: int) -> TableRead:
        """Return what is read once at least ``least_rows`` of the tail are in memory: enough of them need no others.

        Changes are no rows, however many.
        """
        if self.any_rows is None or least_rows < self.any_rows:
            return self
        # Older segments may be packed.
        return replace(self, cold=ColdMode.NONE, newest_first=True)

    def of_share(self, share: ReadShare) -> TableRead:
        """Return what the reader of a share reads."""
        return replace(
            self,
            cold=ColdMode.NONE if share.files.is_empty else self.cold,
            files=share.files,
            tail=needed_ranges(share.ranges, self.rows),
        )


def counted_rows(reads: Iterable[TableRead]) -> int | None:
    """Return the number of cold rows that are counted without reading; None: none are."""
    return next((read.cold_rows for read in reads if read.cold is ColdMode.COUNTED), None)


def plan_rows(
    side: Side, cut: TableCut, rows: ScanFilter = EVERYTHING, *, records_only: bool = False
) -> TableRead:
    """Decide which rows of a side are read, all columns of them.

    ``records_only``: without cold rows that came from no record. Of a keyed table's tail ``rows`` leaves out nothing: a change that
    does not matter itself is the newest of its key, or hides an older row.

    Raises:
        NotForKeyedTables: a part of a keyed table's rows by their offsets is asked for.
    """
    key = _key_of(cut)
    if key:
        return _plan_keyed(side, cut, key, rows, records_only=records_only)
    cold = ColdMode.NONE
    cold_ranges: tuple[OffsetRange, ...] = ()
    if side.has_cold:
        if cut.is_cold_whole and not records_only:
            cold = ColdMode.WHOLE
        elif cold_ranges := needed_ranges(cut.new_cold, rows):
            cold = ColdMode.RANGES
    return TableRead(
        side,
        cut,
        cold,
        cold_ranges,
        tail=needed_ranges(cut.new_hot, rows) if side.has_tail else (),
        since_us=None if cut.increment is None else cut.increment.since_us,
        rows=rows,
    )


def _plan_keyed(
    side: Side, cut: TableCut, key: tuple[str, ...], rows: ScanFilter, *, records_only: bool
) -> TableRead:
    if records_only or not cut.is_cold_whole:
        raise not_for_keyed(
            cut.table,
            "a part of its rows by their offsets",
            "read the table as it is, or at a cut",
        )
    # A row of a file is the only one of its key there: files, and their rows, may be left out by any condition.
    cold = ColdMode.WHOLE if side.has_cold else ColdMode.NONE
    tail = cut.new_hot if side.has_tail else ()
    return TableRead(side, cut, cold, tail=tail, rows=rows, key=key if tail else ())


def _key_of(cut: TableCut) -> tuple[str, ...]:
    """Return the names of a keyed table's key columns; of another table none."""
    upsert = None if cut.binding is None else cut.binding.upsert
    if upsert is None:
        return ()
    return tuple(column.name for column in upsert.columns(cut.cold.schema))


def plan_read(
    needs: StatementNeeds,
    table: ResolvedTable,
    cut: TableCut,
    *,
    is_open: bool,
    rows: ScanFilter = EVERYTHING,
    share: ReadShare | None = None,
) -> TableRead:
    """Decide what a statement reads of a table.

    ``is_open``: nothing of the table is hidden from the caller. ``share``: no other rows.

    Raises:
        UnknownTable: as ``side_of``.
    """
    side = side_of(table, cut)
    if side.is_facts:
        return TableRead(side, cut)
    read = plan_rows(side, cut, rows)
    if table in needs.shared:
        # Both sides lease the same rows of the tail.
        read = replace(read, tail=cut.new_hot if side.has_tail else ())
    is_plain = is_open and cut.increment is None and cut.is_cold_whole and not read.key
    if is_plain and side.has_cold and (needs.count_only or needs.extremes):
        names = tuple(name for name in cut.cold.schema.names if fold(name) in needs.extremes)
        if len(names) == len(needs.extremes):
            read = replace(read, cold=ColdMode.COUNTED, extremes=names)
    read = replace(
        read,
        any_rows=needs.any_rows if is_plain else None,
        columns=_columns(needs, cut, is_open=is_open),
        is_divisible=is_divisible(needs, cut) and not read.key,
        tells_time=needs.tells_time,
    )
    return read if share is None else read.of_share(share)


def is_divisible(needs: StatementNeeds, cut: TableCut) -> bool:
    """Whether shares of what is read at a cut answer the statement, one after the other."""
    return needs.plain_scan and cut.increment is None


def side_of(table: ResolvedTable, pin_or_cut: Pin | TableCut) -> Side:
    """Return the side that is read: a table without a topic has but one, also under a contract.

    Raises:
        UnknownTable: the statement names the tail or facts of such a table.
    """
    if pin_or_cut.binding is not None or table.side in (Side.BOTH, Side.COLD):
        return table.side
    if table.by_contract:
        return Side.BOTH
    raise UnknownTable(
        f"{table.table} is not bound to a topic, so there is no {quoted(table.table.side(table.side).name)}.",
        table=str(table.table),
    )


_FACTS = {
    Side.SEAM: SEAM_SCHEMA,
    Side.SCHEMAS: SCHEMAS_SCHEMA,
    Side.SNAPSHOTS: SNAPSHOTS_SCHEMA,
}


def schema_of(side: Side, schema: TableSchema) -> TableSchema | pa.Schema:
    """Return what the rows of a side of a table of this schema have."""
    return _FACTS.get(side, schema)


def _columns(needs: StatementNeeds, cut: TableCut, *, is_open: bool) -> ColumnRead:
    # Where rows are left out, their offsets are compared.
    is_narrow = cut.increment is not None or not (cut.is_cold_whole or not cut.new_cold)
    equals_zero = needs.equals_zero or not is_open
    if needs.columns is None or not is_open or is_narrow:
        return ColumnRead(equals_zero=equals_zero)
    every, compared = cut.cold.schema.names, needs.compared
    names = tuple(name for name in every if fold(name) in needs.columns) or every[:1]
    return ColumnRead(
        names,
        frozenset()
        if compared is None
        else frozenset(name for name in names if fold(name) not in compared),
        equals_zero,
        has_constant=CONSTANT_NAME not in needs.columns,
    )
