"""Five statements while a table grows, held against plain DuckDB and against what people do without us.

The cold side grows first, then the hot one; at every size each statement runs in the server's own engine, in
plain DuckDB over the same rows, and through Flight SQL, one after another, so that noise meets all three. Every
answer is compared. At the full size two more baselines run: DuckDB with the hot rows read from Kafka in each
statement, and Spark's batch union.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import adbc_driver_flightsql.dbapi as flight_sql
import click
import pyarrow as pa

from benchmarks.baseline import PlainDuckDB, ReadEachTime
from benchmarks.load import plain_rows
from benchmarks.options import partition_by, partitions, seed
from benchmarks.report import Report, recorded, summary
from benchmarks.spark_union import SparkUnion
from benchmarks.tierer import Tierer, running_tierer
from benchmarks.world import TABLE, World, running_world
from proxy.session import Deadline, Session
from thermocline.serve.assembly import running_components
from thermocline.serve.components import Components

ENGINE, DUCK, FLIGHT = "server's engine", "plain DuckDB", "through Flight SQL"
_WHOLE = "plan, tail and engine"
_SLOW_REPEATS = 3


@dataclass(frozen=True, slots=True)
class Query:
    """``sql`` over ``{table}``. The engine's goal is ``ratio`` times plain DuckDB's time plus ``plus_ms``."""

    name: str
    sql: str
    ratio: float = 1.10
    plus_ms: float = 0.0


def queries(world: World, cold_rows: int) -> tuple[Query, ...]:
    """The five of the issue. A record's time is its id in milliseconds, so the last minute is 60,000 ids."""
    total = world.produced
    columns = 'id, "at", src, dst, protocol, src_port, dst_port, bytes, duration_s, blocked'
    since = dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(
        milliseconds=total, minutes=-1
    )
    return (
        Query("count, sum", "SELECT count(*) AS n, sum(bytes) AS total FROM {table}"),
        Query(
            "point, cold key",
            f"SELECT {columns} FROM {{table}} WHERE id = {cold_rows // 2}",
            plus_ms=2,
        ),
        Query(
            "point, hot key",
            f"SELECT {columns} FROM {{table}} WHERE id = {total - 1}",
            plus_ms=3,
        ),
        Query(
            "group by string",
            "SELECT protocol, count(*) AS n, sum(bytes) AS total FROM {table} GROUP BY protocol "
            "ORDER BY protocol",
        ),
        Query(
            "last minute",
            "SELECT count(*) AS n, sum(bytes) AS total FROM {table} "
            f"WHERE \"at\" >= TIMESTAMPTZ '{since}'",
            plus_ms=3,
        ),
    )


@click.command()
@click.option("--cold-rows", type=click.IntRange(8), default=20_000_000, show_default=True)
@click.option("--hot-rows", type=click.IntRange(1), default=100_000, show_default=True)
@click.option("--more-hot-rows", type=click.IntRange(1), default=1_000_000, show_default=True)
@click.option("--publish-rows", type=click.IntRange(1), default=4_000_000, show_default=True)
@click.option("--repeats", type=click.IntRange(1), default=25, show_default=True)
@click.option(
    "--spark/--no-spark", default=True, show_default=True, help="Spark's batch union."
)
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
    spark: bool,
    partitions: int,
    partition_by: tuple[str, ...],
    seed: int,
) -> None:
    """Counts, points, groups and the last minute, over growing cold and hot sides."""
    with (
        recorded(results, "sizes") as report,
        running_world(partitions=partitions, seed=seed, partition_by=partition_by) as world,
    ):
        growing = _Growing(world, report, cold_rows, repeats)
        with running_tierer(world) as tierer:
            growing.cold_side(tierer, hot_rows, publish_rows)
            growing.at_size(hot_rows, "tail")
            _slow_baselines(report, world, cold_rows, tierer if spark else None)
        for rows in (hot_rows * 3, more_hot_rows):
            growing.at_size(rows, "tail")


