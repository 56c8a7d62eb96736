"""Loads of a live table over the Iceberg REST protocol: what one takes, what it writes, and what statements pay for it.

A table of fifty snapshots with a tail; more records arrive at a fixed rate, and a load comes each second. Statements over
Flight run in paired spans, with those loads and without.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

import adbc_driver_flightsql.dbapi as flight_sql
import click
from pyiceberg.catalog import load_catalog

from benchmarks.options import partitions, seed
from benchmarks.records import traffic
from benchmarks.report import Report, quantile, recorded
from benchmarks.world import TABLE, TOPIC, Serving, World, running_world
from planner.seam.watermark import format_watermark
from tests.harness.published import publish

_SPAN_S = 10.0
#: No tiering goes on: the tail is all that comes.
_ANY_ROWS, _ANY_BYTES = 1_000_000_000, 1 << 40
_SPARE_S = 3_600.0
#: The server's answer where the time of a load was over, or a broker does not answer.
_AGAIN = 503
_REPEATS = 100
_HOUR_S = 3_600
#: Loads of a table of many snapshots come for so long.
_MANY_S = 60


@click.command()
@click.option("--tail-rows", type=click.IntRange(1), default=100_000, show_default=True)
@click.option("--snapshots", type=click.IntRange(1), default=50, show_default=True)
@click.option("--rate", type=click.IntRange(1), default=5_000, show_default=True)
@click.option(
    "--seconds",
    type=click.IntRange(10),
    default=120,
    show_default=True,
    help="How long a load comes each second; 3600 for the figures of an hour.",
)
@click.option(
    "--pace",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="So many times as fast: an hour's loads and records in a quarter of it with 4. Times say nothing then.",
)
@click.option(
    "--pairs",
    type=click.IntRange(0),
    default=5,
    show_default=True,
    help="Of spans of statements over Flight, with loads and without.",
)
@click.option(
    "--more-snapshots",
    type=click.IntRange(0),
    default=950,
    show_default=True,
    help="Committed after all that, then loads once more.",
)
@partitions
@seed
@click.pass_obj
def command(
    results: Path,
    tail_rows: int,
    snapshots: int,
    rate: int,
    seconds: int,
    pace: int,
    pairs: int,
    more_snapshots: int,
    partitions: int,
    seed: int,
) -> None:
    """Load a live table while records arrive, as an Iceberg engine does. A run of an hour is recorded as live-hour."""
    with (
        recorded(results, "live" if seconds < _HOUR_S else "live-hour") as report,
        running_world(partitions=partitions, seed=seed) as world,
    ):
        commit_empty(world, snapshots)
        # No file is removed meanwhile: all of them are counted.
        rest = {"port": 0, "live_ttl_s": seconds + _SPARE_S}
        with world.server(rest, max_tail_rows=_ANY_ROWS, max_tail_bytes=_ANY_BYTES) as server:
            world.produce(tail_rows)
            with closing(_Client(server.rest)) as client:
                report.figure("first load of the tail", client.load().took_ms, "ms")
                same = [client.load().took_ms for _ in range(_REPEATS)]
                report.figure("load of an unchanged cut, median", median(same), "ms", at_most=5)
                with traffic(
                    world.broker.bootstrap,
                    TOPIC,
                    partitions=partitions,
                    rate=rate * pace,
                    seed=seed,
                ):
                    _loads(report, world, client, seconds, pace)
                    if pairs:
                        _beside(report, server, pairs)
            if more_snapshots:
                commit_empty(world, more_snapshots + 1)
                with (
                    closing(_Client(server.rest)) as client,
                    traffic(
                        world.broker.bootstrap,
                        TOPIC,
                        partitions=partitions,
                        rate=rate,
                        seed=seed,
                    ),
                ):
                    client.load()
                    took = [load.took_ms for load in _each_second(client, _MANY_S)]
                many = f"load each second, of {snapshots + more_snapshots} snapshots"
                report.figure(f"{many}, median", median(took), "ms")
                report.figure(f"{many}, p99", quantile(took, 0.99), "ms")


@dataclass(frozen=True, slots=True)
class _Load:
    took_ms: float
    files: int
    rows: int
    size: int


class _Client:
    """One connection, as an engine's."""

    def __init__(self, uri: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(uri).netloc)
        self.refusals = 0
        self._path = f"/v1/lake/namespaces/{TABLE.schema}/tables/{TABLE.name}"

    def load(self) -> _Load:
        """Load the table; where the server says so, which is counted, once more after a second."""
        while True:
            began = time.perf_counter()
            self._connection.request("GET", self._path)
            answer = self._connection.getresponse()
            body = answer.read()
            took_ms = (time.perf_counter() - began) * 1000
            if answer.status == 200:
                break
            if answer.status != _AGAIN:
                raise RuntimeError(f"a load was answered {answer.status}: {body[:500]!r}")
            self.refusals += 1
            time.sleep(1)
        summary = json.loads(body)["metadata"]["snapshots"][-1]["summary"]
        return _Load(
            took_ms,
            int(summary.get("added-data-files", 0)),
            int(summary.get("added-records", 0)),
            int(summary.get("added-files-size", 0)),
        )

    def close(self) -> None:
        self._connection.close()


