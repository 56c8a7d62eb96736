"""Bare date parts: ``date_diff(month, a, b)``, as most databases and their tools write it.

DuckDB takes the part as a text only, and a bare word as a column. Here a bare name of a part means the part wherever
one is expected, even if a column has that name.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterator

from planner.statement.ast import Node, kind_of, walk
from planner.statement.parameters import constant
from planner.statement.scope import fold

_TAKE_PARTS = frozenset(
    f"date{separator}{what}"
    for separator in ("", "_")
    for what in ("diff", "part", "sub", "trunc")
)
_UNITS = frozenset(
    "microsecond millisecond second minute hour day week month quarter year decade".split()  # noqa: SIM905
)
#: No abbreviations: ``d`` and ``min`` are names people give to columns.
_PARTS = (
    _UNITS
    | {f"{unit}s" for unit in _UNITS}
    | {"century", "centuries", "millennium", "millennia"}
    | {"dow", "dayofweek", "isodow", "doy", "dayofyear", "isoyear", "epoch", "era"}
)


def quote_date_parts(document: Node, sql: str) -> Node:
    """Return the statement with bare date parts as texts; a copy where there are any. It has passed the gate.

    A walk over its tree is spared where its text, ``sql``, has no such function.
    """
    if "date" not in sql.lower() or not any(_bare(document)):
        return document
    copy: Node = marshal.loads(marshal.dumps(document))  # noqa: S302 - our own bytes, fastest copy
    for part in _bare(copy):
        (name,) = part["column_names"]
        place = part["query_location"]
        part.clear()
        part.update(constant(fold(name), "VARCHAR"), query_location=place)
    return copy


def _bare(document: Node) -> Iterator[Node]:
    for node, _ in walk(document):
        if kind_of(node) == "FUNCTION" and fold(node["function_name"]) in _TAKE_PARTS:
            part = node["children"][0] if node["children"] else node
            if kind_of(part) == "COLUMN_REF" and _is_part(part["column_names"]):
                yield part


def _is_part(names: list[str]) -> bool:
    return len(names) == 1 and fold(names[0]) in _PARTS
