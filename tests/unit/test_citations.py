"""What the tree cites, a reader can open: no notes from outside the repository, no marks that nothing explains."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = (
    "planner",
    "connectors",
    "proxy",
    "thermocline",
    "clients",
    "tests",
    "benchmarks",
    "docs",
    "deploy",
    "examples",
)
ENDINGS = {
    ".py",
    ".md",
    ".toml",
    ".yaml",
    ".yml",
    ".sh",
    ".sql",
    ".go",
    ".rs",
    ".mjs",
    ".java",
    ".svg",
}
#: Notes of the authors', and the mark that said "this was tried".
_ABSENT = re.compile(
    r"\b(?:design|redesign|flight-sql|seam-traps|duckdb|kafka|decoders|holes|style|iceberg-rest"
    r"|reliability-security|foreign-writers|spark-and-tools|formats|upsert)\.md|\bseam-traps\b|\[ran\b"
)
_PAGE = re.compile(
    r"(?<![\w/.:-])(?P<path>(?:[\w.-]+/)*[\w-]+\.md)\b|(?<![\w/.])(?P<docs>docs/[\w./-]*\w)"
)


def files() -> list[Path]:
    below = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))
    return sorted(
        path
        for path in (*below, *ROOT.iterdir())
        if path.is_file() and path.suffix in ENDINGS and path != Path(__file__)
    )


def prose(path: Path) -> Iterator[str]:
    """The comments and docstrings of a module."""
    text = path.read_text(encoding="utf-8")
    if not _PAGE.search(text):
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def missing(text: str) -> list[str]:
    """The pages that a text names by their path from the root and that do not exist."""
    named = (match["path"] or match["docs"] for match in _PAGE.finditer(text))
    return [name for name in named if not (ROOT / name).exists()]


@pytest.mark.parametrize(
    "text", ["as design.md says", "(seam-traps T4)", "0.1 ms [ran]", "[ran, 1.5.5: so]"]
)
def test_a_citation_of_notes_from_elsewhere_is_recognised(text: str) -> None:
    assert _ABSENT.search(text)


@pytest.mark.parametrize("text", ["[random]", "it ran, twice", "rng: random.Random, [range]"])
def test_other_words_are_left_alone(text: str) -> None:
    assert not _ABSENT.search(text)


@pytest.mark.parametrize(
    "text", ["see docs/gone.md.", "(docs/decisions/0002)", "by nowhere.md"]
)
def test_a_page_that_does_not_exist_is_recognised(text: str) -> None:
    assert missing(text)


def test_nothing_cites_notes_from_outside_the_repository_or_bears_their_marks() -> None:
    cited = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}"
        for path in files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if _ABSENT.search(line)
    ]
    assert not cited, "\n".join(cited)


def test_every_page_that_a_comment_or_docstring_names_exists() -> None:
    dangling = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in files()
        if path.suffix == ".py"
        for text in prose(path)
        for name in missing(text)
    ]
    assert not dangling, "\n".join(dangling)
