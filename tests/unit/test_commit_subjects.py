"""Subjects of commits fit a line of ``git log``: at most 72 characters, since the commit below."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Subjects before this one were not held to it.
SINCE = "065297e4daad3c55d9816358fc45bec374f0022c"
MOST_CHARACTERS = 72


def git(*arguments: str) -> str:
    """What a command of git prints; the test is skipped where there is no history, as in an sdist."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip(f"no git history here from {SINCE} on")
    return done.stdout


def test_subjects_of_commits_have_at_most_72_characters() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone: the commits are elsewhere")
    commits = git("log", "--no-merges", "--format=%h %s", f"{SINCE}..HEAD").splitlines()
    long = [commit for commit in commits if len(commit.split(" ", 1)[1]) > MOST_CHARACTERS]
    assert not long, "\n".join(
        [
            f"Subjects have at most {MOST_CHARACTERS} characters; the body says the rest:",
            *long,
        ]
    )
