"""The table of docs/engines.md of what each engine finds is what ``integration/test_live_types.py`` holds."""

from __future__ import annotations

from pathlib import Path

from tests.harness.type_borders import BORDERS, ENGINES, LOSSES, conditions

_PAGE = Path(__file__).parents[2] / "docs" / "engines.md"


def test_the_page_has_the_losses_by_type_and_engine() -> None:
    lines = _PAGE.read_text().partition("## What each finds, by type")[2].splitlines()
    rows = {
        cells[0]: cells[1:]
        for line in lines
        if line.startswith("| ")
        for cells in [[cell.strip() for cell in line.strip("|").split("|")]]
    }
    assert rows["type"] == list(ENGINES)
    for borders in BORDERS:
        for engine, cell in zip(ENGINES, rows[borders.name], strict=True):
            notes = {
                loss.note
                for loss in LOSSES
                for by in ("", "v", *borders.partitions)
                for one in conditions(borders)
                if loss.concerns(engine, one, by)
            }
            assert cell == (", ".join(sorted(notes)) or "all"), (borders.name, engine)
    for loss in LOSSES:
        assert rows[loss.note], loss.note
