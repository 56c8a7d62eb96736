"""Trees are read in pieces, and what is too large is refused before it is read."""

from __future__ import annotations

import json
from typing import Any

import duckdb
import msgspec
import pytest

from connectors import syntax_trees
from planner.errors import BadStatement, UnsupportedStatement
from planner.statement.ast import Node
from planner.statement.gate import MAX_EXPRESSIONS, MAX_LITERALS

WIDE = f"SELECT {','.join(f'sum(a + {n}) FILTER (b > {n})' for n in range(1_000))} FROM t"
LISTED = f"SELECT 1 FROM (SELECT 1 WHERE a IN ({','.join(f'{n}.5' for n in range(5_000))}))"
DEEP = f"SELECT {'(' * 150}{'a + ' * 2_00}a{')' * 150} IN ({','.join(map(str, range(3_000)))})"


def ask(sql: str, argument: str) -> tuple[Any, ...]:
    row = duckdb.connect().execute(sql, [argument]).fetchone()
    assert row is not None
    return row


@pytest.mark.parametrize("sql", [WIDE, LISTED, DEEP, "SELECT 1", "SELECT 'ü\"\\n' || a"])
def test_a_tree_is_read_as_it_is(sql: str) -> None:
    (text,) = ask("SELECT json_serialize_sql(?)", sql)
    assert syntax_trees.read(text) == json.loads(text)


@pytest.mark.parametrize("sql", [WIDE, LISTED])
def test_no_piece_is_large(sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces, decode = [], msgspec.json.decode

    def decoded(raw: msgspec.Raw) -> Any:
        pieces.append(len(memoryview(raw)))
        return decode(raw)

    (text,) = ask("SELECT json_serialize_sql(?)", sql)
    monkeypatch.setattr(msgspec.json, "decode", decoded)
    syntax_trees.read(text)
    assert len(text) > 4 * syntax_trees._PIECE_BYTES
    assert max(pieces) <= syntax_trees._PIECE_BYTES
    assert sum(pieces) > len(text) // 2


def test_a_deep_tree_is_not_looked_through_at_each_level(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    depths, read = [], syntax_trees._read

    def counted(raw: msgspec.Raw, depth: int) -> Any:
        depths.append(depth)
        return read(raw, depth)

    monkeypatch.setattr(syntax_trees, "_read", counted)
    text = '{"a":' * 200 + f'"{"x" * 2 * syntax_trees._PIECE_BYTES}"' + "}" * 200
    assert syntax_trees.read(text) == json.loads(text)
    assert max(depths) == syntax_trees._PIECES_DEEP


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (f"SELECT 1 IN ({','.join(['1'] * (MAX_LITERALS + 1))})", f"more than {MAX_LITERALS} literals"),
        (f"SELECT {','.join(['a'] * (MAX_EXPRESSIONS + 1))} FROM t", f"more than {MAX_EXPRESSIONS} parts"),
        (f"SELECT 1 IN ({','.join(['0.5'] * 160_000)})", "too many parts"),
    ],
)  # fmt: skip
def test_one_that_is_too_large_is_refused_unread(
    sql: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(text: str) -> Node:
        raise AssertionError

    monkeypatch.setattr(syntax_trees, "read", read)
    with pytest.raises(UnsupportedStatement, match=message):
        syntax_trees.parse(ask, sql)


def test_a_text_that_looks_like_parts_is_none() -> None:
    text = '"class":"CONSTANT","class":"FUNCTION"' * MAX_EXPRESSIONS
    quoted = text.replace('"', '""')
    assert not syntax_trees.parse(ask, f"SELECT '{text}', \"{quoted}\"")["error"]


@pytest.mark.parametrize("text", ["", "{", '{"a": Infinity}', '"\ud83e"'])
def test_what_is_no_tree_is_no_statement(text: str) -> None:
    with pytest.raises(BadStatement, match="does not parse"):
        syntax_trees.read(text)


def test_a_tree_without_end_is_refused() -> None:
    with pytest.raises(UnsupportedStatement, match="nested too deeply"):
        syntax_trees.read("[" * 100_000 + "]" * 100_000)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id, count(*) FROM t WHERE a > 1 GROUP BY ALL",
        "SELECT * FROM (VALUES (1, 'a'), (2, 'b')) v(x, y)",
        "SELECT a, b, count(*) FROM t GROUP BY GROUPING SETS ((a), (b))",
    ],
)
def test_long_and_short_ones_print_alike(sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    document = syntax_trees.parse(ask, sql)
    text = json.dumps(document)
    short = syntax_trees.unparse(ask, text, document)
    monkeypatch.setattr(syntax_trees, "_LONG_CHARS", 0)
    assert syntax_trees.unparse(ask, text, document) == short


@pytest.mark.parametrize("long_chars", [0, 1 << 18])
def test_one_that_prints_as_another_is_refused(
    long_chars: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syntax_trees, "_LONG_CHARS", long_chars)
    document = syntax_trees.parse(ask, "SELECT * FROM a CROSS JOIN b FULL JOIN c ON a.x = c.x")
    with pytest.raises(UnsupportedStatement, match="carried over faithfully"):
        syntax_trees.unparse(ask, json.dumps(document), document)
