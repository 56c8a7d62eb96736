"""What people do to the names of a table's columns, as Iceberg does it: the name mapping keeps every name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from planner.schema import Column

Columns = tuple[Column, ...]


def renamed(old: str, new: str) -> Callable[[Columns], Columns]:
    return _changed(
        old,
        lambda value: replace(value, name=new, keys=tuple(dict.fromkeys((new, *value.keys)))),
    )


def also_called(name: str, alias: str) -> Callable[[Columns], Columns]:
    """Edit ``schema.name-mapping.default`` alone."""
    return _changed(
        name, lambda value: replace(value, keys=tuple(dict.fromkeys((*value.keys, alias))))
    )


def not_called(name: str, alias: str) -> Callable[[Columns], Columns]:
    return _changed(
        name,
        lambda value: replace(value, keys=tuple(key for key in value.keys if key != alias)),
    )


def commented(name: str, text: str) -> Callable[[Columns], Columns]:
    return _changed(name, lambda value: replace(value, doc=text))


def _changed(name: str, change: Callable[[Column], Column]) -> Callable[[Columns], Columns]:
    return lambda columns: tuple(
        change(column) if column.name == name else column for column in columns
    )
