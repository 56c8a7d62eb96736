"""From the text of a statement to its tree over relations: parse, gate, resolve, rewrite. Nothing is read yet."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TypeAlias

from connectors.iceberg.pin_cache import PinCache
from planner.errors import RequestError, UnknownTable, UnsupportedStatement
from planner.names import Side, TableName
from planner.reading.needs import StatementNeeds
from planner.seam.time_travel import names_cut
from planner.statement.ast import Node, fold
from planner.statement.conditions import Positions, conjuncts
from planner.statement.dotted_names import AddressableTable, Path, may_name_paths
from planner.statement.gate import check_text
from planner.statement.parameters import may_type_columns
from planner.statement.references import (
    CutKey,
    ResolvedTable,
    TableReference,
    references,
    resolve,
)
from planner.statement.rewrite import apply, rewrite
from planner.statement.shapes import Lifts, Template, TextShape
from proxy.access.policy import AccessPolicy
from proxy.catalog.browser import INFORMATION_SCHEMA, listing_of
from proxy.catalog.system_tables import SYSTEM, system_table_of
from proxy.engine.engine import Engine, PrintedStatement
from proxy.engine.relations import Relation
from proxy.engine.statement_cache import StatementCache
from proxy.session import Session

#: Catalog and schema of names that have none.
_SearchPath: TypeAlias = tuple[str | None, str | None]
#: Schema and name.
Listing: TypeAlias = tuple[str, str]
_NO_LIFTS = Lifts(TextShape(""))


@dataclass(frozen=True, eq=False)
class ParsedStatement:
    """A statement that passed the gate: its tables, and its tree over their relations.

    Compared by identity: it is a cache key.
    """

    #: The tree that is executed; None: it waits for the columns of its relations.
    document: Node | None
    tables: tuple[ResolvedTable, ...]
    #: The statement as it came; of one that is filled in, its first.
    tree: Node
    #: What each name in it means, but for those of information_schema and system.
    resolved: Mapping[TableReference, ResolvedTable]
    #: Tables of information_schema and system, with the schema before the name.
    browsed: tuple[Listing, ...] = ()
    #: The relation of each reference; with the path of each where names may have one before them.
    relations: Mapping[TableReference, str] = field(default_factory=dict)
    paths: Mapping[TableReference, Path] = field(default_factory=dict)
    #: Length of the statement's text: what is kept for it takes memory by that.
    chars: int = 0
    #: Its constants that others of its shape have other values for.
    lifts: Lifts = _NO_LIFTS
    #: The tree over the tables of last time, one entry.
    _trees: dict[tuple[AddressableTable, ...], Node] = field(default_factory=dict, init=False)
    #: The tree that was printed last, with the text of all statements of the shape; one entry.
    _templates: dict[int, tuple[Node, Template | None]] = field(
        default_factory=dict, init=False
    )

    @property
    def first(self) -> ParsedStatement:
        """The first statement of its shape, which has all that is true of each of them."""
        return self

    @property
    def written(self) -> Node:
        """The tree of the statement as it came."""
        return self.tree

    @cached_property
    def positions_of(self) -> Mapping[ResolvedTable, Positions]:
        """What it asks of each table at every place that names it."""
        positions = conjuncts(self.written)
        positions_of: dict[ResolvedTable, Positions] = {}
        for reference, table in self.resolved.items():
            positions_of[table] = positions_of.get(table, ()) + positions[reference]
        return positions_of

    def printed(
        self, relations: Iterable[Relation], unparse: Callable[[Node], str]
    ) -> PrintedStatement:
        """Return what is executed, over relations of these columns.

        Raises:
            UnsupportedStatement: as ``over``, or its text has another tree.
        """
        document = self.over(relations)
        return PrintedStatement(document, unparse(document))

    def template(self, document: Node, unparse: Callable[[Node], str]) -> Template | None:
        """Return the text of a tree of ``over`` for all statements of the shape; None: there is none."""
        entry = self._templates.get(0)
        if entry is None or entry[0] is not document:
            entry = self._templates[0] = document, Template.of(self.lifts, document, unparse)
        return entry[1]

    @cached_property
    def needs(self) -> StatementNeeds:
        """What it needs of its tables."""
        return StatementNeeds.of(self.written, self.positions_of)

    def over(self, relations: Iterable[Relation]) -> Node:
        """Return the tree that is executed, over relations of these columns. It must not be changed.

        Raises:
            UnsupportedStatement: a name may mean either of two things.
        """
        if self.document is not None:
            return self.document
        by_name = {relation.name: relation for relation in relations}
        read = {name: by_name[self.relations[name]] for name in self.paths}
        tables = {
            name: AddressableTable(path, read[name].columns, read[name].nested)
            for name, path in self.paths.items()
        }
        key = tuple(tables.values())
        tree = self._trees.get(key)
        if tree is None:
            tree = rewrite(self.written, self.relations, tables)
            self._trees.clear()
            self._trees[key] = tree
        return tree

    @cached_property
    def may_type_columns(self) -> bool:
        """Whether the types of its columns may depend on its parameters' values."""
        return may_type_columns(self.written)

    @cached_property
    def names(self) -> tuple[TableName, ...]:
        return tuple(sorted({reference.table for reference in self.tables}))

    @cached_property
    def keys(self) -> tuple[CutKey, ...]:
        """What there is a cut of; tables as they are before those of the past, else in the order of names."""
        reference = {reference.key for reference in self.tables}
        return tuple(
            sorted(reference, key=lambda key: (key[1] is not None, key[0], _sortable(key)))
        )

    @cached_property
    def cold_only(self) -> frozenset[TableName]:
        """The tables read only as ``$cold``, as they are."""
        as_is = [reference for reference in self.tables if reference.at is None]
        other = {reference.table for reference in as_is if reference.side is not Side.COLD}
        return frozenset(reference.table for reference in as_is) - other

    @cached_property
    def sides(self) -> frozenset[str]:
        """What is read of one side of a table, or of its past, as users name it."""
        return frozenset(
            str(reference.table.side(reference.side))
            if reference.at is None
            else f"{reference.table} {reference.at}"
            for reference in self.tables
            if reference.side is not Side.BOTH or reference.at
        )


