"""What a user waits for at the command line: help, status of many tables, a proof, the demo's first answer."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import click
import psutil

from benchmarks.options import partitions, seed
from benchmarks.report import Report, recorded, summary
from benchmarks.tierer import running_tierer
from benchmarks.world import TABLE, World, running_world
from planner.names import TableName

_THERMOCLINE = (sys.executable, "-m", "thermocline")
_PUBLISH_ROWS = 2_000_000
_TIMEOUT_S = 1_800.0


@click.command()
@click.option("--tables", type=click.IntRange(1), default=50, show_default=True)
@click.option("--rows", type=click.IntRange(1), default=4_000_000, show_default=True)
@click.option("--repeats", type=click.IntRange(1), default=9, show_default=True)
@click.option("--demo/--no-demo", default=True, show_default=True)
@partitions
@seed
@click.pass_obj
def command(
    results: Path,
    tables: int,
    rows: int,
    repeats: int,
    demo: bool,
    partitions: int,
    seed: int,
) -> None:
    """Help, status, verify and the demo, as processes of their own."""
    with recorded(results, "face") as report:
        _timed(report, "thermocline --help", ["--help"], repeats, at_most_s=0.3)
        with running_world(partitions=partitions, seed=seed) as world:
            _verify(report, world, rows)
            for number in range(tables - 1):
                world.create(f"other-{number}", TableName("lake", ("many",), f"t{number:03}"))
            config = ["--config", str(world.config())]
            _timed(
                report,
                f"status of {tables} tables",
                [*config, "status"],
                repeats,
                at_most_s=2.0,
            )
        if demo:
            _demo(report)


def _timed(
    report: Report, what: str, arguments: list[str], repeats: int, *, at_most_s: float
) -> None:
    """Wall time of the whole process, interpreter included."""
    took: list[float] = []
    for _ in range(repeats):
        began = time.perf_counter()
        subprocess.run([*_THERMOCLINE, *arguments], check=True, capture_output=True)
        took.append(time.perf_counter() - began)
    report.figure(f"{what}, median", median(took), "s", at_most=at_most_s)
    report.details[f"{what}, s"] = summary(took)


def _verify(report: Report, world: World, rows: int) -> None:
    """Rows compared per second of CPU, whatever the number of cores it used."""
    world.produce(rows)
    with running_tierer(world) as tierer:
        tierer.drain(_PUBLISH_ROWS)
    for what, flags in (("verify", []), ("verify --offsets-only", ["--offsets-only"])):
        used_s, began = _children_cpu_s(), time.perf_counter()
        done = subprocess.run(
            [
                *_THERMOCLINE,
                "--config",
                str(world.config()),
                "verify",
                *flags,
                "--json",
                str(TABLE),
            ],
            check=True,
            capture_output=True,
            timeout=_TIMEOUT_S,
        )
        took_s = time.perf_counter() - began
        cpu_s = _children_cpu_s() - used_s
        report.figure(
            f"{what}, rows per CPU second", rows / cpu_s, "rows/s", at_least=1_000_000
        )
        report.figure(f"{what}, rows per second", rows / took_s, "rows/s")
        report.details[what] = json.loads(done.stdout)


def _demo(report: Report) -> None:
    """From the command to the first answer through Flight SQL, downloads cached."""
    began = time.perf_counter()
    with subprocess.Popen(
        [*_THERMOCLINE, "demo", "--seconds", "5"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        first_s = None
        for line in process.stdout or ():
            if first_s is None and re.search(_FIRST_ANSWER, line):
                first_s = time.perf_counter() - began
    if first_s is None or process.returncode:
        raise RuntimeError(f"the demo ended with {process.returncode} and no answer")
    report.figure("demo, command to first answer", first_s, "s", at_most=40)


#: The demo's lines tell an answer like this.
_FIRST_ANSWER = r"rows = .* cold \+ .* hot"


def _children_cpu_s() -> float:
    times = psutil.Process().cpu_times()
    return float(times.children_user + times.children_system)
