"""The latest run of each soak case is noted, whether it passed, failed or never began."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

CASES = Path("benchmarks/results/soak/cases.json")
TESTS = """
import pytest

@pytest.fixture
def broken():
    raise OSError

@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2))
def test_long(seed):
    assert seed == 0

@pytest.mark.soak
def test_set_up(broken): pass

@pytest.mark.soak
def test_skipped(): pytest.skip("not here")

def test_short(): pass
"""


@pytest.fixture
def outcomes(pytester: pytest.Pytester) -> dict[str, str]:
    pytester.makeini("[pytest]\nmarkers = soak")
    pytester.mkdir("tests")
    (pytester.path / "tests/test_it.py").write_text(TESTS)
    file = pytester.path / CASES
    file.parent.mkdir(parents=True)
    file.write_text('{"tests/test_it.py::test_gone": {"outcome": "passed"}}')
    plugin = ("-p", "tests.fixtures.soak_results", "-m", "soak")
    pytester.runpytest_inprocess(*plugin, "tests/test_it.py::test_long[0]")
    assert set(_outcomes(file)) == {"test_gone", "test_long[0]"}
    pytester.runpytest_inprocess(*plugin, "tests")
    return _outcomes(file)


def _outcomes(file: Path) -> dict[str, str]:
    rows = json.loads(file.read_text())
    return {case.partition("::")[2]: row["outcome"] for case, row in rows.items()}


def test_each_case_has_its_latest_outcome_and_none_that_is_gone(
    outcomes: dict[str, str],
) -> None:
    assert outcomes == {
        "test_long[0]": "passed",
        "test_long[1]": "failed",
        "test_set_up": "failed",
        "test_skipped": "skipped",
    }
