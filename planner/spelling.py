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


def read_dotted(text: str) -> tuple[str, ...]:
    """Split a dotted name into its parts. A dot in quotes separates nothing.

    Raises:
        BadConfig: a quote is not closed, or something other than a dot follows one.
    """
    return dotted_before(text, "")[0]


def dotted_before(text: str, mark: str) -> tuple[tuple[str, ...], str | None]:
    """Read the dotted name that a text begins with, up to a mark, and return what follows that; None: there is no mark.

    Raises:
        BadConfig: as ``read_dotted``.
    """
    parts: list[str] = []
    position = 0
    while True:
        if text.startswith('"', position):
            name, position = quoted_at(text, position)
        else:
            start = position
            while position < len(text) and text[position] not in (".", mark):
                position += 1
            name = text[start:position]
        parts.append(name)
        if position == len(text):
            return tuple(parts), None
        if text[position] == mark:
            return tuple(parts), text[position + 1 :]
        if text[position] != ".":
            expected = " or ".join([*([repr(mark)] if mark else []), "a dot"])
            raise BadConfig(
                f"{text!r}: {expected} is expected behind the quoted name, at character {position}.",
                text=text,
            )
        position += 1