@dataclass(frozen=True, eq=False)
class FilledStatement(ParsedStatement):
    """A statement of a shape that was read before, with ``values`` of its own for what is lifted."""

    origin: ParsedStatement | None = None
    values: tuple[int | str, ...] = ()

    @classmethod
    def of(cls, first: ParsedStatement, values: tuple[int | str, ...]) -> FilledStatement:
        return cls(
            *(first.document, first.tables, first.tree, first.resolved, first.browsed),
            *(first.relations, first.paths, first.chars, first.lifts),
            origin=first,
            values=values,
        )

    @property
    def first(self) -> ParsedStatement:
        assert self.origin is not None  # noqa: S101 - made by ``of`` alone
        return self.origin

    @cached_property
    def written(self) -> Node:
        return self.lifts.fill(self.tree, self.values)

    @property
    def needs(self) -> StatementNeeds:
        return self.first.needs

    def over(self, relations: Iterable[Relation]) -> Node:
        return self.lifts.fill(self.first.over(relations), self.values)

    def printed(
        self, relations: Iterable[Relation], unparse: Callable[[Node], str]
    ) -> PrintedStatement:
        tree = self.first.over(relations)
        template = self.first.template(tree, unparse)
        if template is None:
            return super().printed(relations, unparse)
        return PrintedStatement(tree, template.filled(self.values))


