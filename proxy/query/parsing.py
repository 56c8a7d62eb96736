"""From the text of a statement to its tree over relations: parse, gate, resolve, rewrite. Nothing is read yet."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

from connectors.iceberg.pin_cache import PinCache
from planner.errors import RequestError, UnknownTable, UnsupportedStatement
from planner.names import Side, TableName
from planner.reading.parsed_statement import FilledStatement, Listing, ParsedStatement
from planner.seam.time_travel import names_cut
from planner.statement.ast import Node, fold
from planner.statement.dotted_names import Path, may_name_paths
from planner.statement.gate import check_text
from planner.statement.references import (
    ResolvedTable,
    TableReference,
    references,
    resolve,
)
from planner.statement.rewrite import apply, rewrite
from planner.statement.shapes import MAX_CHARS, Lifts, TextShape
from proxy.access.policy import AccessPolicy
from proxy.catalog.browser import INFORMATION_SCHEMA, listing_of
from proxy.catalog.system_tables import SYSTEM, system_table_of
from proxy.engine.engine import Engine
from proxy.engine.statement_cache import StatementCache
from proxy.session import Session

#: Texts whose shapes are remembered from one call of a statement to the next.
_MAX_SHAPES = 256
#: Catalog and schema of names that have none.
_SearchPath: TypeAlias = tuple[str | None, str | None]
#: Takes a turn of a user's for the time of a block (``proxy.access.fairness.PlanningQueue``).
Turn: TypeAlias = Callable[[], AbstractContextManager[None]]


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
    _shapes: StatementCache = field(
        default_factory=lambda: StatementCache(_MAX_SHAPES), init=False
    )

    def read(
        self,
        sql: str,
        path: _SearchPath,
        session: Session,
        side: Side = Side.BOTH,
        turn: Turn = nullcontext,
    ) -> ParsedStatement:
        """Parse, gate, resolve and rewrite; the same text over the same tables is read once.

        ``side`` is what a table's plain name means. A ``turn`` is taken for what computes, none while a catalog is waited for.

        Raises:
            UnknownTable: there is none of that name among those the session may see.
        """
        visible = partial(self.access.visible, session)
        with turn():
            text = self._text(sql, self._shape(sql))
            tree = text.tree
            if not tree.references:
                # No table named, no catalog asked. It is rewritten all the same: that is what bounds its LIKE.
                return self._once.get(("bounded", sql), tree.bounded, chars=len(sql))
            if tree.is_of_system:
                # What a server does can be asked while no catalog answers.
                return self._resolved(text, path, side, ())
            read = partial(self._resolved, text, path, side)
            is_listed = self.pins.has_listed
            if is_listed:  # mostly
                with suppress(UnknownTable):
                    return read(visible(self.pins.tables()))
        if not is_listed:
            tables = self.pins.tables()
            with turn(), suppress(UnknownTable):
                return read(visible(tables))
        newer = self.pins.relist(session.user, partial(self.access.is_open, session))
        with turn():
            return read(visible(newer))

    def cached(self, sql: str) -> ParsedStatement | None:
        """Return a statement that names no table and was read before, without waiting."""
        return self._once.cached(("bounded", sql), ParsedStatement)

    def from_shape(
        self, sql: str, path: _SearchPath, session: Session, side: Side
    ) -> ParsedStatement | None:
        """Return what ``read`` does of a text whose shape was read over the same tables, without waiting; else None."""
        shape = self._shape(sql)
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

    def _shape(self, sql: str) -> TextShape:
        """Read a text's shape once: it comes two to four times, to be prepared, planned and opened."""
        if len(sql) > MAX_CHARS:
            return TextShape(sql)
        return self._shapes.get(sql, partial(TextShape.of, sql), chars=len(sql))

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
