"""SQL about the session rather than about tables: what tools send and no engine is needed for.

SET, RESET, USE and transactions change the session or nothing, CANCEL QUERY ends another statement; SHOW becomes a
query over ``information_schema``. Only whole statements of a known form are taken; the backend refuses the rest by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from planner import sql_text
from planner.errors import BadParameter
from planner.sql_text import identifier, literal
from proxy.flightsql.state.client_session import ALIASES, SETTINGS, settings_of
from proxy.session import OptionValue, Session

#: Longer ones are no statements of this kind. The text of a cut has a dozen characters a partition.
_MAX_CHARS = 64_000
#: What such a statement begins with: looked at first, since most statements are queries.
_FIRST_WORDS = frozenset(
    (
        "ABORT",
        "BEGIN",
        "CANCEL",
        "COMMIT",
        "END",
        "RESET",
        "ROLLBACK",
        "SET",
        "SHOW",
        "START",
        "USE",
    )
)
#: Sent by tools at connect, for other servers; they change nothing that an answer here depends on.
_IGNORED = frozenset(
    "application_name client_encoding datestyle extra_float_digits intervalstyle standard_conforming_strings".split()  # noqa: SIM905
)
_TRANSACTION = re.compile(
    # What follows a level is letters and spaces, too: said twice, there would be two to the n ways to read n of them.
    r"(?:BEGIN|START)(?: TRANSACTION| WORK)?(?: READ ONLY)*(?: ISOLATION LEVEL [A-Z ]+)?"
    r"|(?:COMMIT|END|ROLLBACK|ABORT)(?: TRANSACTION| WORK)?"
    r"|SET (?:SESSION CHARACTERISTICS AS )?TRANSACTION"
    r"(?:(?: READ ONLY)+(?: ISOLATION LEVEL [A-Z ]+)?| ISOLATION LEVEL [A-Z ]+)"
)


_DATABASES = (
    "SELECT DISTINCT catalog_name AS database_name FROM information_schema.schemata ORDER BY 1"
)
#: The queries that SHOW stands for, by the words behind it.
_LISTINGS = {
    "DATABASES": _DATABASES,
    "CATALOGS": _DATABASES,
    "SCHEMAS": "SELECT catalog_name AS database_name, schema_name FROM information_schema.schemata ORDER BY 1, 2",
    "ALL TABLES": "SELECT table_catalog AS database, table_schema AS schema, table_name AS name, table_type "
    "FROM information_schema.tables ORDER BY 1, 2, 3",
    "TRANSACTION ISOLATION LEVEL": "SELECT 'snapshot' AS transaction_isolation",
}
#: What tools ask to learn who and where they are, by the words of SQL and of other servers.
_FUNCTIONS: Mapping[str, Callable[[Session], str | None]] = {
    "current_user": lambda session: session.user,
    "session_user": lambda session: session.user,
    "current_role": lambda session: session.user,
    "current_catalog": lambda session: session.catalog,
    "current_database": lambda session: session.catalog,
    "current_schema": lambda session: session.schema,
}
_ALIAS = r'(?:\s+AS\s+(?P<alias>\w+|"[^",]+"))?'
_CALL = r"(?:\s*\(\s*\))?"
_ONE_FUNCTION = re.compile(rf"(?P<name>{'|'.join(_FUNCTIONS)})\b{_CALL}{_ALIAS}", re.IGNORECASE)
_ASKS_FUNCTIONS = re.compile(r"\s*+SELECT\s++(?P<items>\w[^;]*+);?+\s*+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Change:
    """A statement without an answer: what it sets, None for "back to the default".

    ``path`` is what USE names: a catalog, a schema, or both; the levels of a schema are one name or several. ``cancels`` is
    the id of the statement that CANCEL QUERY names.
    """

    settings: Mapping[str, OptionValue | None]
    path: tuple[str, ...] = ()
    cancels: str | None = None


@dataclass(frozen=True, slots=True)
class _Token:
    """``word`` is the folded text of a bare word or mark; empty for what is quoted."""

    value: str
    word: str = ""


def change_of(sql: str) -> Change | None:
    """Read a statement that changes the session; None: it is not one.

    Raises:
        BadParameter: it sets what cannot be set here.
    """
    tokens = _tokens(sql)
    if not tokens:
        return None
    if _TRANSACTION.fullmatch(_words(tokens)):
        return Change({})
    first = tokens[0].word
    if first == "CANCEL":
        is_one = len(tokens) == 3 and tokens[1].word == "QUERY" and not tokens[2].word
        return Change({}, cancels=tokens[2].value) if is_one else None
    if first == "USE":
        path = tuple(token.value for token in tokens[1::2])
        return Change({}, path) if _is_name(tokens[1:]) else None
    if first == "RESET" and len(tokens) == 2:
        return _set(tokens[1].value, None)
    return _assignment(tokens[1:]) if first == "SET" else None


def _is_name(tokens: list[_Token]) -> bool:
    """Whether these are names with dots between them."""
    return len(tokens) % 2 == 1 and all(token.word == "." for token in tokens[1::2])


def _assignment(tokens: list[_Token]) -> Change | None:
    if tokens and tokens[0].word in ("SESSION", "LOCAL", "GLOBAL"):
        tokens = tokens[1:]
    words = [token.word for token in tokens]
    if words[:2] == ["TIME", "ZONE"] and len(tokens) == 3:
        return _set("time_zone", tokens[2])
    if words[:1] in (["SCHEMA"], ["CATALOG"]) and len(tokens) == 2:
        return _set(tokens[0].value, tokens[1])
    if len(tokens) == 3 and words[1] in ("=", "TO"):
        return _set(tokens[0].value, tokens[2])
    return None


def _set(name: str, value: _Token | None) -> Change:
    folded = ALIASES.get(name.lower(), name.lower())
    if folded in _IGNORED:
        return Change({})
    if folded not in SETTINGS:
        raise BadParameter(
            f"There is no setting {name[:80]!r} here; there are {', '.join(SETTINGS)}.",
            setting=name[:80],
        )
    back = value is None or value.word in ("DEFAULT", "NULL")
    return Change({folded: None if back or value is None else value.value})


def as_query(sql: str, session: Session) -> str:
    """Return the query that a SHOW, or a question for the session itself, stands for; or the statement as it came."""
    answer = _functions(sql, session)
    if answer is not None:
        return answer
    tokens = _tokens(sql)
    if not tokens or tokens[0].word != "SHOW" or len(tokens) < 2:
        return sql
    words = _words(tokens[1:])
    if words in _LISTINGS:
        return _LISTINGS[words]
    if words == "TABLES":
        return _tables_of(session.catalog, session.schema)
    if words.startswith(("TABLES FROM ", "TABLES IN ")) and _is_name(tokens[3:]):
        first, *levels = (token.value for token in tokens[3::2])
        return (
            _tables_of(first, ".".join(levels))
            if levels
            else _tables_of(session.catalog, first)
        )
    if words == "ALL":
        rows = ", ".join(
            f"({literal(name)}, {literal(str(value))})"
            for name, value in sorted(settings_of(session).items())
        )
        return f"SELECT * FROM (VALUES {rows}) AS settings(name, setting)"  # noqa: S608  literals
    name = tokens[1].value.lower()
    name = "time_zone" if words == "TIME ZONE" else ALIASES.get(name, name)
    if name not in SETTINGS or (len(tokens) > 2 and words != "TIME ZONE"):
        return sql
    value = settings_of(session).get(name)
    text = "NULL" if value is None else literal(str(value))
    return f"SELECT {text}::VARCHAR AS {name}"


def _functions(sql: str, session: Session) -> str | None:
    """Answer a SELECT of nothing but ``_FUNCTIONS``; None: it is another statement."""
    match = _ASKS_FUNCTIONS.fullmatch(sql) if len(sql) <= _MAX_CHARS else None
    if match is None:
        return None
    items = []
    for item in match["items"].split(","):
        named = _ONE_FUNCTION.fullmatch(item.strip())
        if named is None:
            return None
        value = _FUNCTIONS[named["name"].lower()](session)
        text = "NULL" if value is None else literal(value)
        items.append(
            f"{text}::VARCHAR AS {named['alias'] or identifier(named['name'].lower())}"
        )
    return f"SELECT {', '.join(items)}"


def _tables_of(catalog: str | None, schema: str | None) -> str:
    return (
        "SELECT table_name AS name FROM information_schema.tables "  # noqa: S608  literals
        f"WHERE table_catalog = {literal(catalog or '')} AND table_schema = {literal(schema or '')} ORDER BY 1"
    )


def _tokens(sql: str) -> list[_Token]:
    """The words of a statement without its comments and last semicolon; none for what is written otherwise."""
    if len(sql) > _MAX_CHARS:
        return []
    tokens: list[_Token] = []
    for lexeme in sql_text.tokens(sql):
        match lexeme.lastgroup:
            case "space" | "comment":
                continue
            case "text":
                token = _Token(lexeme["text"].replace("''", "'"))
            case "quoted" if lexeme["quoted"]:
                token = _Token(lexeme["quoted"].replace('""', '"'))
            case "word" | "number" | "mark":
                token = _Token(lexeme[0], lexeme[0].upper())
            case _:
                return []
        if not tokens and token.word not in _FIRST_WORDS:
            return []
        tokens.append(token)
    while tokens and tokens[-1].word == ";":
        tokens.pop()
    return tokens


def _words(tokens: list[_Token]) -> str:
    """The bare words in one line; a quoted one shows as a mark that no pattern holds."""
    return " ".join(token.word or "?" for token in tokens)
