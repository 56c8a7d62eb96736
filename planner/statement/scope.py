"""What a table name means at each place of a statement: a table, or a WITH clause, by the rules of DuckDB 1.5.5.

A WITH clause sees the clauses written before it; only the second branch of a recursive clause sees its own name; inner
clauses hide outer ones; a qualified name is never one, but for ``recurring.name`` (USING KEY).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any

from planner.statement.ast import Node, children, node_fields, nodes_below, statement

Name = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Scope:
    """Names visible at one node, folded.

    ``ctes`` are names of WITH clauses, ``recurring`` those that ``recurring.name`` may address. ``aliases``
    maps the names under which a table without alias is addressed, in this query or from inside it, to the
    alias it has once the table is called something else; None where it would be another table's.
    """

    ctes: frozenset[str] = frozenset()
    recurring: frozenset[str] = frozenset()
    aliases: Mapping[Name, str | None] = field(default_factory=dict)

    def is_cte(self, table: Node) -> bool:
        """Whether a BASE_TABLE names a WITH clause here."""
        if table["catalog_name"]:
            return False
        name = fold(table["table_name"])
        if table["schema_name"]:
            return fold(table["schema_name"]) == "recurring" and name in self.recurring
        return name in self.ctes

    def _with_cte(self, name: str, *, recurs: bool = False) -> Scope:
        folded = fold(name)
        recurring = self.recurring | {folded} if recurs else self.recurring - {folded}
        return replace(self, ctes=self.ctes | {folded}, recurring=recurring)

    def _with_tables(self, tables: list[Node], crowded: Set[str]) -> Scope:
        """Add the tables of one FROM clause.

        ``c.s.t`` is addressed as ``t``, ``s.t`` or ``c.s.t``. It gets the alias ``t``, or its full name where
        the statement has another ``t``: then ``t`` still means the innermost one.
        """
        aliases = dict(self.aliases)
        here = Counter(fold(visible_name(table)) for table in tables)
        for table in tables:
            name = fold(visible_name(table))
            aliases.pop((name,), None)
            named = is_table(table) and not table["alias"] and not self.is_cte(table)
            if named and not table["schema_name"]:
                # Without its schema, ``s.t`` may mean this one or one outside: the text does not tell.
                outside = [path for path in self.aliases if path[1:] and path[-1] == name]
                aliases.update(dict.fromkeys(outside))
        for table in tables:
            if _needs_alias(table):
                written = written_name(table)
                folded = tuple(fold(part) for part in written)
                alias = written[-1]
                if folded[-1] in crowded:
                    alias = ".".join(written)
                    if here[folded[-1]] == 1:
                        aliases[folded[-1:]] = alias
                aliases.update({folded: alias, folded[-2:]: alias})
        return replace(self, aliases=aliases)


def scoped(document: Node, *, aliases: bool = False) -> Iterator[tuple[Node, Scope]]:
    """Yield every node with its scope, parents first. A yielded node's plain fields may be altered.

    The document has passed the gate: its depth and kinds are not checked again. Scopes have ``aliases`` only on
    request: they take another walk.
    """
    crowded: Set[str] | None = None
    pending: list[tuple[Any, Scope]] = [(statement(document), Scope())]
    while pending:
        value, scope = pending.pop()
        if value.__class__ is list:
            pending += [(item, scope) for item in reversed(value)]
            continue
        if "cte_map" not in value:
            yield value, scope
            for name in node_fields(value):
                child = value.get(name)
                if child:
                    pending.append((child, scope))
            continue
        bodies: list[tuple[Any, Scope]] = []
        for entry in value["cte_map"]["map"]:
            bodies.append((entry["value"], scope))
            scope = scope._with_cte(entry["key"])
        if aliases and value["type"] == "SELECT_NODE":
            tables = list(from_tables(value["from_table"]))
            if scope.aliases or any(map(_needs_alias, tables)):
                crowded = _crowded(document) if crowded is None else crowded
                scope = scope._with_tables(tables, crowded)
        yield value, scope
        nodes = [(child, scope) for child in children(value) if child is not value["cte_map"]]
        if value["type"] == "RECURSIVE_CTE_NODE":
            recursing = scope._with_cte(value["cte_name"], recurs=True)
            nodes = [
                (child, recursing if child is value["right"] else scope) for child, _ in nodes
            ]
        pending += reversed(bodies + nodes)


def _needs_alias(table: Node) -> bool:
    """Whether a table is named with its schema and without an alias, so that its relation needs one."""
    return is_table(table) and not table["alias"] and bool(table["schema_name"])


def _crowded(document: Node) -> Set[str]:
    """Return the names that more than one place of a statement gives to a table; folded."""
    names = Counter(
        fold(visible_name(node))
        for node in nodes_below(statement(document))
        if "class" not in node and "alias" in node
    )
    return {name for name, count in names.items() if count > 1}


def from_tables(table: Node) -> Iterator[Node]:
    """Yield the tables of one FROM clause, not those of its subqueries."""
    pending = [table]
    while pending:
        node = pending.pop()
        kind = node["type"]
        if kind == "JOIN":
            pending += [node["right"], node["left"]]
        elif kind == "PIVOT" and not node["alias"]:
            pending.append(node["source"])
        else:
            yield node


def is_table(table: Node) -> bool:
    return table.get("type") == "BASE_TABLE"


def visible_name(table: Node) -> str:
    """Return the name a table reference has in its FROM clause; empty if it has none."""
    return str(table["alias"] or table.get("table_name", ""))


def written_name(table: Node) -> Name:
    parts = (table["catalog_name"], table["schema_name"], table["table_name"])
    return tuple(part for part in parts if part)


def fold(name: str) -> str:
    """Fold case as DuckDB compares names: ASCII letters only."""
    if name.isascii():
        return name.lower()
    return name.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")
