"""``%%thermocline``: what a cell may say, before anything is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import pytest

from planner.errors import BadConfig, BadParameter, Unavailable
from thermocline.notebook import load_ipython_extension, run_cell


class Shell:
    """Keeps what an extension registers."""

    def __init__(self) -> None:
        self.magics: list[tuple[Callable[..., Any], str, str]] = []

    def register_magic_function(
        self, function: Callable[..., Any], magic_kind: str, magic_name: str
    ) -> None:
        self.magics.append((function, magic_kind, magic_name))


def test_the_extension_adds_one_magic_of_cells() -> None:
    shell = Shell()
    load_ipython_extension(shell)
    assert shell.magics == [(run_cell, "cell", "thermocline")]


@pytest.mark.parametrize(
    ("line", "cell", "kind", "words"),
    [
        ("--engine sparkle", "SELECT 1", click.UsageError, "'sparkle' is not one of"),
        ("--local extra", "SELECT 1", click.UsageError, "unexpected extra argument"),
        ("", "SELECT 1; SELECT 2", BadParameter, "runs one statement, and this has 2"),
        ("--engine spark", " -- nothing\n", BadParameter, "runs one statement, and this has 0"),
        ("--engine spark", "SELECT 1", BadConfig, "this notebook has no Spark session"),
        ("--server ftp://x", "SELECT 1", BadConfig, "is not a server's address"),
        ("--server grpc://127.0.0.1:1", "SELECT 1", Unavailable, "no server answers at"),
    ],
)
def test_what_a_cell_may_not_say_is_refused(
    line: str, cell: str, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind) as refusal:
        run_cell(line, cell)
    assert words in str(refusal.value)
