"""What a quiet user meets while another one attacks: the run of `make soak` that is in ``results/attacks``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from benchmarks.report import Report, recorded

#: Goals: this many times the quiet user's idle p99, and answers again this many seconds after the process ended.
_GOAL_RATIO = 5.0
_GOAL_BACK_S = 5.0
_HOUR_S = 3_600.0


@click.command()
@click.pass_obj
def command(results: Path) -> None:
    """Tell of the latest attacks of `make soak`: a quiet user's latency, refusals, ends of the process."""
    runs = [json.loads(path.read_text()) for path in (results / "attacks").glob("*.json")]
    if not runs:
        raise click.ClickException(
            "there are no results/attacks; run the soak of tests/protocol/test_attacks.py."
        )
    run = max(runs, key=lambda fields: str(fields["began"]))
    with recorded(results, "attacks") as report:
        form = (
            ""
            if run["seconds"] >= _HOUR_S
            else f", shortened to {run['seconds'] / 60:.1f} minutes"
        )
        report.figure(f"all families{form}", len(run["families"]), "families")
        for family, row in run["families"].items():
            _family(report, family, row)
        report.details = run


def _family(report: Report, family: str, row: dict[str, Any]) -> None:
    idle, attacked = row["idle"], row["attacked"]
    for what in ("p50_ms", "p99_ms"):
        name = what.removesuffix("_ms")
        report.figure(f"{family}: idle, {name}", idle[what], "ms")
        report.figure(f"{family}: attacked, {name}", attacked[what], "ms")
    report.figure(f"{family}: p99 attacked / idle", row["ratio"], "", at_most=_GOAL_RATIO)
    report.figure(f"{family}: statements timed", attacked["statements"], "")
    report.figure(f"{family}: load average after idle", idle["load"][1], "")
    report.figure(f"{family}: load average after the attack", attacked["load"][1], "")
    report.figure(f"{family}: refusals of the quiet user", len(row["refusals"]), "", at_most=0)
    report.figure(
        f"{family}: bytes of others received", len(row["attacks"]["leaks"]), "", at_most=0
    )
    report.figure(f"{family}: ends of the process", row["process_ends"], "")
    if row["back_s"]:
        report.figure(
            f"{family}: answered again after", max(row["back_s"]), "s", at_most=_GOAL_BACK_S
        )
    report.figure(f"{family}: attacks that ended", sum(row["attacks"]["ends"].values()), "")
    report.figure(f"{family}: peak resident memory", attacked["peak_rss_mb"], "MiB")
