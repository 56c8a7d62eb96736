"""Who may read what: grants, and what one of them leaves of a table.

Rules:

1. Without a policy everything is open. With one, tables that no grant names are closed.
2. The first grant that names both the user (or a group of his) and the table decides, alone. Grants do not add
   up, so what a user sees of a table is written in one place.
3. A grant that names a column which the table does not have closes the table: a renamed column must neither
   lose its mask nor leave the list of hidden ones.
4. ``kafka_key``, ``kafka_headers``, ``kafka_value`` and ``kafka_error`` have the whole record, masked values included.
   A grant that restricts anything opens only those it names.
5. A name with dots is a field of a struct: left out, masked, or the only one that is open. Elements of lists and maps
   have no names.
6. ``kafka_offset`` counts records, hidden ones too. A grant that filters rows and closes it also closes all else that
   counts them: cuts, positions, waiting for an offset.
7. Facts of a whole table (``$seam``, ``$schemas``, ``$snapshots``, counts, offsets) include hidden rows, so a row filter closes them.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Flag, auto

import pyarrow as pa

from planner.errors import BadConfig, NotAllowed, PermissionsMismatch
from planner.names import (
    KAFKA_OFFSET,
    KAFKA_TIMESTAMP,
    OPTIONAL_COLUMNS,
    Side,
    TableName,
    name_parts,
)
from planner.schema import TableSchema
from planner.statement.ast import Node, fold
from planner.statement.references import ResolvedTable
from planner.statement.row_expression import bound_to, columns_of

#: Stands for every user, every column but the raw ones, and the rest of a table's name.
ANY = "*"


@dataclass(frozen=True, slots=True)
class Identity:
    """A caller. ``user`` is None for anonymous ones."""

    user: str | None
    groups: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class TablePattern:
    """``*``, ``catalog.*``, ``catalog.namespace.*`` (namespaces below included), or one table. Case counts."""

    parts: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> TablePattern:
        """Read a pattern.

        Raises:
            BadConfig: an empty part, a star that is not the whole last part, or too few parts for a table.
        """
        parts = name_parts(text)
        stars = any(ANY in part for part in parts[:-1]) or (
            ANY in parts[-1] and parts[-1] != ANY
        )
        if not all(parts) or stars or (len(parts) < 3 and parts[-1] != ANY):
            raise BadConfig(
                f"{text!r} names no tables; write catalog.namespace.table, catalog.namespace.*, catalog.* or *."
            )
        return cls(parts)

    def covers(self, table: TableName) -> bool:
        # For each grant and table of every statement.
        parts = table.parts
        if self.parts[-1] != ANY:
            return parts == self.parts
        head = self.parts[:-1]
        return len(parts) > len(head) and parts[: len(head)] == head


class FactKinds(Flag):
    """What facts of a whole table tell of its records: how many there are, their bytes, and when they were written."""

    COUNTS = auto()
    SIZES = auto()
    TIMES = auto()


@dataclass(frozen=True, slots=True)
class RowExpression:
    """An expression over a row, as it is written and as a tree. Equal texts are equal."""

    text: str
    tree: Node = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Grant:
    """What some users may see of some tables. ``columns`` and ``without`` are as configured, ``masks`` by column.

    ``files``: they may read the tables' files, which have every row and column.
    """

    name: str
    tables: tuple[TablePattern, ...]
    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    columns: tuple[str, ...] = (ANY,)
    without: tuple[str, ...] = ()
    rows: RowExpression | None = None
    masks: tuple[tuple[str, RowExpression], ...] = ()
    files: bool = False

    def __post_init__(self) -> None:
        masked = [column for column, _ in self.masks]
        for wrong, what in (
            (not (self.users or self.groups), "names neither users nor groups"),
            (not self.tables, "names no tables"),
            (not self.columns, "opens no column"),
            (ANY not in self.columns and bool(self.without), "lists columns and leaves some out"),
            (bool({*self.without} & {*self.columns, *masked}), "both opens and leaves out a column"),
            (ANY not in self.columns and not all(map(self._lists, masked)), "masks a closed column"),
            (any({*_above(column)} & {*masked} for column in masked), "masks a column and a field of it"),
        ):  # fmt: skip
            if wrong:
                raise BadConfig(
                    f"permissions.{self.name} {what}; see docs/security.md.", key=self.name
                )

    def _lists(self, column: str) -> bool:
        return not {column, *_above(column)}.isdisjoint(self.columns)

    @property
    def is_whole(self) -> bool:
        return self.columns == (ANY,) and not (self.without or self.rows or self.masks)

    @property
    def hides_count(self) -> bool:
        """Whether the number of records is hidden."""
        return self.rows is not None and not _opens(self, KAFKA_OFFSET)

    @property
    def closed_facts(self) -> FactKinds:
        """Facts of the whole table that are about hidden rows, or tell values of hidden columns."""
        if self.rows is not None:
            return ~FactKinds(0)
        if self.is_whole:
            return FactKinds(0)
        has_times = KAFKA_TIMESTAMP not in dict(self.masks) and _opens(self, KAFKA_TIMESTAMP)
        return FactKinds.SIZES if has_times else FactKinds.SIZES | FactKinds.TIMES

    def names(self, identity: Identity) -> bool:
        return (
            ANY in self.users
            or (identity.user is not None and identity.user in self.users)
            or not self.groups.isdisjoint(identity.groups)
        )

    def covers(self, table: TableName) -> bool:
        return any(pattern.covers(table) for pattern in self.tables)


@dataclass(frozen=True, slots=True)
class VisibleColumns:
    """A table under a grant: ``schema`` of the open columns, ``masks`` by column, the filter ``rows``.

    ``masks`` has fields of structs by their dotted names; ``parted`` are structs with closed fields. ``plain`` are the
    columns with the table's own values: only those may decide which files are read.
    """

    schema: TableSchema
    masks: Mapping[str, Node]
    rows: Node | None
    parted: frozenset[str] = frozenset()

    @property
    def plain(self) -> TableSchema:
        closed = self.masks.keys() | self.parted
        own = (column for column in self.schema.columns if column.name not in closed)
        return replace(self.schema, columns=tuple(own))


@dataclass(frozen=True, slots=True)
class GrantList:
    grants: tuple[Grant, ...]

    def grant(self, identity: Identity, table: TableName) -> Grant | None:
        """Return the first grant that names user and table; None: the table is closed."""
        own = (grant for grant in self.grants if grant.names(identity) and grant.covers(table))
        return next(own, None)

    def visible(self, identity: Identity, tables: Iterable[TableName]) -> tuple[TableName, ...]:
        """Return the tables that are not closed, in their order."""
        own = [grant for grant in self.grants if grant.names(identity)]
        return tuple(table for table in tables if any(grant.covers(table) for grant in own))

    def opens(self, identity: Identity, catalog: str) -> bool:
        """Whether a grant names tables of a catalog, if there are such tables."""
        return any(
            pattern.parts[0] in (ANY, catalog)
            for grant in self.grants
            if grant.names(identity)
            for pattern in grant.tables
        )

    def check_count_disclosure(
        self, identity: Identity, tables: Iterable[TableName], counting: Iterable[str]
    ) -> bool:
        """Return whether the number of records of one of ``tables`` is hidden.

        ``counting`` names the counting feature that the statement uses, as users call it.

        Raises:
            NotAllowed: it is hidden and the statement uses such a feature.
        """
        for table in tables:
            grant = self.grant(identity, table)
            if grant is not None and grant.hides_count:
                for what in counting:
                    raise NotAllowed(
                        f"{table}: {what} would tell how many records there are, also of rows that you may not see; "
                        f"leave it out.",
                        table=str(table),
                    )
                return True
        return False

    def fingerprint(self, identity: Identity, tables: Iterable[TableName]) -> str:
        """Return a text that changes whenever the rights of ``identity`` to ``tables`` may have changed."""
        grants = [(str(table), self.grant(identity, table)) for table in sorted(tables)]
        rules = [(name, None if grant is None else _content(grant)) for name, grant in grants]
        # Expressions may look at user and groups.
        has_rule = any(grant and (grant.rows or grant.masks) for _, grant in grants)
        who = [identity.user, sorted(identity.groups)] if has_rule else None
        text = json.dumps([rules, who], sort_keys=True)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _content(grant: Grant) -> list[object]:
    rows = None if grant.rows is None else grant.rows.text
    masks = sorted((column, expression.text) for column, expression in grant.masks)
    return [grant.columns, grant.without, rows, masks]


def check_files(grant: Grant, identity: Identity, table: TableName) -> None:
    """Refuse to give out the table's files under a grant that hides rows or columns.

    Raises:
        NotAllowed: the grant hides something, and does not open the files all the same.
    """
    if not (grant.is_whole or grant.files):
        raise NotAllowed(
            f"{table}: you may read a part of it only, and engines read whole files; read it over Flight SQL.",
            table=str(table),
            user=identity.user,
        )


def check_whole(grant: Grant, identity: Identity, table: TableName) -> None:
    """Make sure that this grant hides nothing: its user reads other parts of the table without the server.

    Raises:
        NotAllowed: it hides something. That it opens the files does not count: an answer would have masked rows beside
            others.
    """
    if not grant.is_whole:
        raise NotAllowed(
            f"{table}: you may read a part of it only, so nothing of it may be read beside the server; read all of it "
            f"through the server.",
            table=str(table),
            user=identity.user,
        )


def view(
    grant: Grant, identity: Identity, table: ResolvedTable, schema: TableSchema
) -> VisibleColumns | None:
    """Return a table, or the view on one of its sides, under ``grant``; None: all of it is open.

    Raises:
        PermissionsMismatch: the grant names a column that ``schema`` does not have.
        NotAllowed: facts of the table, under a filter.
    """
    if grant.is_whole:
        return None
    if table.side.is_facts:
        if FactKinds.COUNTS in grant.closed_facts:
            tells = "counts" if table.side is Side.SEAM else "tells of"
            raise NotAllowed(
                f"{table.table}${table.side.value} {tells} rows that you may not see; read the table itself.",
                table=str(table.table),
            )
        return None
    named = {*grant.columns, *grant.without, *(column for column, _ in grant.masks)} - {ANY}
    names = Counter(
        path for candidate in schema.columns for path in _paths(candidate.name, candidate.type)
    )
    for column in sorted(named):
        if names[column] == 0:
            raise _unknown(grant, table.table, column)
        if names[column] > 1:
            why = f"it names {column}, both a column and a field of another"
            raise mismatch(grant, table.table, why)
    parted = frozenset(
        path
        for candidate in schema.columns
        for path in _parted(candidate.name, candidate.type, named)
    )
    masked = dict(grant.masks)
    visible = tuple(
        replace(column, type=kind, required=column.required and column.name not in masked)
        for column in schema.columns
        if (kind := _left(grant, parted, column.name, column.type, _opens(grant, column.name)))
        is not None
    )
    if not visible:
        raise mismatch(grant, table.table, "it opens no column")

    def bound(expression: RowExpression) -> Node:
        names_by_fold = {fold(name): name for name in schema.names}
        for column in columns_of(expression.tree):
            if fold(column) not in names_by_fold:
                raise _unknown(grant, table.table, column)
        return bound_to(expression.tree, identity.user, identity.groups, names_by_fold)

    return VisibleColumns(
        replace(schema, columns=visible),
        {column: bound(expression) for column, expression in grant.masks},
        None if grant.rows is None else bound(grant.rows),
        parted,
    )


def _opens(grant: Grant, column: str) -> bool:
    """Whether a column is open, fields aside."""
    if column in grant.columns or column in dict(grant.masks):
        return True
    return ANY in grant.columns and column not in (*grant.without, *OPTIONAL_COLUMNS)


def _left(
    grant: Grant, parted: Collection[str], path: str, kind: pa.DataType, is_open: bool
) -> pa.DataType | None:
    """Return the type of the open part of a column or field; None: nothing is open."""
    if path not in parted or path in dict(grant.masks) or path in grant.without:
        return kind if is_open and path not in grant.without else None
    left = []
    for inner, part in _fields(path, kind):
        masked = inner in dict(grant.masks)
        opened = is_open or masked or inner in grant.columns
        own = _left(grant, parted, inner, part.type, opened)
        if own is not None:
            left.append(part.with_type(own).with_nullable(part.nullable or masked))
    return pa.struct(left) if left else None


def _fields(path: str, kind: pa.DataType) -> Iterator[tuple[str, pa.Field]]:
    """Yield the fields of a struct, by dotted name."""
    if pa.types.is_struct(kind):
        for part in kind:
            yield f"{path}.{part.name}", part


def _paths(path: str, kind: pa.DataType) -> Iterator[str]:
    """Name a column, and all fields of structs in it."""
    yield path
    for inner, part in _fields(path, kind):
        yield from _paths(inner, part.type)


def _parted(path: str, kind: pa.DataType, named: Collection[str]) -> Iterator[str]:
    """Name the structs that contain a field of ``named``."""
    for inner, part in _fields(path, kind):
        yield from _parted(inner, part.type, named)
    if any(inner in named for inner in _paths(path, kind) if inner != path):
        yield path


def _above(path: str) -> Iterator[str]:
    """Name the structs a field is in, if its name is one."""
    while "." in path:
        path = path.rpartition(".")[0]
        yield path


def _unknown(grant: Grant, table: TableName, column: str) -> PermissionsMismatch:
    return mismatch(grant, table, f"it names column {column}, which the table does not have")


def mismatch(grant: Grant, table: TableName, why: str) -> PermissionsMismatch:
    """Return the error of a grant that does not fit a table. Its message has no hidden name."""
    return PermissionsMismatch(
        f"{table}: the permissions that hold for you do not fit the table, so nothing of it is told; the "
        f"server's log says what its operator must mend.",
        table=str(table),
        grant=grant.name,
        why=why,
    )
