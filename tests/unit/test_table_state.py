"""The one word of a table's state: the worst that is true of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from planner.table_state import TableFigures, state_of

WELL = TableFigures(
    rows=10, size=100, max_rows=1_000, max_size=10_000, lag_s=60.0, retention_s=86_400.0
)


#: From the least to the worst.
@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({}, "ok"),
        ({"rest_s": 0.9}, "ok"),
        ({"rest_s": 1.0}, "loading"),
        ({"rows": 500}, "ok"),
        ({"rows": 501}, "late"),
        ({"size": 5_001}, "late"),
        ({"lag_s": 43_201.0}, "late"),
        ({"follower_error": "UndecodableRecord"}, "stopped"),
        ({"catalog_error": "CatalogUnavailable"}, "stale"),
        ({"lag_s": 86_400.0 - 600.0}, "expiring"),
        ({"rows": 1_001}, "full"),
        ({"follower_error": "TailTooLarge"}, "full"),
        ({"error": "TailGap"}, "failing"),
    ],
)
def test_each_has_its_word(changes: dict[str, Any], word: str) -> None:
    state, advice = state_of(replace(WELL, **changes))
    assert state == word
    assert (advice is None) == (word == "ok")


def test_the_worst_is_told() -> None:
    all_at_once: dict[str, dict[str, Any]] = {
        "failing": {"error": "TailGap"},
        "full": {"rows": 2_000},
        "expiring": {"lag_s": 86_400.0},
        "stale": {"catalog_error": "CatalogUnavailable"},
        "stopped": {"follower_error": "LogUnavailable"},
    }
    for worst in tuple(all_at_once):
        figures = WELL
        for changes in all_at_once.values():
            figures = replace(figures, **changes)
        assert state_of(figures)[0] == worst
        del all_at_once[worst]


def test_nothing_expires_where_nothing_waits_or_retention_has_no_bound() -> None:
    assert state_of(replace(WELL, lag_s=None))[0] == "ok"
    assert state_of(replace(WELL, retention_s=None, lag_s=1e9))[0] == "ok"
