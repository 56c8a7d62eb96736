"""The tokens of a text: every character is in one, quotes and comments are whole."""

from __future__ import annotations

import pytest

from planner.sql_text import tokens


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("SELECT 1", ["word", "space", "number"]),
        ("-- a\n'it''s'", ["comment", "space", "text"]),
        ('"a""b".c', ["quoted", "mark", "word"]),
        ("$x$ ; $$ ; $x$;", ["dollar", "mark"]),
        ("$1", ["other", "number"]),
        ("/* a */ /* b", ["comment", "space", "open"]),
        ("a$b$;'", ["word", "mark", "open"]),
        ('"a', ["open"]),
        ("$a$ b", ["open"]),
        ("é+-1", ["word", "other", "number"]),
        (r"e'it\'s' 'x\' E'\\'", ["escaped", "space", "text", "space", "escaped"]),
        ("some'a'", ["word", "text"]),
        ("(größe.😀\u00a0x", ["other", "word", "mark", "word", "space", "word"]),
    ],
)
def test_a_text_is_cut_into_tokens(text: str, kinds: list[str]) -> None:
    lexed = list(tokens(text))
    assert [token.lastgroup for token in lexed] == kinds
    assert "".join(token[0] for token in lexed) == text
