"""What the Markdown pages hold: fenced blocks, links, headings. Reads text; knows no generator.

A block may have a directive in the line above its fence, which a reader does not see::

    <!-- not run: why -->    the block cannot run in a test
    <!-- background -->      the command goes on while the rest of the page runs
    <!-- prints -->          the block shows what the one before it prints; … stands for any text
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
NOT_RUN = "not run"
BACKGROUND = "background"
PRINTS = "prints"

_FENCE = re.compile(r"^(?P<indent> *)(?P<marks>```+)(?P<language>[a-z]*)\s*$")
_DIRECTIVE = re.compile(
    r"^\s*<!-- (?P<name>not run|background|prints)(?:: (?P<why>.+?))? -->\s*$"
)
_LINK = re.compile(r"!?\[(?:[^\]\\]|\\.)*\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (?P<text>.+?)\s*$")


@dataclass(frozen=True)
class Block:
    """A fenced block. ``line`` is that of its fence, from 1."""

    page: str
    line: int
    language: str
    text: str
    directive: str | None
    why: str | None

    def __str__(self) -> str:
        return f"{self.page}:{self.line} ({self.language})"


def pages() -> list[Path]:
    """Every page a user reads. Decisions and rules are for those who change the code."""
    return [
        ROOT / "README.md",
        ROOT / "CHANGELOG.md",
        *sorted((ROOT / "docs").glob("*.md")),
        *sorted((ROOT / "docs" / "tools").glob("*.md")),
    ]


def linked_pages() -> list[Path]:
    """Every page whose links must hold."""
    return [
        *pages(),
        ROOT / "benchmarks" / "README.md",
        *sorted((ROOT / "benchmarks" / "notes").glob("*.md")),
        *sorted((ROOT / "docs" / "decisions").glob("*.md")),
        *sorted((ROOT / "docs" / "internals").glob("*.md")),
    ]


def blocks(page: Path) -> list[Block]:
    """Return the page's fenced blocks, in order."""
    lines = page.read_text(encoding="utf-8").splitlines()
    result: list[Block] = []
    number = 0
    while number < len(lines):
        fence = _FENCE.match(lines[number])
        if fence is None:
            number += 1
            continue
        directive = _DIRECTIVE.match(lines[number - 1]) if number else None
        end = number + 1
        while lines[end].strip() != fence["marks"]:
            end += 1
        indent = len(fence["indent"])
        text = "\n".join(line[indent:] for line in lines[number + 1 : end]) + "\n"
        result.append(
            Block(
                page.relative_to(ROOT).as_posix(),
                number + 1,
                fence["language"],
                text,
                directive["name"] if directive else None,
                directive["why"] if directive else None,
            )
        )
        number = end + 1
    return result


def links(page: Path) -> list[str]:
    """Return the targets of the page's links and pictures."""
    return [fields["target"] for line in _prose(page) for fields in _LINK.finditer(line)]


def anchors(page: Path) -> set[str]:
    """Return what ``#…`` may name on the page: its headings, as file browsers and the site spell them."""
    headings = (_HEADING.match(line) for line in _prose(page))
    return {_slug(result["text"]) for result in headings if result}


def _prose(page: Path) -> list[str]:
    """The lines outside fenced blocks, code spans removed from none: links may hold them."""
    items: list[str] = []
    inside = False
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.lstrip().startswith("```"):
            inside = not inside
        elif not inside:
            items.append(line)
    return items


def _slug(heading: str) -> str:
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
