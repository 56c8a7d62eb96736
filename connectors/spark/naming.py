"""Finds tables by what people call them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from planner.errors import UnknownTable
from planner.names import TableName, did_you_mean
from planner.statement.references import check_no_side


def find_tables(listed: Iterable[TableName], texts: Sequence[str]) -> list[TableName]:
    """Find tables by name, with or without their catalog; each once, in order.

    Raises:
        UnknownTable: there is none, with the nearest names; or there are several.
        BadConfig: as ``check_no_side``.
    """
    by_name: dict[str, list[TableName]] = {}
    tables = list(listed)
    for table in tables:
        by_name.setdefault(str(table), []).append(table)
        by_name.setdefault(f"{table.schema}.{table.name}", []).append(table)
    names = []
    for text in texts:
        matches = by_name.get(text, [])
        if len(matches) != 1:
            raise _unknown(text, matches, list(by_name))
        check_no_side(matches[0], tables)
        names.append(matches[0])
    return list(dict.fromkeys(names))


def _unknown(text: str, matches: Sequence[TableName], names: Sequence[str]) -> UnknownTable:
    if matches:
        several = " and ".join(map(str, matches))
        return UnknownTable(f"{text!r} may be {several}; name the catalog.", table=text)
    hint = did_you_mean(text, names)
    return UnknownTable(f"there is no table {text!r}; {hint}", table=text)
