"""The shape of the syntax tree ``json_serialize_sql`` returns, and the walk over it.

The tables below say which fields of each kind of node hold further nodes, and which plain values. A kind or field that
is not listed is refused, so a newer parser cannot slip syntax past the gate. Source: DuckDB's
``src/include/duckdb/storage/serialization`` (parsed_expression, query_node, tableref, result_modifier), 1.5.5.

What a table name means at each place of a statement: a table, or a WITH clause, by the rules of DuckDB 1.5.5.

A WITH clause sees the clauses written before it; only the second branch of a recursive clause sees its own name; inner
clauses hide outer ones; a qualified name is never one, but for ``recurring.name`` (USING KEY).
"""

from __future__ import annotations

import marshal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from planner.errors import UnsupportedStatement

#: A node, and the whole document: {"error": false, "statements": [{"node": ...}]}.
Node = dict[str, Any]

#: Nodes inside nodes. A sum of n terms is n deep.
MAX_DEPTH = 300

#: Nodes of one statement. An IN list of 100,000 values is 100,000 nodes.
MAX_NODES = 200_000


@dataclass(frozen=True, slots=True)
class _Shape:
    """The fields of a kind of node that hold nodes, the last first as a stack takes them, and all its fields."""

    nodes: tuple[str, ...]
    fields: frozenset[str]


def _shape(nodes: str, values: str = "") -> _Shape:
    return _Shape(tuple(reversed(nodes.split())), frozenset((nodes + " " + values).split()))


def _expression(nodes: str, values: str = "") -> _Shape:
    return _shape(nodes, f"class type alias query_location {values}")


def _query(nodes: str, values: str = "") -> _Shape:
    return _shape(f"cte_map {nodes} modifiers", f"type {values}")


def _table(nodes: str, values: str = "") -> _Shape:
    return _shape(nodes, f"type alias sample query_location {values}")


_EXPRESSIONS: dict[str, _Shape] = {
    "BETWEEN": _expression("input lower upper"),
    "CASE": _expression("case_checks else_expr"),
    "CAST": _expression("child", "cast_type try_cast"),
    "COLLATE": _expression("child", "collation"),
    "COLUMN_REF": _expression("", "column_names"),
    "COMPARISON": _expression("left right"),
    "CONJUNCTION": _expression("children"),
    "CONSTANT": _expression("", "value"),
    "FUNCTION": _expression(
        "children filter order_bys",
        "function_name schema catalog distinct is_operator export_state",
    ),
    "LAMBDA": _expression("lhs expr"),
    "OPERATOR": _expression("children"),
    "PARAMETER": _expression("", "identifier"),
    "POSITIONAL_REFERENCE": _expression("", "index"),
    "STAR": _expression(
        "replace_list expr",
        "relation_name exclude_list columns qualified_exclude_list rename_list",
    ),
    "SUBQUERY": _expression("subquery child", "subquery_type comparison_type"),
    "WINDOW": _expression(
        "children partitions orders start_expr end_expr offset_expr default_expr filter_expr arg_orders",
        "function_name schema catalog start end ignore_nulls exclude_clause distinct",
    ),
}

_ORDER = _shape("expression", "type null_order")

#: Nodes without a kind: statements, entries of maps, arms of CASE, the AT clause, columns of PIVOT.
_CLAUSE = _shape(
    "node map value query key_targets when_expr then_expr expr pivot_expressions entries star_expr",
    "named_param_map key aliases materialized unit unpivot_names values pivot_enum alias",
)

_OTHERS: dict[str | None, _Shape] = {
    None: _CLAUSE,
    "SELECT_NODE": _query(
        "select_list from_table where_clause group_expressions having qualify",
        "group_sets aggregate_handling sample",
    ),
    "SET_OPERATION_NODE": _query("left right", "setop_type setop_all"),
    "RECURSIVE_CTE_NODE": _query("left right key_targets", "cte_name union_all aliases"),
    "BASE_TABLE": _table("at_clause", "catalog_name schema_name table_name column_name_alias"),
    "EMPTY": _table(""),
    "EXPRESSION_LIST": _table("values", "expected_names expected_types"),
    "JOIN": _table(
        "left right condition",
        "join_type ref_type using_columns delim_flipped duplicate_eliminated_columns",
    ),
    "PIVOT": _table(
        "source aggregates pivots", "unpivot_names groups column_name_alias include_nulls"
    ),
    "SHOW_REF": _table("query", "table_name show_type catalog_name schema_name"),
    "SUBQUERY": _table("subquery", "column_name_alias"),
    "TABLE_FUNCTION": _table("function", "column_name_alias with_ordinality"),
    "DISTINCT_MODIFIER": _shape("distinct_on_targets", "type"),
    "LIMIT_MODIFIER": _shape("limit offset", "type"),
    "LIMIT_PERCENT_MODIFIER": _shape("limit offset", "type"),
    "ORDER_MODIFIER": _shape("orders", "type"),
    "ORDER_DEFAULT": _ORDER,
    "ASCENDING": _ORDER,
    "DESCENDING": _ORDER,
}

