"""Tables of a cut in Spark, held against Iceberg's own reader of the same snapshot, and the ways without it.

Each repeat asks every statement of the plain table and of the cut, one after another, so that noise meets both. The
Spark that tiers is the one that is asked.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import median

import click
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from benchmarks.options import partition_by, partitions, seed
from benchmarks.report import Report, recorded
from benchmarks.sizes import queries
from benchmarks.spark_stream import backlog, freshness
from benchmarks.tierer import running_tierer
from benchmarks.world import TABLE, World, running_world
from connectors.spark.lake.cut import LakeCut
from connectors.spark.lake.lake import Lake
from connectors.spark.lake.source import register_source
from connectors.spark.metadata import identifier
from connectors.spark.options import LakeSettings
from connectors.spark.remote.lake import ServerLake
from connectors.spark.remote.load import ServedTails
from connectors.spark.remote.plan import ServerAddress
from planner.names import TableName

#: Of the cut of many tables.
_TABLES, _PARTITIONS = 10, 100
#: Of the cold side, in a join.
_JOINED_ROWS = 500_000
PLAIN, CUT = "plain Iceberg", "cut.table"


@click.command()
@click.option("--cold-rows", type=click.IntRange(8), default=20_000_000, show_default=True)
@click.option("--hot-rows", type=click.IntRange(1), default=100_000, show_default=True)
@click.option("--tail-rows", type=click.IntRange(1), default=5_000_000, show_default=True)
@click.option("--last-rows", type=click.IntRange(1), default=1_000_000, show_default=True)
@click.option("--publish-rows", type=click.IntRange(1), default=4_000_000, show_default=True)
@click.option("--rate", type=click.IntRange(1), default=5_000, show_default=True)
@click.option("--seconds", type=click.IntRange(1), default=40, show_default=True)
@click.option("--repeats", type=click.IntRange(1), default=10, show_default=True)
@partitions
@partition_by
@seed
@click.pass_obj
def command(
    results: Path,
    cold_rows: int,
    hot_rows: int,
    tail_rows: int,
    last_rows: int,
    publish_rows: int,
    rate: int,
    seconds: int,
    repeats: int,
    partitions: int,
    partition_by: tuple[str, ...],
    seed: int,
) -> None:
    """Statements, cuts, the registered source and streams in Spark.

    ``--hot-rows`` are the tail of the statements, which grows to ``--tail-rows`` for the executors. Those are tiered then, and
    ``--last-rows`` produced, for the backlog of the stream.
    """
    with (
        recorded(results, "spark") as report,
        running_world(partitions=partitions, seed=seed, partition_by=partition_by) as world,
        running_tierer(world) as tierer,
    ):
        world.produce(cold_rows)
        tierer.drain(publish_rows)
        session, settings = tierer.session, LakeSettings(world.catalogs, {"": world.kafka})
        with Lake(session, settings) as lake:
            before = lake.at(str(TABLE)).token
            world.produce(hot_rows)
            cut = _cuts(report, lake, repeats)
            _statements(report, session, world, cut, cold_rows, hot_rows, repeats)
            _many_tables(report, session, settings, world, lake, repeats)
        register_source(session, settings)
        _source(report, session, cold_rows + hot_rows)
        world.produce(max(tail_rows - hot_rows, 1))
        with Lake(session, settings, tail_local_bytes=0) as lake:
            _tail(report, lake, max(tail_rows, hot_rows + 1))
        tierer.drain(publish_rows)
        world.produce(last_rows)
        backlog(report, session, before, world.produced - cold_rows)
        freshness(report, session, world, rate, seconds)


def _many_tables(
    report: Report,
    session: SparkSession,
    settings: LakeSettings,
    world: World,
    lake: Lake,
    repeats: int,
) -> None:
    """Take cuts of ten tables with a hundred partitions in all, and the first action by way of a server."""
    wide = replace(world, partitions=_PARTITIONS // _TABLES)
    names = [TableName("lake", ("wide",), f"events_{number}") for number in range(_TABLES)]
    for name in names:
        wide.create(name.name, name)
        wide.produce(1_000, name.name)
    texts = [str(name) for name in names]
    what = f"at(), {_TABLES} tables, {_PARTITIONS} partitions"
    report.figure(
        f"{what}, without a server", _median_s(lake, texts, repeats), "s", at_most=1.0
    )
    with world.server() as running:
        address = ServerAddress.of(running.uri)
        served = ServerLake(session, address)
        report.figure(
            f"{what}, with a server",
            _median_s(served, texts, repeats) * 1000,
            "ms",
            at_most=300,
        )
        # Its tail is followed from the first statement on, as in a server that runs.
        served.query(f'SELECT count(*) FROM "{TABLE.name}$tail"').collect()
        began = time.perf_counter()
        served.at(str(TABLE)).table(str(TABLE), side="tail").where("id < 0").count()
        took_s = time.perf_counter() - began
        report.figure("first action, the tail through a server alone", took_s, "s")
        with Lake(session, settings, served=ServedTails(address)) as beside:
            began = time.perf_counter()
            beside.at(str(TABLE)).table(str(TABLE)).where("id < 0").count()
            took_s = time.perf_counter() - began
        report.figure("first action, tail by Flight", took_s, "s", at_most=1)


def _median_s(lake: Lake | ServerLake, names: list[str], repeats: int) -> float:
    took = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        lake.at(*names)
        took.append(time.perf_counter() - began)
    return median(took[1:])


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
    hot_rows: int,
    repeats: int,
) -> None:
    session.table(identifier(TABLE)).createOrReplaceTempView("plain_rows")
    cut.table(str(TABLE)).createOrReplaceTempView("cut_rows")
    views = {PLAIN: "plain_rows", CUT: "cut_rows"}
    texts = {
        query.name: {PLAIN: query.sql, CUT: query.sql} for query in queries(world, cold_rows)
    }
    # As many rows of both: those that the cut has besides are made up for by older ones.
    first = max(cold_rows - _JOINED_ROWS, 1)
    texts["join"] = {PLAIN: _join(max(first - hot_rows, 1)), CUT: _join(first)}
    for name, text_by_way in texts.items():
        took: dict[str, list[float]] = defaultdict(list)
        for repeat in range(-2, repeats):
            for way, view in views.items():
                seconds, _ = _timed(session, text_by_way[way], view)
                if repeat >= 0:
                    took[way].append(seconds * 1000)
        for way, values in took.items():
            report.figure(f"{name}: {way}", median(values), "ms")
        is_hot = name in ("point, hot key", "last minute")
        plain = median(took[PLAIN]) + (150 if is_hot else 0)
        report.figure(
            f"{name}: {CUT} / ({PLAIN} + {150 if is_hot else 0} ms)",
            median(took[CUT]) / plain,
            "",
            at_most=1.0 if is_hot else 1.15,
        )


def _join(first: int) -> str:
    """Each record from an id on with the one before it."""
    return (
        "SELECT count(*) AS n, sum(a.bytes - b.bytes) AS total FROM {table} a JOIN {table} b ON a.id = b.id + 1 "
        f"WHERE a.id >= {first} AND b.id >= {first - 1}"
    )


def _timed(session: SparkSession, sql: str, view: str) -> tuple[float, pa.Table]:
    text = sql.format(table=view).replace('"', "`").replace("TIMESTAMPTZ", "TIMESTAMP")
    began = time.perf_counter()
    answer = session.sql(text).toArrow()
    return time.perf_counter() - began, answer


def _source(report: Report, session: SparkSession, rows: int) -> None:
    columns = "id, protocol, bytes"
    loaded = (
        session.read.format("thermocline")
        .option("table", str(TABLE))
        .option("columns", columns)
        .load()
    )
    plain = session.table(identifier(TABLE)).select(*columns.split(", "))
    took_s, plain_s = _written(loaded), _written(plain)
    report.figure("registered source, 3 of 13 columns", rows / took_s, "rows/s", at_least=1e6)
    report.figure("registered source, time / plain Iceberg's", took_s / plain_s, "")


def _tail(report: Report, lake: Lake, rows: int) -> None:
    cut = lake.at(str(TABLE))
    began = time.perf_counter()
    cut.table(str(TABLE), side="tail")
    report.figure(
        "tail by executors", rows / (time.perf_counter() - began), "rows/s", at_least=3e5
    )


def _written(rows: DataFrame) -> float:
    """Read all rows twice, and return the seconds of the second time."""
    for _ in range(2):
        began = time.perf_counter()
        rows.write.format("noop").mode("overwrite").save()
        took_s = time.perf_counter() - began
    return took_s
