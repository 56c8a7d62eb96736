"""The places of a statement's parameters, and other nodes in those places."""

from __future__ import annotations

import marshal
from collections.abc import Mapping

from planner.statement.ast import Node, kind_of, walk

_ARITHMETIC = frozenset(("+", "-", "*", "/", "//", "%", "**", "^"))


def counts(document: Node) -> frozenset[str]:
    """Return the parameters that are whole numbers by their place: those of LIMIT and OFFSET."""
    found: set[str] = set()
    for node, _ in walk(document):
        if kind_of(node) == "LIMIT_MODIFIER":
            found.update(_named(node["limit"]), _named(node["offset"]))
    return frozenset(found)


def operands(document: Node) -> frozenset[str]:
    """Return the parameters that are operands of arithmetic."""
    found: set[str] = set()
    for node, _ in walk(document):
        if kind_of(node) == "FUNCTION" and node["function_name"] in _ARITHMETIC:
            for child in node["children"]:
                found.update(_named(child))
    return frozenset(found)


def _named(node: Node | None) -> list[str]:
    is_parameter = node is not None and kind_of(node) == "PARAMETER"
    return [node["identifier"]] if node is not None and is_parameter else []


def substituted(document: Node, values: Mapping[str, Node]) -> Node:
    """Return a copy with the given parameters replaced by other expressions."""
    copy: Node = marshal.loads(marshal.dumps(document))  # noqa: S302 - our own bytes, fastest copy
    for node, _ in walk(copy):
        if kind_of(node) == "PARAMETER" and node["identifier"] in values:
            alias = node["alias"]
            replacement = values[node["identifier"]]
            node.clear()
            node.update(replacement, alias=alias)
    return copy


def constant(value: int | str | None, kind: str) -> Node:
    """Return a literal of a type without parameters; None is NULL, of type "NULL"."""
    literal: Node = {"type": {"id": kind, "type_info": None}, "is_null": value is None}
    if value is not None:
        literal["value"] = value
    return {
        "class": "CONSTANT",
        "type": "VALUE_CONSTANT",
        "alias": "",
        "query_location": 0,
        "value": literal,
    }


def cast(child: Node, kind: Node) -> Node:
    """Return ``CAST(child AS kind)``; ``kind`` as in the tree: {"id": "DECIMAL", "type_info": ...}."""
    return {
        "class": "CAST",
        "type": "OPERATOR_CAST",
        "alias": "",
        "query_location": 0,
        "child": child,
        "cast_type": {**kind, "type_info": kind.get("type_info")},
        "try_cast": False,
    }
