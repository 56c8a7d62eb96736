"""Expressions over one row of one table, by which permissions filter and mask.

They come from the configuration, yet pass the same gate as statements. Beside columns they may name
``current_user`` (NULL for anonymous callers) and ``current_groups`` (a list of texts).

The engine evaluates them inside TRY, so that no value of a hidden row gets into an error. TRY takes neither
subqueries nor volatile functions (DuckDB 1.5.5), so those are refused here, with the functions of the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from planner.errors import UnsupportedStatement
from planner.statement.allowed import AGGREGATES, BOUNDED, SCALARS, words
from planner.statement.ast import Node, copied, fold, is_bare, kind_of, statement, walk
from planner.statement.gate import check
from planner.statement.parameters import call, cast, constant

CURRENT_USER = "current_user"
CURRENT_GROUPS = "current_groups"

_REFUSED = {
    "LAMBDA": "lambdas",
    "PARAMETER": "parameters",
    "POSITIONAL_REFERENCE": "positions of columns",
    "STAR": "*",
    "SUBQUERY": "subqueries",
    "WINDOW": "window functions",
}
#: Functions whose value is that of the statement's time.
TIMES = words("""
    age ago now today current_date current_time current_timestamp localtime current_localtime
    current_localtimestamp localtimestamp get_current_time get_current_timestamp transaction_timestamp
    """)
_VOLATILE = TIMES | words("error gen_random_uuid random uuid uuidv4 uuidv7 thermocline_cut")
_TEXT: Node = {"id": "VARCHAR", "type_info": None}
_TEXTS: Node = {
    "id": "LIST",
    "type_info": {
        "type": "LIST_TYPE_INFO",
        "alias": "",
        "extension_info": None,
        "child_type": _TEXT,
    },
}
#: The fields of ``SELECT <expression>`` beside the expression, as the parser leaves them.
_SELECT: Node = {
    "type": "SELECT_NODE",
    "modifiers": [],
    "cte_map": {"map": []},
    "from_table": {"type": "EMPTY", "alias": "", "sample": None, "query_location": 0},
    "where_clause": None,
    "group_expressions": [],
    "group_sets": [],
    "aggregate_handling": "STANDARD_HANDLING",
    "having": None,
    "sample": None,
    "qualify": None,
}


def selecting(expressions: Sequence[Node], parameters: Iterable[str] = ()) -> Node:
    """Return the document of ``SELECT <expression>, ...`` with these parameters, in their order."""
    named = [{"key": name, "value": place} for place, name in enumerate(parameters, start=1)]
    select = {**_SELECT, "select_list": list(expressions)}
    return {"error": False, "statements": [{"node": select, "named_param_map": named}]}


def row_of(operands: Sequence[Node]) -> Node:
    """Return the statement ``SELECT <operand> AS c0, ...``; its parameters keep their names."""
    named = [{**operand, "alias": f"c{number}"} for number, operand in enumerate(operands)]
    nodes = (node for node, _ in walk(selecting(named)) if kind_of(node) == "PARAMETER")
    return selecting(named, sorted({node["identifier"] for node in nodes}))


def row_expression(document: Node, of: str = "permissions") -> Node:
    """Return the expression of ``SELECT <expression>``; ``of`` says in messages what it is for.

    Raises:
        UnsupportedStatement: the text holds more than one expression, or what the gate or TRY refuse.
    """
    check(document)
    node = statement(document)["node"]
    if not is_bare(node) or len(node["select_list"]) != 1:
        raise UnsupportedStatement("one expression over the columns of a row is expected.")
    for part, _ in walk(document):
        kind = kind_of(part)
        if kind in _REFUSED:
            raise UnsupportedStatement(f"{_REFUSED[kind]} are not supported in {of}.")
        if kind == "FUNCTION":
            _check_function(fold(part["function_name"]), of)
    expression: Node = node["select_list"][0]
    if expression["alias"]:
        raise UnsupportedStatement(f"an expression in {of} has no name of its own.")
    return expression


def is_of_one_row(name: str) -> bool:
    """Whether a function, by its folded name, makes one value of one row, and the same one each time."""
    is_scalar = name not in AGGREGATES or name in SCALARS
    return is_scalar and name not in _VOLATILE and name != "unnest"


def _check_function(name: str, of: str) -> None:
    if name in _VOLATILE:
        on = "row, user and groups" if of == "permissions" else "the row"
        raise UnsupportedStatement(
            f"function {name} is not supported in {of}: they depend on {on} only."
        )
    if not is_of_one_row(name):
        raise UnsupportedStatement(
            f"function {name} is not supported in {of}: it does not make one value of one row."
        )


def columns_of(expression: Node) -> tuple[str, ...]:
    """Return the columns an expression names, each once, as written: of ``pos.x`` it is ``pos``."""
    parts = (part for part, _ in walk(selecting([expression])) if kind_of(part) == "COLUMN_REF")
    return tuple(dict.fromkeys(p["column_names"][0] for p in parts if not _is_identity(p)))


def bound_to(
    expression: Node, user: str | None, groups: Iterable[str], columns: Mapping[str, str]
) -> Node:
    """Return a copy for one user, over ``columns``: their names in the table by the folded name.

    Functions that the engine shadows with bounds (``BOUNDED``) become its own again: the bounds raise errors that TRY
    does not catch, and the author of a configuration need not be bounded.
    """
    copy = copied(expression)
    values = {CURRENT_USER: cast(constant(user, "NULL" if user is None else "VARCHAR"), _TEXT),
              CURRENT_GROUPS: cast(_list(sorted(groups)), _TEXTS)}  # fmt: skip
    for part, _ in walk(selecting([copy])):
        if kind_of(part) == "COLUMN_REF":
            if _is_identity(part):
                value = values[fold(part["column_names"][0])]
                part.clear()
                part.update(copied(value))
            else:
                first, *fields = part["column_names"]
                part["column_names"] = [columns[fold(first)], *fields]
        elif kind_of(part) == "FUNCTION" and fold(part["function_name"]) in BOUNDED:
            part.update(catalog="system", schema="main")
    return copy


def _is_identity(reference: Node) -> bool:
    names = reference["column_names"]
    return len(names) == 1 and fold(names[0]) in (CURRENT_USER, CURRENT_GROUPS)


def _list(texts: Sequence[str]) -> Node:
    return call("list_value", *(constant(text, "VARCHAR") for text in texts), schema="main")
