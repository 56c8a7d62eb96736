"""Names as users write them in options: bare, or in double quotes as in SQL, where a quote inside is doubled.

A bare name ends at the mark that its option expects next, so it cannot hold that mark. A quoted name can hold anything.
"""

from __future__ import annotations

import re

from planner.errors import BadConfig
from planner.sqltext import identifier

_QUOTED = re.compile(r'"((?:[^"]|"")*+)"')
#: Names that every option and message writes bare. SQL wants quotes around those with ``-``, too.
_BARE = re.compile(r"[\w$-]+")


def spelled(name: str) -> str:
    """Return a name as every option reads it back: bare if it is letters, digits, ``_``, ``$`` and ``-`` only."""
    return name if _BARE.fullmatch(name) else identifier(name)


def quoted_at(text: str, position: int) -> tuple[str, int]:
    """Read the quoted name that starts at ``position``, where a quote is; return it, and where it ends (exclusive).

    Raises:
        BadConfig: the quote is not closed.
    """
    match = _QUOTED.match(text, position)
    if match is None:
        raise BadConfig(
            f"{text!r}: the quote at character {position} is not closed; a quote inside a name is written twice.",
            text=text,
        )
    return match[1].replace('""', '"'), match.end()


def name_before(text: str, mark: str) -> tuple[str, str] | None:
    """Split ``NAME<mark>REST`` at the first mark behind the name; None: there is none, or something else is.

    Raises:
        BadConfig: a quote is not closed.
    """
    if not text.startswith('"'):
        name, separator, rest = text.partition(mark)
        return (name, rest) if separator else None
    name, end = quoted_at(text, 0)
    rest = text[end:].lstrip()
    return (name, rest.removeprefix(mark)) if rest.startswith(mark) else None


def path_of(text: str) -> tuple[tuple[str, bool], ...]:
    """Split a dotted name into its parts, each with whether it is quoted. A dot in quotes separates nothing.

    Raises:
        BadConfig: a quote is not closed, or something other than a dot follows one.
    """
    parts: list[tuple[str, bool]] = []
    position = 0
    while True:
        is_quoted = text.startswith('"', position)
        if is_quoted:
            name, position = quoted_at(text, position)
        else:
            end = text.find(".", position)
            end = len(text) if end < 0 else end
            name, position = text[position:end], end
        parts.append((name, is_quoted))
        if position == len(text):
            return tuple(parts)
        if text[position] != ".":
            raise BadConfig(
                f"{text!r}: a dot or the end is expected behind the quoted name, at character {position}.",
                text=text,
            )
        position += 1
