"""Tables of a cut in Spark, held against Iceberg's own reader of the same snapshot, and the ways without it.

Each repeat asks every statement of the plain table and of the cut, one after another, so that noise meets both. The
Spark that tiers is the one that is asked.
"""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path
from statistics import median

import click
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from benchmarks.options import partition_by, partitions, seed
from benchmarks.report import Report, recorded
from benchmarks.sizes import queries
from benchmarks.tierer import running_tierer
from benchmarks.world import TABLE, World, running_world
from connectors.spark.lake import Lake
from connectors.spark.lake_cut import LakeCut
from connectors.spark.lake_settings import LakeSettings
from connectors.spark.metadata import identifier
from connectors.spark.source import register_source

PLAIN, CUT = "plain Iceberg", "cut.table"


@click.command()
@click.option("--cold-rows", type=click.IntRange(8), default=20_000_000, show_default=True)
@click.option("--hot-rows", type=click.IntRange(1), default=100_000, show_default=True)
@click.option("--more-hot-rows", type=click.IntRange(1), default=1_000_000, show_default=True)
@click.option("--publish-rows", type=click.IntRange(1), default=4_000_000, show_default=True)
@click.option("--repeats", type=click.IntRange(1), default=10, show_default=True)
@partitions
@partition_by
@seed
@click.pass_obj
def command(
    results: Path,
    cold_rows: int,
    hot_rows: int,
    more_hot_rows: int,
    publish_rows: int,
    repeats: int,
    partitions: int,
    partition_by: tuple[str, ...],
    seed: int,
) -> None:
    """Statements, cuts, the registered source and a stream's backlog in Spark."""
    with (
        recorded(results, "spark") as report,
        running_world(partitions=partitions, seed=seed, partition_by=partition_by) as world,
        running_tierer(world) as tierer,
    ):
        world.produce(cold_rows)
        tierer.drain(publish_rows)
        world.produce(hot_rows)
        settings = LakeSettings(world.catalogs, {"": world.kafka})
        with Lake(tierer.session, settings) as lake:
            cut = _cuts(report, lake, repeats)
            _statements(report, tierer.session, world, cut, cold_rows, repeats)
        register_source(tierer.session, settings)
        _source(report, tierer.session, cold_rows + hot_rows)
        world.produce(more_hot_rows)
        with Lake(tierer.session, settings, tail_local_bytes=0) as lake:
            _tail(report, lake, hot_rows + more_hot_rows)
        _stream(report, tierer.session, cold_rows + hot_rows + more_hot_rows)


def _cuts(report: Report, lake: Lake, repeats: int) -> LakeCut:
    """Take cuts; decode the tail of the last one."""
    took = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        cut = lake.at(str(TABLE))
        took.append((time.perf_counter() - began) * 1000)
    report.figure("at(), one table", median(took[1:]), "ms")
    began = time.perf_counter()
    cut.table(str(TABLE)).where("id < 0").count()
    report.figure(
        "first action, tail decoded by the driver", time.perf_counter() - began, "s", at_most=2
    )
    return cut


def _statements(
    report: Report,
    session: SparkSession,
    world: World,
    cut: LakeCut,
    cold_rows: int,
    repeats: int,
) -> None:
    session.table(identifier(TABLE)).createOrReplaceTempView("plain_rows")
    cut.table(str(TABLE)).createOrReplaceTempView("cut_rows")
    views = {PLAIN: "plain_rows", CUT: "cut_rows"}
    for query in queries(world, cold_rows):
        took: dict[str, list[float]] = defaultdict(list)
        for repeat in range(-2, repeats):
            for way, view in views.items():
                seconds, _ = _timed(session, query.sql, view)
                if repeat >= 0:
                    took[way].append(seconds * 1000)
        for way, values in took.items():
            report.figure(f"{query.name}: {way}", median(values), "ms")
        is_hot = query.name in ("point, hot key", "last minute")
        plain = median(took[PLAIN]) + (150 if is_hot else 0)
        report.figure(
            f"{query.name}: {CUT} / ({PLAIN} + {150 if is_hot else 0} ms)",
            median(took[CUT]) / plain,
            "",
            at_most=1.0 if is_hot else 1.15,
        )


def _timed(session: SparkSession, sql: str, view: str) -> tuple[float, pa.Table]:
    text = sql.format(table=view).replace('"', "`").replace("TIMESTAMPTZ", "TIMESTAMP")
    began = time.perf_counter()
    answer = session.sql(text).toArrow()
    return time.perf_counter() - began, answer


def _source(report: Report, session: SparkSession, rows: int) -> None:
    loaded = (
        session.read.format("thermocline")
        .option("table", str(TABLE))
        .option("columns", "id, protocol, bytes")
        .load()
    )
    report.figure(
        "registered source, 3 of 13 columns", rows / _written(loaded), "rows/s", at_least=1e6
    )


def _tail(report: Report, lake: Lake, rows: int) -> None:
    cut = lake.at(str(TABLE))
    began = time.perf_counter()
    cut.table(str(TABLE), side="tail")
    report.figure(
        "tail by executors", rows / (time.perf_counter() - began), "rows/s", at_least=3e5
    )


def _stream(report: Report, session: SparkSession, rows: int) -> None:
    stream = session.readStream.format("thermocline").option("table", str(TABLE)).load()
    began = time.perf_counter()
    query = stream.writeStream.format("noop").start()
    query.processAllAvailable()
    took_s = time.perf_counter() - began
    query.stop()
    report.figure("stream, backlog of both sides", rows / took_s, "rows/s", at_least=2.5e5)


def _written(rows: DataFrame) -> float:
    """Read all rows twice, and return the seconds of the second time."""
    for _ in range(2):
        began = time.perf_counter()
        rows.write.format("noop").mode("overwrite").save()
        took_s = time.perf_counter() - began
    return took_s
