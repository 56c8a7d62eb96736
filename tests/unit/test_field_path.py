"""Names of fields on a command line."""

from __future__ import annotations

from typing import Any

import pytest

from planner.sql_text import FieldPath, read_path, resolve, spell, split_name

INSIDE: dict[str, Any] = {
    "id.orig_h": 1,
    "id": {"orig_h": 2, "resp": {"h": 3}},
    "a": {"b.c": 4},
}


def follow(path: FieldPath, start: Any) -> Any:
    def step(outer: Any, name: str) -> Any:
        return outer.get(name) if isinstance(outer, dict) else None

    return resolve(path, start, step)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("id.orig_h", 1),
        ("id.resp.h", 3),
        ("a.b.c", 4),
        ("a.b", None),
        ("id.orig_h.x", None),
        ("x", None),
    ],
)
def test_the_longest_name_with_dots_comes_first(text: str, value: int | None) -> None:
    assert follow(read_path(text), INSIDE) == value


def test_a_shorter_name_is_followed_where_the_longest_leads_nowhere() -> None:
    assert follow(("a", "b", "c"), {"a.b": {}, "a": {"b": {"c": 1}}}) == 1


def test_an_option_begins_with_a_name() -> None:
    assert split_name("p.at=ms", "=") == (("p", "at"), "ms")
    assert split_name("p.at", "=") == (("p", "at"), None)
    assert spell(("p", "at")) == "p.at"
