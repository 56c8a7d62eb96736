"""The statement as it is executed: its tables replaced by the relations of its cut.

``FROM s.flows`` becomes ``FROM "<relation>" AS flows``, and ``s.flows.bytes`` becomes ``flows.bytes``
(``planner.statement.dotted_names``), so a statement keeps its meaning and the names of its columns. Functions of the
current time stay as they are: the engine answers them with the statement's time (``proxy.engine.macros``), which keeps
result names too.

Bare date parts: ``date_diff(month, a, b)``, as most databases and their tools write it.

DuckDB takes the part as a text only, and a bare word as a column. Here a bare name of a part means the part wherever
one is expected, even if a column has that name.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from planner.errors import UnsupportedStatement
from planner.statement.ast import Node, kind_of, walk
from planner.statement.dotted_names import AddressableTable, readdress
from planner.statement.gate import check
from planner.statement.parameters import constant
from planner.statement.printer_fixes import CHANGED, make_printable
from planner.statement.references import TableReference, reference_of
from planner.statement.scope import fold, scoped, visible_name


def rewrite(
    document: Node,
    relations: Mapping[TableReference, str],
    tables: Mapping[TableReference, AddressableTable] | None = None,
) -> Node:
    """Return a copy that reads ``relations`` instead of tables.

    ``relations`` has an entry for every one of ``references(document)``, and ``tables``, which a statement with
    ``may_name_paths`` needs. The statement has passed the gate.

    Raises:
        UnsupportedStatement: a WITH clause has the name of one of the relations and would capture it; or a name may mean
            either of two things.
    """
    copy: Node = marshal.loads(marshal.dumps(document))  # noqa: S302 - our own bytes, fastest copy
    apply(copy, relations=relations, columns=tables)
    return copy


def _read_relations(document: Node, relations: Mapping[TableReference, str]) -> None:
    """Read relations instead of tables, bound LIKE, and make every node printable: one walk."""
    reserved = {fold(name): name for name in relations.values()}
    for node, scope in scoped(document):
        kind = node.get("class") or node.get("type")
        if kind == "FUNCTION":
            _bound_like(node)
        elif kind == "BASE_TABLE":
            if not scope.is_cte(node):
                _replace_table(node, relations)
        elif "cte_map" in node:
            for entry in node["cte_map"]["map"]:
                if fold(entry["key"]) in reserved:
                    raise UnsupportedStatement(
                        f"{entry['key']} is not supported as a name of WITH; choose another.",
                        name=entry["key"],
                    )
        if kind in CHANGED:
            make_printable(node)


def _replace_table(node: Node, relations: Mapping[TableReference, str]) -> None:
    node.update(
        catalog_name="",
        schema_name="",
        table_name=relations[reference_of(node)],
        alias=visible_name(node),
        at_clause=None,
    )


#: LIKE operators and the linear functions the engine has for them (``proxy.engine.macros``).
LINEAR = {
    "~~": "like_linear",
    "!~~": "not_like_linear",
    "~~*": "ilike_linear",
    "!~~*": "not_ilike_linear",
}


def _bound_like(node: Node) -> None:
    """Use the linear matcher for LIKE where DuckDB's own may try every position for every wildcard.

    DuckDB's own is fine for a literal of text and ``%`` (LIKE only), and for two wildcards or fewer.
    """
    linear = LINEAR.get(node["function_name"])
    if linear is not None and len(node["children"]) == 2:
        pattern = node["children"][1].get("value", {}).get("value")
        literal = isinstance(pattern, str)
        segments = literal and "_" not in pattern and "*" not in node["function_name"]
        if not segments and not (literal and pattern.count("%") <= 2):
            node.update(function_name=linear, is_operator=False)


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


def quote_date_parts(document: Node, sql: str) -> None:
    """Make texts of bare date parts. A walk over the tree is spared where its text, ``sql``, has no such function."""
    for part in tuple(_bare(document)) if "date" in sql.lower() else ():
        (name,) = part["column_names"]
        place = part["query_location"]
        part.clear()
        part.update(constant(fold(name), "VARCHAR"), query_location=place)


def _bare(document: Node) -> Iterator[Node]:
    for node, _ in walk(document):
        if kind_of(node) == "FUNCTION" and fold(node["function_name"]) in _TAKE_PARTS:
            part = node["children"][0] if node["children"] else node
            if kind_of(part) == "COLUMN_REF" and _is_part(part["column_names"]):
                yield part


def _is_part(names: list[str]) -> bool:
    return len(names) == 1 and fold(names[0]) in _PARTS


@dataclass(frozen=True, slots=True)
class Pass:
    """``run`` refuses a tree or changes it in place, by the one fact of the statement that it ``needs`` beside it."""

    name: str
    needs: Literal["text", "columns", "relations"]
    run: Callable[[Node, Any], None]


#: In this order, each at most once. Those that need the text run before what a statement says of its tables is analysed, which
#: reads the tree they leave. Only dotted names need the columns: those of all relations say what a name with a path
#: means. They find tables by the names that the last pass replaces, so a tree with such names waits whole.
PASSES: tuple[Pass, ...] = (
    Pass("gate", "text", lambda document, _: check(document)),
    Pass("date parts", "text", quote_date_parts),
    Pass("dotted names", "columns", readdress),
    Pass("relations", "relations", _read_relations),
)


def apply(
    document: Node,
    *,
    text: str | None = None,
    columns: Mapping[TableReference, AddressableTable] | None = None,
    relations: Mapping[TableReference, str] | None = None,
) -> None:
    """Run the passes whose facts are given, in place.

    Raises:
        UnsupportedStatement: a pass refuses the tree.
    """
    facts = {"text": text, "columns": columns, "relations": relations}
    for each in PASSES:
        fact = facts[each.needs]
        if fact is not None:
            each.run(document, fact)
