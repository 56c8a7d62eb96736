"""The time of a publish over a REST catalog and an object store: Iceberg's own REST server, and s3proxy over a folder."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from benchmarks.options import seed
from benchmarks.publishes import add_files, measure
from benchmarks.report import recorded
from benchmarks.tierer import running_tierer
from benchmarks.world import TOPIC, running_world
from planner.names import TableName
from tests.fixtures.object_store import running_store
from tests.fixtures.rest_catalog import running_rest_catalog

_PARTITIONS = 4


@click.command()
@click.option("--files", type=click.IntRange(0), default=1_000, show_default=True)
@click.option("--publishes", type=click.IntRange(2), default=100, show_default=True)
@click.option(
    "--rows", type=click.IntRange(1), default=2_000, show_default=True, help="Of a publish."
)
@seed
@click.pass_obj
def command(results: Path, files: int, publishes: int, rows: int, seed: int) -> None:
    """As `publishes`, by one tierer over REST and S3; what is measured is the commit alone."""
    with (
        recorded(results, "publishes-rest") as report,
        tempfile.TemporaryDirectory(prefix="thermocline-bench-") as name,
        running_store(Path(name)) as store,
        running_rest_catalog(store, Path(name)) as rest,
        running_world(
            partitions=_PARTITIONS, seed=seed, elsewhere={"rest": rest.catalog()}
        ) as world,
    ):
        table = TableName("rest", ("bench",), "events")
        world.bind(TOPIC, table)
        world.produce(rows)
        servers = {"store": store.process.pid, "catalog": rest.pid}
        with running_tierer(world, servers) as tierer:
            tierer.drain(rows, table)
            add_files(tierer, table, files)
            world.produce(publishes * rows)
            measure(report, tierer.drain(rows, table), files)
