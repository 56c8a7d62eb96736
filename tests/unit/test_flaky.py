"""A test that fails and then passes is listed; one that goes on failing is not."""

from __future__ import annotations

import time

import pytest

from tests.fixtures.flaky import FILE, since, summary

TESTS = """
from pathlib import Path

def test_passes_the_second_time():
    before = Path("before")
    ran = before.exists()
    before.touch()
    assert ran

def test_fails():
    assert False

def test_passes():
    pass
"""


def test_what_passes_when_it_is_run_again_is_listed_and_counted(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(test_it=TESTS)
    options = ["-p", "tests.fixtures.flaky", "-p", "no:randomly"]
    first = pytester.runpytest(*options)
    first.assert_outcomes(passed=1, failed=2)
    assert "flaky" not in first.stdout.str()
    assert since(pytester.path / FILE, 0) == []

    began_s = time.time() - 1
    second = pytester.runpytest(*options, "--last-failed")
    second.assert_outcomes(passed=1, failed=1)
    second.stdout.fnmatch_lines(["1 flaky: test_it.py::test_passes_the_second_time"])
    assert since(pytester.path / FILE, began_s) == ["test_it.py::test_passes_the_second_time"]
    assert since(pytester.path / FILE, began_s + 3_600) == []

    pytester.runpytest(*options, "--last-failed").assert_outcomes(failed=1)
    assert len(since(pytester.path / FILE, 0)) == 1


def test_none_is_said_too() -> None:
    assert summary([]) == "0 flaky: every test passed at first"
