"""Decisions are short: what was measured and tried in a laboratory stands in ``benchmarks/notes``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import ROOT

PAGES = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
MOST_LINES = 30


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_decision_has_at_most_thirty_lines(page: Path) -> None:
    lines = len(page.read_text(encoding="utf-8").splitlines())
    assert lines <= MOST_LINES, (
        f"{page.name} has {lines} lines; move figures and what was tried to benchmarks/notes"
    )


def test_decisions_are_numbered_without_a_gap() -> None:
    assert [int(page.name[:4]) for page in PAGES] == list(range(1, len(PAGES) + 1))
