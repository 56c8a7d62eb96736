"""Which soak cases were run last when, and what they came to: adds up what `make soak` left in ``results/soak``."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import click

from benchmarks.report import Report, recorded


@click.command()
@click.pass_obj
def command(results: Path) -> None:
    """Tell of the latest run of each soak case: how many passed, how long they took, how old the oldest is."""
    file = results / "soak" / "cases.json"
    if not file.exists():
        raise click.ClickException("there is no results/soak/cases.json; run make soak.")
    cases: dict[str, dict[str, Any]] = json.loads(file.read_text())
    with recorded(results, "soak") as report:
        _report(report, cases)


def _report(report: Report, cases: dict[str, dict[str, Any]]) -> None:
    report.figure("cases", len(cases), "")
    failed = sorted(case for case, row in cases.items() if row["outcome"] == "failed")
    skipped = sorted(case for case, row in cases.items() if row["outcome"] == "skipped")
    report.figure("cases whose latest run failed", len(failed), "", at_most=0)
    report.figure("cases that were skipped", len(skipped), "")
    seconds = sum(row["took_s"] for row in cases.values())
    report.figure("time of the latest runs", seconds / 3600, "h")
    by_file: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for case, row in cases.items():
        by_file[case.partition("::")[0]].append(row)
    report.details = {
        "failed": failed,
        "skipped": skipped,
        "files": {
            name: {
                "cases": len(rows),
                "took_s": round(sum(row["took_s"] for row in rows)),
                "commits": sorted({row["commit"] for row in rows}),
                "oldest": min(row["at"] for row in rows),
            }
            for name, rows in sorted(by_file.items())
        },
    }
