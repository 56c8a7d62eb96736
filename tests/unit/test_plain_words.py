"""Docstrings and comments say what the code does, with a thing of the code as subject: pronouns for people hide it."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("planner", "connectors", "proxy", "thermocline", "clients")
_PRONOUNS = re.compile(
    r"\b(nobody|whoever|somebody|anybody|whatever|whichever|meanwhile|beforehand)\b",
    re.IGNORECASE,
)


def prose(text: str) -> Iterator[tuple[int, str]]:
    """The docstrings and comments of a file, each with its first line."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node, clean=False)
            if docstring is not None:
                yield node.body[0].lineno, docstring
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_docstring_or_comment_has_a_pronoun_for_people(folder: str) -> None:
    met = [
        f"{file.relative_to(ROOT)}:{line}: {word}"
        for file in sorted((ROOT / folder).rglob("*.py"))
        for line, text in prose(file.read_text(encoding="utf-8"))
        for word in _PRONOUNS.findall(text)
    ]
    assert not met, "\n".join(met)


def test_what_is_looked_for_is_met() -> None:
    assert [
        _PRONOUNS.findall(text)
        for _, text in prose('"""Nobody."""\nx = 1  # whatever\ny = "anybody"\n')
    ] == [["Nobody"], ["whatever"]]
