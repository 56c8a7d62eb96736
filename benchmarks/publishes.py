"""The time of a publish into a table that holds many data files already."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from benchmarks.options import seed
from benchmarks.report import Report, quantile, recorded
from benchmarks.tierer import Round, Tierer, running_tierer
from benchmarks.world import TABLE, running_world
from connectors.spark.metadata import each, java, load_table
from planner.names import TableName
from planner.seam.watermark import SUMMARY_KEY, format_watermark

_PARTITIONS = 4
_FILES_A_COMMIT = 1_000


@click.command()
@click.option("--files", type=click.IntRange(0), default=10_000, show_default=True)
@click.option("--publishes", type=click.IntRange(2), default=100, show_default=True)
@click.option(
    "--rows", type=click.IntRange(1), default=2_000, show_default=True, help="Of a publish."
)
@seed
@click.pass_obj
def command(results: Path, files: int, publishes: int, rows: int, seed: int) -> None:
    """Publish again and again; what is measured is the commit alone, pin and stage are told apart."""
    with (
        recorded(results, "publishes") as report,
        running_world(partitions=_PARTITIONS, seed=seed) as world,
    ):
        world.produce(rows)
        with running_tierer(world) as tierer:
            tierer.drain(rows)
            add_files(tierer, TABLE, files)
            world.produce(publishes * rows)
            measure(report, tierer.drain(rows), files)


def measure(report: Report, rounds: Sequence[Round], files: int) -> None:
    """Add the figures of small publishes; the first warms Spark up."""
    publishes = [value.publish_s * 1000 for value in rounds[1:]]
    what = f"{len(publishes)} publishes with {files:,} data files in the table"
    report.figure(f"publish, p99 of {what}", quantile(publishes, 0.99), "ms", at_most=1000)
    report.figure(f"publish, median of {what}", quantile(publishes, 0.5), "ms")
    stages = [value.stage_s * 1000 for value in rounds[1:]]
    report.figure(f"stage of {rounds[0].rows:,} rows, median", quantile(stages, 0.5), "ms")
    report.details["publishes"] = [value.facts for value in rounds]


def add_files(tierer: Tierer, table: TableName, count: int) -> None:
    """Add entries of files that nobody will read, in commits that carry the watermark on.

    Each has the statistics of a real file, which are most of an entry, and a name like the real ones.
    """
    session = tierer.session
    mark = tierer.store.pin(table).watermark
    if mark is None:
        raise RuntimeError("the table has no watermark")
    builder: Any = java(session).org.apache.iceberg.DataFiles
    head = load_table(session, table)
    real = next(each(head.currentSnapshot().addedDataFiles(head.io())))
    for first in range(0, count, _FILES_A_COMMIT):
        loaded = load_table(session, table)
        append = loaded.newAppend()
        for _ in range(min(_FILES_A_COMMIT, count - first)):
            path = f"{loaded.location()}/data/{uuid.uuid4()}.parquet"
            append.appendFile(builder.builder(loaded.spec()).copy(real).withPath(path).build())
        # A copied text is not believed: it names the snapshot that it is built on.
        prev = loaded.currentSnapshot().snapshotId()
        carried = replace(mark, prev_snapshot_id=prev, run=uuid.uuid4().hex)
        append.set(SUMMARY_KEY, format_watermark(carried)).commit()
