"""Tiering: rows per second from fetch to publish, steady, on Spark, with what it costs."""

from __future__ import annotations

from pathlib import Path

import click

from benchmarks.options import partition_by, partitions, seed
from benchmarks.report import Report, recorded
from benchmarks.tierer import report_rounds, running_tierer
from benchmarks.usage import PeakMemory
from benchmarks.world import World, running_world

#: Of a table that is not partitioned, and of one that is.
_GOALS_ROWS_PER_S = 500_000, 450_000


@click.command()
@click.option("--rows", type=click.IntRange(1), default=32_000_000, show_default=True)
@click.option(
    "--publish-rows",
    type=click.IntRange(1),
    default=8_000_000,
    show_default=True,
    help="Rows of one publish; by default as `thermocline tier` has it on two cores.",
)
@click.option(
    "--writer",
    type=click.Choice(("tasks", "spark")),
    default="tasks",
    show_default=True,
    help="The table's thermocline.tier.writer; a run with spark is recorded as tiering-spark.",
)
@partitions
@partition_by
@seed
@click.pass_obj
def command(
    results: Path,
    rows: int,
    publish_rows: int,
    writer: str,
    partitions: int,
    partition_by: tuple[str, ...],
    seed: int,
) -> None:
    """Tier a topic that is full before the tierer starts; strict JSON, as `thermocline tier`."""
    with (
        recorded(results, "tiering" if writer == "tasks" else "tiering-spark") as report,
        running_world(
            partitions=partitions,
            seed=seed,
            partition_by=partition_by,
            properties={"thermocline.tier.writer": writer},
        ) as world,
    ):
        report.details["produce_s"] = world.produce(rows)
        _tier(report, world, publish_rows, _GOALS_ROWS_PER_S[bool(partition_by)])


def _tier(report: Report, world: World, publish_rows: int, goal_rows_per_s: int) -> None:
    with running_tierer(world) as tierer:
        with PeakMemory(lambda: tierer.roots) as memory:
            rounds = tierer.drain(publish_rows)
        report_rounds(report, rounds, goal_rows_per_s=goal_rows_per_s)
    files = world.data_files()
    if sum(file.rows for file in files) != world.produced:
        raise RuntimeError("the data files do not hold the records that were sent")
    report.figure("data files", len(files), "files")
    report.figure(
        "size of a data file, mean",
        sum(file.size_bytes for file in files) / len(files) / 2**20,
        "MiB",
    )
    report.figure(
        "bytes per row in the files",
        sum(file.size_bytes for file in files) / world.produced,
        "B",
    )
    for role, size in sorted(memory.peak_bytes.items()):
        report.figure(f"peak resident memory, {role}", size / 2**20, "MiB")
    report.details["files"] = [
        {"rows": file.rows, "size_bytes": file.size_bytes} for file in files
    ]