class _Growing:
    """Measures at each size; one series per side in the details, figures at the size of the issue."""

    def __init__(self, world: World, report: Report, cold_rows: int, repeats: int) -> None:
        self._world = world
        self._report = report
        self._cold_rows = cold_rows
        self._repeats = repeats
        self._hot = 0
        report.details["series"] = {"cold": [], "tail": []}

    def cold_side(self, tierer: Tierer, hot_rows: int, publish_rows: int) -> None:
        """An eighth, half, all of the cold rows; the tail is a tenth of ``hot_rows`` meanwhile."""
        for part in (self._cold_rows // 8, self._cold_rows // 2, self._cold_rows):
            self._world.produce(part - self._world.produced)
            tierer.drain(publish_rows)
            self._measure("cold", part, 0)
        for rows in (hot_rows // 100, hot_rows // 10):
            self.at_size(rows, "tail")

    def at_size(self, hot_rows: int, series: str) -> None:
        if hot_rows > self._hot:
            self._world.produce(hot_rows - self._hot)
            self._hot = hot_rows
            self._measure(series, self._cold_rows, hot_rows)

    def _measure(self, series: str, cold_rows: int, hot_rows: int) -> None:
        files = self._world.data_files()
        duck = PlainDuckDB(self._world, files)
        with (
            contextlib.closing(duck),
            running_components(self._world.settings()) as components,
            self._world.server() as server,
            flight_sql.connect(server.uri, autocommit=True) as connection,
        ):
            result = {}
            for query in queries(self._world, cold_rows):
                times = _side_by_side(query, components, duck, connection, self._repeats)
                result[query.name] = {what: summary(value) for what, value in times.items()}
                if series == "tail":
                    self._figures(query, times, hot_rows)
        self._report.details["series"][series].append(
            {"cold_rows": cold_rows, "hot_rows": hot_rows, "files": len(files), "ms": result}
        )

    def _figures(self, query: Query, times: dict[str, list[float]], hot_rows: int) -> None:
        duck = median(times[DUCK])
        label = f"{query.name}, {hot_rows:,} hot rows"
        self._report.figure(
            f"{label}: (engine - {query.plus_ms:g} ms) / plain DuckDB",
            (median(times[ENGINE]) - query.plus_ms) / duck,
            "",
            at_most=query.ratio,
        )
        for what in (ENGINE, DUCK, _WHOLE, FLIGHT):
            self._report.figure(f"{label}: {what}", median(times[what]), "ms")


def _side_by_side(
    query: Query,
    components: Components,
    duck: PlainDuckDB,
    connection: flight_sql.Connection,
    repeats: int,
) -> dict[str, list[float]]:
    """Milliseconds of each way, ``repeats`` of each; two rounds before them fill caches on all sides."""
    sql, plain = query.sql.format(table=TABLE), query.sql.format(table="everything")
    times: dict[str, list[float]] = defaultdict(list)
    for repeat in range(-2, repeats):
        whole_ms, engine_ms, answer = in_engine(components, sql)
        took_s, expected = duck.timed(plain)
        began = time.perf_counter()
        with connection.cursor() as cursor:
            cursor.execute(sql)
            through = cursor.fetch_arrow_table()
        flight_ms = (time.perf_counter() - began) * 1000
        for other in (answer, through):
            if plain_rows(other) != plain_rows(expected):
                raise RuntimeError(
                    f"{query.name}: {plain_rows(other)}, not {plain_rows(expected)}"
                )
        if repeat >= 0:
            times[_WHOLE].append(whole_ms)
            times[ENGINE].append(engine_ms)
            times[DUCK].append(took_s * 1000)
            times[FLIGHT].append(flight_ms)
    return times


def in_engine(components: Components, sql: str) -> tuple[float, float, pa.Table]:
    """Run a statement without Flight; return milliseconds of all of it, of what follows its plan, and its answer."""
    session, deadline = (
        components.statements.browser.configure(Session("benchmark")),
        Deadline(60),
    )
    began = time.perf_counter()
    planned = components.statements.plan(session, sql, None, deadline)
    opened = time.perf_counter()
    stream = components.statements.open(session, planned.ticket, deadline)
    try:
        answer = pa.Table.from_batches(list(stream), stream.schema)
    finally:
        stream.close()
    ended = time.perf_counter()
    return (ended - began) * 1000, (ended - opened) * 1000, answer


def _slow_baselines(
    report: Report, world: World, cold_rows: int, tierer: Tierer | None
) -> None:
    """What one does without a tail that is kept: hot rows are read from Kafka in every statement."""
    ways: dict[str, Callable[[str], tuple[float, pa.Table]]] = {}
    with contextlib.ExitStack() as stack:
        reading = ReadEachTime(world, world.data_files())
        stack.callback(reading.close)
        ways["DuckDB, hot rows read from Kafka"] = reading.timed
        if tierer is not None:
            ways["Spark's batch union"] = SparkUnion(world, tierer.session).timed
        for query in queries(world, cold_rows):
            for way, timed in ways.items():
                took = [timed(query.sql)[0] * 1000 for _ in range(_SLOW_REPEATS + 1)][1:]
                report.figure(f"{query.name}: {way}", median(took), "ms")
