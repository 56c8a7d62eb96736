"""A statement that passed the gate: its tree over relations, its tables, and what it needs of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol, TypeAlias

from planner.names import Side, TableName
from planner.reading.needs import StatementNeeds
from planner.statement.ast import Node
from planner.statement.conditions import Positions, conjuncts
from planner.statement.dotted_names import AddressableTable, Path
from planner.statement.parameters import may_type_columns
from planner.statement.references import CutKey, ResolvedTable, TableReference
from planner.statement.rewrite import rewrite
from planner.statement.shapes import Lifts, Template, TextShape

#: Schema and name.
Listing: TypeAlias = tuple[str, str]


class StatementRelation(Protocol):
    """Rows under a name: the columns that a statement sees of them, and those among them with fields."""

    @property
    def name(self) -> str: ...

    @property
    def columns(self) -> tuple[str, ...]: ...

    @property
    def nested(self) -> frozenset[str]: ...


@dataclass(frozen=True, slots=True)
class PrintedStatement:
    """A rewritten statement and its SQL. Of ``document`` the parameters count alone: constants may differ from the SQL's."""

    document: Node
    sql: str


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

    @cached_property
    def positions_of(self) -> Mapping[ResolvedTable, Positions]:
        """What it asks of each table at every place that names it."""
        positions = conjuncts(self.tree)
        positions_of: dict[ResolvedTable, Positions] = {}
        for reference, table in self.resolved.items():
            positions_of[table] = positions_of.get(table, ()) + positions[reference]
        return positions_of

    def printed(
        self, relations: Iterable[StatementRelation], unparse: Callable[[Node], str]
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
        return StatementNeeds.of(self.tree, self.positions_of)

    def over(self, relations: Iterable[StatementRelation]) -> Node:
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
            tree = rewrite(self.tree, self.relations, tables)
            self._trees.clear()
            self._trees[key] = tree
        return tree

    @cached_property
    def may_type_columns(self) -> bool:
        """Whether the types of its columns may depend on its parameters' values."""
        return may_type_columns(self.tree)

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
    def positions_of(self) -> Mapping[ResolvedTable, Positions]:
        # Without the tree, which takes ten times as long to copy and to read.
        filled = self.lifts.filling(self.values)
        return {
            table: tuple(
                tuple(each.over(tuple(map(filled, each.operands))) for each in position)
                for position in positions
            )
            for table, positions in self.first.positions_of.items()
        }

    @property
    def needs(self) -> StatementNeeds:
        return self.first.needs

    def over(self, relations: Iterable[StatementRelation]) -> Node:
        return self.lifts.fill(self.first.over(relations), self.values)

    def printed(
        self, relations: Iterable[StatementRelation], unparse: Callable[[Node], str]
    ) -> PrintedStatement:
        tree = self.first.over(relations)
        template = self.first.template(tree, unparse)
        if template is None:
            return super().printed(relations, unparse)
        return PrintedStatement(tree, template.filled(self.values))


def _sortable(key: CutKey) -> tuple[str, str]:
    return ("", "") if key[1] is None else (key[1].unit, key[1].expression)
