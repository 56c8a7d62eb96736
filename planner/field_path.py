"""Names of fields as a command line has them: a column, or a field inside one.

A path is the names from the column inwards, by Iceberg's own words (specification, "Column projection" and "Nested
Types"): members of a struct by their names, ``element`` of a list, ``key`` and ``value`` of a map.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from planner.spelling import dotted_before, read_dotted, spelled

FieldPath = tuple[str, ...]

_Node = TypeVar("_Node")


def read_path(text: str) -> FieldPath:
    """Read a name, bare or quoted (``planner.spelling``).

    Bare dots separate, though a field's own name may have them: see ``resolve``.
    """
    return read_dotted(text)


def split_name(text: str, separator: str) -> tuple[FieldPath, str | None]:
    """Read the name that an option begins with, and what follows the separator: ``NAME:TYPE``, ``NAME=ms``.

    None follows where there is no separator.
    """
    return dotted_before(text, separator)


def spell(path: FieldPath) -> str:
    """Write a path so that ``read_path`` reads it."""
    return ".".join(map(spelled, path))


def resolve(
    path: FieldPath, start: _Node, step: Callable[[_Node, str], _Node | None]
) -> _Node | None:
    """Follow a path from ``start``; None where it leads nowhere.

    ``step`` finds what has one name inside another. The longest name with dots comes first: ``id.orig_h`` is that
    column where there is one, else ``orig_h`` of ``id``.
    """
    if not path:
        return start
    for end in range(len(path), 0, -1):
        inside = step(start, ".".join(path[:end]))
        if inside is not None:
            inmost = resolve(path[end:], inside, step)
            if inmost is not None:
                return inmost
    return None
