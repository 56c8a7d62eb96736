"""Statements over an object store that is 5 ms away: how many requests each makes, and how long it takes.

The store is s3proxy over a folder, behind a gateway that counts and waits (``tests.harness.store_gateway``). Plain DuckDB reads the
same files through a gateway of its own, so that nobody counts what the other asked for.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import adbc_driver_flightsql.dbapi as flight_sql
import click
import duckdb
import numpy as np
import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from benchmarks.report import Report, recorded
from benchmarks.world import serving
from connectors import duckdb_extensions
from connectors.store import object_store
from tests.fixtures.object_store import running_store
from tests.harness.store_gateway import StoreGateway

_LARGE, _MANY = ("bench", "large"), ("bench", "many")
_ROWS_A_FILE = 1_000_000
#: Rows of each of the many files, which are one file under many names.
_FEW_ROWS = 1_000
#: What a statement may take, at most, beside plain DuckDB.
_WARM, _FIRST = 1.15, 3.0
#: What takes milliseconds is repeated so many times more often.
_BRIEF = 20
#: A point that is no statistics' edge.
_KEY = 123_456


@click.command()
@click.option(
    "--rows", type=click.IntRange(_ROWS_A_FILE), default=20_000_000, show_default=True
)
@click.option("--files", type=click.IntRange(1), default=10_000, show_default=True)
@click.option("--latency-ms", type=click.FloatRange(0), default=5.0, show_default=True)
@click.option("--repeats", type=click.IntRange(1), default=9, show_default=True)
@click.pass_obj
def command(results: Path, rows: int, files: int, latency_ms: float, repeats: int) -> None:
    """Statements over S3: their requests and times, beside plain DuckDB's over the same files."""
    with (
        recorded(results, "store") as report,
        tempfile.TemporaryDirectory(prefix="thermocline-bench-") as name,
        running_store(Path(name)) as store,
        StoreGateway(store.port) as ours,
        StoreGateway(store.port) as plain,
    ):
        gateways = ours, plain
        properties = store.catalog(Path(name))
        with contextlib.closing(load_catalog("lake", **properties)) as catalog:
            catalog.create_namespace("bench")
            fill(catalog.create_table(_LARGE, columns(0, 1).schema), rows)
            _multiply(catalog.create_table(_MANY, columns(0, 1).schema), files)
            paths = [
                task.file.file_path for task in catalog.load_table(_LARGE).scan().plan_files()
            ]
            location = catalog.load_table(_MANY).metadata_location
        gateways[0].latency_s = gateways[1].latency_s = latency_ms / 1000
        with _sides(Path(name), properties, gateways) as sides:
            _first(report, sides, location, files)
        with _sides(Path(name), properties, gateways) as sides:
            _statements(report, sides, paths, rows, repeats)


def columns(first: int, rows: int) -> pa.Table:
    ids = np.arange(first, first + rows)
    return pa.table(
        {
            "id": ids,
            "kind": pa.array([f"kind-{number}" for number in range(50)]).take(
                pa.array(ids % 50)
            ),
            "bytes": (ids * 2_654_435_761) % 1_000_003,
            "price": ((ids * 40_503) % 10_007) / 7.0,
        }
    )


def fill(table: Table, rows: int) -> None:
    for first in range(0, rows, _ROWS_A_FILE):
        table.append(columns(first, min(_ROWS_A_FILE, rows - first)))


def _multiply(table: Table, files: int) -> None:
    """One file under many names, with statistics of its own: nothing is left out by them."""
    table.append(columns(0, _FEW_ROWS))
    [task] = table.scan().plan_files()
    with table.io.new_input(task.file.file_path).open() as stream:
        content = stream.read()
    with (
        table.transaction() as transaction,
        transaction.update_snapshot().fast_append() as append,
    ):
        for _ in range(files - 1):
            entry = copy(task.file)
            entry._data = [*task.file._data]
            entry[1] = f"{table.location()}/data/{uuid.uuid4()}.parquet"
            with table.io.new_output(entry.file_path).create() as sink:
                sink.write(content)
            append.append_data_file(entry)


@contextlib.contextmanager
def _server(
    folder: Path, properties: Mapping[str, str], gateway: StoreGateway
) -> Iterator[str]:
    config = folder / "thermocline.toml"
    fields = {**properties, "s3.endpoint": gateway.endpoint}
    lake = "".join(
        f"{json.dumps(name)} = {json.dumps(value)}\n" for name, value in fields.items()
    )
    config.write_text(f"[catalogs.lake]\n{lake}\n[server]\nport = 0\nthreads = 2\n")
    with serving(config, folder / "server.log") as running:
        yield running.uri


