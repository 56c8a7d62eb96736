"""With a rule removed, its tests fail: what they check is what makes them pass."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest

from tests.rules.switches import SWITCHES, Switch

ROOT = Path(__file__).parents[2]
COPIED = ("planner", "connectors", "proxy", "thermocline", "tests")
#: The rules the project promises to keep tests for; each has a switch.
RULES = [
    "T2",
    "T3",
    "T4",
    "T5",
    "T6",
    "T8",
    "T10",
    "T11",
    "T12",
    "T14",
    "T19",
    "T20",
    "T21",
    "T22",
    "T23",
    "T26",
]
AT_A_TIME = 2
TIMEOUT_S = 240


def copied(folder: Path) -> Path:
    """Copy the packages and the tests, compiled files too: compiling again takes longer than the tests."""
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name)
    shutil.copy2(ROOT / "pyproject.toml", folder)
    return folder


def pytest_in(folder: Path, tests: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run tests of a copy, against the packages of that copy."""
    options = [
        "-q",
        "-p",
        "no:randomly",
        "-p",
        "no:cacheprovider",
        "--durations=0",
        "--tb=line",
    ]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def counted(run: subprocess.CompletedProcess[str]) -> dict[str, int]:
    """What pytest's last line counts: ``2 failed, 1 passed in 0.12s``."""
    last = run.stdout.strip().rsplit("\n", 1)[-1]
    return {word: int(count) for count, word in re.findall(r"(\d+) ([a-z]+)", last)}


def without_the_rule(switch: Switch, folder: Path) -> subprocess.CompletedProcess[str]:
    source = copied(folder) / switch.file
    text = source.read_text()
    assert text.count(switch.fragment) == 1, f"{switch.file} does not hold the fragment once"
    source.write_text(text.replace(switch.fragment, switch.instead))
    run = pytest_in(folder, switch.tests)
    shutil.rmtree(folder)
    return run


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[Switch, Future[subprocess.CompletedProcess[str]]]]:
    """Runs of all selected switches, started together, so many at a time."""
    selected = [
        item.callspec.params["switch"]
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.originalname == test_its_tests_fail_without_the_rule.__name__
    ]
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        yield {
            switch: pool.submit(without_the_rule, switch, tmp_path_factory.mktemp("without"))
            for switch in cast("list[Switch]", selected)
        }
        pool.shutdown(cancel_futures=True)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("switch", SWITCHES, ids=str)
def test_its_tests_fail_without_the_rule(
    switch: Switch, runs: dict[Switch, Future[subprocess.CompletedProcess[str]]]
) -> None:
    run = runs[switch].result()
    assert run.returncode == 1, run.stdout + run.stderr
    # A switch that broke the code would make any test fail.
    assert not re.search("(Syntax|Import|Name|UnboundLocal|Attribute)Error", run.stdout)
    assert counted(run) == {"failed": len(switch.tests)}, run.stdout


@pytest.mark.timeout(600)
def test_they_all_pass_with_it(tmp_path: Path) -> None:
    tests = sorted({test for switch in SWITCHES for test in switch.tests})
    run = pytest_in(copied(tmp_path), tests)
    assert counted(run) == {"passed": len(tests)}, run.stdout + run.stderr


def test_every_promised_rule_has_a_switch() -> None:
    assert sorted({switch.rule for switch in SWITCHES}) == sorted(RULES)


def test_the_page_names_every_switch() -> None:
    page = (ROOT / "docs" / "seam-rules.md").read_text()
    assert [str(switch) for switch in SWITCHES if switch.name not in page] == []
