"""What keeps the suite in order: tests import helpers, never each other."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_no_test_imports_from_a_test_module_or_a_conftest() -> None:
    refused = [
        f"{path.relative_to(TESTS)}:{node.lineno}"
        for path in TESTS.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        if any(_is_test(name) for name in _modules(node))
    ]
    assert not refused, (
        "what several tests use stands in tests/harness, fixtures in tests/fixtures"
    )


def _modules(node: ast.Import | ast.ImportFrom) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=str(module), names=names):
            return [module, *(f"{module}.{alias.name}" for alias in names)]
    return []


def _is_test(module: str) -> bool:
    package, _, name = module.rpartition(".")
    return package.startswith("tests.") and (
        name == "conftest"
        or (
            name.startswith("test_")
            and (TESTS.parent / f"{module.replace('.', '/')}.py").exists()
        )
    )
