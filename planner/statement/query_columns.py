"""Which columns a query inside a statement may have, as its text tells."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from planner.statement.ast import Node, fold, is_table, kind_of, nodes_below

#: Fields of nodes whose texts name no column.
_NO_COLUMNS = frozenset(("catalog", "catalog_name", "class", "schema", "schema_name", "type"))
#: What may make columns of names that the statement does not say.
_OPAQUE = frozenset(("PIVOT", "SHOW_REF"))


def columns_of_query(query: Node | None) -> frozenset[str] | None:
    """Return the folded names of the columns of a query, where its SELECT list says each; None: it does not."""
    if query is None or query["type"] != "SELECT_NODE":
        return None
    names = [_name_of(item) for item in query["select_list"]]
    # The engine gives another name to the second of one name.
    return frozenset(names) if all(names) and len(set(names)) == len(names) else None


def _name_of(item: Node) -> str:
    if any(map(_makes_columns, nodes_below(item))):
        return ""
    return fold(item["alias"] or item.get("column_names", [""])[-1])


def _makes_columns(node: Node) -> bool:
    is_unnest = kind_of(node) == "FUNCTION" and fold(node["function_name"]) == "unnest"
    return is_unnest or kind_of(node) == "STAR"


def texts_of_columns(
    query: Node, nodes: Iterable[Node], tables: Collection[str]
) -> frozenset[str] | None:
    """Return folded names that columns of queries inside ``query`` may have beside those of tables; None: any.

    ``nodes`` are all of it, ``tables`` the folded names of what it joins. A column without a name is called after its
    text, which is no word, or after its function.
    """
    if any(_is_opaque(node, tables) for node in nodes):
        return None
    texts: set[str] = set()
    pending: list[Any] = [query]
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            texts.add(fold(value))
        elif isinstance(value, list):
            pending += value
        elif isinstance(value, dict):
            if value.get("class") == "COLUMN_REF":
                pending += [value["alias"], value["column_names"][-1]]
                continue
            left_out = ("table_name", "alias") if is_table(value) else ()
            pending += [
                child
                for field, child in value.items()
                if field not in _NO_COLUMNS and field not in left_out
            ]
    return frozenset(texts)


def _is_opaque(node: Node, tables: Collection[str]) -> bool:
    kind = kind_of(node)
    if kind == "STAR":
        # Of a struct it means the fields.
        return bool(node["relation_name"]) and fold(node["relation_name"]) not in tables
    return (
        kind in _OPAQUE
        or _makes_columns(node)
        or (kind == "EXPRESSION_LIST" and not node["expected_names"])
        or "\\" in node.get("alias", "")
    )
