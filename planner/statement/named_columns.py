"""Which columns a statement names, wherever their tables stand: of the rest nothing needs to be read or bound."""

from __future__ import annotations

from planner.statement.ast import Node, walk
from planner.statement.scope import fold, visible_name

#: What means all columns of a table, or columns by their place: a star, ``#1``, PIVOT, SUMMARIZE.
_ALL = frozenset(("STAR", "POSITIONAL_REFERENCE", "PIVOT", "SHOW_REF"))


def named_columns(document: Node) -> frozenset[str] | None:
    """Return the folded names that columns can have which a gated statement reads; None: any column may be read.

    A name counts for every table that has it, so that it means the same column as before.
    """
    names: set[str] = set()
    last: set[str] = set()
    tables: set[str] = set()
    for node, _ in walk(document):
        kind = node.get("class") or node.get("type")
        if kind in _ALL:
            return None
        if kind == "COLUMN_REF":
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
