"""Puts views in the place of tables in a text of Spark's SQL: those of one cut, and no other table of their catalogs.

The text is cut into tokens and not parsed. A dotted name that begins with one of the catalogs is a table of the cut, or
the statement is refused: let through, Spark would answer with the cold rows of the moment alone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from planner.errors import UnsupportedStatement
from planner.names import TableName

#: Spark's SqlBaseLexer.g4. A hint is no comment: what is quoted in it may end one. Of a string that is not closed, the quote is a character like any other: Spark refuses it.
_TOKEN = re.compile(
    r"""(?P<space>\s+|--(?:\\\n|[^\r\n])*|/\*(?!\+)(?:(?!/\*).)*?\*/)
      |(?P<text>[rR]'[^']*'|[rR]"[^"]*"|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
      |(?P<quoted>`(?:[^`]|``)*`)
      |(?P<nested>/\*(?!\+))
      |(?P<word>\w+)
      |(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
#: They read names out of texts.
_NAMES_OF_TEXTS = ("identifier", "execute")


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int
    stop: int

    @property
    def part(self) -> str | None:
        """The part of a name that this is, without quotes."""
        if self.kind == "quoted":
            return self.text[1:-1].replace("``", "`")
        return self.text if self.kind == "word" else None


@dataclass(frozen=True, slots=True)
class _Name:
    parts: tuple[str, ...]
    #: Where each part ends.
    stops: tuple[int, ...]
    start: int


def with_views(
    sql: str,
    views: Mapping[TableName, str],
    catalogs: Collection[str],
    *,
    double_quotes_are_names: bool = False,
) -> str:
    """Return ``sql`` with the views of tables, quoted, instead of their names. Catalogs' names are in any case.

    ``double_quotes_are_names``: as the session's setting spark.sql.ansi.doubleQuotedIdentifiers.

    Raises:
        UnsupportedStatement: it names another table of the catalogs, or might.
    """
    tokens = [
        _Token(str(match.lastgroup), match[0], match.start(), match.end())
        for match in _TOKEN.finditer(sql)
    ]
    if "${" in sql:
        raise UnsupportedStatement(
            "${...} is replaced by a setting of the session, which may be a name; write what it stands for."
        )
    if any(token.kind == "nested" for token in tokens):
        # A quote in the outer one would seem to begin a text, and hide names behind it.
        raise UnsupportedStatement("a comment within a comment is not read here; leave it out.")
    if double_quotes_are_names and any(
        token.kind == "text" and token.text[0] == '"' for token in tokens
    ):
        raise UnsupportedStatement(
            "double quotes are names in this session (spark.sql.ansi.doubleQuotedIdentifiers), which are not looked for "
            "tables here; write names in backticks, and texts in single quotes."
        )
    lowered = {catalog.lower() for catalog in catalogs}
    pieces, end = [], 0
    for name in _names(tokens):
        if name.parts[0].lower() in _NAMES_OF_TEXTS:
            raise UnsupportedStatement(
                f"{name.parts[0]} makes names out of texts, which nobody can tell before it runs; use cut.views(), and "
                f"spark.sql()."
            )
        if len(name.parts) == 1 or name.parts[0].lower() not in lowered:
            continue
        table = next((each for each in views if _begins(name, each)), None)
        if table is None:
            listed = ", ".join(map(str, views))
            raise UnsupportedStatement(
                f"{'.'.join(name.parts)} is no table of this cut, and Spark would read its cold rows alone; the cut is of "
                f"{listed}. Name the table in at(), or give an alias that is not called like a catalog."
            )
        pieces += [sql[end : name.start], "`" + views[table].replace("`", "``") + "`"]
        end = name.stops[len(_parts(table)) - 1]
    return "".join([*pieces, sql[end:]])


def _names(tokens: list[_Token]) -> Iterator[_Name]:
    """Yield every dotted name, single words included; there may be space and comments around the dots."""
    solid = [token for token in tokens if token.kind != "space"]
    index = 0
    while index < len(solid):
        part = solid[index].part
        if part is None:
            index += 1
            continue
        start, parts, stops = solid[index].start, [part], [solid[index].stop]
        while index + 2 < len(solid) and solid[index + 1].text == ".":
            part = solid[index + 2].part
            if part is None:
                break
            parts.append(part)
            stops.append(solid[index + 2].stop)
            index += 2
        index += 1
        yield _Name(tuple(parts), tuple(stops), start)


def _parts(table: TableName) -> tuple[str, ...]:
    return (table.catalog, *table.namespace, table.name)


def _begins(name: _Name, table: TableName) -> bool:
    parts = _parts(table)
    return name.parts[: len(parts)] == parts
