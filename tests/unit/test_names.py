"""What names may not be: a participle says that something happened, never what it is; and one name is one class."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("planner", "connectors", "proxy", "thermocline", "clients/python")
BANNED = frozenset(
    ["held", "found", "told", "asked", "wanted", "seen", "shown", "kept", "known", "taken", "given", "news", "looks"]
)  # fmt: skip
#: The field's own term, as in HTTP's 404.
ALLOWED = frozenset(["NotFound"])


#: pyarrow sends a wire error's class name to clients, and this one tells them that the statement is not wrong.
ON_THE_WIRE = {"LimitExceeded": ["planner/errors.py", "proxy/flightsql/errors.py"]}


def sources(*folders: str) -> Iterator[tuple[str, ast.Module]]:
    for folder in folders:
        yield from _sources(folder)


@cache
def _sources(folder: str) -> list[tuple[str, ast.Module]]:
    return [
        (str(path.relative_to(ROOT)), ast.parse(path.read_text()))
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not path.stem.endswith("_pb2")
    ]


def defined(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Every name that a module gives: to variables, attributes, arguments, functions, classes, imports."""
    for node in ast.walk(tree):
        match node:
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                yield name, node.lineno
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name, node.lineno
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield name, node.lineno
            case (
                ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
                | ast.MatchMapping(rest=str(name))
                | ast.alias(asname=str(name))
            ):
                yield name, node.lineno


def is_banned(name: str) -> bool:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_")
    return name not in ALLOWED and bool(BANNED.intersection(words))


@pytest.mark.parametrize(
    "name", ["held", "_held", "HELD_BYTES", "is_known", "told_of", "Seen", "LastSeen"]
)
def test_a_participle_is_recognised_whole_or_as_a_part(name: str) -> None:
    assert is_banned(name)


@pytest.mark.parametrize("name", ["shield", "unknown", "NotFound", "foundation", "thread"])
def test_a_part_of_a_word_is_none(name: str) -> None:
    assert not is_banned(name)


def test_no_name_of_ours_is_a_participle() -> None:
    """Names of test functions are sentences: those may say what happened."""
    names = [
        f"{path}:{line} {name}"
        for path, tree in sources(*PACKAGES, "tests", "benchmarks")
        for name, line in defined(tree)
        if is_banned(name) and not name.startswith("test_")
    ]
    modules = [
        path
        for path, _ in sources(*PACKAGES, "tests", "benchmarks")
        if any(map(is_banned, Path(path).with_suffix("").parts))
    ]
    assert (names, modules) == ([], [])


def test_one_name_is_one_public_class() -> None:
    places = defaultdict(list)
    for path, tree in sources(*PACKAGES):
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(path)
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == ON_THE_WIRE


def test_small_files_with_one_importer_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """A report, not a rule: is the second thing that would go into the file still to come?"""
    importers = defaultdict(set)
    sizes = {}
    for path, tree in sources(*PACKAGES):
        sizes[path] = len((ROOT / path).read_text().splitlines())
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{item.name}" for item in node.names)]
                for name in names:
                    importers[re.sub(r"\.", "/", name) + ".py"].add(path)
    small = [
        f"{path} ({size} lines)"
        for path, size in sizes.items()
        if size < 40 and len(importers[path]) == 1
    ]
    with capsys.disabled():
        print(f"\nsmall files with one importer: {', '.join(small) or 'none'}")


def test_one_name_is_one_fixture_of_the_plug_ins() -> None:
    """Of two the later plug-in's counts, and every test of the other gets what it never asked for."""
    files = defaultdict(set)
    for path, tree in sources("tests/fixtures"):
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and any(
                "fixture" in ast.unparse(decorator) for decorator in node.decorator_list
            ):
                files[node.name].add(path)
    assert len(files) > 20
    assert not {name: paths for name, paths in files.items() if len(paths) > 1}


def test_no_test_imports_from_a_test_module_or_a_conftest() -> None:
    """What several tests use stands in ``tests/harness``, fixtures in ``tests/fixtures``."""
    refused = [
        f"{path}:{node.lineno}"
        for path, tree in sources("tests", "benchmarks")
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom) and any(map(_is_test, _modules(node)))
    ]
    assert refused == []


def _modules(node: ast.Import | ast.ImportFrom) -> list[str]:
    names = [alias.name for alias in node.names]
    if isinstance(node, ast.Import):
        return names
    return [node.module or "", *(f"{node.module}.{name}" for name in names)]


def _is_test(module: str) -> bool:
    package, _, name = module.rpartition(".")
    return package.startswith("tests.") and (name == "conftest" or name.startswith("test_"))