def plain_duckdb(
    properties: Mapping[str, str], gateway: StoreGateway
) -> duckdb.DuckDBPyConnection:
    """Plain DuckDB with the options that the server has, which read less."""
    connection = duckdb.connect(config={"threads": "2"})
    duckdb_extensions.load(connection, (*duckdb_extensions.LOCAL, *duckdb_extensions.REMOTE))
    connection.execute("SET GLOBAL enable_http_metadata_cache = true")
    connection.execute("SET GLOBAL httpfs_connection_caching = true")
    fields = {"lake": {**properties, "s3.endpoint": gateway.endpoint}}
    [secret] = object_store.secrets(fields, {"lake": [properties["warehouse"]]})
    connection.execute(secret)
    return connection


@dataclass(frozen=True)
class _Side:
    """Who is asked, and through which gateway."""

    ask: Callable[[str], Sequence[Any]]
    gateway: StoreGateway

    def counted(self, sql: str) -> _Cost:
        self.gateway.requests.clear()
        began = time.perf_counter()
        self.ask(sql)
        took_ms = (time.perf_counter() - began) * 1000
        return _Cost(took_ms, Counter(request.method for request in self.gateway.requests))


@dataclass(frozen=True)
class _Cost:
    took_ms: float
    requests: Counter[str]

    def tell(self, report: Report, who: str) -> None:
        report.figure(who, self.took_ms, "ms")
        report.figure(f"{who}, requests", self.requests.total(), "")
        report.details[who] = {"ms": self.took_ms, "requests": dict(self.requests)}


@contextlib.contextmanager
def _sides(
    folder: Path, properties: Mapping[str, str], gateways: tuple[StoreGateway, StoreGateway]
) -> Iterator[tuple[_Side, _Side]]:
    """A server that was just started, and a new DuckDB."""
    ours, plain = gateways
    connection = plain_duckdb(properties, plain)
    with (
        _server(folder, properties, ours) as uri,
        flight_sql.connect(uri, autocommit=True) as client,
        client.cursor() as cursor,
    ):

        def answer(sql: str) -> Sequence[Any]:
            cursor.execute(sql)
            rows: Sequence[Any] = cursor.fetchall()
            return rows

        yield _Side(answer, ours), _Side(lambda sql: connection.execute(sql).fetchall(), plain)
    connection.close()


def _first(report: Report, sides: tuple[_Side, _Side], location: str, files: int) -> None:
    """Once each: the second time it is no first statement."""
    sql = "SELECT count(*), sum(bytes) FROM {}"
    ours = sides[0].counted(sql.format("lake.bench.many"))
    plain = sides[1].counted(sql.format(f"iceberg_scan('{location}')"))
    what = f"first statement after start, count and sum, {files:,} files"
    report.figure(f"{what} / iceberg_scan", ours.took_ms / plain.took_ms, "", at_most=_FIRST)
    ours.tell(report, what)
    plain.tell(report, f"{what}, iceberg_scan")


def _statements(
    report: Report, sides: tuple[_Side, _Side], paths: Sequence[str], rows: int, repeats: int
) -> None:
    points = [rows // 2 + _KEY, _KEY]
    statements = {
        **{
            f"point {number}": f"SELECT kind FROM {{}} WHERE id = {key}"
            for number, key in enumerate(points, 1)
        },
        "count": "SELECT count(*) FROM {}",
        "count, sum": "SELECT count(*), sum(price) FROM {}",
    }
    sides[0].ask("SELECT count(*) FROM lake.bench.large")
    for what, sql in statements.items():
        texts = sql.format("lake.bench.large"), sql.format(f"read_parquet({list(paths)!r})")
        # SELECT 1: what any statement over the protocol takes, whatever it reads.
        questions = [*zip(sides, texts, strict=True), (sides[0], "SELECT 1")]
        costs = [
            [side.counted(text) for side, text in questions]
            for _ in range(1 + repeats * (_BRIEF if what == "count" else 1))
        ]
        for who, first, *warm in zip(("", ", plain DuckDB"), *costs, strict=False):
            first.tell(report, f"{what}, first time{who}")
            _warm(warm).tell(report, f"{what}, warm{who}")
        ours, plain, nothing = (_warm(side) for side in zip(*costs[1:], strict=True))
        report.figure(f"{what}, SELECT 1 beside it", nothing.took_ms, "ms")
        if what.startswith("point"):
            total = ours.requests.total()
            report.figure(f"{what}, warm, requests to the store", total, "", at_most=3)
        else:
            ratio = ours.took_ms / plain.took_ms
            report.figure(
                f"{what}, {rows:,} rows, warm / plain DuckDB", ratio, "", at_most=_WARM
            )
            ratio = (ours.took_ms - nothing.took_ms) / plain.took_ms
            report.figure(
                f"{what}, {rows:,} rows, warm, less SELECT 1 / plain DuckDB",
                ratio,
                "",
                at_most=_WARM,
            )


def _warm(items: Sequence[_Cost]) -> _Cost:
    """The median time, and the most requests."""
    most = max((item.requests for item in items), key=lambda counts: counts.total())
    return _Cost(median(item.took_ms for item in items), most)
