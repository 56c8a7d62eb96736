"""Puts views in the place of tables in a query of Spark's SQL: those of one cut, and no other table of their catalogs.

The text is cut into tokens and not parsed. A dotted name that begins with one of the catalogs is a table of the cut, or
the statement is refused: let through, Spark would answer with the cold rows of the moment alone. So is every kind of
statement that may name tables where tokens do not show them, such as scripts, which can change the catalog on their way.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from planner.errors import UnknownTable, UnsupportedStatement
from planner.names import TableName, did_you_mean
from planner.statement.references import check_no_side

#: Spark's SqlBaseLexer.g4. A hint is no comment: what is quoted in it may end one; and the star at its end begins none. Of a string that is not closed, the quote is a character like any other: Spark refuses it.
_TOKEN = re.compile(
    r"""(?P<space>\s+|--(?:\\\n|[^\r\n])*|/\*(?!\+)(?:(?!/\*).)*?\*/)
      |(?P<text>[rR]'[^']*'|[rR]"[^"]*"|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
      |(?P<quoted>`(?:[^`]|``)*`)
      |(?P<nested>/\*(?!\+))
      |(?P<hint>/\*\+)
      |(?P<unhint>\*/)
      |(?P<word>\w+)
      |(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
#: They read names out of texts. In capitals, as Spark's lexer takes words: a dotless i is an I to it.
_NAMES_OF_TEXTS = ("IDENTIFIER", "EXECUTE")
#: How statements begin whose tables are all written in them, as dotted names.
_QUERIES = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "MAP", "REDUCE")
_OTHERS = ("EXPLAIN", "DESCRIBE", "DESC", "INSERT", "MERGE")
#: Behind these Spark's grammar has a name alone; elsewhere a table may be any relation.
_NAME_FOLLOWS = frozenset(
    ("TABLE", "INTO", "OVERWRITE", "USING", "DESCRIBE", "DESC", "EXTENDED", "FORMATTED")
)


@dataclass(frozen=True, slots=True)
class StatementView:
    """What stands for a table in one statement: a view, and the name that its columns are called by."""

    view: str
    alias: str


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
    """``is_part``: there is a dot behind it, and no further part of a name. ``before`` is the token in front of it."""

    parts: tuple[str, ...]
    #: Where each part ends.
    stops: tuple[int, ...]
    start: int
    before: str
    is_part: bool
    in_hint: bool


def with_views(
    sql: str,
    views: Mapping[TableName, StatementView],
    catalogs: Collection[str],
    *,
    foreign_views: Collection[str] = (),
    double_quotes_are_names: bool = False,
) -> tuple[str, frozenset[TableName]]:
    """Return ``sql`` with views instead of tables, and the tables that it reads. Catalogs' names are in any case.

    ``foreign_views``: views, in small letters, that are of another cut. ``double_quotes_are_names``: as the session's
    setting spark.sql.ansi.doubleQuotedIdentifiers.

    Raises:
        UnsupportedStatement: it is no query; or it names another table of the catalogs or another cut's view, or might.
    """
    pieces: list[str] = []
    tables: set[TableName] = set()
    end = 0
    for name in _names(_solid(sql, double_quotes_are_names=double_quotes_are_names)):
        if len(name.parts) == 1 and name.parts[0].lower() in foreign_views:
            raise UnsupportedStatement(
                f"{name.parts[0]} is a view of another cut in this session; write the table's full name, or call views() "
                f"of this cut first."
            )
        if not _is_of(name, catalogs):
            continue
        table = _table(name, views)
        if table is None:
            listed = ", ".join(map(str, views))
            raise UnsupportedStatement(
                f"{'.'.join(name.parts)} is no table of this cut, and Spark would read its cold rows alone; the cut is of "
                f"{listed}. Name the table in at(), or give an alias that is not called like a catalog."
            )
        pieces += [sql[end : name.start], _standing(name, table, views[table])]
        end = name.stops[len(table.parts) - 1]
        tables.add(table)
    return "".join([*pieces, sql[end:]]), frozenset(tables)


def tables_of(
    sql: str,
    tables: Collection[TableName],
    catalogs: Collection[str],
    *,
    double_quotes_are_names: bool = False,
) -> list[TableName]:
    """Return the tables that a query names, each once; ``tables`` are all those of ``catalogs``.

    Raises:
        UnsupportedStatement: it is no query, or may name tables unnoticed.
        UnknownTable: it names one that is not there.
        BadConfig: as ``check_no_side``.
    """
    named: dict[TableName, None] = {}
    for name in _names(_solid(sql, double_quotes_are_names=double_quotes_are_names)):
        if not _is_of(name, catalogs):
            continue
        table = _table(name, tables)
        if table is None:
            text = ".".join(name.parts)
            hint = did_you_mean(text, map(str, tables))
            raise UnknownTable(f"there is no table {text!r}; {hint}", table=text)
        check_no_side(table, tables)
        named[table] = None
    return list(named)


def statements(text: str) -> list[str]:
    """Return the statements of a text, which end with semicolons; what has no words is left out."""
    pieces: list[list[_Token]] = [[]]
    for token in _tokens(text):
        if token.text == ";":
            pieces.append([])
        else:
            pieces[-1].append(token)
    return [
        "".join(token.text for token in piece).strip()
        for piece in pieces
        if any(token.kind != "space" for token in piece)
    ]


def _tokens(sql: str) -> list[_Token]:
    return [
        _Token(str(match.lastgroup), match[0], match.start(), match.end())
        for match in _TOKEN.finditer(sql)
    ]


def _solid(sql: str, *, double_quotes_are_names: bool) -> list[_Token]:
    """Return the tokens of a query without spaces and comments.

    Raises:
        UnsupportedStatement: it is no query, or a text whose names are not to be seen.
    """
    tokens = _tokens(sql)
    _check_readable(sql, tokens, double_quotes_are_names=double_quotes_are_names)
    solid = [token for token in tokens if token.kind != "space"]
    _check_kind(solid)
    for name in _names(solid):
        if name.parts[0].upper() in _NAMES_OF_TEXTS:
            raise UnsupportedStatement(
                f"{name.parts[0]} makes names out of texts, which nobody can tell before it runs; use cut.views(), and "
                f"spark.sql()."
            )
    return solid


def _is_of(name: _Name, catalogs: Collection[str]) -> bool:
    first = name.parts[0].lower()
    return len(name.parts) > 1 and any(first == catalog.lower() for catalog in catalogs)


def _table(name: _Name, tables: Iterable[TableName]) -> TableName | None:
    """Return the table that a name begins with: the longest, as ``lake.net`` may be a table and a namespace.

    Of ``lake.net.flows`` Spark, too, takes the table of that name before the column of ``lake.net``.
    """
    begun = [each for each in tables if name.parts[: len(each.parts)] == each.parts]
    return max(begun, key=lambda each: len(each.parts), default=None)


def _check_readable(
    sql: str, tokens: Sequence[_Token], *, double_quotes_are_names: bool
) -> None:
    """Refuse what the tokens would be taken wrongly for."""
    if "${" in sql:
        raise UnsupportedStatement(
            "${...} is replaced by a setting of the session, which may be a name; write what it stands for."
        )
    if any(token.kind == "nested" for token in tokens):
        # A quote in the outer one would seem to begin a text, and hide names behind it.
        raise UnsupportedStatement("a comment within a comment is not read here; leave it out.")
    if any(token.text == "$" for token in tokens):
        raise UnsupportedStatement(
            "$ begins a text that is not read here, and names may stand in it; write it in single quotes."
        )
    if double_quotes_are_names and any(
        token.kind == "text" and token.text[0] == '"' for token in tokens
    ):
        raise UnsupportedStatement(
            "double quotes are names in this session (spark.sql.ansi.doubleQuotedIdentifiers), which are not looked for "
            "tables here; write names in backticks, and texts in single quotes."
        )


def _check_kind(solid: Sequence[_Token]) -> None:
    first = next((token.text for token in solid if token.text != "("), "")
    if first.upper() not in (*_QUERIES, *_OTHERS):
        raise UnsupportedStatement(
            f"{first[:80] or 'an empty text'} begins no query; cut.sql() runs {', '.join((*_QUERIES[:5], *_OTHERS))}. Save "
            f"what it returns (writeTo, createOrReplaceTempView); say other statements, and scripts, with spark.sql()."
        )


def _standing(name: _Name, table: TableName, view: StatementView) -> str:
    """Return what stands where a table does: as a relation its view, called like the table; before a column that alone."""
    if name.in_hint or name.is_part or len(name.parts) > len(table.parts):
        return backticked(view.alias)
    if name.before.upper() in _NAME_FOLLOWS:
        return backticked(view.view)
    # In parentheses another alias may follow.
    return f"({backticked(view.view)} AS {backticked(view.alias)})"


def backticked(name: str) -> str:
    """Return one name as Spark SQL quotes it."""
    return "`" + name.replace("`", "``") + "`"


def _names(solid: Sequence[_Token]) -> Iterator[_Name]:
    """Yield every dotted name, single words included; there may be space and comments around the dots."""
    index, in_hint = 0, False
    while index < len(solid):
        token = solid[index]
        if token.kind == "hint":
            in_hint = True
        elif token.kind == "unhint":
            in_hint = False
        part = token.part
        if part is None:
            index += 1
            continue
        before = solid[index - 1].text if index else ""
        start, parts, stops = token.start, [part], [token.stop]
        while _is_dot(solid, index + 1):
            part = solid[index + 2].part if index + 2 < len(solid) else None
            if part is None:
                break
            parts.append(part)
            stops.append(solid[index + 2].stop)
            index += 2
        index += 1
        yield _Name(tuple(parts), tuple(stops), start, before, _is_dot(solid, index), in_hint)


def _is_dot(solid: Sequence[_Token], index: int) -> bool:
    return index < len(solid) and solid[index].text == "."
