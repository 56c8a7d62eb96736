"""The statement as it is executed: its tables replaced by the relations of its cut.

``FROM s.flows`` becomes ``FROM "<relation>" AS flows``, and ``s.flows.bytes`` becomes ``flows.bytes``, so a
statement keeps its meaning and the names of its columns. Functions of the current time stay as they are: the
engine answers them with the statement's time (``proxy.engine.macros``), which keeps result names too.
"""

from __future__ import annotations

import marshal
from collections.abc import Mapping

from planner.errors import UnsupportedStatement
from planner.statement.ast import Node, kind_of
from planner.statement.printable import CHANGED, make_printable
from planner.statement.references import TableReference, reference_of
from planner.statement.scope import Scope, fold, scoped, written_name


def rewrite(document: Node, relations: Mapping[TableReference, str]) -> Node:
    """Return a copy that reads ``relations`` instead of tables.

    ``relations`` has an entry for every one of ``references(document)``. The statement has passed the gate.

    Raises:
        UnsupportedStatement: a WITH clause has the name of one of the relations and would capture it.
    """
    reserved = {fold(name): name for name in relations.values()}
    copy: Node = marshal.loads(marshal.dumps(document))  # noqa: S302 - our own bytes, fastest copy
    for node, scope in scoped(copy, aliases=True):
        kind = node.get("class") or node.get("type")
        if kind == "COLUMN_REF":
            if scope.aliases:
                node["column_names"] = _readdressed(node["column_names"], scope)
        elif kind == "FUNCTION":
            _bound_like(node)
        elif kind == "BASE_TABLE":
            if not scope.is_cte(node):
                _replace_table(node, relations, scope)
        elif kind == "STAR":
            _readdress_star(node, scope)
        elif "cte_map" in node:
            _keep_names(node.get("select_list", []), scope)
            for entry in node["cte_map"]["map"]:
                if fold(entry["key"]) in reserved:
                    raise UnsupportedStatement(
                        f"{entry['key']} is not supported as a name of WITH; choose another.",
                        name=entry["key"],
                    )
        if kind in CHANGED:
            make_printable(node)
    return copy


def _replace_table(node: Node, relations: Mapping[TableReference, str], scope: Scope) -> None:
    written = tuple(fold(part) for part in written_name(node))
    alias = node["alias"] or scope.aliases.get(written) or node["table_name"]
    node.update(
        catalog_name="",
        schema_name="",
        table_name=relations[reference_of(node)],
        alias=alias,
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


def _readdressed(names: list[str], scope: Scope) -> list[str]:
    """Turn ``s.flows.bytes`` into ``flows.bytes`` where ``s.flows`` is a table without alias.

    Raises:
        UnsupportedStatement: a nearer ``flows`` may or may not be that of ``s``.
    """
    if not scope.aliases:
        return names
    folded = tuple(fold(part) for part in names[:3])
    for length in range(len(folded), 0, -1):
        if folded[:length] in scope.aliases:
            alias = scope.aliases[folded[:length]]
            if alias is None:
                raise UnsupportedStatement(
                    f"{'.'.join(names)} may mean either of two tables; give one of them an alias.",
                    column=".".join(names),
                )
            return [alias, *names[length:]]
    return names


def _readdress_star(node: Node, scope: Scope) -> None:
    """Do the same for ``flows.*`` and for the columns of EXCLUDE and RENAME."""
    if node["relation_name"]:
        node["relation_name"] = _readdressed([node["relation_name"]], scope)[0]
    columns = [*node["qualified_exclude_list"], *(item["key"] for item in node["rename_list"])]
    for column in columns:
        parts = [column["catalog"], column["schema"], column["table"]]
        names = _readdressed([part for part in parts if part], scope)
        if len(names) == 1:
            column.update(catalog="", schema="", table=names[0])


def _keep_names(items: list[Node], scope: Scope) -> None:
    """Name result columns that are a whole table: its name may have changed."""
    for item in items:
        if kind_of(item) == "COLUMN_REF" and not item["alias"]:
            name = item["column_names"][-1]
            if _readdressed(item["column_names"], scope)[-1] != name:
                item["alias"] = name
