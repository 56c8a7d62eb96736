"""From the text of a statement to its tree over relations: parse, gate, resolve, rewrite. Nothing is read yet."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from planner.errors import UnknownTable, UnsupportedStatement
from planner.names import TableName
from planner.statement.ast import Node
from planner.statement.conjuncts import Places, conjuncts
from planner.statement.date_parts import quote_date_parts
from planner.statement.gate import check, check_text
from planner.statement.references import (
    CutKey,
    ResolvedTable,
    TableReference,
    Virtual,
    references,
    resolve,
)
from planner.statement.rewrite import rewrite
from proxy import information_schema
from proxy.cuts import Pins
from proxy.engine.engine import Engine
from proxy.flightsql.backend import Session
from proxy.grants import Grants
from proxy.once import Once


@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """A statement that passed the gate: its tables, and its tree over their relations. Equal to itself only."""

    document: Node
    tables: tuple[ResolvedTable, ...]
    #: The statement as it came, and what it asks of each table at every place that names it.
    written: Node
    asked: Mapping[ResolvedTable, Places]
    #: Tables of information_schema, by their names there.
    browsed: tuple[str, ...] = ()
    #: Length of the statement's text: what is kept for it takes memory by that.
    chars: int = 0

    @property
    def names(self) -> tuple[TableName, ...]:
        return tuple(sorted({found.table for found in self.tables}))

    @property
    def keys(self) -> tuple[CutKey, ...]:
        """What there is a cut of; tables as they are before those of the past, else in the order of names."""
        found = {found.key for found in self.tables}
        return tuple(
            sorted(found, key=lambda key: (key[1] is not None, key[0], _sortable(key)))
        )

    @property
    def cold_only(self) -> frozenset[TableName]:
        """The tables of which nothing but ``$cold`` is read, as they are."""
        as_is = [found for found in self.tables if found.at is None]
        other = {found.table for found in as_is if found.virtual != "cold"}
        return frozenset(found.table for found in as_is) - other

    @property
    def sides(self) -> frozenset[str]:
        """What is read of one side of a table, or of its past, as users name it."""
        return frozenset(
            f"{found.table}${found.virtual}"
            if found.at is None
            else f"{found.table} {found.at}"
            for found in self.tables
            if found.virtual or found.at
        )


class Reader:
    """Reads statements, each text once. Thread-safe."""

    def __init__(self, engine: Engine, pins: Pins, grants: Grants) -> None:
        self._engine = engine
        self._pins = pins
        self._grants = grants
        self._once = Once()

    def read(
        self,
        sql: str,
        path: tuple[str | None, str | None],
        session: Session,
        side: Virtual | None = None,
    ) -> Read:
        """Parse, gate, resolve and rewrite; the same text over the same tables is read once.

        ``side`` is what a table's plain name means; None: the whole.

        Raises:
            UnknownTable: there is none of that name among those the session may see.
        """
        document, named = self._once.get(
            ("tree", sql), lambda: self._checked(sql), chars=len(sql)
        )
        if not named:
            # No table named, no catalog asked. It is rewritten all the same: that is what bounds its LIKE.
            return self._once.get(
                ("bounded", sql),
                lambda: Read(rewrite(document, {}), (), document, {}, chars=len(sql)),
                chars=len(sql),
            )
        tables = self._grants.visible(session, self._pins.tables())
        try:
            return self._resolved(sql, document, named, path, tables, side)
        except UnknownTable:
            newer = self._grants.visible(session, self._pins.relist())
            if newer == tables:
                raise
            return self._resolved(sql, document, named, path, newer, side)

    def known(self, sql: str) -> Read | None:
        """Return a statement that names no table and was read before. Nobody is asked."""
        return self._once.known(("bounded", sql), Read)

    def _checked(self, sql: str) -> tuple[Node, tuple[TableReference, ...]]:
        check_text(sql)
        document = self._engine.parse(sql)
        check(document)
        document = quote_date_parts(document)
        return document, references(document)

    def _resolved(
        self,
        sql: str,
        document: Node,
        named: tuple[TableReference, ...],
        path: tuple[str | None, str | None],
        tables: Collection[TableName],
        side: Virtual | None,
    ) -> Read:
        def resolved() -> Read:
            names: dict[ResolvedTable, str] = {}
            relations: dict[TableReference, str] = {}
            asked: dict[ResolvedTable, Places] = {}
            places = conjuncts(document)
            browsed: dict[str, str] = {}
            for reference in named:
                listing = information_schema.named(reference)
                if listing is not None:
                    if reference.at is not None:
                        raise UnsupportedStatement(
                            f"{reference} has no versions; leave AT out."
                        )
                    relations[reference] = browsed.setdefault(listing, listing_name(listing))
                    continue
                found = resolve(reference, path[0] or "", path[1] or "", tables)
                if side is not None and found.virtual is None and found.at is None:
                    found = replace(found, virtual=side, by_contract=True)
                relations[reference] = names.setdefault(found, relation_name(found))
                asked[found] = asked.get(found, ()) + places[reference]
            rewritten = rewrite(document, relations)
            return Read(
                rewritten, tuple(names), document, asked, tuple(browsed), chars=len(sql)
            )

        return self._once.get(("read", sql, path, tables, side), resolved, chars=len(sql))


def relation_name(found: ResolvedTable) -> str:
    """An internal name no table of a user's has: it says which side of which table it is, and no path."""
    moment = (
        "" if found.at is None else hashlib.sha256(repr(found.at).encode()).hexdigest()[:16]
    )
    return f"__tc:{found.table}:{found.virtual or 'all'}{moment and '@'}{moment}"


def _sortable(key: CutKey) -> tuple[str, str]:
    return ("", "") if key[1] is None else (key[1].unit, key[1].expression)


def listing_name(name: str) -> str:
    """The same for a table of information_schema."""
    return f"__tc:{information_schema.NAME}.{name}"
