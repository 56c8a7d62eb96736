"""Statements that may ask for a zero by equality: Bloom filters of files tell -0.0 from 0.0, which are equal to SQL.

DuckDB 1.5.5 leaves out row groups by them, and writes them itself wherever a column has a dictionary.
"""

from __future__ import annotations

from typing import Any

from planner.statement.ast import Node, walk

#: More than the smallest FLOAT, 1.4e-45.
_LEAST = 1e-44
_EQUALITIES = ("COMPARE_EQUAL", "COMPARE_NOT_DISTINCT_FROM")


def may_equal_zero(document: Node) -> bool:
    """Whether a gated statement may compare a column with a zero for equality.

    By a constant, or by something whose value is not in its text: a parameter, another column, a join, a subquery. The
    name of a column says nothing: it may have another one further out.
    """
    return any(_may_equal_zero(node) for node, _ in walk(document))


def _may_equal_zero(node: Node) -> bool:
    kind = node.get("type")
    if kind in _EQUALITIES:
        return not (_is_no_zero(node["left"]) or _is_no_zero(node["right"]))
    if kind == "COMPARE_IN":
        return not all(map(_is_no_zero, node["children"][1:]))
    # What stands on the other side of a join, a set operation or a subquery that is a value may be but one value.
    return kind in ("JOIN", "SET_OPERATION_NODE") or node.get("class") == "SUBQUERY"


def _is_no_zero(node: Node) -> bool:
    """Whether a side of a comparison is a constant that equals no zero, whatever it is cast to."""
    if node.get("class") != "CONSTANT":
        return False
    constant: dict[str, Any] = node["value"]
    if constant["is_null"]:
        return True
    value = constant["value"]
    if isinstance(value, str):
        try:
            # Less than a FLOAT can have becomes its zero.
            return abs(float(value)) > _LEAST
        except ValueError:
            return True
    # Of 128 bits a number has two parts.
    return isinstance(value, int | float) and value != 0