def commit_empty(world: World, snapshots: int) -> None:
    """Commit empty snapshots, as publishes without rows do."""
    mark = world.pin().watermark
    assert mark is not None
    with closing(load_catalog("lake", **world.catalogs["lake"])) as catalog:
        for _ in range(snapshots - 1):
            table = catalog.load_table((*TABLE.namespace, TABLE.name))
            head = table.metadata.current_snapshot_id
            text = format_watermark(replace(mark, prev_snapshot_id=head))
            publish(table, table.schema().as_arrow().empty_table(), text)


def _loads(report: Report, world: World, client: _Client, seconds: int, pace: int) -> None:
    loads = _each_second(client, seconds / pace, 1 / pace)
    took = [load.took_ms for load in loads]
    live = world.folder / "warehouse-live"
    written = sum(file.stat().st_size for file in live.rglob("*.parquet"))
    median_ms, p99_ms = (40, 150) if pace == 1 else (None, None)
    report.figure("load each second, median", median(took), "ms", at_most=median_ms)
    report.figure("load each second, p99", quantile(took, 0.99), "ms", at_most=p99_ms)
    report.figure("load each second, longest", max(took), "ms")
    report.figure("loads", len(loads), "")
    report.figure("live files, most", max(load.files for load in loads), "", at_most=40)
    report.figure("bytes written / bytes of the tail", written / loads[-1].size, "", at_most=3)
    report.figure("loads that were to come again", client.refusals, "")
    report.figure("rows in the tail at the end", loads[-1].rows, "")
    report.details["loads_ms"] = took
    report.details["files"] = [load.files for load in loads]


def _each_second(client: _Client, seconds: float, pause_s: float = 1.0) -> list[_Load]:
    loads = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        next_s = time.monotonic() + pause_s
        loads.append(client.load())
        time.sleep(max(0.0, next_s - time.monotonic()))
    return loads


def _beside(report: Report, server: Serving, pairs: int) -> None:
    ratios = []
    with flight_sql.connect(server.uri, autocommit=True) as db, db.cursor() as cursor:
        for _ in range(pairs):
            without = _span(cursor)
            with _loading(server.rest):
                ratios.append(_span(cursor) / without)
    report.figure(
        "statement's p90 beside a load each second / without, median of pairs",
        median(ratios),
        "",
        at_most=1.2,
    )
    report.details["ratios"] = ratios


def _span(cursor: flight_sql.Cursor) -> float:
    """Return the p90 of a statement's seconds."""
    took = []
    until = time.monotonic() + _SPAN_S
    while time.monotonic() < until:
        began = time.perf_counter()
        cursor.execute(f"SELECT count(*) FROM {TABLE} WHERE id = 7")
        cursor.fetchall()
        took.append(time.perf_counter() - began)
    return quantile(took, 0.9)


@contextlib.contextmanager
def _loading(rest: str) -> Iterator[None]:
    stopped = threading.Event()

    def load_on() -> None:
        with closing(_Client(rest)) as client:
            while not stopped.wait(1):
                client.load()

    loading = threading.Thread(target=load_on)
    loading.start()
    try:
        yield
    finally:
        stopped.set()
        loading.join()
