"""One aggregate over many cold and 100,000 hot rows: the server against plain DuckDB over the same rows.

The baseline is what a careful person would do by hand: read the snapshot's Parquet files with DuckDB, add the
tail from a table that is decoded already, and fetch the tail once with a bare consumer. It is run beside every
statement, and its answer must be equal.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import adbc_driver_flightsql.dbapi as flight_sql
import click
import pyarrow as pa

from benchmarks.baseline import BareConsumer, PlainDuckDB, hot_ranges
from benchmarks.options import partition_by, partitions, seed
from benchmarks.report import Report, recorded, summary
from benchmarks.tierer import report_rounds, running_tierer
from benchmarks.world import TABLE, World, running_world

_GOAL_RATIO = 1.15
_QUERIES = {
    "count and sum": "SELECT count(*) AS n, sum(bytes) AS total FROM {table}",
    "group by string": (
        "SELECT protocol, count(*) AS n, sum(bytes) AS total FROM {table} "
        "GROUP BY protocol ORDER BY protocol"
    ),
}
#: Touches everything a statement needs but the tail: pins, metadata, files, code that loads on first use.
_WARM_UP = 'SELECT count(*), sum(bytes), max(protocol) FROM lake.bench."events$cold"'

Times = dict[str, dict[str, list[float]]]


@click.command()
@click.option("--cold-rows", type=click.IntRange(1), default=20_000_000, show_default=True)
@click.option("--hot-rows", type=click.IntRange(1), default=100_000, show_default=True)
@click.option(
    "--publish-rows",
    type=click.IntRange(1),
    default=4_000_000,
    show_default=True,
    help="Rows of one publish.",
)
@click.option("--repeats", type=click.IntRange(1), default=15, show_default=True)
@click.option(
    "--restarts",
    type=click.IntRange(1),
    default=7,
    show_default=True,
    help="Fresh server processes for the cold tail, per query.",
)
@partitions
@partition_by
@seed
@click.pass_obj
def command(
    results: Path,
    cold_rows: int,
    hot_rows: int,
    publish_rows: int,
    repeats: int,
    restarts: int,
    partitions: int,
    partition_by: tuple[str, ...],
    seed: int,
) -> None:
    """Aggregate over cold and hot rows through ADBC, with the tail decoded before and not."""
    with (
        recorded(results, "federated") as report,
        running_world(partitions=partitions, seed=seed, partition_by=partition_by) as world,
    ):
        world.produce(cold_rows)
        with running_tierer(world) as tierer:
            rounds = tierer.drain(publish_rows)
        world.produce(hot_rows)
        files = world.data_files()
        bench = _Bench(world, PlainDuckDB(world, files), BareConsumer(world.kafka))
        with contextlib.closing(bench):
            warm = bench.warm_tail(repeats)
            cold = bench.cold_tail(restarts)
        _report(report, warm, cold)
        report.details["files"] = len(files)
        report_rounds(report, rounds, goal_rows_per_s=None)


class _Bench:
    def __init__(self, world: World, duck: PlainDuckDB, consumer: BareConsumer) -> None:
        self._world = world
        self._duck = duck
        self._consumer = consumer

    def close(self) -> None:
        self._duck.close()
        self._consumer.close()

    def warm_tail(self, repeats: int) -> Times:
        """The tail was decoded by an earlier statement of the same server."""
        times = _times()
        with self._world.server() as server, _cursors(server.uri) as connection:
            for repeat in range(repeats + 1):
                for name, query in _QUERIES.items():
                    measured = self._side_by_side(connection, query)
                    # The first time decodes the tail and opens the files on either side.
                    if repeat:
                        for what, took_s in measured.items():
                            times[name][what].append(took_s)
        return times

    def cold_tail(self, restarts: int) -> Times:
        """The tail is fetched and decoded within the statement: the first one over it of a new process."""
        times = _times()
        for _ in range(restarts):
            for name, query in _QUERIES.items():
                with self._world.server() as server, _cursors(server.uri) as connection:
                    times[name]["first statement of the process"].append(
                        _timed(connection, _WARM_UP)[0]
                    )
                    for what, took_s in self._side_by_side(connection, query).items():
                        times[name][what].append(took_s)
        return times

    def _side_by_side(self, connection: flight_sql.Connection, query: str) -> dict[str, float]:
        federated_s, answer = _timed(connection, query.format(table=TABLE))
        duck_s, expected = self._duck.timed(query.format(table="everything"))
        iceberg_s, _ = self._duck.timed(query.format(table="over_iceberg"))
        fetch_s = self._consumer.fetch(hot_ranges(self._duck.cut))
        if _plain(answer) != _plain(expected):
            raise RuntimeError(f"the server answered {_plain(answer)}, not {_plain(expected)}")
        return {
            "federated": federated_s,
            "duckdb": duck_s,
            "duckdb over iceberg_scan": iceberg_s,
            "fetch": fetch_s,
        }


def _report(report: Report, warm: Times, cold: Times) -> None:
    for name in _QUERIES:
        for label, times in (("warm", warm[name]), ("cold", cold[name])):
            duck, fetch = median(times["duckdb"]), median(times["fetch"])
            federated = median(times["federated"])
            report.figure(
                f"{name}, {label} tail: federated / (plain DuckDB + bare fetch)",
                federated / (duck + fetch),
                "",
                at_most=_GOAL_RATIO,
            )
            if label == "warm":
                # Nothing is fetched here, so this is the ratio of like and like.
                report.figure(
                    f"{name}, warm tail: federated / plain DuckDB alone", federated / duck, ""
                )
            report.figure(f"{name}, {label} tail: federated", federated * 1000, "ms")
            report.figure(f"{name}, {label} tail: plain DuckDB", duck * 1000, "ms")
            report.figure(
                f"{name}, {label} tail: plain DuckDB over iceberg_scan",
                median(times["duckdb over iceberg_scan"]) * 1000,
                "ms",
            )
            report.figure(f"{name}, {label} tail: bare fetch", fetch * 1000, "ms")
            report.details[f"{name}, {label} tail, seconds"] = {
                what: summary(values) for what, values in times.items()
            }


@contextlib.contextmanager
def _cursors(uri: str) -> Iterator[flight_sql.Connection]:
    with flight_sql.connect(uri, autocommit=True) as connection:
        yield connection


def _timed(connection: flight_sql.Connection, sql: str) -> tuple[float, pa.Table]:
    began = time.perf_counter()
    with connection.cursor() as cursor:
        cursor.execute(sql)
        answer = cursor.fetch_arrow_table()
    return time.perf_counter() - began, answer


def _plain(answer: pa.Table) -> list[tuple[object, ...]]:
    """Rows as tuples; a sum of longs may be a decimal on one side and an integer on the other."""
    return [
        tuple(value if isinstance(value, str) else int(value) for value in row.values())
        for row in answer.to_pylist()
    ]


def _times() -> Times:
    return {name: defaultdict(list) for name in _QUERIES}
