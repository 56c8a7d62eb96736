"""What pages list is what there is: error classes, exit codes, measured figures."""

from __future__ import annotations

import re

from planner import errors
from tests.docs.pages import ROOT
from thermocline.cli import exit_code

#: What the rows of the README's table are in the results of the benchmarks.
FIGURES = (
    ("freshness", "stock client, p50"),
    ("sizes", "point, hot key, 100,000 hot rows: through Flight SQL"),
    ("sizes", "point, hot key: DuckDB, hot rows read from Kafka"),
    ("tiering", "tiering, 2 steady of 4 publishes of 8,000,000 rows"),
    ("concurrency", "hot point, text alone, 16 clients: ours"),
)
ERRORS = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")


def descendants(family: type[errors.FederationError]) -> set[type[errors.FederationError]]:
    direct = {value for value in family.__subclasses__() if value.__module__ == errors.__name__}
    return direct.union(*map(descendants, direct))


def sections() -> dict[str, str]:
    parts = re.split(r"^## (\w+)$", ERRORS, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_error_class_is_explained_in_the_section_of_its_family() -> None:
    families = errors.FederationError.__subclasses__()
    listed = {
        name: set(re.findall(r"^\| `(\w+)` \| \S.* \| \S.* \|$", text, re.MULTILINE))
        for name, text in sections().items()
    }
    assert listed == {
        family.__name__: {descendant.__name__ for descendant in descendants(family)}
        for family in families
        if family.__module__ == errors.__name__
    }


def test_the_exit_codes_of_the_errors_page_are_those_of_the_command() -> None:
    for family in errors.FederationError.__subclasses__():
        if family.__module__ == errors.__name__:
            code = exit_code(family("x"))
            assert f"exit code {code}" in " ".join(sections()[family.__name__].split())


def rounded(figure: str, digits: int) -> str:
    """``figure`` to so many significant digits: 327,953 rows/s to 328,000 rows/s."""
    number, _, unit = figure.partition(" ")
    value = float(f"{float(number.replace(',', '')):.{digits}g}")
    return f"{value:,g} {unit}"


def test_the_figures_of_the_readme_are_the_benchmarks_results() -> None:
    """Rounded to two or three digits: a run is not repeated to a thousandth."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    results = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    values = [
        re.findall(
            rf"^\| {benchmark} \| {re.escape(figure)} \| ([^|]+) \|", results, re.MULTILINE
        )
        for benchmark, figure in FIGURES
    ]
    _, _, table = readme.partition("**Measured**")
    in_readme = re.findall(r"^\| .+ \| ([\d.,]+ .+) \|$", table, re.MULTILINE)
    assert len(in_readme) == len(values)
    for value, measured in zip(in_readme, values, strict=True):
        assert len(measured) == 1
        assert value in {rounded(measured[0], digits) for digits in (2, 3)}
