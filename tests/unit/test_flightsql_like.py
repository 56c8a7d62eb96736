"""LIKE patterns against an independent matcher."""

from __future__ import annotations

import re
import time

from hypothesis import given
from hypothesis import strategies as st

from proxy.flightsql.metadata.like import Like

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


def test_a_pattern_made_to_backtrack_costs_no_time() -> None:
    started = time.perf_counter()
    assert not Like("%a" * 400 + "b").matches("a" * 800)
    assert time.perf_counter() - started < 2
