"""Statements that are answered by less than all rows of their one table: a bare count, and a look at any few rows.

Both are recognized by what they do not have: a condition, an order, a group, a join, a sample, anything to compute. They
have passed the gate and are rewritten (``rewrite``), so what is a base table is a relation of a cut.

Which columns a statement names, wherever their tables stand: of the rest nothing needs to be read or bound.

Statements that may ask for a zero by equality: Bloom filters of files tell -0.0 from 0.0, which are equal to SQL.

DuckDB 1.5.5 leaves out row groups by them, and writes them itself wherever a column has a dictionary.

Statements that only look at the rows of one table, each by itself: split by rows, the parts are the answer.

Columns and what is computed of one row, and conditions on one row. Nothing that gathers, orders, numbers or leaves out
rows by others, and nothing that is another value when it is asked again.
"""

from __future__ import annotations

import marshal
from collections.abc import Collection
from typing import Any

from planner.statement.ast import CLAUSES, Node, kind_of, nodes_below, statement, walk
from planner.statement.conditions import CLOCKS
from planner.statement.parameters import call, constant
from planner.statement.row_expression import TIMES, is_of_one_row
from planner.statement.scope import fold, visible_name

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


#: What means all columns of a table, or columns by their place: a star, ``#1``, PIVOT, SUMMARIZE.
_ALL = frozenset(("STAR", "POSITIONAL_REFERENCE", "PIVOT", "SHOW_REF"))

#: Functions whose value says nothing of how large their argument is, so that no statistics of its column answer them.
#: Aggregates, not windows; ``min``, ``max`` and what picks a row are not among them.
_UNCOMPARING = frozenset(
    [
        "avg",
        "count",
        "isfinite",
        "isinf",
        "isnan",
        "stddev",
        "stddev_pop",
        "stddev_samp",
        "sum",
        "var_pop",
        "var_samp",
        "variance",
    ]
)


def named_columns(document: Node) -> frozenset[str] | None:
    """Return the folded names that columns can have which a gated statement reads; None: any column may be read.

    A name counts for every table that has it, so that it means the same column as before.
    """
    return _named(document, frozenset())


def compared_columns(document: Node) -> frozenset[str] | None:
    """Return the names among ``named_columns`` that more is done with than to add up, count or classify their values.

    By the others nothing is filtered, ordered, joined or grouped, so it does not matter what statistics tell of them.
    """
    return _named(document, _UNCOMPARING)


def _named(document: Node, passed_over: Collection[str]) -> frozenset[str] | None:
    """As ``named_columns``, without plain names that are arguments of functions that are passed over."""
    names: set[str] = set()
    arguments: set[int] = set()
    last: set[str] = set()
    tables: set[str] = set()
    for node, _ in walk(document):
        kind = node.get("class") or node.get("type")
        if kind in _ALL:
            return None
        if kind == "FUNCTION":
            if node["function_name"] in passed_over and not node["distinct"]:
                # Parents come first. A name of several parts may be a struct's field.
                arguments.update(
                    id(child)
                    for child in node["children"]
                    if child.get("class") == "COLUMN_REF" and len(child["column_names"]) == 1
                )
        elif kind == "COLUMN_REF":
            if id(node) in arguments:
                last.add(fold(node["column_names"][0]))
                continue
            parts = [fold(part) for part in node["column_names"]]
            names.update(parts)
            last.add(parts[-1])
        elif kind == "JOIN":
            if node["ref_type"] == "NATURAL":
                return None
            names.update(map(fold, node["using_columns"]))
        elif kind == "BASE_TABLE":
            if node["column_name_alias"]:
                return None
            tables.add(fold(visible_name(node)))
    # A table's name alone is a struct of all its columns.
    return None if last & tables else frozenset(names)


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
