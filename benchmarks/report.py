"""What a benchmark run leaves behind: one JSON file, and rows of the table in the README."""

from __future__ import annotations

import datetime as dt
import json
import math
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import click
import confluent_kafka
import psutil

from connectors import jars

RESULTS = Path(__file__).with_name("results")
README = Path(__file__).with_name("README.md")
_MARKS = ("<!-- results: written by `python -m benchmarks table --write` -->", "<!-- end -->")
_WORST = 10
_DISTRIBUTIONS = (
    "thermocline",
    "pyarrow",
    "duckdb",
    "pyiceberg",
    "confluent-kafka",
    "pyspark",
    "adbc-driver-flightsql",
    "msgspec",
)


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table. The goal is a bound, or none: then the figure explains another."""

    what: str
    value: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None

    @property
    def goal(self) -> str:
        if self.at_most is not None:
            return f"<= {_number(self.at_most)}"
        return "" if self.at_least is None else f">= {_number(self.at_least)}"

    @property
    def met(self) -> bool | None:
        if self.at_most is not None:
            return self.value <= self.at_most
        return None if self.at_least is None else self.value >= self.at_least


@dataclass
class Report:
    """Gathers the figures of one run; ``details`` holds everything they were computed from."""

    figures: list[Figure] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)

    def figure(
        self,
        what: str,
        value: float,
        unit: str,
        *,
        at_most: float | None = None,
        at_least: float | None = None,
    ) -> None:
        self.figures.append(Figure(what, value, unit, at_most, at_least))


@contextmanager
def recorded(folder: Path, name: str) -> Iterator[Report]:
    """Give a report to fill; write ``<folder>/<name>.json`` and print its table when the run ended well.

    The options on record are those of the click command that runs.
    """
    began, load_before = dt.datetime.now(dt.UTC), os.getloadavg()
    report = Report()
    yield report
    ended = dt.datetime.now(dt.UTC)
    context = click.get_current_context()
    command = sys.argv[sys.argv.index(context.info_name or name) :]
    result = {
        "name": name,
        "date": began.isoformat(timespec="seconds"),
        "took_s": round((ended - began).total_seconds(), 1),
        "command": " ".join(["python -m benchmarks", *command]),
        "options": dict(context.params),
        "machine": {
            **_machine(),
            "load_before": load_before,
            "load_after": os.getloadavg(),
        },
        "versions": _versions(),
        "figures": [
            asdict(figure) | {"goal": figure.goal, "met": figure.met}
            for figure in report.figures
        ],
        "details": report.details,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(result, indent=1, default=str) + "\n")
    print(table([result]))


def results(folder: Path) -> list[dict[str, Any]]:
    """Read what runs have written, sorted by name."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def table(items: Sequence[Mapping[str, Any]]) -> str:
    """Return Markdown: the figures that have a goal, all others, and how each run was made."""
    goals = ["| benchmark | figure | value | goal | met |", "|---|---|---:|---:|---|"]
    others = ["| benchmark | figure | value |", "|---|---|---:|"]
    for result in items:
        for item in result["figures"]:
            value = f"{_number(item['value'])} {item['unit']}".strip()
            line = f"| {result['name']} | {item['what']} | {value} |"
            if item["met"] is None:
                others.append(line)
            else:
                goals.append(f"{line} {item['goal']} | {'yes' if item['met'] else '**no**'} |")
    return "\n".join([*goals, "", *others, "", *map(_run, items)])


def worst_statements(items: Iterable[Mapping[str, Any]]) -> str:
    """Return Markdown: the statements of ``statements`` that took most of what they may; nothing without a result."""
    results_of = [item for item in items if item["name"] == "statements"]
    lines = [
        "| statement | topic | plain DuckDB | bare server | ours | ratio | more |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    each = [
        (facts["of_allowed"], kind, when, facts)
        for result in results_of
        for when, kinds in result["details"]["statements"].items()
        for kind, facts in kinds.items()
    ]
    for _, kind, when, facts in sorted(each, key=lambda line: line[0], reverse=True)[:_WORST]:
        lines.append(
            f"| {kind} | {when} | {_number(facts['plain_ms'])} ms | {_bare(facts)} | {_number(facts['ours_ms'])} ms "
            f"| {facts['ratio']:.2f} | {_number(facts['plus_ms'])} ms |"
        )
    if not each:
        return ""
    return "\n".join(["The ten worst of `statements`, whatever they are:", "", *lines, "", ""])


def _bare(facts: Mapping[str, Any]) -> str:
    return f"{_number(facts['bare_ms'])} ms" if "bare_ms" in facts else ""


def write_table() -> None:
    """Replace the tables in the README by those of the results beside it."""
    text = README.read_text()
    start, end = map(re.escape, _MARKS)
    items = results(RESULTS)
    body = f"{_MARKS[0]}\n\n{worst_statements(items)}{table(items)}\n\n{_MARKS[1]}"
    replaced, count = re.subn(f"{start}.*?{end}", lambda _: body, text, flags=re.DOTALL)
    if count != 1:
        raise RuntimeError("the README has lost the marks around its table")
    README.write_text(replaced)


def summary(values: Iterable[float]) -> dict[str, Any]:
    """Describe repeated measurements, all of them included."""
    items = list(values)
    return {"median": median(items), "min": min(items), "max": max(items), "all": items}


def quantile(values: Iterable[float], share: float) -> float:
    """Return the smallest value that ``share`` of all values do not exceed."""
    value = sorted(values)
    return value[max(0, math.ceil(share * len(value)) - 1)]


def _run(result: Mapping[str, Any]) -> str:
    machine, versions = result["machine"], result["versions"]
    items = ("python", "duckdb", "pyarrow", "librdkafka", "pyspark", "kafka")
    return (
        f"- `{result['command']}`: {result['date'][:10]}, {result['took_s']:.0f} s; {machine['cpu']}, "
        f"{machine['cores']} cores, {machine['memory_bytes'] / 2**30:.0f} GiB, load "
        f"{machine['load_before'][0]:.1f} before and {machine['load_after'][0]:.1f} after; "
        + ", ".join(f"{key} {versions[key]}" for key in items)
    )


def _number(value: float) -> str:
    if value >= 1000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _machine() -> dict[str, Any]:
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        items = re.search(r"^model name\s*:\s*(.+)$", info.read_text(), re.MULTILINE)
        model = items[1] if items else model
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": f"{platform.system()} {platform.release()}",
    }


def _versions() -> dict[str, str]:
    stderr = subprocess.run([jars.java(), "-version"], capture_output=True, text=True).stderr
    fields = {name: version(name) for name in _DISTRIBUTIONS}
    fields["python"] = platform.python_version()
    fields["librdkafka"] = confluent_kafka.libversion()[0]
    fields["java"] = stderr.splitlines()[0] if stderr else "unknown"
    for coordinate in (jars.SETS["kafka"][0], *jars.SETS["iceberg"]):
        name = "kafka" if coordinate.module.startswith("kafka_") else coordinate.module
        fields[name] = coordinate.revision
    return fields
