"""Statements that are answered by less than all rows of their one table: a bare count, and a look at any few rows.

Both are recognized by what they do not have: a condition, an order, a group, a join, a sample, anything to compute. They
have passed the gate and are rewritten (``rewrite``), so what is a base table is a relation of a cut.
"""

from __future__ import annotations

import marshal
from typing import Any

from planner.statement.ast import CLAUSES, Node, kind_of, statement
from planner.statement.parameters import call, constant

#: A statement for more rows does not just look at a table.
MOST_ANY_ROWS = 10_000

_WHOLE_NUMBERS = ("INTEGER", "BIGINT")
_INT32 = range(1 << 31)


def any_rows(document: Node) -> int | None:
    """Return how many rows of its table answer a statement, whichever they are; None: it depends on more.

    One with OFFSET reads on where another one ended, so it means the order that rows happen to come in.
    """
    node = statement(document)["node"]
    if not _is_of_one_table(node) or len(node["modifiers"]) != 1:
        return None
    modifier = node["modifiers"][0]
    if modifier["type"] != "LIMIT_MODIFIER" or modifier["offset"] is not None:
        return None
    if not all(map(_is_of_its_row, node["select_list"])):
        return None
    limit = _whole_number(modifier["limit"])
    return limit if limit is not None and limit <= MOST_ANY_ROWS else None


def is_bare_count(document: Node) -> bool:
    """Whether a statement counts the rows of its table and does nothing else."""
    node = statement(document)["node"]
    return (
        _is_of_one_table(node)
        and not node["modifiers"]
        and len(node["select_list"]) == 1
        and _is_count(node["select_list"][0])
    )


def name_of_count(document: Node) -> str:
    """Return the name of a bare count's only column, as DuckDB has it."""
    name: str = statement(document)["node"]["select_list"][0]["alias"]
    return name or "count_star()"


def with_counted(document: Node, rows: int) -> Node:
    """Return a bare count that counts ``rows`` more than its table has; its column keeps type and name."""
    copy: Node = marshal.loads(marshal.dumps(document))  # noqa: S302 - our own bytes, fastest copy
    items = statement(copy)["node"]["select_list"]
    count = items[0]
    more = constant(rows, "INTEGER" if rows in _INT32 else "BIGINT")
    items[0] = call("+", {**count, "alias": ""}, more, is_operator=True) | {
        "alias": name_of_count(document)
    }
    return copy


def _is_of_one_table(node: Node) -> bool:
    return (
        node["type"] == "SELECT_NODE"
        and node["from_table"]["type"] == "BASE_TABLE"
        and not node["from_table"]["sample"]
        and not node["cte_map"]["map"]
        and node["aggregate_handling"] == "STANDARD_HANDLING"
        and not any(node[clause] for clause in CLAUSES)
    )


def _is_of_its_row(item: Node) -> bool:
    """Whether an item of a SELECT list is columns as they are: one row of the answer for each of the table."""
    kind = kind_of(item)
    if kind == "STAR":
        return not item["replace_list"] and not item["expr"] and not item["columns"]
    return kind == "COLUMN_REF"


def _is_count(item: Node) -> bool:
    # One that names its schema is called so in the answer, too.
    return (
        kind_of(item) == "FUNCTION"
        and item["function_name"] == "count_star"
        and not item["schema"]
        and not item["catalog"]
        and not item["children"]
        and not item["filter"]
        and not item["order_bys"]["orders"]
        and not item["distinct"]
    )


def _whole_number(node: Any) -> int | None:
    if not node or kind_of(node) != "CONSTANT":
        return None
    value = node["value"]
    if value["type"]["id"] not in _WHOLE_NUMBERS or value["is_null"] or value["value"] < 0:
        return None
    return int(value["value"])
