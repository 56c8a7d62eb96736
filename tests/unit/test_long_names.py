"""Names of tables in nested namespaces: a text with them is the text with their levels as one name, all others are as before."""

from __future__ import annotations

import json
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import BadStatement, FederationError, UnsupportedStatement
from planner.sql_text import identifier
from planner.statement.ast import Node
from planner.statement.references import long_names
from tests.harness.serving import engine
from tests.harness.sql import VARIED

PARSER = duckdb.connect()
#: ``{}`` is a table, ``a.b.c.d`` beside it a column, a text or a comment.
TEXTS = (
    "SELECT * FROM {}",
    "FROM {} SELECT a.b.c.d, x",
    "TABLE {}",
    "SELECT 1 FROM t, {} AS x(y), (SELECT 2 FROM {} z)",
    "SELECT * FROM t LEFT JOIN {} ON t.a.b.c.d = extract(year FROM a.b.c.d.e)",
    "WITH q AS MATERIALIZED (FROM {}) SELECT trim(BOTH FROM a.b.c.d) FROM q POSITIONAL JOIN {}",
    "SELECT a.b.c.d IS DISTINCT FROM e.f.g.h, x IN (SELECT a.b.c.d FROM {}), y IN a.b.c.d FROM t",
    "SELECT 'FROM a.b.c.d', $$ FROM a.b.c.d $$, \"FROM a.b.c.d\" FROM {} -- FROM a.b.c.d",
    "SELECT e'it\\'s FROM a.b.c.d' /* FROM a.b.c.d */ FROM {}",
    "SELECT * FROM {} AT (VERSION => 3) TABLESAMPLE 10 PERCENT",
    "SELECT * EXCLUDE (a.b.c.d) FROM {} WHERE (a.b.c.d).e = a.b.c.d[1].e",
    "SELECT count(*) FILTER (WHERE a.b.c.d) OVER (PARTITION BY a.b.c.d) FROM {} GROUP BY a.b.c.d",
    "PIVOT {} ON a.b.c.d IN (1) USING sum(x)",
    "DESCRIBE {}",
    "SELECT 1 UNION ALL BY NAME FROM {} ORDER BY a.b.c.d, (SELECT max(x) FROM {})",
    "SELECT * FROM {}, LATERAL (SELECT * FROM {} WHERE a.b.c.d = 1)",
)
#: Any identifier: a stranger to the parser is a character that ends a text.
NAMES = st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1, max_size=6)
GAPS = st.sampled_from(["", " ", "\n", "/* . */", " -- a.b\n"])


@st.composite
def tables(draw: st.DrawFn) -> tuple[str, str]:
    """A name of four parts or more, and the same with its levels as one name."""
    parts = draw(st.lists(NAMES, min_size=4, max_size=6))
    bare = draw(st.lists(st.booleans(), min_size=6, max_size=6))
    words = [
        part
        if is_bare and part.isidentifier() and part.isascii() and len(part) > 5
        else identifier(part)
        for part, is_bare in zip(parts, bare, strict=False)
    ]
    dots = [f"{draw(GAPS)}.{draw(GAPS)}" for _ in words[1:]]
    long = words[0] + "".join(map("".join, zip(dots, words[1:], strict=True)))
    three = parts[0], ".".join(parts[1:-1]), parts[-1]
    return long, ".".join(map(identifier, three))


def plain(sql: str) -> Node:
    """The tree of DuckDB's parser alone."""
    row = PARSER.execute("SELECT json_serialize_sql(?)", [sql]).fetchone()
    assert row is not None
    document: Node = json.loads(row[0])
    return document


def without_places(tree: Any) -> Any:
    if isinstance(tree, list):
        return [without_places(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    return {
        name: without_places(value) for name, value in tree.items() if name != "query_location"
    }


@given(st.sampled_from(TEXTS), st.lists(tables(), min_size=2, max_size=2))
def test_a_long_name_is_the_name_of_three_parts(
    text: str, names: list[tuple[str, str]]
) -> None:
    count = text.count("{}")
    long, three = zip(*names, strict=True)
    tree = engine().parse(text.format(*long[:count]))
    assert without_places(tree) == without_places(plain(text.format(*three[:count])))


@pytest.mark.parametrize("sql", [*VARIED, *(text.format("a.b.c", "x") for text in TEXTS)])
def test_a_statement_without_such_a_table_is_parsed_as_it_came(sql: str) -> None:
    assert engine().parse(sql) == plain(sql)


PIECES = st.sampled_from([*"ab.,()'\"/*-$ \n;", "FROM ", "SELECT ", "a.b.c.d", "e'", "é"])


@given(st.lists(PIECES, max_size=40).map("".join))
def test_a_text_that_parses_is_parsed_as_it_came(text: str) -> None:
    """A lexer could mistake much of it; the parser's own words never come out."""
    sql = f"SELECT {text}"
    tree = plain(sql)
    try:
        parsed = engine().parse(sql)
    except FederationError as refused:
        assert "NameListToString" not in str(refused)  # noqa: PT017 - it may also pass
        assert tree["error"] or len(tree["statements"]) != 1
    else:
        assert parsed == tree or "NameListToString" in tree["error_message"]


def test_only_whole_names_are_found() -> None:
    sql = 'a.b.c.d x.y \'q.w.e.r\' "s""t" . u /* i.o.p.a */ . v.w.x 1.2.3.4 é.😀.ü.ß f.g.h.j('
    assert [name.parts for name in long_names(sql)] == [
        ("a", "b", "c", "d"),
        ('s"t', "u", "v", "w", "x"),
        ("é", "😀", "ü", "ß"),
        ("f", "g", "h", "j"),
    ]


@pytest.mark.parametrize(
    ("sql", "kind", "sentence"),
    [
        ("INSERT INTO a.b.c.d SELECT 1", UnsupportedStatement, "INSERT statements are not supported; this server answers queries only."),
        ("SELECT * FROM a.b.c.d(1)", BadStatement, "a function's name has a catalog and a schema before it at most."),
        ("SELECT * EXCLUDE (a.b.c.d.e) FROM a.b.c.d", BadStatement, "a column of EXCLUDE, REPLACE and RENAME has a catalog, a schema and a table before it at most; write a namespace of several levels as one name in double quotes."),
        ("SELECT * FROM ROWS FROM (range(3))", UnsupportedStatement, "ROWS FROM is not supported; name its functions in FROM."),
        ("SELECT x SIMILAR TO 'a' ESCAPE 'b' FROM t", UnsupportedStatement, "SIMILAR TO takes no ESCAPE; use regexp_full_match, whose escape is the backslash."),
        ("SELECT x FROM t ORDER BY x USING <", UnsupportedStatement, "ORDER BY takes no USING; write ASC or DESC."),
    ],
)  # fmt: skip
def test_what_the_parser_has_not_implemented_is_said_in_our_words(
    sql: str, kind: type[FederationError], sentence: str
) -> None:
    with pytest.raises(kind) as refused:
        engine().parse(sql)
    assert str(refused.value) == sentence
