"""Columns called otherwise than the fields of a record that they are read from, such as ``id_2`` of ``Id`` beside ``id``.

A column's name mapping has both names, as after a rename (docs/json-types.md, "The record").
"""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from planner.errors import BadConfig
from planner.schema import Column
from planner.sql_text import read_path, spelled, split_name

#: Names of columns, by the outermost fields that they are read from.
Renames = Mapping[str, str]


def read_renames(options: Sequence[str]) -> dict[str, str]:
    """Read FIELD=COLUMN. A dot in a field's name is part of it: fields inside others keep their names.

    Raises:
        BadConfig: a text is not of that form, or names a field or a column again.
    """
    renames: dict[str, str] = {}
    for text in options:
        field, name = split_name(text, "=")
        column = ".".join(read_path(name or ""))
        if not column:
            raise BadConfig(f"--rename {text!r} is not FIELD=COLUMN.", column=text)
        if ".".join(field) in renames or column in renames.values():
            raise BadConfig(
                f"--rename {text}: its field or column is given twice; keep one of the two.",
                column=text,
            )
        renames[".".join(field)] = column
    return renames


def rename_option(field: str, column: str) -> str:
    return f"--rename {shlex.quote(f'{spelled(field)}={spelled(column)}')}"


def other_name(field: str, names: Iterable[str]) -> str:
    """Return a name for the column of ``field`` that is none of ``names`` in any case."""
    used = {name.casefold() for name in names}
    candidates = (f"{field or 'unnamed'}_{number}" for number in itertools.count(2))
    return next(name for name in candidates if name.casefold() not in used)


def renamed(record: Mapping[str, Any], renames: Renames) -> dict[str, Any]:
    """Return a record as if its fields were called like their columns."""
    return {renames.get(name, name): value for name, value in record.items()}


def with_fields(columns: Sequence[Column], renames: Renames) -> tuple[Column, ...]:
    """Have renamed columns read their fields, after a field of the column's own name."""
    fields = {column: field for field, column in renames.items()}
    return tuple(
        replace(column, keys=(column.name, fields[column.name]))
        if column.name in fields
        else column
        for column in columns
    )
