"""Which columns a statement names, wherever their tables stand: of the rest nothing needs to be read or bound."""

from __future__ import annotations

from collections.abc import Collection

from planner.statement.ast import Node, walk
from planner.statement.scope import fold, visible_name

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
