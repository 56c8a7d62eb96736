"""What opens tables for a command opens them within the roots that the settings say."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import thermocline

#: Where ``roots`` stands among the positional arguments; None: it is a keyword.
OPENERS = {"Catalogs": 1, "IcebergStore": None, "IcebergRepairCommitter": 1, "Auditor": 1}
SOURCES = sorted(Path(thermocline.__file__).parent.rglob("*.py"))


def calls(path: Path) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in OPENERS:
                yield node


def has_roots(call: ast.Call) -> bool:
    position = OPENERS[ast.unparse(call.func).rpartition(".")[2]]
    return any(keyword.arg == "roots" for keyword in call.keywords) or (
        position is not None and len(call.args) > position
    )


OPENING = [(path, call) for path in SOURCES for call in calls(path)]


def test_commands_open_tables() -> None:
    assert {ast.unparse(call.func) for _, call in OPENING} >= {
        "IcebergStore",
        "IcebergRepairCommitter",
        "Auditor",
    }


@pytest.mark.parametrize(
    ("path", "call"), OPENING, ids=[f"{path.stem}:{call.lineno}" for path, call in OPENING]
)
def test_each_gives_the_roots_of_the_settings(path: Path, call: ast.Call) -> None:
    assert has_roots(call), f"{path.name}:{call.lineno}: {ast.unparse(call)} has no roots"