@dataclass(frozen=True, slots=True)
class _Tree:
    """A text that passed the gate, the tables that it names, and its constants that may be others."""

    sql: str
    document: Node
    references: tuple[TableReference, ...]
    lifts: Lifts
    #: It names nothing but tables of ``system``, which are of no catalog.
    is_of_system: bool

    @property
    def values(self) -> tuple[int | str, ...]:
        return self.lifts.shape.values(self.lifts.numbers)

    def is_proved(self, parse: Callable[[str], Node]) -> bool:
        """Whether others of the shape have the same tree but for what is lifted."""
        try:
            return self.lifts.proves(self.sql, self.document, parse)
        except RequestError:
            return False

    def bounded(self) -> ParsedStatement:
        """Rewrite a statement that names no table."""
        document = self.document
        return ParsedStatement(rewrite(document, {}), (), document, {}, chars=len(self.sql))

    def resolved(
        self, path: _SearchPath, tables: Collection[TableName], side: Side
    ) -> ParsedStatement:
        """Find what the names mean among ``tables``."""
        names: dict[ResolvedTable, str] = {}
        meant: dict[TableReference, ResolvedTable] = {}
        relations: dict[TableReference, str] = {}
        browsed: dict[Listing, str] = {}
        paths: dict[TableReference, Path] = {}
        for reference in self.references:
            listing = _listing_of(reference)
            if listing is not None:
                if reference.at is not None:
                    raise UnsupportedStatement(f"{reference} has no versions; leave AT out.")
                relations[reference] = browsed.setdefault(listing, listing_name(listing))
                catalog = reference.catalog or path[0] or ""
                paths[reference] = (catalog, *listing)
                continue
            table = resolve(reference, path[0] or "", path[1] or "", tables)
            if Side.BOTH is table.side is not side and table.at is None:
                table = replace(table, side=side, by_contract=True)
            relations[reference] = names.setdefault(table, relation_name(table))
            paths[reference] = (table.table.catalog, table.table.schema, reference.name)
            meant[reference] = table
        waits = may_name_paths(self.document, paths.values())
        return ParsedStatement(
            None if waits else rewrite(self.document, relations),
            tuple(names),
            self.document,
            meant,
            tuple(browsed),
            relations,
            paths if waits else {},
            chars=len(self.sql),
            lifts=self.lifts,
        )


@dataclass(frozen=True, slots=True)
class _Text:
    """A text, the tree of the first of its shape, and the values that it has for what is lifted there."""

    sql: str
    tree: _Tree
    values: tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class StatementParser:
    """Reads statements, each text once. Thread-safe."""

    engine: Engine
    pins: PinCache
    access: AccessPolicy
    _once: StatementCache = field(default_factory=StatementCache, init=False)

    def read(
        self, sql: str, path: _SearchPath, session: Session, side: Side = Side.BOTH
    ) -> ParsedStatement:
        """Parse, gate, resolve and rewrite; the same text over the same tables is read once.

        ``side`` is what a table's plain name means.

        Raises:
            UnknownTable: there is none of that name among those the session may see.
        """
        text = self._text(sql, TextShape.of(sql))
        tree = text.tree
        if not tree.references:
            # No table named, no catalog asked. It is rewritten all the same: that is what bounds its LIKE.
            return self._once.get(("bounded", sql), tree.bounded, chars=len(sql))
        if tree.is_of_system:
            # What a server does can be asked while no catalog answers.
            return self._resolved(text, path, side, ())
        tables = self.access.visible(session, self.pins.tables())
        read = partial(self._resolved, text, path, side)
        try:
            return read(tables)
        except UnknownTable:
            newer = self.access.visible(
                session, self.pins.relist(session.user, partial(self.access.is_open, session))
            )
            if newer == tables:
                raise
            return read(newer)

    def cached(self, sql: str) -> ParsedStatement | None:
        """Return a statement that names no table and was read before, without waiting."""
        return self._once.cached(("bounded", sql), ParsedStatement)

    def from_shape(
        self, sql: str, path: _SearchPath, session: Session, side: Side
    ) -> ParsedStatement | None:
        """Return what ``read`` does of a text whose shape was read over the same tables, without waiting; else None."""
        shape = TextShape.of(sql)
        lifted = self._lifted(shape)
        tree = None if lifted is None else self._once.cached(("tree", shape.key(lifted)), _Tree)
        if tree is None or not tree.references or tree.is_of_system:
            return None
        if not self.pins.has_listed:
            return None
        values = shape.values(tree.lifts.numbers)
        is_other = values != tree.values
        if is_other and not self._once.cached(("proved", tree.sql), bool):
            return None
        tables = self.access.visible(session, self.pins.tables())
        first = self._once.cached(("first", tree.sql, path, tables, side), ParsedStatement)
        if first is None or not is_other:
            return first
        return self._once.get(
            ("filled", sql, path, tables, side),
            lambda: FilledStatement.of(first, values),
            chars=len(sql),
        )

    def _text(self, sql: str, shape: TextShape) -> _Text:
        """Read a text, or take what was read of the first one of its shape."""
        lifted = self._lifted(shape)
        tree = None if lifted is None else self._once.cached(("tree", shape.key(lifted)), _Tree)
        if tree is None:
            tree = self._checked(sql, shape, lifted)
            self._once.keep(("tree", shape.key(tree.lifts.numbers)), tree, chars=len(sql))
        values = shape.values(tree.lifts.numbers)
        if values != tree.values and not self._once.get(
            ("proved", tree.sql), partial(tree.is_proved, self._gated), chars=len(sql)
        ):
            self._once.keep(("lifted", shape.outline), (), chars=len(sql))
            return self._text(sql, shape)
        return _Text(sql, tree, values)

    def _lifted(self, shape: TextShape) -> tuple[int, ...] | None:
        """Return the numbers of the constants that are lifted; None: no text of the shape was read."""
        if not shape.constants:
            return ()
        return self._once.cached(("lifted", shape.outline), tuple)

    def _gated(self, sql: str) -> Node:
        check_text(sql)
        document = self.engine.parse(sql)
        apply(document, text=sql)
        return document

    def _checked(self, sql: str, shape: TextShape, lifted: tuple[int, ...] | None) -> _Tree:
        """Parse and gate a text, the first of a shape where nothing is known of it."""
        document = self._gated(sql)
        lifts = Lifts.of(shape, document)
        if lifted is None:
            self._once.keep(("lifted", shape.outline), lifts.numbers, chars=len(sql))
        elif lifted != lifts.numbers:
            lifts = Lifts(shape)
            self._once.keep(("lifted", shape.outline), (), chars=len(sql))
        named = references(document)
        listings = map(_listing_of, named)
        is_of_system = bool(named) and all(each and each[0] == SYSTEM for each in listings)
        return _Tree(sql, document, named, lifts, is_of_system)

    def _resolved(
        self, text: _Text, path: _SearchPath, side: Side, tables: Collection[TableName]
    ) -> ParsedStatement:
        """Find what the names of a text mean. The same text over the same tables is the same statement.

        A text that was filled in may become the first of its shape, when that is forgotten: then it is another statement.
        """
        tree, values = text.tree, text.values

        def first() -> ParsedStatement:
            return self._once.get(
                ("first", tree.sql, path, tables, side),
                lambda: tree.resolved(path, tables, side),
                chars=len(tree.sql),
            )

        if values == tree.values:
            return first()
        return self._once.get(
            ("filled", text.sql, path, tables, side),
            lambda: FilledStatement.of(first(), values),
            chars=len(text.sql),
        )


