"""What a stock client waits for while the table that it asks is compacted and its snapshots expire, and without that.

Broker, server, client and Spark share the cores.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from statistics import median

import adbc_driver_flightsql.dbapi as flight_sql
import click

from benchmarks.options import partitions, seed
from benchmarks.report import Report, quantile, recorded
from benchmarks.tierer import Tierer, running_tierer
from benchmarks.world import TABLE, World, running_world
from connectors.iceberg.maintenance_facts import MaintenanceReader
from connectors.jobs.loop import LoopLimits, TableLoop
from connectors.jobs.maintain import MaintenanceJob
from connectors.spark.maintenance.target import SparkMaintenance
from planner.maintenance.expiry import MAX_SNAPSHOT_AGE_MS
from planner.maintenance.steps import TITLES
from planner.seam.binding import PIN_GRACE_S

#: Longer than a server goes without looking for a newer snapshot, so that what it reads stays.
_GRACE_S = 15
_PROPERTIES = {PIN_GRACE_S: str(_GRACE_S), MAX_SNAPSHOT_AGE_MS: "1"}
_PUBLISHES = 12
_POINT = f"SELECT id, bytes FROM {TABLE} WHERE id = {{id}}"


@click.command()
@click.option("--rows", type=click.IntRange(1), default=6_000_000, show_default=True)
@click.option("--publish-rows", type=click.IntRange(1), default=100_000, show_default=True)
@click.option("--pairs", type=click.IntRange(1), default=8, show_default=True)
@partitions
@seed
@click.pass_obj
def command(
    results: Path, rows: int, publish_rows: int, pairs: int, partitions: int, seed: int
) -> None:
    """Points by one stock client in spans of the same length, while maintenance runs and while it does not."""
    with (
        recorded(results, "maintain-serving") as report,
        running_world(partitions=partitions, seed=seed, properties=_PROPERTIES) as world,
    ):
        world.produce(rows)
        with (
            running_tierer(world) as tierer,
            closing(MaintenanceReader(world.catalogs)) as reader,
            world.server() as server,
            flight_sql.connect(server.uri, autocommit=True) as db,
            db.cursor() as cursor,
        ):
            tierer.drain(rows)
            maintenance = _Maintenance(tierer, reader)
            chance = random.Random(seed)

            def ask() -> float:
                key = chance.randrange(rows)
                began_s = time.perf_counter()
                cursor.execute(_POINT.format(id=key))
                [row] = cursor.fetchall()
                took_ms = (time.perf_counter() - began_s) * 1000
                if row[0] != key:
                    raise RuntimeError(f"asked for {key}, answered {row}")
                return took_ms

            _measure(report, world, maintenance, ask, publish_rows, pairs)


class _Maintenance:
    """Maintenance of the table as beside a tierer, whose Spark it shares."""

    def __init__(self, tierer: Tierer, reader: MaintenanceReader) -> None:
        self.tierer = tierer
        self.steps = Counter[str]()
        self._job = MaintenanceJob(
            tables=lambda: (TABLE,),
            read_facts=reader.read,
            open_target=lambda name: SparkMaintenance(
                tierer.session, name, reader.neighbours.of, is_beside=True
            ),
            by_command=True,
        )
        self._loop = TableLoop(self._job, listeners=(), limits=LoopLimits())
        self._table = self._job.open(TABLE)

    def run(self) -> None:
        while done := self._job.run(self._table, self._loop):
            self.steps[TITLES[type(done.step)]] += 1


def _measure(
    report: Report,
    world: World,
    maintenance: _Maintenance,
    ask: Callable[[], float],
    publish_rows: int,
    pairs: int,
) -> None:
    beside_ms, alone_ms, ratios = list[float](), list[float](), list[float]()
    for number in range(pairs + 1):
        world.produce(_PUBLISHES * publish_rows)
        maintenance.tierer.drain(publish_rows)
        # All but the newest snapshot may go from now on.
        time.sleep(_GRACE_S)
        thread = threading.Thread(target=maintenance.run)
        began_s = time.monotonic()
        thread.start()
        beside = list[float]()
        while thread.is_alive():
            beside.append(ask())
        length_s = time.monotonic() - began_s
        alone, until_s = list[float](), time.monotonic() + length_s
        while time.monotonic() < until_s:
            alone.append(ask())
        # The first pair warms Spark and the server up.
        if number:
            beside_ms += beside
            alone_ms += alone
            ratios.append(quantile(beside, 0.99) / quantile(alone, 0.99))
    for step in ("compact files", "expire snapshots"):
        if not maintenance.steps[step]:
            raise RuntimeError(f"nothing was measured: no step was `{step}`")
    report.figure(
        "serving p99 while compaction and expiry run / without, median of pairs",
        median(ratios),
        "",
        at_most=1.5,
    )
    for what, took_ms in (("maintained", beside_ms), ("without", alone_ms)):
        report.figure(f"point, {what}, p50", quantile(took_ms, 0.5), "ms")
        report.figure(f"point, {what}, p99", quantile(took_ms, 0.99), "ms")
        report.figure(f"point, {what}, statements", len(took_ms), "")
    report.details |= {"ratios": ratios, "steps": dict(maintenance.steps)}
