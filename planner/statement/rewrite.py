"""The statement as it is executed: its tables replaced by the relations of its cut.

``FROM s.flows`` becomes ``FROM "<relation>" AS flows``, and ``s.flows.bytes`` becomes ``flows.bytes``
(``planner.statement.dotted_names``), so a statement keeps its meaning and the names of its columns. Functions of the
current time stay as they are: the engine answers them with the statement's time (``proxy.engine.macros``), which keeps
result names too.

Bare date parts: ``date_diff(month, a, b)``, as most databases and their tools write it.

DuckDB takes the part as a text only, and a bare word as a column. Here a bare name of a part means the part wherever
one is expected, even if a column has that name.

Rewrites nodes that DuckDB 1.5.5 would print as SQL of another meaning.

``a CROSS JOIN b FULL JOIN c`` comes back from ``json_deserialize_sql`` as ``a , b FULL JOIN c``, where the comma binds
last; ``1e3`` as ``1000.0``, a DECIMAL; ``1.`` as ``1``, an INTEGER; ``"a b".*`` as ``a b.*``; TRUE as a cast. ``same``
detects any other change; the engine calls it before it runs anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from planner.errors import UnsupportedStatement
from planner.sql_text import identifier
from planner.statement.allowed import words
from planner.statement.ast import Node, copied, fold, kind_of, scoped, visible_name, walk
from planner.statement.dotted_names import AddressableTable, readdress
from planner.statement.gate import check
from planner.statement.parameters import cast, constant
from planner.statement.postgres_forms import rewrite_postgres_forms
from planner.statement.references import TableReference, reference_of

#: The kinds that ``make_printable`` may alter.
CHANGED = frozenset(("CONSTANT", "JOIN", "STAR"))


def make_printable(node: Node) -> None:
    """Alter one node, in place, to a form of the same meaning that prints faithfully."""
    kind = kind_of(node)
    if kind == "JOIN" and node["ref_type"] == "CROSS":
        node.update(
            ref_type="REGULAR",
            join_type="INNER",
            condition=cast(constant("t", "VARCHAR"), {"id": "BOOLEAN"}),
        )
    elif kind == "STAR" and node["relation_name"]:
        node["relation_name"] = identifier(node["relation_name"])
    elif kind == "CONSTANT":
        text = _text(node["value"])
        if text is not None:
            replacement = cast(constant(text, "VARCHAR"), node["value"]["type"])
            replacement["alias"] = node["alias"]
            node.clear()
            node.update(replacement)


def _text(value: Any) -> str | None:
    """Return the text of a constant that must be cast to keep its type."""
    kind, number = value["type"], value.get("value")
    if kind["id"] == "BOOLEAN":
        return "t" if number else "f"
    if kind["id"] == "DOUBLE":
        return repr(number)
    if kind["id"] == "DECIMAL" and kind["type_info"]["scale"] == 0:
        # Beyond 64 bits the tree holds two halves.
        return str(
            number if isinstance(number, int) else (number["upper"] << 64) + number["lower"]
        )
    return None


def _unquoted(node: Node) -> Node:
    """Return a node that was read back, with the name of its star as it was printed."""
    name = node.get("relation_name")
    return {**node, "relation_name": identifier(name)} if name else node


def same(first: Any, second: Any) -> bool:
    """Whether a tree survived printing: positions aside, VALUES and grouping sets in either form."""
    pending = [(first, second)]
    while pending:
        one, other = pending.pop()
        if isinstance(one, dict) and isinstance(other, dict):
            one, other = _values(one), _unquoted(_values(other))
            if one.get("group_sets") and other.get("group_sets"):
                one, other = _grouped(one), _grouped(other)
            if one.keys() != other.keys():
                return False
            pending += [(one[key], other[key]) for key in one if key != "query_location"]
        elif isinstance(one, list) and isinstance(other, list):
            if len(one) != len(other):
                return False
            pending += zip(one, other, strict=True)
        elif one != other:
            return False
    return True


def _values(node: Node) -> Node:
    """Return a VALUES list in place of ``(SELECT * FROM (VALUES ...))``, which is how it prints."""
    if node.get("type") != "SUBQUERY" or "class" in node or node["column_name_alias"]:
        return node
    query = node["subquery"]["node"]
    source = query.get("from_table") or {}
    plain = (
        source.get("type") == "EXPRESSION_LIST"
        and source["alias"] == node["alias"]
        and [item["class"] for item in query["select_list"]] == ["STAR"]
        and not any(query[clause] for clause in _CLAUSES)
        and not query["cte_map"]["map"]
    )
    return source if plain else node


_CLAUSES = ("modifiers", "where_clause", "group_expressions", "having", "qualify", "sample")

_POSITION = re.compile(r'"query_location": \d+')


def _grouped(query: Node) -> Node:
    """Return a query with its grouping sets as texts: expressions may be numbered in any order."""
    texts = [
        _POSITION.sub("", json.dumps(item, sort_keys=True))
        for item in query["group_expressions"]
    ]
    sets = sorted(sorted(texts[index] for index in group) for group in query["group_sets"])
    return {**query, "group_expressions": [], "group_sets": sets}


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
    copy = copied(document)
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
                relation, alias = relations[reference_of(node)], visible_name(node)
                node.update(catalog_name="", schema_name="", table_name=relation)
                node.update(alias=alias, at_clause=None)
        elif "cte_map" in node:
            for entry in node["cte_map"]["map"]:
                if fold(entry["key"]) in reserved:
                    raise UnsupportedStatement(
                        f"{entry['key']} is not supported as a name of WITH; choose another.",
                        name=entry["key"],
                    )
        if kind in CHANGED:
            make_printable(node)


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

_UNITS = words("microsecond millisecond second minute hour day week month quarter year decade")

#: No abbreviations: ``d`` and ``min`` are names people give to columns.
_PARTS = (
    _UNITS
    | {f"{unit}s" for unit in _UNITS}
    | words(
        "century centuries millennium millennia dow dayofweek isodow doy dayofyear isoyear epoch era"
    )
)


def quote_date_parts(document: Node, sql: str) -> None:
    """Make texts of bare date parts. A walk over the tree is spared where its text, ``sql``, has no such function."""
    for part in tuple(_bare(document)) if "date" in sql.lower() else ():
        (name,) = part["column_names"]
        position = part["query_location"]
        part.clear()
        part.update(constant(fold(name), "VARCHAR"), query_location=position)


def _bare(document: Node) -> Iterator[Node]:
    for node, _ in walk(document):
        if kind_of(node) == "FUNCTION" and fold(node["function_name"]) in _TAKE_PARTS:
            part = node["children"][0] if node["children"] else node
            names: list[str] = part["column_names"] if kind_of(part) == "COLUMN_REF" else []
            if len(names) == 1 and fold(names[0]) in _PARTS:
                yield part


def _rewrite_postgres_forms(document: Node, sql: str) -> None:
    """Spare the walk over the tree of a text that has none of these forms, as most have not."""
    folded = sql.lower()
    if "to_timestamp" in folded or "pg_catalog" in folded:
        rewrite_postgres_forms(document)


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
    Pass("Postgres forms", "text", _rewrite_postgres_forms),
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
    """Run the passes whose facts are given, in place. Raises UnsupportedStatement: a pass refuses the tree."""
    facts = {"text": text, "columns": columns, "relations": relations}
    for each in PASSES:
        fact = facts[each.needs]
        if fact is not None:
            each.run(document, fact)
