"""Finds tables by what people call them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from planner.errors import UnknownTable
from planner.names import TableName, did_you_mean, name_parts
from planner.sql_text import spelled
from planner.statement.references import check_no_side


def find_tables(listed: Iterable[TableName], texts: Sequence[str]) -> list[TableName]:
    """Find tables by name, with or without their catalog; each once, in order.

    Raises:
        UnknownTable: there is none, with the nearest names; or there are several.
        BadConfig: a quote is not closed; or as ``check_no_side``.
    """
    tables = sorted(listed)
    names = []
    for text in texts:
        matches = named(text, tables)
        if len(matches) != 1:
            raise _unknown(text, matches, tables)
        check_no_side(matches[0], tables)
        names.append(matches[0])
    return list(dict.fromkeys(names))


def named(text: str, tables: Sequence[TableName]) -> list[TableName]:
    """Return the tables of this name, with or without their catalog, quoted as in SQL or bare."""
    parts = name_parts(text)
    return (
        [table for table in tables if parts == _parts(table)]
        or [table for table in tables if parts == _parts(table)[1:]]
        # A name with dots in it, bare.
        or [table for table in tables if text in (table.dotted, f"{table.schema}.{table.name}")]
    )


def _parts(table: TableName) -> tuple[str, ...]:
    return table.catalog, *table.namespace, table.name


def _unknown(
    text: str, matches: Sequence[TableName], tables: Sequence[TableName]
) -> UnknownTable:
    if matches:
        several = " and ".join(map(str, matches))
        return UnknownTable(f"{text!r} may be {several}; name the catalog.", table=text)
    short = (".".join(map(spelled, _parts(table)[1:])) for table in tables)
    hint = did_you_mean(text, (*map(str, tables), *short))
    return UnknownTable(f"there is no table {text!r}; {hint}", table=text)
