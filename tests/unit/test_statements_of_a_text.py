"""Several statements in one text."""

from __future__ import annotations

import pytest

from thermocline.client import is_complete, split


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("select 1", ["select 1"]),
        ("select 1; select 2;", ["select 1", "select 2"]),
        ("select ';' ; select 2", ["select ';'", "select 2"]),
        ("select 'it''s; so' as \"a;b\"", ["select 'it''s; so' as \"a;b\""]),
        ("select 1 -- a; b\n; -- last; one\n", ["select 1 -- a; b"]),
        ("/* a; */ select 1 /* ; */;", ["/* a; */ select 1 /* ; */"]),
        ("select $$a;b$$; select $x$ ; $$ ; $x$", ["select $$a;b$$", "select $x$ ; $$ ; $x$"]),
        ("select $1; select 2", ["select $1", "select 2"]),
        ("select 'open; never closed", ["select 'open; never closed"]),
        ("select E'a\\';b'; select 2", ["select E'a\\';b'", "select 2"]),
        (
            "/* a; /* b; */ ; */ select 'é'; select 2",
            ["/* a; /* b; */ ; */ select 'é'", "select 2"],
        ),
        ("select 1; 'not closed;", ["select 1", "'not closed;"]),
        ("select 1; /* not closed;", ["select 1", "/* not closed;"]),
        ("; ;\n;", []),
        ("-- nothing", []),
    ],
)
def test_semicolons_end_statements_outside_quotes_and_comments(
    text: str, names: list[str]
) -> None:
    assert split(text) == names


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("select 1", False),
        ("select 1;", True),
        ("select 1; -- done", True),
        ("select ';", False),
        ("select 1; select", False),
        ("select 1; /*", False),
        ("select $$a;", False),
        ("-- nothing", True),
        ("", True),
    ],
)
def test_a_prompt_waits_for_the_semicolon(text: str, complete: bool) -> None:
    assert is_complete(text) is complete
