"""Bounds the width of a statement: the size of its stars, aliases and macros once the engine has expanded them.

Nothing interrupts the engine while it binds and plans, and both take quadratic time or worse. A few kilobytes of text
can become gigabytes: a star is all columns of its FROM, each use of an alias of the same list repeats its expression, a
macro repeats its arguments. So these are counted here as the engine will expand them. The caller gives the tables'
widths.

Where the tree does not tell, the larger number counts. The statement has passed the gate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

from planner.errors import UnsupportedStatement
from planner.statement.allowed import BOUNDED
from planner.statement.ast import (
    Node,
    fold,
    kind_of,
    node_fields,
    nodes_below,
    statement,
    visible_name,
)

#: A statement within one of the bounds takes two seconds of a core at most from text to plan (DuckDB 1.5.5).
#: Columns of one SELECT, of its FROM, of a row of VALUES; fields of a struct or PIVOT's columns count.
MAX_COLUMNS = 5_000
#: All that is bound: columns of every SELECT and FROM, and parts of expressions, each repetition counted.
MAX_BOUND = 60_000
#: Values of all VALUES lists together.
MAX_CELLS = 20_000
#: Tables in joins other than LEFT, RIGHT or FULL within one FROM: the optimizer searches for their order.
MAX_JOINED = 40
#: Over all FROM clauses: for each such table, the number of tables joined before it.
MAX_PAIRS = 50_000
#: Comparisons in joins, times the tables joined: the optimizer looks for equalities among all.
MAX_COMPARED = 4_000
#: Columns in UNION BY NAME: each of one side is looked up among all of the other.
MAX_BY_NAME = 6_000
MAX_WINDOWS = 1_000
#: Subqueries within expressions: each becomes a join.
MAX_SUBQUERIES = 100

_MOST = {
    "columns and parts of expressions, stars and aliases spelled out,": MAX_BOUND,
    "values in VALUES": MAX_CELLS,
    "pairs of tables to join": MAX_PAIRS,
    "comparisons to join by": MAX_COMPARED,
    "columns brought together by name": MAX_BY_NAME,
    "window functions": MAX_WINDOWS,
    "subqueries within expressions": MAX_SUBQUERIES,
}
_BOUND, _CELLS, _PAIRS, _COMPARED, _BY_NAME, _WINDOWS, _SUBQUERIES = _MOST

#: How often the macros of bounded functions repeat an argument (``proxy.engine.macros``), at most.
_REPEATS = 2
#: Functions that make a struct of their arguments.
_STRUCTS = frozenset(("row", "struct_concat", "struct_insert", "struct_pack", "struct_update"))
#: Aggregates that SUMMARIZE makes of a column.
_SUMMARIES = 12


@dataclass(frozen=True, slots=True)
class Breadth:
    """Columns of a table, and the greatest number of fields of a struct among them, all levels together."""

    columns: int
    fields: int = 0

    @classmethod
    def of(cls, schema: pa.Schema) -> Breadth:
        return cls(len(schema), max(map(_fields_of, schema.types), default=0))


@dataclass(frozen=True, slots=True)
class _From:
    """One FROM clause: its columns, those of its parts by folded name, and how many parts one join search has."""

    columns: int
    parts: Mapping[str, int] = field(default_factory=dict)
    joined: int = 1


def check_breadth(document: Node, tables: Mapping[str, Breadth]) -> None:
    """Pass a rewritten statement whose binding takes a bounded time, or raise.

    ``tables`` has an entry for every relation that the statement was rewritten to.

    Raises:
        UnsupportedStatement: names what is too large, and the bound.
    """
    node = statement(document)["node"]
    _Counting(node, tables).query(node, {})


class _Counting:
    def __init__(self, node: Node, tables: Mapping[str, Breadth]) -> None:
        self._tables = tables
        self._room = dict(_MOST)
        self._node = node

    @cached_property
    def _fields(self) -> int:
        """Fields of the largest struct that may be unpacked."""
        of_tables = max((table.fields for table in self._tables.values()), default=0)
        return of_tables + _own_fields(self._node)

    def query(self, node: Node, ctes: Mapping[str, int]) -> int:
        """Count one query with those inside it; ``ctes`` are widths by folded name. Returns its columns."""
        ctes = dict(ctes)
        for entry in node["cte_map"]["map"]:
            ctes[fold(entry["key"])] = self.query(entry["value"]["query"]["node"], ctes)
        kind = node["type"]
        if kind == "SELECT_NODE":
            return self._select(node, ctes)
        left = self.query(node["left"], ctes)
        if kind == "RECURSIVE_CTE_NODE":
            ctes[fold(node["cte_name"])] = left
        right = self.query(node["right"], ctes)
        columns = max(left, right)
        if node.get("setop_type") == "UNION_BY_NAME":
            columns = left + right
            self._take(_BY_NAME, columns)
        self._expression(node["modifiers"], {}, ctes)
        return self._wide(columns)

    def _select(self, node: Node, ctes: Mapping[str, int]) -> int:
        source = self._from(node["from_table"], ctes)
        aliases: dict[str, int] = {}
        columns = 0
        for item in node["select_list"]:
            weight, times = self._expression(item, aliases, ctes, source)
            if item["alias"]:
                aliases[fold(item["alias"])] = weight
            columns += times
        self._take(_COMPARED, _comparisons(node["where_clause"]) * (source.joined - 1))
        for name in _CLAUSES:
            if node.get(name):
                self._expression(node[name], aliases, ctes, source)
        self._take(_BOUND, columns)
        return self._wide(columns)

    def _from(self, table: Node, ctes: Mapping[str, int]) -> _From:
        kind = table["type"]
        if kind == "JOIN":
            return self._join(table, ctes)
        columns = self._wide(self._source(table, kind, ctes))
        name = fold(visible_name(table))
        self._take(_BOUND, columns)
        return _From(columns, {name: columns} if name else {})

    def _join(self, table: Node, ctes: Mapping[str, int]) -> _From:
        # A list of tables is as deep as it is long.
        right: list[Node] = []
        while table["type"] == "JOIN":
            right.append(table)
            table = table["left"]
        breadth = self._from(table, ctes)
        for join in reversed(right):
            other = self._from(join["right"], ctes)
            columns = self._wide(breadth.columns + other.columns)
            is_searched = join["join_type"] not in ("LEFT", "RIGHT", "OUTER")
            joined = breadth.joined + other.joined if is_searched else 1
            if joined > MAX_JOINED:
                raise UnsupportedStatement(
                    f"more than {MAX_JOINED} tables are joined in one FROM; join some of them by LEFT JOIN, or in a WITH "
                    f"clause AS MATERIALIZED."
                )
            self._take(_PAIRS, joined * joined)
            compared = len(join["using_columns"]) + _comparisons(join["condition"])
            if join["ref_type"] == "NATURAL":
                compared = min(breadth.columns, other.columns)
            self._take(_COMPARED, compared * joined)
            breadth = _From(columns, {**breadth.parts, **other.parts}, joined)
            if join["condition"]:
                self._expression(join["condition"], {}, ctes, breadth)
        return breadth

    def _source(self, table: Node, kind: str, ctes: Mapping[str, int]) -> int:
        """Count a part of FROM that is no join; return its columns."""
        if kind == "BASE_TABLE":
            name = table["table_name"]
            return (
                self._tables[name].columns if name in self._tables else ctes.get(fold(name), 0)
            )
        if kind == "SUBQUERY":
            return self.query(table["subquery"]["node"], ctes)
        if kind == "EXPRESSION_LIST":
            rows = table["values"]
            self._take(_CELLS, sum(map(len, rows)))
            self._expression(rows, {}, ctes)
            return max(map(len, rows))
        if kind == "TABLE_FUNCTION":
            self._expression(table["function"], {}, ctes)
            return 2 + self._fields
        if kind == "PIVOT":
            return self._pivot(table, ctes)
        if kind == "SHOW_REF":
            columns = self.query(table["query"], ctes)
            self._take(_BOUND, columns * (_SUMMARIES if table["show_type"] == "SUMMARY" else 1))
            return _SUMMARIES
        return 0

    def _pivot(self, table: Node, ctes: Mapping[str, int]) -> int:
        source = self._from(table["source"], ctes)
        made = max(len(table["aggregates"]), 1)
        for pivot in table["pivots"]:
            self._expression(pivot, {}, ctes, source)
            made = self._wide(made * max(len(pivot["entries"]), 1))
        self._expression(table["aggregates"], {}, ctes, times=made)
        return source.columns + made

    def _expression(
        self,
        item: Any,
        aliases: Mapping[str, int],
        ctes: Mapping[str, int],
        source: _From | None = None,
        *,
        times: int = 1,
    ) -> tuple[int, int]:
        """Count an expression, or a list; return the weight of one, and of how many columns it is.

        Those are as many as its widest star over ``source`` has, ``times`` at least.
        """
        weight = windows = 0
        subqueries: list[tuple[Node, int]] = []
        pending: list[tuple[Any, int]] = [(item, 1)]
        while pending:
            value, repeated = pending.pop()
            if value.__class__ is list:
                pending += [(part, repeated) for part in value]
                continue
            kind = kind_of(value)
            if kind == "CONSTANT":  # the gate counts them
                continue
            if kind == "COLUMN_REF":
                name = fold(value["column_names"][-1]) if aliases else ""
                weight += repeated * max(aliases.get(name, 1), 1)
                continue
            weight += repeated
            apart = ""
            if kind == "FUNCTION":
                name = fold(value["function_name"])
                if name == "unnest" and source is not None:
                    times = max(times, self._fields)
                if name in BOUNDED:
                    apart = "children"
                    # ``replace`` repeats its third argument, the new text, four times.
                    pending += [
                        (child, repeated * (_REPEATS if number < 2 else _REPEATS**2))
                        for number, child in enumerate(value["children"])
                    ]
            elif kind == "STAR" and source is not None:
                times = max(times, self._star(value, source))
            elif kind == "WINDOW":
                windows += repeated
            elif kind == "SUBQUERY":
                subqueries.append((value["subquery"]["node"], repeated))
                apart = "subquery"
            for name in node_fields(value):
                child = value.get(name)
                if child and name != apart:
                    pending.append((child, repeated))
        self._take(_BOUND, weight * times)
        self._take(_WINDOWS, windows * times)
        for node, repeated in subqueries:
            self._take(_SUBQUERIES, repeated * times)
            for _ in range(repeated * times):
                self.query(node, ctes)
        return weight, times

    def _star(self, star: Node, source: _From) -> int:
        name = fold(star["relation_name"])
        columns = source.parts.get(name)
        if columns is not None:
            return columns
        return max(source.columns, self._fields) if name else source.columns

    def _wide(self, columns: int) -> int:
        if columns > MAX_COLUMNS:
            raise UnsupportedStatement(
                f"the statement has {columns} columns in one place, stars spelled out; the limit is {MAX_COLUMNS}: name "
                f"those you need.",
                columns=columns,
            )
        return columns

    def _take(self, what: str, count: int) -> None:
        self._room[what] -= count
        if self._room[what] < 0:
            raise UnsupportedStatement(
                f"the statement has more than {_MOST[what]} {what.rstrip(',')}; narrow it.",
                what=what,
            )


_CLAUSES = ("where_clause", "group_expressions", "having", "qualify", "modifiers")


def _comparisons(condition: Node | None) -> int:
    """Return the number of comparisons with more than literals in the topmost AND."""
    count, pending = 0, [condition] if condition else []
    while pending:
        node = pending.pop()
        if node["type"] == "CONJUNCTION_AND":
            pending += node["children"]
        elif node["class"] == "COMPARISON":
            count += "CONSTANT" not in (node["left"]["class"], node["right"]["class"])
    return count


def _fields_of(kind: pa.DataType) -> int:
    """Return the number of fields of all structs in a type."""
    is_struct = bool(pa.types.is_struct(kind))
    return sum(is_struct + _fields_of(kind.field(at).type) for at in range(kind.num_fields))


def _own_fields(document: Node) -> int:
    """Return the number of fields of all structs that a statement makes itself."""
    fields = 0
    for value in nodes_below(document):
        kind = kind_of(value)
        if kind == "FUNCTION" and fold(value["function_name"]) in _STRUCTS:
            fields += len(value["children"])
        elif kind == "CAST":
            fields += _type_fields(value["cast_type"])
    return fields


def _type_fields(kind: Node) -> int:
    fields = 0
    pending = [kind]
    while pending:
        info = pending.pop()["type_info"] or {}
        inside = info.get("child_types", ())
        fields += len(inside)
        pending.extend(child["second"] for child in inside)
        if "child_type" in info:
            pending.append(info["child_type"])
    return fields
