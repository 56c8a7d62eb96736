"""``docs/internals/architecture.md`` is true: its files exist, and its paths follow the imports."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "internals" / "architecture.md").read_text(encoding="utf-8")
#: What leads a statement through the proxy: its imports are what takes part.
LEADING = (
    "proxy/flightsql/server.py",
    "proxy/flightsql/middleware.py",
    "proxy/flightsql/service.py",
    "proxy/query/executor.py",
)
#: Beside the path of any statement: a reader of the path need not open them.
TAKE_PART = {
    # Values that a call carries, and the messages it comes in.
    "proxy/access/authentication/callers.py",
    "proxy/flightsql/messages.py",
    "proxy/flightsql/options.py",
    "proxy/ops/call_record.py",
    # State of calls and sessions, and shares in what is scarce.
    "proxy/flightsql/state/calls.py",
    "proxy/flightsql/state/client_session.py",
    "proxy/flightsql/state/sessions.py",
    "proxy/flightsql/state/streams.py",
    "proxy/access/fairness.py",
    "proxy/access/limits.py",
    "proxy/flightsql/state/tokens.py",
    "proxy/access/blame.py",
    # Which cut and which names a statement may ask for.
    "proxy/catalog/browser.py",
    "proxy/query/time_travel.py",
}
#: Other calls and statements, and errors: metadata, preparing and binding, EXPLAIN, parts, files without a table.
OTHER_CALLS = {
    "proxy/flightsql/actions.py",
    "proxy/flightsql/metadata/commands.py",
    "proxy/flightsql/metadata/sqlinfo.py",
    "proxy/flightsql/uploads.py",
    "proxy/query/explain.py",
    "proxy/query/parts.py",
}
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


def of_proxy(files: Iterable[str]) -> set[str]:
    """Files of the proxy before engine and tail."""
    return {
        file
        for file in files
        if file.startswith("proxy/") and not file.startswith(("proxy/engine/", "proxy/tail/"))
    }


FOLLOWED = of_proxy(step.file for step in PATHS[0])


def test_few_files_of_the_proxy_come_before_engine_and_tail() -> None:
    assert len(FOLLOWED) <= 18


def test_the_files_that_lead_a_statement_import_what_is_on_its_path_or_stands_beside_it() -> (
    None
):
    """A file that the path grows by is on the page, or in a list above."""
    imported = of_proxy(file for leading in LEADING for file in imports(leading))
    assert imported - FOLLOWED - TAKE_PART - OTHER_CALLS == set()
    assert imported >= TAKE_PART | OTHER_CALLS
    assert not FOLLOWED & (TAKE_PART | OTHER_CALLS)


def test_the_page_says_how_many_files_are_followed_and_how_many_take_part() -> None:
    assert f"a reader follows {len(FOLLOWED)} files of this list" in " ".join(PAGE.split())
    assert f"{len(TAKE_PART)} more take part" in " ".join(PAGE.split())


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
