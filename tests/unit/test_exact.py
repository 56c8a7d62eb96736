"""Which failures `make test` may ask once more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.exact import WRONG

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("folder", "statement", "code"),
    [
        ("tests/properties", "assert 1 == 2", WRONG),
        ("tests/properties", "raise TimeoutError", 1),
        ("tests/integration", "assert 1 == 2", 1),
        ("tests/properties", "assert 1 == 1", 0),
    ],
)
def test_a_wrong_answer_has_an_exit_code_of_its_own(
    tmp_path: Path, folder: str, statement: str, code: int
) -> None:
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "test_it.py").write_text(f"def test_it():\n    {statement}\n")
    options = ["-q", "-p", "no:cacheprovider", "-p", "tests.fixtures.exact"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *options, f"--rootdir={tmp_path}", str(tmp_path)],
        cwd=ROOT,
        # Those of others take longer to load than all the rest does.
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == code, ran.stdout
    assert (f"WRONG ANSWER {folder}/test_it.py::test_it" in ran.stdout) == (code == WRONG)
