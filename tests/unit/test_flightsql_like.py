"""LIKE patterns against an independent matcher."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import BadParameter
from proxy.flightsql.metadata.like import MAX_CHARS, Like

_TEXT = st.text(alphabet="ab%_\\\n", max_size=8)


def _regex(pattern: str) -> re.Pattern[str]:
    parts = {"%": ".*", "_": "."}
    matches = re.findall(r"\\.|\\|[^\\]", pattern, re.DOTALL)
    return re.compile(
        "".join(
            parts.get(token) or re.escape(token[1] if len(token) == 2 else token)
            for token in matches
        ),
        re.DOTALL,
    )


@given(pattern=_TEXT, text=_TEXT)
def test_a_pattern_matches_what_its_regular_expression_matches(pattern: str, text: str) -> None:
    assert Like(pattern).matches(text) == bool(_regex(pattern).fullmatch(text))


def test_a_pattern_longer_than_any_name_is_refused_before_it_is_read() -> None:
    assert not Like("_" * MAX_CHARS).matches("a")
    with pytest.raises(BadParameter, match="4,097 characters"):
        Like("%_" * 2_048 + "a")


def test_a_pattern_made_to_backtrack_costs_no_time() -> None:
    started = time.perf_counter()
    assert not Like("%a" * 400 + "b").matches("a" * 800)
    assert time.perf_counter() - started < 2
