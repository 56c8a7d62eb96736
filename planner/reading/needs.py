"""What a statement needs of its tables, by its tree: worked out once, as one value (``StatementNeeds``).

It has passed the gate. Recognized are statements that less than all rows answer (a bare count, a look at any few rows),
those that can be split by rows, and what is read of columns and compared.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planner.names import OFFSET_COLUMNS
from planner.statement.allowed import words
from planner.statement.ast import (
    CLAUSES,
    Node,
    copied,
    fold,
    kind_of,
    nodes_below,
    statement,
    visible_name,
    walk,
)
from planner.statement.conditions import CLOCKS, Positions
from planner.statement.parameters import call, constant
from planner.statement.references import ResolvedTable
from planner.statement.row_expression import TIMES, is_of_one_row

#: A statement for more rows does not just look at a table.
MOST_ANY_ROWS = 10_000
_WHOLE_NUMBERS = ("INTEGER", "BIGINT")

_INT32 = range(-(1 << 31), 1 << 31)


@dataclass(frozen=True, slots=True)
class StatementNeeds:
    """What of its tables a statement needs.

    ``columns`` are the folded names that columns can have which it reads; None: any column may be read. A name counts for
    every table that has it. ``compared`` are those among them that more is done with than to add up, count or classify
    their values: by the others nothing is filtered, ordered, joined or grouped. ``equals_zero``: a column may be compared
    with a zero for equality, so -0.0 and 0.0 must be told to be equal.

    Of one table: ``count_only`` counts its rows and does nothing else; ``extremes`` are the folded names of the columns whose
    least and greatest values answer it, with its number of rows (none: it needs more); any ``any_rows`` of its rows answer
    the statement (None: it depends on more); ``plain_scan`` makes each row of the answer of one row, and it ``tells_time`` if these depend
    on when it is asked. ``shared`` are tables of which another side is read, too.
    ``offset_bound`` are tables with a condition on partition or offset at each position that names them.
    """

    columns: frozenset[str] | None = None
    compared: frozenset[str] | None = None
    equals_zero: bool = True
    count_only: bool = False
    extremes: frozenset[str] = frozenset()
    any_rows: int | None = None
    plain_scan: bool = False
    tells_time: bool = False
    shared: frozenset[ResolvedTable] = frozenset()
    offset_bound: frozenset[ResolvedTable] = frozenset()

    @classmethod
    def of(cls, document: Node, tables: Mapping[ResolvedTable, Positions]) -> StatementNeeds:
        """Read the tree of a statement over ``tables``, with what it asks of each at every position that names it."""
        nodes = [node for node, _ in walk(document)]
        node = statement(document)["node"]
        is_of_table = len(tables) == 1 and _is_of_one_table(node)
        plain_scan = is_of_table and _is_plain_scan(node)
        keys = [table.key for table in tables]
        columns = _named(nodes, ())
        return cls(
            columns=columns,
            compared=_named(nodes, _UNCOMPARING),
            equals_zero=any(map(_may_equal_zero, nodes)),
            count_only=is_of_table and _is_bare_count(node),
            extremes=_extremes(node) if is_of_table and columns else frozenset(),
            any_rows=_any_rows(node) if is_of_table else None,
            plain_scan=plain_scan,
            tells_time=plain_scan and any(map(_tells_time, nodes)),
            shared=frozenset(table for table in tables if keys.count(table.key) > 1),
            offset_bound=frozenset(
                table
                for table, positions in tables.items()
                if all(
                    any(fold(item.column) in OFFSET_COLUMNS for item in position)
                    for position in positions
                )
            ),
        )


def name_of_count(document: Node) -> str:
    """Return the name of a bare count's only column, as DuckDB has it."""
    return _name_of(statement(document)["node"]["select_list"][0])


def with_counted(document: Node, rows: int) -> Node:
    """Return a statement whose counts of its table have ``rows`` more; columns keep types and names."""
    copy = copied(document)
    more = constant(rows, "INTEGER" if rows in _INT32 else "BIGINT")
    node = statement(copy)["node"]
    node["select_list"] = [
        call("+", {**item, "alias": ""}, more, is_operator=True) | {"alias": _name_of(item)}
        if _is_count(item)
        else item
        for item in node["select_list"]
    ]
    return copy


def _name_of(count: Node) -> str:
    return count["alias"] or "count_star()"


def _is_of_one_table(node: Node) -> bool:
    """Whether a query is a SELECT from one table that is named in it, without a sample."""
    return (
        node["type"] == "SELECT_NODE"
        and node["from_table"]["type"] == "BASE_TABLE"
        and not node["from_table"]["sample"]
        and not node["cte_map"]["map"]
        and node["aggregate_handling"] == "STANDARD_HANDLING"
    )


def _any_rows(node: Node) -> int | None:
    """Return how many rows of its table answer a query, any of them; None: it depends on more.

    One with OFFSET reads on where another one ended, so it means the order that rows happen to come in.
    """
    if any(node[clause] for clause in CLAUSES) or len(node["modifiers"]) != 1:
        return None
    modifier = node["modifiers"][0]
    is_limit = modifier["type"] == "LIMIT_MODIFIER" and modifier["offset"] is None
    if not (is_limit and all(map(_is_of_its_row, node["select_list"]))):
        return None
    limit = _whole_number(modifier["limit"])
    return limit if limit is not None and limit <= MOST_ANY_ROWS else None


