"""What people do to the names of a table's columns, as Iceberg does it: the name mapping keeps every name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from planner.schema import Column

Columns = tuple[Column, ...]


def renamed(old: str, new: str) -> Callable[[Columns], Columns]:
    return _changed(
        old, lambda held: replace(held, name=new, keys=tuple(dict.fromkeys((new, *held.keys))))
    )


def also_called(name: str, alias: str) -> Callable[[Columns], Columns]:
    """Edit ``schema.name-mapping.default`` alone."""
    return _changed(
        name, lambda held: replace(held, keys=tuple(dict.fromkeys((*held.keys, alias))))
    )


def not_called(name: str, alias: str) -> Callable[[Columns], Columns]:
    return _changed(
        name, lambda held: replace(held, keys=tuple(key for key in held.keys if key != alias))
    )


def commented(name: str, text: str) -> Callable[[Columns], Columns]:
    return _changed(name, lambda held: replace(held, doc=text))


def _changed(name: str, change: Callable[[Column], Column]) -> Callable[[Columns], Columns]:
    return lambda columns: tuple(
        change(held) if held.name == name else held for held in columns
    )
