from __future__ import annotations

from typing import Any

import pytest

from tests.harness import coverage_floors
from tests.harness.coverage_floors import FLOORS, covered, problems


def files(missing: int) -> dict[str, Any]:
    """One file of each package, with four lines and four branches."""
    counts = {
        "covered_lines": 4 - missing,
        "covered_branches": 4,
        "num_statements": 4,
        "num_branches": 4,
    }
    entry = {
        "summary": counts,
        "missing_lines": list(range(missing)),
        "missing_branches": [],
    }
    return {f"{package}/a/b.py": entry for package in FLOORS}


def test_every_package_has_a_floor_of_lines_and_branches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert covered(files(2)) == dict.fromkeys(FLOORS, 75.0)
    monkeypatch.setattr(
        coverage_floors, "FLOORS", {**dict.fromkeys(FLOORS, 87), "planner": 100}
    )
    assert list(problems(files(1))) == [
        "planner: 87.50 % of lines and branches, the floor is 100 %",
        "planner/a/b.py: lines [0], branches []",
    ]
    assert len(list(problems({}))) == len(FLOORS)


def test_a_floor_that_lies_far_below_is_to_be_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coverage_floors, "FLOORS", dict.fromkeys(FLOORS, 100) | {"proxy": 98})
    assert list(problems(files(0))) == [
        "proxy: 100.00 % of lines and branches, the floor is 98 %: raise it to 100"
    ]
    monkeypatch.setattr(coverage_floors, "FLOORS", dict.fromkeys(FLOORS, 99))
    assert list(problems(files(0))) == []
