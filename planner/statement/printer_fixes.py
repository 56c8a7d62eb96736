"""Rewrites nodes that DuckDB 1.5.5 would print as SQL of another meaning.

``a CROSS JOIN b FULL JOIN c`` comes back from ``json_deserialize_sql`` as ``a , b FULL JOIN c``, where the comma binds
last; ``1e3`` as ``1000.0``, a DECIMAL; ``1.`` as ``1``, an INTEGER; ``"a b".*`` as ``a b.*``; TRUE as a cast. ``same``
detects any other change; the engine calls it before it runs anything.
"""

from __future__ import annotations

import json
import re
from typing import Any

from planner.sql_text import identifier
from planner.statement.ast import Node, kind_of
from planner.statement.parameters import cast, constant

#: The kinds that ``make_printable`` may alter.
CHANGED = frozenset(("CONSTANT", "JOIN", "STAR"))


def make_printable(node: Node) -> None:
    """Alter one node, in place, to a form of the same meaning that prints faithfully."""
    kind = kind_of(node)
    if kind == "JOIN" and node["ref_type"] == "CROSS":
        node.update(
            ref_type="REGULAR",
            join_type="INNER",
            condition=cast(constant("t", "VARCHAR"), {"id": "BOOLEAN"}),
        )
    elif kind == "STAR" and node["relation_name"]:
        node["relation_name"] = identifier(node["relation_name"])
    elif kind == "CONSTANT":
        text = _text(node["value"])
        if text is not None:
            replacement = cast(constant(text, "VARCHAR"), node["value"]["type"])
            replacement["alias"] = node["alias"]
            node.clear()
            node.update(replacement)


def _text(value: Any) -> str | None:
    """Return the text of a constant that must be cast to keep its type."""
    kind, number = value["type"], value.get("value")
    if kind["id"] == "BOOLEAN":
        return "t" if number else "f"
    if kind["id"] == "DOUBLE":
        return repr(number)
    if kind["id"] == "DECIMAL" and kind["type_info"]["scale"] == 0:
        # Beyond 64 bits the tree holds two halves.
        return str(
            number if isinstance(number, int) else (number["upper"] << 64) + number["lower"]
        )
    return None


def _unquoted(node: Node) -> Node:
    """Return a node that was read back, with the name of its star as it was printed."""
    name = node.get("relation_name")
    return {**node, "relation_name": identifier(name)} if name else node


def same(first: Any, second: Any) -> bool:
    """Whether a tree survived printing: positions aside, VALUES and grouping sets in either form."""
    pending = [(first, second)]
    while pending:
        one, other = pending.pop()
        if isinstance(one, dict) and isinstance(other, dict):
            one, other = _values(one), _unquoted(_values(other))
            if one.get("group_sets") and other.get("group_sets"):
                one, other = _grouped(one), _grouped(other)
            if one.keys() != other.keys():
                return False
            pending += [(one[key], other[key]) for key in one if key != "query_location"]
        elif isinstance(one, list) and isinstance(other, list):
            if len(one) != len(other):
                return False
            pending += zip(one, other, strict=True)
        elif one != other:
            return False
    return True


def _values(node: Node) -> Node:
    """Return a VALUES list in place of ``(SELECT * FROM (VALUES ...))``, which is how it prints."""
    if node.get("type") != "SUBQUERY" or "class" in node or node["column_name_alias"]:
        return node
    query = node["subquery"]["node"]
    source = query.get("from_table") or {}
    plain = (
        source.get("type") == "EXPRESSION_LIST"
        and source["alias"] == node["alias"]
        and [item["class"] for item in query["select_list"]] == ["STAR"]
        and not any(query[clause] for clause in _CLAUSES)
        and not query["cte_map"]["map"]
    )
    return source if plain else node


_CLAUSES = ("modifiers", "where_clause", "group_expressions", "having", "qualify", "sample")
_POSITION = re.compile(r'"query_location": \d+')


def _grouped(query: Node) -> Node:
    """Return a query with its grouping sets as texts: expressions may be numbered in any order."""
    texts = [
        _POSITION.sub("", json.dumps(item, sort_keys=True))
        for item in query["group_expressions"]
    ]
    sets = sorted(sorted(texts[index] for index in group) for group in query["group_sets"])
    return {**query, "group_expressions": [], "group_sets": sets}
