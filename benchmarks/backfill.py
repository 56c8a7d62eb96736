"""Memory and speed of a large backfill by ``thermocline tier --once``, which may be stopped and continued.

What is in its folder is gone on with: records that are missing are sent, rows that are not tiered are tiered. Each
part of a run adds its lines to ``backfill.log`` and its samples to ``memory.jsonl`` there.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import click
import psutil

from benchmarks.options import partition_by, partitions, seed
from benchmarks.report import Report, recorded
from benchmarks.usage import below
from benchmarks.world import TABLE, World, world_of

_GOAL_BYTES = 4 * 2**30
_EVERY_S = 0.5
_CHUNK = 2_000_000
_PUBLISHED = re.compile(r"published ([\d,]+) rows.*publish ([\d,]+) ms")


@click.command()
@click.option("--rows", type=click.IntRange(1), default=50_000_000, show_default=True)
@partitions
@partition_by
@seed
@click.pass_obj
def command(
    results: Path,
    rows: int,
    partitions: int,
    partition_by: tuple[str, ...],
    seed: int,
) -> None:
    """Tier a full topic by the command itself, with its defaults, and sample the memory of all its processes.

    Broker and table live in thermocline-backfill in the temporary folder (TMPDIR), some 5 GB for 50 million rows. They
    stay, so that the same command goes on where it was stopped; remove them yourself.
    """
    folder = Path(tempfile.gettempdir()) / "thermocline-backfill"
    with (
        recorded(results, "backfill") as report,
        world_of(folder, partitions=partitions, seed=seed, partition_by=partition_by) as world,
    ):
        while world.produced < rows:
            world.produce(min(_CHUNK, rows - world.produced))
            click.echo(f"{world.produced:,} records sent", err=True)
        _tier(world)
        _report(report, world)


def _tier(world: World) -> None:
    """Run the command; every sample is a line: seconds since 1970, and resident bytes by kind of process."""
    config = world.config()
    command = [sys.executable, "-m", "thermocline", "--config", str(config)]
    with (
        (world.folder / "backfill.log").open("ab") as out,
        (world.folder / "memory.jsonl").open("a", buffering=1) as samples,
        subprocess.Popen(
            [*command, "tier", "--once", str(TABLE)], stdout=out, stderr=out
        ) as process,
    ):
        try:
            while process.poll() is None:
                value = _resident(process.pid)
                samples.write(json.dumps([time.time(), value]) + "\n")
                time.sleep(_EVERY_S)
        finally:
            process.terminate()
    if process.returncode:
        raise RuntimeError(f"the tierer ended with {process.returncode}: see backfill.log")


def _resident(pid: int) -> dict[str, int]:
    """Resident bytes by kind; pages that forked workers share are counted in each."""
    counts: Counter[str] = Counter()
    for process, depth in below(pid):
        with contextlib.suppress(psutil.Error):
            kind = "driver" if depth == 0 else "worker" if "python" in process.name() else "jvm"
            counts[kind] += process.memory_info().rss
    return dict(counts)


def _report(report: Report, world: World) -> None:
    files = world.data_files()
    if sum(file.rows for file in files) != world.produced:
        raise RuntimeError("the data files do not hold the records that were sent")
    with (world.folder / "memory.jsonl").open() as lines:
        samples: list[tuple[float, dict[str, int]]] = [
            tuple(json.loads(line)) for line in lines
        ]
    said = (world.folder / "backfill.log").read_text()
    publishes: list[Any] = [
        [int(text.replace(",", "")) for text in items] for items in _PUBLISHED.findall(said)
    ]
    peak = max(sum(text.values()) for _, text in samples)
    report.figure(
        f"peak resident memory of all processes, backfill of {world.produced:,} rows",
        peak / 2**30,
        "GiB",
        at_most=_GOAL_BYTES / 2**30,
    )
    for kind in ("driver", "jvm", "worker"):
        most = max(text.get(kind, 0) for _, text in samples)
        report.figure(f"peak resident memory, {kind}", most / 2**20, "MiB")
    spent_s = _EVERY_S * len(samples)
    report.figure("rows tiered, starts of Spark included", world.produced / spent_s, "rows/s")
    report.figure("publishes", len(publishes), "")
    report.figure("longest publish", max(text for _, text in publishes), "ms")
    report.figure("data files", len(files), "files")
    report.details["samples"] = [
        [round(at - samples[0][0], 1), text]
        for at, text in samples[:: max(1, len(samples) // 500)]
    ]
    report.details["publishes"] = publishes
    report.details["load"] = os.getloadavg()
