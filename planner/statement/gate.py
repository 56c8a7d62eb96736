"""The gate: what a parsed statement may contain. It refuses everything that it does not know.

Kinds and fields of nodes are refused while walking (``planner.statement.ast``); the checks here look at names,
types and sizes. It is the first of two walls; the second is the locked engine (``proxy.engine``).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from planner.errors import UnsupportedStatement
from planner.statement.allowed import (
    BUILDERS,
    FORMATTED,
    FUNCTIONS,
    JOINERS,
    MATCHERS,
    OPERATOR_TYPES,
    TABLE_FUNCTIONS,
    TYPE_IDS,
    TYPES,
    WINDOWS,
)
from planner.statement.ast import Node, fold, kind_of, walk
from planner.statement.conditions import clocks_of
from planner.statement.postgres_forms import OF_PG_CATALOG, SETTINGS
from planner.statement.references import PATH

#: Longest statement text, checked before parsing: a parser is no place for megabytes of input.
MAX_SQL_BYTES = 1 << 20
#: Comment openings: the parser's time grows with the square of nested ones: 20,000 take 1 s.
MAX_COMMENTS = 1_000
#: Nodes other than literals and lists of them. Binding takes quadratic time, without interruption: 4,000 comparisons in
#: an OR, which are 8,001 nodes, take 0.7 s, 16,000 more than ten.
MAX_EXPRESSIONS = 12_000
#: Literals: 30,000 of an IN list take 1 s of a core from text to plan, nearly half of it before they are bound.
MAX_LITERALS = 50_000
#: Items of all lists, each an expression at least: half a million have a tree of 78 MB, which takes seconds to print.
MAX_ITEMS = MAX_EXPRESSIONS + MAX_LITERALS
#: Arms of an OR that are ANDs, and the other way round: the engine looks for common parts among all, in time quadratic
#: in the arms and in their parts. 400 of three comparisons take 1.5 s.
MAX_NESTED_CONDITIONS = 400
#: WITH clauses, and tables: the engine resolves each name among all that are visible.
MAX_CLAUSES = 1_000
MAX_TABLES = 500
#: Elements of one fixed-size array value. The engine allocates 2,048 of them at once, NULLs included.
MAX_ARRAY_SIZE = 4_096
#: Rows of a sample given in rows: the engine keeps them all in memory.
MAX_SAMPLE_ROWS = 100_000
#: CUBE of n columns makes 2^n sets, each an aggregation of its own.
MAX_GROUPING_SETS = 1_024
#: Lambdas inside lambdas: each level multiplies the work on one row by the length of a list.
MAX_NESTED_LAMBDAS = 2

#: Longest separator that joins the elements of a list: one row repeats it.
MAX_SEPARATOR_LENGTH = 100
#: Each wildcard of these multiplies the work by the length of the text (LIKE has another way, see rewrite).
MAX_WILDCARDS = 2

#: A text in quotes, as long as no escape or comment misleads it.
_QUOTED = re.compile(r"'[^']*'")
#: A width or precision of four digits, one taken from an argument, or a field inside a field.
_COSTLY_FORMAT = re.compile(r"\d{4}|\*|\{[^}]*\{")
#: ``system.main.now()`` would go around the engine's own ``now()``. Elsewhere a qualifier is a column:
#: ``name.upper()``.
_QUALIFIERS = frozenset(("system", "temp", "pg_catalog"))


def check_text(sql: str) -> None:
    """Refuse a text too large to parse.

    Raises:
        UnsupportedStatement: it has more than ``MAX_SQL_BYTES``, ``MAX_COMMENTS``, or lists of more than ``MAX_ITEMS``.
    """
    size = len(sql.encode("utf-8", "surrogatepass"))
    if size > MAX_SQL_BYTES:
        raise UnsupportedStatement(
            f"the statement has {size} bytes, the limit is {MAX_SQL_BYTES}; send long lists as parameters.",
            size_bytes=size,
        )
    if sql.count("/*") > MAX_COMMENTS:
        raise UnsupportedStatement(
            f"the statement has more than {MAX_COMMENTS} comments; send it without."
        )
    if sql.count(",") > MAX_ITEMS and _QUOTED.sub("", sql).count(",") > MAX_ITEMS:
        raise UnsupportedStatement(
            f"the statement has lists of more than {MAX_ITEMS} items; send them as parameters."
        )


def check_counts(literals: int, others: int) -> None:
    """Refuse a tree too large to read, by the number of its expressions: ``literals``, and ``others``.

    Raises:
        UnsupportedStatement: it has more than ``MAX_LITERALS``, or ``MAX_EXPRESSIONS``.
    """
    for sort, count in (("literals", literals), ("parts", others)):
        if count > _MOST[sort]:
            raise _too_many(sort)


def check(document: Node) -> None:
    """Pass a parsed statement, or raise. Raises UnsupportedStatement: names the first thing that is not allowed."""
    streamed: set[int] = set()
    room = dict(_MOST)
    for node, lambdas in walk(document):
        kind = kind_of(node)
        _count(node, kind, room)
        if kind == "FUNCTION":
            if id(node) not in streamed:
                _check_function(node, lambdas)
        elif kind == "TABLE_FUNCTION":
            _check_table_function(node)
            streamed.add(id(node["function"]))
        elif kind == "LAMBDA":
            if lambdas >= MAX_NESTED_LAMBDAS:
                raise UnsupportedStatement(
                    f"lambdas nested more than {MAX_NESTED_LAMBDAS} deep are not supported; use unnest."
                )
        elif not kind:
            _check_clause(node)
        else:
            check_node = _CHECKS.get(kind)
            if check_node is not None:
                check_node(node)


def _count(node: Node, kind: str, room: dict[str, int]) -> None:
    """Count a node among those of its sort."""
    sort = _SORTS.get(kind, "parts")
    if not kind and _is_clause(node):
        sort = "WITH clauses"
    room[sort] -= 1
    if room[sort] < 0:
        raise _too_many(sort)
    if kind == "CONJUNCTION":
        room[_NESTED] -= sum(kind_of(child) in _CONDITIONS for child in node["children"])
        if room[_NESTED] < 0:
            raise _too_many(_NESTED)


def _is_clause(node: Node) -> bool:
    """Whether it is an entry of WITH: those have a name and a query."""
    return "value" in node and "query" in node["value"]


def _check_function(node: Node, lambdas: int) -> None:
    name = fold(node["function_name"])
    qualifiers = {fold(node["schema"]), fold(node["catalog"])}
    is_postgres = qualifiers == {"pg_catalog", ""} and name in OF_PG_CATALOG
    is_around = not (is_postgres or _QUALIFIERS.isdisjoint(qualifiers))
    if name == "current_setting" and qualifiers == {""}:
        # On no list: the one form that passes is answered by a macro, which tells the session's zone and nothing else.
        _check_setting(node["children"])
    elif name not in FUNCTIONS or is_around:
        raise _unknown_function(node["function_name"])
    if node["export_state"]:
        raise UnsupportedStatement("EXPORT_STATE is not supported.")
    if name in BUILDERS and lambdas:
        raise UnsupportedStatement(
            f"function {name} is not supported inside a lambda, where its results multiply.",
            function=name,
        )
    if name in ("range", "generate_series") and len(node["children"]) > 2:
        raise UnsupportedStatement(
            f"function {name} with a step is only supported in FROM; collect its rows with list(...).",
            function=name,
        )
    if name in FORMATTED:
        _check_format(name, node["children"])
    if name in JOINERS:
        _check_separators(name, node["children"][1:])
    if name in MATCHERS:
        _check_pattern(node["children"])


def _check_format(name: str, arguments: list[Node]) -> None:
    text = arguments[0].get("value", {}).get("value") if arguments else None
    if not isinstance(text, str) or _COSTLY_FORMAT.search(text):
        raise UnsupportedStatement(
            f"the first argument of {name} must be a text literal with widths below 1000.",
            function=name,
        )


def _check_setting(arguments: list[Node]) -> None:
    name = arguments[0].get("value", {}).get("value") if len(arguments) == 1 else None
    if not isinstance(name, str) or fold(name) not in SETTINGS:
        raise UnsupportedStatement(
            "current_setting tells 'TimeZone' alone; ask for other settings with SHOW.",
            function="current_setting",
        )


def _check_separators(name: str, arguments: list[Node]) -> None:
    for argument in arguments:
        value = argument.get("value", {}).get("value")
        if kind_of(argument) != "CONSTANT" or len(str(value)) > MAX_SEPARATOR_LENGTH:
            raise UnsupportedStatement(
                f"the arguments of {name} after the first must be literals of at most "
                f"{MAX_SEPARATOR_LENGTH} characters.",
                function=name,
            )


def _check_pattern(arguments: list[Node]) -> None:
    pattern = arguments[1].get("value", {}).get("value") if len(arguments) > 1 else None
    if not isinstance(pattern, str) or sum(map(pattern.count, "%*")) > MAX_WILDCARDS:
        raise UnsupportedStatement(
            f"LIKE with ESCAPE, and GLOB, need a literal pattern with at most {MAX_WILDCARDS} wildcards; "
            f"use regexp_full_match."
        )


def _check_table_function(node: Node) -> None:
    function = node["function"]
    # A subquery or a literal in this place would be syntax that this gate does not know.
    name = function.get("function_name", kind_of(function))
    if fold(name) not in TABLE_FUNCTIONS:
        raise _unknown_function(name)


def _check_window(node: Node) -> None:
    if fold(node["function_name"]) not in WINDOWS:
        raise _unknown_function(node["function_name"])


def _check_operator(node: Node) -> None:
    if node["type"] not in OPERATOR_TYPES:
        raise UnsupportedStatement(
            f"operator {node['type']} is not supported.", syntax=node["type"]
        )


def _check_type(kind: Node) -> None:
    """Check a type with the types inside it; arrays multiply their sizes."""
    pending = [(kind, 1)]
    while pending:
        kind, size = pending.pop()
        info = kind["type_info"] or {}
        name = str(info.get("name") or info.get("alias") or kind["id"])
        is_allowed = (
            name.upper() in TYPES if kind["id"] == "UNBOUND" else kind["id"] in TYPE_IDS
        )
        if not is_allowed or info.get("alias"):
            raise UnsupportedStatement(f"type {name} is not supported.", type=name)
        size *= info.get("size", 1)
        if size > MAX_ARRAY_SIZE:
            raise UnsupportedStatement(
                f"arrays of more than {MAX_ARRAY_SIZE} elements are not supported; use a list (T[])."
            )
        if "child_type" in info:
            pending.append((info["child_type"], size))
        pending.extend((child["second"], size) for child in info.get("child_types", ()))


def _check_select(node: Node) -> None:
    _check_sample(node)
    if len(node["group_sets"]) > MAX_GROUPING_SETS:
        raise UnsupportedStatement(
            f"more than {MAX_GROUPING_SETS} grouping sets are not supported."
        )


def _check_sample(node: Node) -> None:
    sample = node["sample"] or {"is_percentage": True}
    if not sample["is_percentage"] and sample["sample_size"]["value"] > MAX_SAMPLE_ROWS:
        raise UnsupportedStatement(
            f"samples of more than {MAX_SAMPLE_ROWS} rows are not supported; give a percentage."
        )


def _check_base_table(node: Node) -> None:
    _check_sample(node)
    if node["at_clause"] is not None:
        _check_at(node["at_clause"], node["table_name"])


def _check_at(clause: Node, table: str) -> None:
    unit, expression = fold(clause["unit"]), clause["expr"]
    if unit == "version":
        # -3 is a literal too: the parser folds it.
        is_literal = kind_of(expression) == "CONSTANT"
    else:
        is_literal = unit == "timestamp" and clocks_of(expression, bound=False) == frozenset()
    if not is_literal:
        raise UnsupportedStatement(
            f"AT on table {_quoted(table)} takes VERSION => a snapshot id or the text of a cut, or TIMESTAMP => a "
            f"time made of literals and now(); no columns, no parameters.",
            table=table,
        )


def _check_show(node: Node) -> None:
    _check_sample(node)
    if node["query"] is None or node["show_type"] not in ("DESCRIBE", "SUMMARY"):
        raise UnsupportedStatement(
            "SHOW is not supported; list tables through the client's catalog, or DESCRIBE one."
        )


def _check_clause(node: Node) -> None:
    """Check the name of a WITH clause: a name like a path must not hide a file elsewhere."""
    name = node.get("key", "") if _is_clause(node) else ""
    if PATH.search(name):
        raise UnsupportedStatement(f"'{_quoted(name)}' is not supported as a name of WITH.")


def _too_many(sort: str) -> UnsupportedStatement:
    return UnsupportedStatement(
        f"the statement has more than {_MOST[sort]} {sort}; {_REMEDIES.get(sort, 'narrow it')}."
    )


def _unknown_function(name: str) -> UnsupportedStatement:
    return UnsupportedStatement(f"function {_quoted(name)} is not supported.", function=name)


def _quoted(name: str) -> str:
    return name if len(name) <= 80 else f"{name[:77]}..."


_NESTED = "conditions of AND inside OR, or the other way round"
_CONDITIONS = frozenset(("BETWEEN", "CONJUNCTION"))
_MOST = {
    "parts": MAX_EXPRESSIONS,
    "literals": MAX_LITERALS,
    _NESTED: MAX_NESTED_CONDITIONS,
    "WITH clauses": MAX_CLAUSES,
    "tables": MAX_TABLES,
}
_REMEDIES = {
    **dict.fromkeys(
        ("parts", "WITH clauses", "tables"), "narrow it, or send lists as literals"
    ),
    _NESTED: "compare several columns by (a, b) IN ((1, 2), ...)",
}
_SORTS = {"BASE_TABLE": "tables", "CONSTANT": "literals"}

_CHECKS: dict[str, Callable[[Node], None]] = {
    "BASE_TABLE": _check_base_table,
    "CAST": lambda node: _check_type(node["cast_type"]),
    "EMPTY": _check_sample,
    "EXPRESSION_LIST": _check_sample,
    "JOIN": _check_sample,
    "OPERATOR": _check_operator,
    "PIVOT": _check_sample,
    "SELECT_NODE": _check_select,
    "SHOW_REF": _check_show,
    "WINDOW": _check_window,
}
