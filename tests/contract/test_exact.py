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
    ("file", "statement", "code"),
    [
        ("properties/test_it.py", "assert 1 == 2", WRONG),
        ("properties/test_it.py", "raise TimeoutError", 1),
        ("properties/test_it.py", "assert 1 == 1", 0),
        ("integration/test_it.py", "assert 1 == 2", 1),
        ("integration/test_replicas.py", "assert 1 == 2, 'of all rows'", WRONG),
        ("integration/test_replicas.py", "assert time.monotonic() < 0, 'late'", 1),
        ("integration/test_replicas.py", "assert Popen(['false']).wait(9) == 0", 1),
    ],
)
def test_a_wrong_answer_has_an_exit_code_of_its_own(
    tmp_path: Path, file: str, statement: str, code: int
) -> None:
    path = tmp_path / "tests" / file
    path.parent.mkdir(parents=True)
    imports = "import time\nfrom subprocess import Popen\n"
    path.write_text(f"{imports}def test_it():\n    {statement}\n")
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
    assert (f"WRONG ANSWER tests/{file}::test_it" in ran.stdout) == (code == WRONG)
