"""What kills and rivals came to: adds up the runs that `make soak` left in ``results/chaos``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks.report import Report, recorded

#: Goal: at least this many.
_GOAL_KILLS = 300
_GOAL_PUBLISHES = 200


@click.command()
@click.pass_obj
def command(results: Path) -> None:
    """Add up the runs of `make soak`: kills by victim, what the ledgers found wrong, rivals' publishes."""
    with recorded(results, "chaos") as report:
        _kills(report, _results(results, "seed-*.json"))
        _rivals(report, _results(results, "rivals-*.json"))


def _results(results: Path, pattern: str) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted((results / "chaos").glob(pattern))]


def _kills(report: Report, runs: Sequence[dict[str, Any]]) -> None:
    by_victim: Counter[str] = Counter()
    by_point: Counter[str] = Counter()
    for run in runs:
        for victim, points in run["counts"].items():
            by_victim[victim] += sum(points.values())
            by_point.update(points)
    report.figure("kills", by_victim.total(), "", at_least=_GOAL_KILLS)
    report.figure(
        "runs whose table differs from its ledger",
        sum(bool(run["wrong"]) for run in runs),
        "",
        at_most=0,
    )
    for victim, count in sorted(by_victim.items()):
        report.figure(f"kills of a {victim}", count, "")
    for point, count in sorted(by_point.items()):
        report.figure(f"kills at {point}", count, "")
    for what in ("acknowledged", "aborted", "unknown"):
        total = sum(run["ledger"][what] for run in runs)
        report.figure(f"records {what}", total, "records")
    for what in ("publishes", "refused", "starts"):
        report.figure(f"tierer: {what}", sum(run[what] for run in runs), "")
    report.figure("runs", len(runs), "")
    report.figure("time of all runs", sum(run["took_s"] for run in runs) / 3600, "h")
    report.details["seeds"] = [run["seed"] for run in runs]


def _rivals(report: Report, runs: Sequence[dict[str, Any]]) -> None:
    """A run that was not right left no file: the ledger, ``verify`` or the foreign append failed its test."""
    for run in runs:
        what = f"{run['tierers']} tierers at once, seed {run['seed']}"
        report.figure(f"{what}: publishes", run["publishes"], "", at_least=_GOAL_PUBLISHES)
        report.figure(f"{what}: publishes refused and planned again", run["refused"], "")
        for kind, count in sorted(run["disturbed"].items()):
            report.figure(f"{what}: {kind} by others", count, "")
        report.figure(f"{what}: rows", run["rows"], "rows")
        # The snapshots that deleted them expired before `verify` looked (docs/verify.md).
        report.figure(
            f"{what}: deleted rows that verify cannot explain",
            run["deleted, unexplained"],
            "rows",
        )
