"""Names, texts and types as DuckDB spells them in SQL.

The tokens of SQL texts: what can be said of one without parsing it. Takes time linear in the text.

Names as users write them in options: bare, or in double quotes as in SQL, where a quote inside is doubled.

A bare name ends at the mark that its option expects next, so it cannot hold that mark. A quoted name can hold anything.

Names of fields as a command line has them: a column, or a field inside one.

A path is the names from the column inwards, by Iceberg's own words (specification, "Column projection" and "Nested
Types"): members of a struct by their names, ``element`` of a list, ``key`` and ``value`` of a map.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from typing import TypeVar

from planner.errors import BadConfig, UnsupportedStatement

FieldPath = tuple[str, ...]
_Node = TypeVar("_Node")


def identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def same_name(name: str, names: Collection[str]) -> str | None:
    """Find a name as SQL compares names: the exact one, else one that differs in case."""
    if name in names:
        return name
    return next((other for other in sorted(names) if other.lower() == name.lower()), None)


_TOKEN = re.compile(
    r"""(?P<space>\s++)
      | (?P<comment>--[^\n]*+|/\*.*?\*/)
      | '(?P<text>(?:[^']|'')*+)'
      | [eE]'(?P<escaped>(?:[^'\\]|''|\\.)*+)'
      | "(?P<quoted>(?:[^"]|"")*+)"
      | (?P<dollar>\$(?P<tag>\w*+)\$.*?\$(?P=tag)\$)
      | (?P<open>(?:['"]|\$\w*+\$|/\*).*+)
      | (?P<word>(?:[A-Za-z_]|[^\x00-\x7F\s])(?:[A-Za-z0-9_$]|[^\x00-\x7F\s])*+)
      | (?P<number>-?[0-9]++)
      | (?P<mark>[=.;%])
      | (?P<other>[^A-Za-z0-9_\s'"$/=.;%\x80-\U0010FFFF-]++|.)""",
    re.VERBOSE | re.DOTALL,
)


def tokens(sql: str) -> Iterator[re.Match[str]]:
    """Yield every token, spaces and comments included; ``lastgroup`` is its kind.

    ``text``, ``escaped``, ``quoted`` and ``dollar`` are quoted; the groups of all but the last are what is between the
    quotes, doubled ones still doubled. ``open`` is a quote or a comment that is not closed, to the end of the text.
    """
    return _TOKEN.finditer(sql)


_QUOTED = re.compile(r'"((?:[^"]|"")*+)"')

#: Names that every option and message writes bare. SQL wants quotes around those with ``-``, too.
_BARE = re.compile(r"[\w$-]+")


_EXPLAIN = re.compile(r"\s*EXPLAIN\b\s*(?P<rest>.*)", re.IGNORECASE | re.DOTALL)
_ANALYZE = re.compile(r"(ANALYZE\b|\()", re.IGNORECASE)


def explained(sql: str) -> str | None:
    """Return the statement behind EXPLAIN, or None if the text does not begin with EXPLAIN.

    Raises:
        UnsupportedStatement: EXPLAIN with options: ANALYZE would execute.
    """
    match = _EXPLAIN.match(sql)
    if match is None:
        return None
    if _ANALYZE.match(match["rest"]):
        raise UnsupportedStatement(
            "EXPLAIN takes no options here, and never executes; write EXPLAIN and the statement."
        )
    return match["rest"]


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


def read_path(text: str) -> FieldPath:
    """Split a dotted name into its parts. A dot in quotes separates nothing.

    Bare dots separate, though a field's own name may have them: see ``resolve``.

    Raises:
        BadConfig: a quote is not closed, or something other than a dot follows one.
    """
    return split_name(text, "")[0]


def split_name(text: str, mark: str) -> tuple[FieldPath, str | None]:
    """Read the dotted name that an option begins with, up to a mark, and return what follows: ``NAME:TYPE``, ``NAME=ms``.

    None follows where there is no mark.

    Raises:
        BadConfig: as ``read_path``.
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