#: Clauses of a SELECT that leave rows out or gather them.
CLAUSES = ("where_clause", "group_expressions", "group_sets", "having", "qualify", "sample")


def copied(node: Node) -> Node:
    copy: Node = marshal.loads(marshal.dumps(node))  # noqa: S302 - our own bytes, fastest copy
    return copy


def kind_of(node: Node) -> str:
    """Name the kind: an expression's class, else the type; empty for a clause."""
    return node.get("class") or node.get("type") or ""


def node_fields(node: Node) -> tuple[str, ...]:
    """Name the fields that hold nodes or lists of them, the last first; raises UnsupportedStatement for an unknown
    kind.
    """
    # Hot path: every node of every statement passes several times, which is most of the cost of planning.
    kind = node.get("class")
    shape = _OTHERS.get(node.get("type")) if kind is None else _EXPRESSIONS.get(kind)
    if shape is None:
        raise _unknown_kind(node)
    return shape.nodes


def children(node: Node) -> list[Any]:
    """Return the nodes and lists of nodes inside ``node``, in the order of the text.

    The node has passed the gate: its fields are not checked again.
    """
    return [node[name] for name in reversed(node_fields(node)) if node.get(name)]


def nodes_below(node: Node) -> Iterator[Node]:
    """Yield a node and all below it, in any order. It has passed the gate: nothing is checked again."""
    pending: list[Any] = [node]
    while pending:
        value = pending.pop()
        if value.__class__ is list:
            pending += value
            continue
        yield value
        pending += [child for name in node_fields(value) if (child := value.get(name))]


def walk(document: Node) -> Iterator[tuple[Node, int]]:
    """Yield every node, parents first, with the number of lambdas around it. Keeps its own stack.

    Raises UnsupportedStatement: an unknown kind or field, or a tree too deep or too large.
    """
    pending: list[tuple[Any, int, int]] = [(statement(document), 0, 0)]
    count = 0
    while pending:
        value, depth, lambdas = pending.pop()
        if value.__class__ is list:
            pending += [(item, depth, lambdas) for item in reversed(value)]
            continue
        count += 1
        if depth > MAX_DEPTH:
            raise UnsupportedStatement(
                f"the statement is nested more than {MAX_DEPTH} levels deep; split it with WITH clauses."
            )
        if count > MAX_NODES:
            raise UnsupportedStatement(
                f"the statement has more than {MAX_NODES} parts; narrow it."
            )
        yield value, lambdas
        # The caller may have replaced it.
        kind = value.get("class")
        shape = _OTHERS.get(value.get("type")) if kind is None else _EXPRESSIONS.get(kind)
        if shape is None:
            raise _unknown_kind(value)
        if not value.keys() <= shape.fields:
            raise _unknown_field(value, shape)
        if shape.nodes:
            depth += 1
            if kind == "LAMBDA":
                lambdas += 1
            for name in shape.nodes:
                child = value.get(name)
                if child:
                    pending.append((child, depth, lambdas))


def _unknown_kind(node: Node) -> UnsupportedStatement:
    kind = node.get("class", node.get("type"))
    return UnsupportedStatement(f"syntax of kind {kind} is not supported.", syntax=kind)


def _unknown_field(node: Node, shape: _Shape) -> UnsupportedStatement:
    name, where = min(node.keys() - shape.fields), kind_of(node) or "a clause"
    return UnsupportedStatement(
        f"{where} with {name} is not supported.", syntax=f"{where}.{name}"
    )


def statement(document: Node) -> Node:
    """Return the one statement of a document. Raises UnsupportedStatement: there is none, or more than one."""
    statements = document.get("statements", ())
    if not statements:
        raise UnsupportedStatement("the text holds no statement; send one query.")
    if len(statements) != 1:
        raise UnsupportedStatement(
            f"one statement is expected, the text holds {len(statements)}; send them one by one."
        )
    node: Node = statements[0]
    return node


def parameters(document: Node) -> tuple[str, ...]:
    """Return the names of the parameters in binding order; those of ``?`` and ``$1`` are "1", "2", ..."""
    names = {entry["key"]: entry["value"] for entry in statement(document)["named_param_map"]}
    return tuple(sorted(names, key=names.__getitem__))


def is_constant(document: Node) -> bool:
    """Whether a statement selects literals only, so that its answer depends on nothing."""
    node = statement(document)["node"]
    return is_bare(node) and all(kind_of(item) == "CONSTANT" for item in node["select_list"])


def is_bare(node: Node) -> bool:
    """Whether a query is a SELECT with nothing beside its list."""
    return (
        node["type"] == "SELECT_NODE"
        and node["from_table"]["type"] == "EMPTY"
        and not node["cte_map"]["map"]
        and not any(node.get(clause) for clause in ("modifiers", *CLAUSES))
    )


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
            right = value["right"]
            nodes = [(child, recursing if child is right else scope) for child, _ in nodes]
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
