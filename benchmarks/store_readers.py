"""Which reads Parquet from an object store better for the engine: DuckDB's httpfs or Arrow's S3 client.

The same files, each reader through a gateway of its own that counts requests and waits before each.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import click
import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import fs
from pyiceberg.catalog import load_catalog

from benchmarks.report import Report, recorded
from benchmarks.store import columns, fill, plain_duckdb
from tests.fixtures.object_store import running_store
from tests.harness.store_gateway import StoreGateway

HTTPFS, ARROW = "httpfs", "Arrow's S3 client"


@click.command()
@click.option("--rows", type=click.IntRange(1), default=10_000_000, show_default=True)
@click.option("--latency-ms", type=click.FloatRange(0), default=5.0, show_default=True)
@click.option("--repeats", type=click.IntRange(1), default=5, show_default=True)
@click.pass_obj
def command(results: Path, rows: int, latency_ms: float, repeats: int) -> None:
    """Statements of DuckDB over S3 by its own reader and by Arrow's, in turns; every answer is compared."""
    with (
        recorded(results, "store-readers") as report,
        tempfile.TemporaryDirectory(prefix="thermocline-bench-") as name,
        running_store(Path(name)) as store,
        StoreGateway(store.port) as httpfs,
        StoreGateway(store.port) as arrow,
    ):
        properties = store.catalog(Path(name))
        with contextlib.closing(load_catalog("lake", **properties)) as catalog:
            catalog.create_namespace("bench")
            table = catalog.create_table(("bench", "rows"), columns(0, 1).schema)
            fill(table, rows)
            paths = [task.file.file_path for task in table.refresh().scan().plan_files()]
        httpfs.latency_s = arrow.latency_s = latency_ms / 1000
        client = fs.S3FileSystem(
            endpoint_override=arrow.endpoint,
            access_key=properties["s3.access-key-id"],
            secret_key=properties["s3.secret-access-key"],
            region=properties.get("s3.region", "us-east-1"),
        )
        readers = {
            HTTPFS: (lambda: _by_httpfs(properties, httpfs, paths), httpfs),
            ARROW: (lambda: _by_arrow(client, paths), arrow),
        }
        for what, sql in _statements(rows).items():
            _compare(report, what, sql, readers, repeats)


def _statements(rows: int) -> dict[str, str]:
    return {
        "point": f"SELECT kind FROM rows WHERE id = {rows // 2 + 7}",
        "count, sum": "SELECT count(*), sum(bytes) FROM rows",
        "group by a text": "SELECT kind, sum(bytes) FROM rows GROUP BY kind ORDER BY kind",
    }


def _by_httpfs(
    properties: dict[str, str], gateway: StoreGateway, paths: Sequence[str]
) -> duckdb.DuckDBPyConnection:
    connection = plain_duckdb(properties, gateway)
    connection.execute(f"CREATE VIEW rows AS FROM read_parquet({list(paths)!r})")
    return connection


def _by_arrow(client: fs.S3FileSystem, paths: Sequence[str]) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"threads": "2"})
    names = [path.removeprefix("s3://") for path in paths]
    dataset: pa.dataset.Dataset = ds.dataset(names, filesystem=client, format="parquet")
    connection.register("rows", dataset)
    return connection


def _compare(
    report: Report,
    what: str,
    sql: str,
    readers: dict[str, tuple[Callable[[], duckdb.DuckDBPyConnection], StoreGateway]],
    repeats: int,
) -> None:
    """Ask a new connection of each reader, then those again in turns."""
    answers: list[Any] = []
    took: dict[str, list[float]] = {reader: [] for reader in readers}
    requests: dict[str, list[int]] = {reader: [] for reader in readers}
    with contextlib.ExitStack() as stack:
        connections = {
            reader: stack.enter_context(contextlib.closing(connect()))
            for reader, (connect, _) in readers.items()
        }
        for _ in range(1 + repeats):
            for reader, connection in connections.items():
                gateway = readers[reader][1]
                gateway.requests.clear()
                began = time.perf_counter()
                answers.append(connection.execute(sql).fetchall())
                took[reader].append((time.perf_counter() - began) * 1000)
                requests[reader].append(len(gateway.requests))
    if any(answer != answers[0] for answer in answers):
        raise RuntimeError(f"{what}: the readers answer differently")
    for reader in readers:
        report.figure(f"{what}, {reader}, first time", took[reader][0], "ms")
        report.figure(f"{what}, {reader}, first time, requests", requests[reader][0], "")
        report.figure(f"{what}, {reader}, again", median(took[reader][1:]), "ms")
        report.figure(f"{what}, {reader}, again, requests", max(requests[reader][1:]), "")