def counting(session: Session, sql: str, parsed: ParsedStatement) -> Iterator[str]:
    """Name the features of a statement that disclose how many records its tables have."""
    if session.after is not None:
        yield "following"
    for setting in ("cut", "wait_for"):
        if getattr(session, setting) is not None:
            yield f"the setting {setting}"
    if "thermocline_cut" in sql.lower():
        yield "thermocline_cut()"
    for _, at in parsed.keys:
        if at is not None and names_cut(at):
            yield "AT with a cut"


def relation_name(table: ResolvedTable) -> str:
    """Return an internal name that no user's table has. It names table and side, and no path."""
    moment = (
        "" if table.at is None else hashlib.sha256(repr(table.at).encode()).hexdigest()[:16]
    )
    # A statement may name a side, and have it of a contract, too.
    side = f"{table.side.value or 'all'}{'*' if table.by_contract else ''}"
    return f"__tc:{table.table}:{side}{moment and '@'}{moment}"


def _sortable(key: CutKey) -> tuple[str, str]:
    return ("", "") if key[1] is None else (key[1].unit, key[1].expression)


def listing_name(listing: Listing) -> str:
    """The same for a table of information_schema or system."""
    return f"__tc:{'.'.join(listing)}"


def _listing_of(reference: TableReference) -> Listing | None:
    """Which of the tables that every server has a reference means; None: one of a catalog."""
    schema = fold(reference.schema or "")
    named = _LISTINGS.get(schema)
    name = None if named is None else named(reference)
    return None if name is None else (schema, name)


_LISTINGS: Mapping[str, Callable[[TableReference], str | None]] = {
    INFORMATION_SCHEMA: listing_of,
    SYSTEM: system_table_of,
}
