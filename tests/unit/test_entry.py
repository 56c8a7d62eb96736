"""The entry: an old Python is told so, by a file that it can load."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from thermocline import entry


@pytest.mark.parametrize("version", [(3, 7, 9), (3, 10, 13)])
def test_an_old_python_is_told_which_one_is_needed(version: tuple[int, ...]) -> None:
    assert entry.old_python(version) == (
        f"thermocline: Thermocline needs Python 3.11 or newer and this is 3.{version[1]}; make a virtual "
        f"environment with a newer one and install it there."
    )


@pytest.mark.parametrize("version", [(3, 11, 0), (3, 14, 1), (4, 0, 0)])
def test_a_new_one_is_not(version: tuple[int, ...]) -> None:
    assert entry.old_python(version) is None


@pytest.mark.parametrize("name", ["entry.py", "__main__.py", "__init__.py"])
def test_what_runs_before_the_check_is_readable_to_old_pythons(name: str) -> None:
    source = (Path(entry.__file__).parent / name).read_text()
    ast.parse(source, feature_version=(3, 7))
