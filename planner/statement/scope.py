"""What a table name means at each place of a statement: a table, or a WITH clause, by the rules of DuckDB 1.5.5.

A WITH clause sees the clauses written before it; only the second branch of a recursive clause sees its own name; inner
clauses hide outer ones; a qualified name is never one, but for ``recurring.name`` (USING KEY).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from planner.statement.ast import Node, children, node_fields, statement

#: What a FROM clause joins: nodes of tables, subqueries, functions.
Nodes = tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Scope:
    """Names visible at one node, folded.

    ``ctes`` are WITH clauses by name, None for the clause around the node, ``recurring`` names that ``recurring.name`` may address. ``frames``, not folded,
    are what the FROM clauses around the node join, the innermost first.
    """

    ctes: Mapping[str, Node | None] = field(default_factory=dict)
    recurring: frozenset[str] = frozenset()
    frames: tuple[Nodes, ...] = ()

    def is_cte(self, table: Node) -> bool:
        """Whether a BASE_TABLE names a WITH clause here."""
        if table["catalog_name"]:
            return False
        name = fold(table["table_name"])
        if table["schema_name"]:
            return fold(table["schema_name"]) == "recurring" and name in self.recurring
        return name in self.ctes

    def _with_cte(self, name: str, clause: Node | None) -> Scope:
        folded = fold(name)
        recurring = self.recurring | {folded} if clause is None else self.recurring - {folded}
        return replace(self, ctes={**self.ctes, folded: clause}, recurring=recurring)

    def _with_frame(self, frame: Nodes) -> Scope:
        return replace(self, frames=(frame, *self.frames)) if frame else self


def scoped(document: Node) -> Iterator[tuple[Node, Scope]]:
    """Yield every node with its scope, parents first. A yielded node's plain fields may be altered.

    The document has passed the gate: its depth and kinds are not checked again.
    """
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
            scope = scope._with_cte(entry["key"], entry["value"])
        inside, kind = scope, value["type"]
        if kind == "SELECT_NODE":
            inside = scope = scope._with_frame(_joined(value["from_table"]))
        elif kind == "SET_OPERATION_NODE" and value["modifiers"]:
            # ORDER BY may name the tables of every side (DuckDB 1.5.5).
            inside = scope._with_frame(_joined(value))
        yield value, inside
        nodes = [
            (child, inside if child is value["modifiers"] else scope)
            for child in children(value)
            if child is not value["cte_map"]
        ]
        if kind == "RECURSIVE_CTE_NODE":
            recursing = scope._with_cte(value["cte_name"], None)
            nodes = [
                (child, recursing if child is value["right"] else scope) for child, _ in nodes
            ]
        pending += reversed(bodies + nodes)


def _joined(table: Node) -> Nodes:
    """Return what a FROM clause joins, or the sides of a set operation one after the other."""
    pending, joined = [table], []
    while pending:
        node = pending.pop()
        kind = node["type"]
        if kind in ("JOIN", "SET_OPERATION_NODE"):
            pending += [node["right"], node["left"]]
        elif kind == "SELECT_NODE":
            pending.append(node["from_table"])
        elif kind not in ("EMPTY", "RECURSIVE_CTE_NODE"):
            joined.append(node)
    return tuple(joined)


def is_table(table: Node) -> bool:
    return table.get("type") == "BASE_TABLE"


def visible_name(table: Node) -> str:
    """Return the name a table reference has in its FROM clause; empty if it has none."""
    return str(table["alias"] or table.get("table_name", ""))


def fold(name: str) -> str:
    """Fold case as DuckDB compares names: ASCII letters only."""
    if name.isascii():
        return name.lower()
    return name.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")