def _is_bare_count(node: Node) -> bool:
    """Whether a query counts the rows of its table and does nothing else."""
    return (
        not any(node[clause] for clause in CLAUSES)
        and not node["modifiers"]
        and len(node["select_list"]) == 1
        and _is_count(node["select_list"][0])
    )


def _extremes(node: Node) -> frozenset[str]:
    """Return the columns whose least and greatest values answer a query, with the number of rows; none: it needs more.

    So each item of its list is a count by itself, or an expression over ``min`` and ``max`` of columns.
    """
    if any(node[clause] for clause in CLAUSES) or node["modifiers"]:
        return frozenset()
    arguments: list[Node] = []
    columns = 0
    for item in node["select_list"]:
        for below in () if _is_count(item) else nodes_below(item):
            if _is_extreme(below):
                arguments += below["children"]
            elif not _needs_its_row_alone(below):
                return frozenset()
            columns += kind_of(below) == "COLUMN_REF"
    paths = [argument["column_names"] for argument in arguments]
    # A name of several parts may be a struct's field.
    is_plain = columns == len(paths) and all(len(path) == 1 for path in paths)
    return frozenset(fold(path[0]) for path in paths) if is_plain else frozenset()


def _is_extreme(node: Node) -> bool:
    """Whether a node is ``min`` or ``max`` of a column, of all rows."""
    return (
        kind_of(node) == "FUNCTION"
        and fold(node["function_name"]) in ("min", "max")
        and not any(map(node.get, ("schema", "catalog", "filter", "distinct")))
        and not node["order_bys"]["orders"]
        and [kind_of(child) for child in node["children"]] == ["COLUMN_REF"]
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
        and not any(map(item.get, ("schema", "catalog", "children", "filter", "distinct")))
        and not item["order_bys"]["orders"]
    )


def _whole_number(node: Any) -> int | None:
    if not node or kind_of(node) != "CONSTANT":
        return None
    value = node["value"]
    if value["type"]["id"] not in _WHOLE_NUMBERS or value["is_null"] or value["value"] < 0:
        return None
    return int(value["value"])


#: What means all columns of a table, or columns by their numbers: a star, ``#1``, PIVOT, SUMMARIZE.
_ALL = frozenset(("STAR", "POSITIONAL_REFERENCE", "PIVOT", "SHOW_REF"))

#: Functions whose value says nothing of how large their argument is, so that no statistics of its column answer them.
#: Aggregates, not windows; ``min``, ``max`` and what picks a row are not among them.
_UNCOMPARING = words(
    "avg count isfinite isinf isnan stddev stddev_pop stddev_samp sum var_pop var_samp variance"
)


def _named(nodes: Sequence[Node], passed_over: Collection[str]) -> frozenset[str] | None:
    """Return the names that columns can have, without plain names that are arguments of functions that are passed over.

    ``nodes`` are all of a statement, parents first. None: any column may be meant.
    """
    names: set[str] = set()
    arguments: set[int] = set()
    last: set[str] = set()
    tables: set[str] = set()
    for node in nodes:
        kind = node.get("class") or node.get("type")
        if kind in _ALL:
            return None
        if kind == "FUNCTION":
            if node["function_name"] in passed_over and not node["distinct"]:
                # A name of several parts may be a struct's field.
                arguments.update(
                    id(child)
                    for child in node["children"]
                    if child.get("class") == "COLUMN_REF" and len(child["column_names"]) == 1
                )
        elif kind == "COLUMN_REF":
            if id(node) in arguments:
                last.add(fold(node["column_names"][0]))
                continue
            path = [fold(name) for name in node["column_names"]]
            names.update(path)
            last.add(path[-1])
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


def _may_equal_zero(node: Node) -> bool:
    """Whether a node may compare a column with a zero for equality: Bloom filters of files tell -0.0 from 0.0.

    By a constant, or by something whose value is not in its text: a parameter, another column, a join, a subquery. The
    name of a column says nothing: it may have another one further out. DuckDB 1.5.5 leaves out row groups by such
    filters, and writes them itself wherever a column has a dictionary.
    """
    kind = node.get("type")
    if kind in _EQUALITIES:
        return not (_is_no_zero(node["left"]) or _is_no_zero(node["right"]))
    if kind == "COMPARE_IN":
        return not all(map(_is_no_zero, node["children"][1:]))
    # What stands on the other side of a join, a set operation or a subquery that is a value may be but one value.
    return kind in ("JOIN", "SET_OPERATION_NODE") or node.get("class") == "SUBQUERY"


def _is_no_zero(node: Node) -> bool:
    """Whether a side of a comparison is a constant that equals no zero in any type."""
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


def _is_plain_scan(node: Node) -> bool:
    """Whether each row of a query's answer is made of one row of its table, and is the same when it is asked again.

    So columns and what is computed of one row, and conditions on one row: split by rows, the shares are the answer.
    """
    return (
        not node["modifiers"]
        and not any(node[clause] for clause in CLAUSES if clause != "where_clause")
        and all(map(_needs_its_row_alone, nodes_below(node)))
    )


def _needs_its_row_alone(node: Node) -> bool:
    kind = kind_of(node)
    if kind == "FUNCTION":
        name = fold(node["function_name"])
        return name in TIMES or is_of_one_row(name)
    return kind not in _OF_OTHER_ROWS


def _tells_time(node: Node) -> bool:
    return (kind_of(node) == "FUNCTION" and fold(node["function_name"]) in TIMES) or (
        kind_of(node) == "COLUMN_REF" and fold(node["column_names"][-1]) in CLOCKS
    )
