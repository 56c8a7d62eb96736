"""What maintenance of a table costs that gets a publish a minute, and what statements on it take afterwards.

The publishes of that time follow each other without a pause, and after each of them all that is due is done, as beside a tierer.
Only the processor time of maintenance is counted. A twin over the same topic gets its rows in one publish.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from statistics import median

import adbc_driver_flightsql.dbapi as flight_sql
import click

from benchmarks.options import partitions, seed
from benchmarks.report import Report, recorded, summary
from benchmarks.sizes import Query, queries
from benchmarks.tierer import Tierer, running_tierer
from benchmarks.world import TABLE, TOPIC, World, running_world
from connectors.iceberg.maintenance_facts import MaintenanceReader
from connectors.jobs.loop import LoopLimits, TableLoop
from connectors.jobs.maintain import MaintainedTable, MaintenanceJob
from connectors.spark.maintenance.target import SparkMaintenance
from planner.maintenance.steps import TITLES
from planner.names import TableName

TWIN = TableName(TABLE.catalog, TABLE.namespace, "at_once")
_BETWEEN_PUBLISHES_S = 60


@click.command()
@click.option("--minutes", type=click.IntRange(1), default=60, show_default=True)
@click.option("--rate", type=click.IntRange(1), default=5_000, show_default=True)
@click.option("--repeats", type=click.IntRange(1), default=25, show_default=True)
@partitions
@seed
@click.pass_obj
def command(
    results: Path, minutes: int, rate: int, repeats: int, partitions: int, seed: int
) -> None:
    """A publish for each minute of steady events, maintained after each; then statements beside a twin written at once."""
    publish_rows = rate * _BETWEEN_PUBLISHES_S
    with (
        recorded(results, "maintain-hour") as report,
        running_world(partitions=partitions, seed=seed) as world,
    ):
        world.bind(TOPIC, TWIN)
        world.produce(minutes * publish_rows)
        with (
            running_tierer(world) as tierer,
            closing(MaintenanceReader(world.catalogs)) as reader,
        ):
            _keep_up(report, tierer, reader, publish_rows)
            tierer.drain(minutes * publish_rows, TWIN)
        _statements(report, world, repeats)


def _keep_up(
    report: Report, tierer: Tierer, reader: MaintenanceReader, publish_rows: int
) -> None:
    job = MaintenanceJob(
        tables=lambda: (TABLE,),
        read_facts=reader.read,
        open_target=lambda name: SparkMaintenance(
            tierer.session, name, reader.neighbours.of, is_beside=True
        ),
    )
    loop, table = TableLoop(job, listeners=(), limits=LoopLimits()), job.open(TABLE)
    used_s, files, counts, publishes = list[float](), list[int](), Counter[str](), 0
    rewritten_bytes = 0
    for _ in tierer.rounds(publish_rows):
        publishes += 1
        before_s, began_s = tierer.used_s(), time.perf_counter()
        while done := job.run(table, loop):
            counts[TITLES[type(done.step)]] += 1
            rewritten_bytes += done.result.bytes
            if time.perf_counter() - began_s > _BETWEEN_PUBLISHES_S:
                raise RuntimeError("maintenance took longer than there is between publishes")
        used_s.append(tierer.used_s() - before_s)
        files.append(_files(reader, table))
    seconds = publishes * _BETWEEN_PUBLISHES_S
    what = f"{publishes} publishes of {publish_rows:,} rows, one a minute"
    share = sum(used_s) / seconds * 100
    report.figure(f"maintenance of {what}, of one core", share, "%", at_most=20)
    report.figure("steps taken meanwhile", counts.total(), "")
    report.figure("bytes rewritten meanwhile", rewritten_bytes / 2**20, "MiB")
    report.figure("data files between publishes, most", max(files), "")
    report.details["cpu_s"] = summary(used_s)
    report.details |= {"steps": dict(counts), "files": files}


def _files(reader: MaintenanceReader, table: MaintainedTable) -> int:
    facts = reader.read(table.name)
    if facts is None:
        raise RuntimeError("the table is not bound")
    return len(facts.files.files)


def _statements(report: Report, world: World, repeats: int) -> None:
    """All rows are cold, so the hot key is the newest cold one."""
    ours, twin = len(world.data_files(TABLE)), len(world.data_files(TWIN))
    report.figure("data files, maintained", ours, "")
    report.figure("data files, written at once", twin, "")
    with (
        world.server() as server,
        flight_sql.connect(server.uri, autocommit=True) as db,
        db.cursor() as cursor,
    ):
        for query in queries(world, world.produced):
            _compare(report, cursor, query, repeats)


def _compare(report: Report, cursor: flight_sql.Cursor, query: Query, repeats: int) -> None:
    def ask(table: TableName) -> object:
        cursor.execute(query.sql.format(table=table))
        return cursor.fetchall()

    if ask(TABLE) != ask(TWIN):
        raise RuntimeError(f"{query.name}: the twin has other rows")
    took_ms: dict[TableName, list[float]] = {TABLE: [], TWIN: []}
    for number in range(repeats):
        # Who comes first takes turns, too.
        for table in (TABLE, TWIN) if number % 2 else (TWIN, TABLE):
            began_s = time.perf_counter()
            ask(table)
            took_ms[table].append((time.perf_counter() - began_s) * 1000)
    pairs = zip(took_ms[TABLE], took_ms[TWIN], strict=True)
    ratio = median(ours / twin for ours, twin in pairs)
    report.figure(f"{query.name}: maintained / written at once", ratio, "", at_most=1.10)
    report.figure(f"{query.name}: maintained", median(took_ms[TABLE]), "ms")
    report.details[query.name] = {str(table): ms for table, ms in took_ms.items()}
