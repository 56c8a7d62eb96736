"""With a rule removed, its tests fail: what they check is what makes them pass."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.rules.switches import SWITCHES, Switch

ROOT = Path(__file__).parents[2]
#: The rules the project promises to keep tests for; each has a switch.
RULES = [
    "E1",
    "S1",
    "S2",
    "S3",
    "S4",
    "S5",
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
    "T28",
    "T29",
    "R1",
    "R2",
    "R3",
    "R4",
    "R6",
    "R7",
    "R8",
    "R9",
    "R10",
    "R11",
    "R12",
    "R13",
    "R14",
    "R15",
    "R16",
    "R17",
]


class Runs:
    """Runs of tests, with one rule removed or with none (tests/rules/forks.py)."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._lines, self._answers = process.stdin, process.stdout
        self._say(json.dumps([asdict(switch) for switch in SWITCHES]))

    def run(self, switch: Switch | None = None) -> tuple[int, str]:
        """Exit code and output."""
        self._say("" if switch is None else str(SWITCHES.index(switch)))
        answer = json.loads(self._answers.readline())
        return answer["code"], answer["output"]

    def _say(self, line: str) -> None:
        self._lines.write(line + "\n")
        self._lines.flush()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.rules.forks", str(tmp_path_factory.mktemp("forks"))],
        cwd=ROOT,
        env={**os.environ, "PYTEST_ADDOPTS": ""},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Runs(process)
        finally:
            process.kill()


def counted(output: str) -> dict[str, int]:
    """What pytest's last line counts: ``2 failed, 1 passed in 0.12s``."""
    last = output.strip().rsplit("\n", 1)[-1]
    return {word: int(count) for count, word in re.findall(r"(\d+) ([a-z]+)", last)}


@pytest.mark.parametrize("switch", SWITCHES, ids=str)
def test_its_tests_fail_without_the_rule(switch: Switch, runs: Runs) -> None:
    code, output = runs.run(switch)
    assert code == 1, output
    # A switch that broke the code would make any test fail.
    assert not re.search("(Syntax|Import|Name|UnboundLocal|Attribute)Error", output)
    assert counted(output) == {"failed": len(switch.tests)}, output


def test_one_of_each_file_passes_with_it(runs: Runs) -> None:
    """That a fork alone makes no test fail; the rest pass, as all tests do, where their files are run."""
    _, output = runs.run()
    files = {test.split("::")[0] for switch in SWITCHES for test in switch.tests}
    assert counted(output) == {"passed": len(files)}, output


def test_every_promised_rule_has_a_switch() -> None:
    assert sorted({switch.rule for switch in SWITCHES}) == sorted(RULES)


def test_the_page_names_every_switch() -> None:
    page = (ROOT / "docs" / "seam-rules.md").read_text()
    assert [str(switch) for switch in SWITCHES if switch.name not in page] == []
