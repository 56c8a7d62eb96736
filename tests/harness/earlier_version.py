"""An earlier version of our packages and tests, out of git."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

import pytest

from connectors import jars

ROOT = Path(__file__).parents[2]
_FOLDERS = ("planner", "connectors", "proxy", "thermocline", "tests")


def unpack(commit: str, folder: Path) -> Path:
    """Put the packages of a commit into ``folder``; skips the test in a clone without it."""
    archive = folder / "old.tar"
    made = subprocess.run(
        ["git", "archive", "-o", archive, commit, *_FOLDERS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        why = f"git has no commit {commit} here: {made.stderr}"
        if _is_whole():
            pytest.fail(why)
        pytest.skip(f"{why} (no clone, or a shallow one)")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, **jars.EXTRACT)
    return folder


def _is_whole() -> bool:
    """Whether this is a clone with its whole history."""
    answer = subprocess.run(
        ["git", "rev-parse", "--is-shallow-repository"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return answer.stdout.strip() == "false"
