"""Statements that only look at the rows of one table, each by itself: split by rows, the parts are the answer.

Columns and what is computed of one row, and conditions on one row. Nothing that gathers, orders, numbers or leaves out
rows by others, and nothing that is another value when it is asked again.
"""

from __future__ import annotations

from planner.statement.ast import CLAUSES, Node, kind_of, nodes_below, statement
from planner.statement.conjuncts import CLOCKS
from planner.statement.row_expression import TIMES, is_of_one_row
from planner.statement.scope import fold

_OF_OTHER_ROWS = frozenset(("SUBQUERY", "WINDOW"))


def is_plain_scan(document: Node) -> bool:
    """Whether each row of a statement's answer is made of one row of its one table. It has passed the gate."""
    node = statement(document)["node"]
    if (
        node["type"] != "SELECT_NODE"
        or node["from_table"]["type"] != "BASE_TABLE"
        or node["from_table"]["sample"]
        or node["cte_map"]["map"]
        or node["modifiers"]
        or node["aggregate_handling"] != "STANDARD_HANDLING"
        or any(node[clause] for clause in CLAUSES if clause != "where_clause")
    ):
        return False
    return all(map(_needs_its_row_alone, nodes_below(node)))


def tells_time(document: Node) -> bool:
    """Whether a statement's answer may depend on when it is asked."""
    return any(
        (kind_of(part) == "FUNCTION" and fold(part["function_name"]) in TIMES)
        or (kind_of(part) == "COLUMN_REF" and fold(part["column_names"][-1]) in CLOCKS)
        for part in nodes_below(statement(document)["node"])
    )


def _needs_its_row_alone(part: Node) -> bool:
    kind = kind_of(part)
    if kind == "FUNCTION":
        name = fold(part["function_name"])
        return name in TIMES or is_of_one_row(name)
    return kind not in _OF_OTHER_ROWS
