"""``docs/internals/architecture.md`` is true: its files exist, and its paths follow the imports."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

#: Of a statement over cold and hot rows, the first of a server.
MAX_TRACED = 88
MAX_TRACED_OF_PROXY = 24
PAGE = (ROOT / "docs" / "internals" / "architecture.md").read_text(encoding="utf-8")
_PATH = re.compile(r"<!-- path -->\n```text\n(.*?)```", re.DOTALL)
_STEP = re.compile(r"(?P<indent> *)(?P<file>[\w/]+\.py)(?P<port> \(port\))? {2,}\S")


@dataclass(frozen=True)
class Step:
    """A line of a path, and the line it must be joined to by an import, in either direction."""

    file: str
    joins: str | None
    is_port: bool


def steps(text: str) -> list[Step]:
    """The lines of one path: a line joins the one it stands under, one without indent the one before at its level."""
    listed: list[Step] = []
    above: list[str] = []
    for line in text.splitlines():
        step = _STEP.match(line)
        assert step, line
        level = len(step["indent"]) // 2
        assert level <= len(above), line
        joins = above[level - 1] if level else next(iter(above), None)
        listed.append(Step(step["file"], joins, bool(step["port"])))
        above[level:] = [step["file"]]
    return listed


PATHS = [steps(text) for text in _PATH.findall(PAGE)]
STEPS = [step for path in PATHS for step in path]


def imports(file: str) -> set[str]:
    """The files of this repository that a module imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    files = (Path(name.replace(".", "/")).with_suffix(".py") for name in names)
    return {file.as_posix() for file in files if (ROOT / file).is_file()}


def test_the_page_has_each_path_on_a_screen() -> None:
    assert len(PATHS) == 4
    assert max(map(len, PATHS)) <= 40


@pytest.fixture(scope="module")
def traced() -> list[str]:
    """The files of ours that the first statement of a server runs, in order."""
    program = [sys.executable, "-m", "tests.harness.traced_statement"]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    files: list[str] = json.loads(done.stdout)
    return files


def test_few_files_run_before_the_first_row_and_the_page_says_how_many(
    traced: list[str],
) -> None:
    before = [
        file
        for file in traced
        if file.startswith("proxy/") and not file.startswith(("proxy/engine/", "proxy/tail/"))
    ]
    assert len(traced) <= MAX_TRACED, traced
    assert len(before) <= MAX_TRACED_OF_PROXY, before
    counts = (
        f"runs {len(traced)} files, {len(before)} of them of the proxy before engine and tail"
    )
    assert counts in " ".join(PAGE.split())


def test_what_the_path_of_a_statement_names_does_run(traced: list[str]) -> None:
    """But for steps through a port: log and cold store of the traced server are in memory."""
    named = {step.file for step in PATHS[0]}
    assert {file for file in named - set(traced) if not file.startswith("connectors/")} == {
        # A protocol class, and errors of what goes well.
        "proxy/flightsql/backend.py",
    }


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.file)
def test_a_step_imports_the_line_it_joins_or_is_imported_by_it(step: Step) -> None:
    assert (ROOT / step.file).is_file()
    if step.joins is None:
        return
    is_joined = step.joins in imports(step.file) or step.file in imports(step.joins)
    assert is_joined is not step.is_port, f"{step.file} and {step.joins}"


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs" / "internals").glob("*.md")), ids=lambda page: page.stem
)
def test_every_file_and_folder_that_a_page_names_by_its_whole_path_exists(page: Path) -> None:
    named = re.findall(
        r"`((?:planner|connectors|proxy|thermocline|tests)/[\w./]*)`",
        page.read_text(encoding="utf-8"),
    )
    assert named
    assert not [name for name in named if not (ROOT / name).exists()]


def test_every_folder_of_the_program_with_modules_is_on_the_map() -> None:
    folders = ("planner", "connectors", "proxy", "thermocline")
    written = {
        f"{file.parent.relative_to(ROOT).as_posix()}/"
        for folder in folders
        for file in (ROOT / folder).rglob("*.py")
        if file.name != "__init__.py"
    }
    mapped = set(re.findall(r"^\| `([\w/]+/)` \|", PAGE, re.MULTILINE))
    inner = {
        # Parts of a folder that is on the map.
        "connectors/",
        "proxy/access/authentication/",
        "proxy/flightsql/metadata/",
        "proxy/flightsql/state/",
    }
    assert written - mapped - inner == set()
    assert not [name for name in mapped if not (ROOT / name).is_dir()]
