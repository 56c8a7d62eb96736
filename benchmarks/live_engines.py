"""What engines take over a live table, held against a committed one with the same rows in as many files.

Both are loaded from the same REST catalog, in turns, so that client, store and noise are the same: what differs is the
load, which is a cut for one of them, and who wrote the files.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import click
import duckdb
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table

from benchmarks.live import commit_empty
from benchmarks.options import partitions, seed
from benchmarks.report import Report, recorded
from benchmarks.tierer import running_tierer
from benchmarks.world import TABLE, Serving, World, running_world
from connectors import duckdb_extensions
from planner.names import TableName

COPY = TableName(TABLE.catalog, TABLE.namespace, "committed")
_SQL = "SELECT protocol, count(*), sum(bytes), max(src), avg(duration_s) FROM {t} GROUP BY protocol ORDER BY protocol"
_SPARK_CATALOG = "live_tables"

#: Asks a statement of one table; the answer is compared.
Engine = Callable[[TableName], object]


@click.command()
@click.option("--rows", type=click.IntRange(1), default=3_000_000, show_default=True)
@click.option("--files", type=click.IntRange(1, 31), default=16, show_default=True)
@click.option("--snapshots", type=click.IntRange(1), default=50, show_default=True)
@click.option("--repeats", type=click.IntRange(1), default=20, show_default=True)
@partitions
@seed
@click.pass_obj
def command(
    results: Path,
    rows: int,
    files: int,
    snapshots: int,
    repeats: int,
    partitions: int,
    seed: int,
) -> None:
    """Read a live table and a committed one with Spark, pyiceberg and DuckDB."""
    with (
        recorded(results, "live-engines") as report,
        running_world(partitions=partitions, seed=seed) as world,
    ):
        commit_empty(world, snapshots)
        with (
            world.server({"port": 0}) as server,
            closing(_catalog(server)) as catalog,
        ):
            for _ in range(files):
                world.produce(rows // files)
                live = catalog.load_table((*TABLE.namespace, TABLE.name))
            _copy(world, live, files)
            with _engines(world, server, catalog) as engines:
                for name, engine in engines.items():
                    _compare(report, name, engine, repeats)


def _catalog(server: Serving) -> Catalog:
    return load_catalog("live", type="rest", uri=server.rest, warehouse="lake")


def _copy(world: World, live: Table, files: int) -> None:
    """Commit the rows of each live file as a file of another table."""
    tasks = list(live.scan().plan_files())
    if len(tasks) != files:
        raise RuntimeError(
            f"the tail is in {len(tasks)} files, and {files} were to be compared"
        )
    with closing(load_catalog("lake", **world.catalogs["lake"])) as own:
        copy = own.create_table((*COPY.namespace, COPY.name), live.schema())
        for task in tasks:
            part = pq.read_table(_path(task.file.file_path))
            copy.append(part.cast(live.schema().as_arrow()))


def _path(location: str) -> str:
    return location.removeprefix("file://")


@contextlib.contextmanager
def _engines(world: World, server: Serving, catalog: Catalog) -> Iterator[dict[str, Engine]]:
    with duckdb.connect() as connection, running_tierer(world) as tierer:
        for names in (duckdb_extensions.LOCAL, duckdb_extensions.REMOTE):
            duckdb_extensions.load(connection, names)
        connection.execute(
            f"ATTACH 'lake' AS live (TYPE iceberg, ENDPOINT '{server.rest}', AUTHORIZATION_TYPE 'none')"
        )
        prefix = f"spark.sql.catalog.{_SPARK_CATALOG}"
        tierer.session.conf.set(prefix, "org.apache.iceberg.spark.SparkCatalog")
        options = {"type": "rest", "uri": server.rest, "warehouse": "lake"}
        for key, value in {**options, "cache-enabled": "false"}.items():
            tierer.session.conf.set(f"{prefix}.{key}", value)

        def by_pyiceberg(table: TableName) -> object:
            loaded = catalog.load_table((*table.namespace, table.name))
            return loaded.scan(selected_fields=("bytes", "src")).to_arrow().num_rows

        def by_duckdb(table: TableName) -> object:
            name = f"live.{table.schema}.{table.name}"
            return connection.execute(_SQL.format(t=name)).fetchall()

        def by_spark(table: TableName) -> object:
            name = f"{_SPARK_CATALOG}.{table.schema}.{table.name}"
            return tierer.session.sql(_SQL.format(t=name)).collect()

        yield {"pyiceberg": by_pyiceberg, "DuckDB": by_duckdb, "Spark": by_spark}


@dataclass
class _Times:
    live: list[float]
    committed: list[float]


def _compare(report: Report, name: str, engine: Engine, repeats: int) -> None:
    if _rounded(engine(TABLE)) != _rounded(engine(COPY)):
        raise RuntimeError(f"{name} reads other rows from the copy")
    times = _Times([], [])
    for number in range(repeats):
        # Who comes first takes turns, too.
        for is_live in (True, False) if number % 2 else (False, True):
            began = time.perf_counter()
            engine(TABLE if is_live else COPY)
            took_ms = (time.perf_counter() - began) * 1000
            (times.live if is_live else times.committed).append(took_ms)
    report.figure(f"{name}, live table, median", median(times.live), "ms")
    report.figure(f"{name}, committed table, median", median(times.committed), "ms")
    ratio = median(times.live) / median(times.committed)
    report.figure(f"{name}, live / committed", ratio, "", at_most=1.10)
    report.details[name] = {"live_ms": times.live, "committed_ms": times.committed}


def _rounded(answer: object) -> object:
    """Averages depend on the order of rows in their last digits."""
    if not isinstance(answer, list):
        return answer
    return [tuple(round(v, 6) if isinstance(v, float) else v for v in row) for row in answer]
