"""A full topic tiered by ``thermocline tier --once``, from the start of the process: what a user waits for.

Spark's start is inside. The table is asked meanwhile, as a reader would see it, until the command has ended.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import click

from benchmarks.options import partition_by, partitions, seed
from benchmarks.report import recorded
from benchmarks.world import TABLE, World, running_world

_GOAL_ROWS_PER_S = 250_000
_GOAL_FIRST_S = 20.0
_LOOK_S = 0.1


@click.command()
@click.option("--rows", type=click.IntRange(1), default=8_000_000, show_default=True)
@partitions
@partition_by
@seed
@click.pass_obj
def command(
    results: Path, rows: int, partitions: int, partition_by: tuple[str, ...], seed: int
) -> None:
    """Tier a full topic by the command itself, with its defaults."""
    with (
        recorded(results, "backlog") as report,
        running_world(partitions=partitions, seed=seed, partition_by=partition_by) as world,
    ):
        world.produce(rows)
        publishes = _tier(world)
        first_s, last_s = publishes[0][0], publishes[-1][0]
        files = world.data_files()
        if sum(file.rows for file in files) != rows:
            raise RuntimeError("the data files do not hold the records that were sent")
        report.figure(
            f"{rows:,} rows, process start to the last row visible",
            rows / last_s,
            "rows/s",
            at_least=_GOAL_ROWS_PER_S,
        )
        report.figure("first rows visible after", first_s, "s", at_most=_GOAL_FIRST_S)
        report.figure("last rows visible after", last_s, "s")
        report.figure("publishes", len(publishes), "")
        report.figure("data files", len(files), "files")
        report.details["publishes"] = publishes


def _tier(world: World) -> list[tuple[float, int | None]]:
    """Run the command; return after how many seconds each new snapshot was seen."""
    command = [sys.executable, "-m", "thermocline", "--config", str(world.config())]
    before, publishes = world.pin().snapshot_id, list[tuple[float, int | None]]()
    began = time.perf_counter()
    with (
        (world.folder / "tier.log").open("wb") as out,
        subprocess.Popen(
            [*command, "tier", "--once", str(TABLE)], stdout=out, stderr=out
        ) as process,
    ):
        has_ended = False
        while not has_ended:
            # One more look after the end: the last publish may have come in between.
            has_ended = process.poll() is not None
            snapshot = world.pin().snapshot_id
            if snapshot != before:
                publishes.append((time.perf_counter() - began, snapshot))
                before = snapshot
            time.sleep(_LOOK_S)
    if process.returncode or not publishes:
        raise RuntimeError((world.folder / "tier.log").read_text()[-500:])
    return publishes
