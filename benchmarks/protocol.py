"""What the Flight SQL layer costs: small statements, a long stream, the metadata of many tables, pandas.

Small statements and pandas ask ``thermocline serve`` over a SQLite catalog; no broker. Stream and metadata ask our
protocol layer over a backend without an engine, so that nothing else is measured; the same stream out of an Iceberg
table is told beside it. Everything that is compared is asked in turns.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from statistics import median

import adbc_driver_flightsql.dbapi as flight_sql
import adbc_driver_manager
import click
import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import flight
from pyiceberg.catalog import load_catalog

from benchmarks.flight_servers import COLUMNS, MANY, ONE, serve_ours, serve_raw, served
from benchmarks.report import Report, quantile, recorded, summary
from benchmarks.usage import cpu_s
from benchmarks.world import Serving, serving, sqlite_catalogs
from planner.names import TableName
from proxy.flightsql import messages

_TABLE = TableName("lake", ("bench",), "longs")
_GROUPS = 100
_DB_API, _LOW, _RAW_CLIENT = "ADBC DB-API", "ADBC low level", "pyarrow.flight"
_OURS, _RAW, _PRODUCT = "protocol layer", "raw pyarrow Flight", "thermocline serve"
#: Statements of one way before it is another's turn.
_BLOCK = 25
#: Servers that are started to be asked for metadata for the first time, and how often each is asked again.
_STARTS = 3
_AGAIN = 5
#: More than a schema without columns has.
_NO_COLUMNS_BYTES = 500


@click.command()
@click.option("--repeats", type=click.IntRange(_BLOCK), default=500, show_default=True)
@click.option("--rows", type=click.IntRange(1), default=16_000_000, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=7, show_default=True)
@click.option("--table-rows", type=click.IntRange(1), default=4_000_000, show_default=True)
@click.option("--tables", type=click.IntRange(1), default=10_000, show_default=True)
@click.pass_obj
def command(
    results: Path, repeats: int, rows: int, rounds: int, table_rows: int, tables: int
) -> None:
    """Small statements, a long stream, the metadata of many tables, and pandas, through Flight SQL."""
    with (
        recorded(results, "protocol") as report,
        tempfile.TemporaryDirectory(prefix="thermocline-bench-") as name,
        _product(Path(name), table_rows) as (product, paths),
        served(serve_ours, rows, 0) as ours,
        served(serve_raw, rows) as raw,
    ):
        _small(report, product, ours, raw, repeats)
        _stream(report, {_OURS: ours, _RAW: raw, _PRODUCT: product}, rounds)
        _metadata(report, tables)
        _pandas(report, product, paths, repeats // 5)


@contextlib.contextmanager
def _product(folder: Path, rows: int) -> Iterator[tuple[Serving, list[str]]]:
    """The server over a table of eight longs, which is not bound to a topic; and the paths of its files."""
    catalogs = sqlite_catalogs(folder)
    chance, number = np.random.default_rng(1), np.arange(rows)
    columns = {f"c{column}": chance.integers(0, 10**9, rows) for column in range(2, COLUMNS)}
    entry = pa.table({"c0": number, "c1": number % _GROUPS} | columns)
    with contextlib.closing(load_catalog("lake", **catalogs["lake"])) as catalog:
        catalog.create_namespace(_TABLE.namespace)
        table = catalog.create_table((*_TABLE.namespace, _TABLE.name), entry.schema)
        table.append(entry)
        paths = [
            task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()
        ]
    del entry, columns, number
    config = folder / "thermocline.toml"
    lake = "".join(
        f"{name} = {json.dumps(value)}\n" for name, value in catalogs["lake"].items()
    )
    config.write_text(f"[catalogs.lake]\n{lake}\n[server]\nport = 0\n")
    with serving(config, folder / "server.log") as running:
        yield running, paths


def _small(report: Report, product: Serving, ours: Serving, raw: Serving, repeats: int) -> None:
    """``SELECT 1`` on connections that stay open; a cursor or statement of its own for each."""
    with (
        flight_sql.connect(product.uri, autocommit=True) as connection,
        flight_sql.connect(ours.uri, autocommit=True) as bare,
        flight_sql.connect(raw.uri, autocommit=True) as rawest,
        contextlib.closing(flight.connect(product.uri)) as to_product,
        contextlib.closing(flight.connect(ours.uri)) as to_ours,
        contextlib.closing(flight.connect(raw.uri)) as to_raw,
    ):
        statement = _query(ONE)
        ways: dict[str, tuple[Callable[[], object], Serving, float | None]] = {
            _DB_API: (lambda: _by_db_api(connection), product, 3.5),
            f"{_DB_API}, {_OURS} without engine": (lambda: _by_db_api(bare), ours, None),
            f"{_DB_API}, {_RAW} server": (lambda: _by_db_api(rawest), raw, None),
            _LOW: (lambda: _by_low_level(connection), product, 4),
            f"{_LOW}, {_OURS} without engine": (lambda: _by_low_level(bare), ours, None),
            f"{_LOW}, {_RAW} server": (lambda: _by_low_level(rawest), raw, None),
            _RAW_CLIENT: (lambda: _by_flight(to_product, statement), product, None),
            f"{_RAW_CLIENT}, {_OURS} without engine": (
                lambda: _by_flight(to_ours, statement),
                ours,
                None,
            ),
            f"{_RAW_CLIENT}, {_RAW} server": (
                lambda: _by_flight(to_raw, ONE.encode()),
                raw,
                None,
            ),
        }
        content: defaultdict[str, list[float]] = defaultdict(list)
        used_s: defaultdict[str, float] = defaultdict(float)
        for block in range(-2, -(-repeats // _BLOCK)):
            for way, (ask, server, _) in ways.items():
                before_s = _used_s(server)
                took_ms = [_timed(ask) * 1000 for _ in range(_BLOCK)]
                if block >= 0:
                    content[way] += took_ms
                    used_s[way] += _used_s(server) - before_s
    for way, (_, _, at_most) in ways.items():
        items = content[way]
        report.figure(f"SELECT 1, {way}, median", median(items), "ms", at_most=at_most)
        report.figure(f"SELECT 1, {way}, p99", quantile(items, 0.99), "ms")
        report.figure(
            f"SELECT 1, {way}, CPU of the server", used_s[way] / len(items) * 1000, "ms"
        )
    report.details["select_1_ms"] = content


def _by_db_api(connection: flight_sql.Connection) -> None:
    with connection.cursor() as cursor:
        cursor.execute(ONE)
        _check(cursor.fetchall() == [(1,)])


def _by_low_level(connection: flight_sql.Connection) -> None:
    with adbc_driver_manager.AdbcStatement(connection.adbc_connection) as statement:
        statement.set_sql_query(ONE)
        stream, _ = statement.execute_query()
        _check(pa.RecordBatchReader.from_stream(stream).read_all().num_rows == 1)


def _by_flight(client: flight.FlightClient, command: bytes) -> None:
    info = client.get_flight_info(flight.FlightDescriptor.for_command(command))
    _check(client.do_get(info.endpoints[0].ticket).read_all().num_rows == 1)


def _stream(report: Report, servers: Mapping[str, Serving], rounds: int) -> None:
    """From DoGet to the last row, read batch by batch and dropped, as a client does that keeps nothing."""
    rate: defaultdict[str, list[float]] = defaultdict(list)
    per_million_s: defaultdict[str, list[float]] = defaultdict(list)
    with contextlib.ExitStack() as stack:
        items = []
        for name, server in servers.items():
            client = stack.enter_context(contextlib.closing(flight.connect(server.uri)))
            sql = f"SELECT * FROM {_TABLE}" if name == _PRODUCT else MANY
            items.append((name, server, client, sql.encode() if name == _RAW else _query(sql)))
        for turn in range(-1, rounds):
            for name, server, client, command in items:
                info = client.get_flight_info(flight.FlightDescriptor.for_command(command))
                before_s, began = _used_s(server), time.perf_counter()
                rows = sum(
                    chunk.data.num_rows for chunk in client.do_get(info.endpoints[0].ticket)
                )
                took_s = time.perf_counter() - began
                if turn >= 0:
                    rate[name].append(rows / took_s)
                    per_million_s[name].append((_used_s(server) - before_s) / rows * 1e6)
    what = f"stream of {COLUMNS} longs"
    ratios = [ours / raw for ours, raw in zip(rate[_OURS], rate[_RAW], strict=True)]
    report.figure(f"{what}, {_OURS} / {_RAW}, rows/s", median(ratios), "", at_least=0.8)
    for name in servers:
        of = f"{name} over an Iceberg table" if name == _PRODUCT else name
        report.figure(f"{what}, {of}", median(rate[name]), "rows/s")
        report.figure(
            f"{what}, {of}, CPU of the server",
            median(per_million_s[name]),
            "s per million rows",
        )
    report.details["stream_rows_per_s"] = {name: summary(value) for name, value in rate.items()}
    report.details["stream_ratios"] = summary(ratios)


def _metadata(report: Report, tables: int) -> None:
    """GetTables with schemas, of servers that just started and of the same again."""
    command = messages.pack(messages.WRAPPED["CommandGetTables"](include_schema=True))
    first, again, used = [], [], []
    ours: list[float] = []
    bare: list[float] = []

    def ask(client: flight.FlightClient) -> None:
        info = client.get_flight_info(flight.FlightDescriptor.for_command(command))
        answer = client.do_get(info.endpoints[0].ticket).read_all()
        _check(answer.num_rows == tables)
        _check(pc.min(pc.binary_length(answer["table_schema"])).as_py() > _NO_COLUMNS_BYTES)

    for _ in range(_STARTS):
        with (
            served(serve_ours, 1, tables) as server,
            contextlib.closing(flight.connect(server.uri)) as client,
        ):
            before_s = _used_s(server)
            first.append(_timed(partial(ask, client)))
            used.append(_used_s(server) - before_s)
            again += [_timed(partial(ask, client)) for _ in range(_AGAIN)]
            with flight_sql.connect(server.uri, autocommit=True) as connection:
                for _ in range(_AGAIN * 2):
                    began = time.perf_counter()
                    pd.read_sql_query(ONE, connection)
                    between = time.perf_counter()
                    pd.read_sql(ONE, connection)
                    bare.append((between - began) * 1000)
                    ours.append((time.perf_counter() - between) * 1000)
    what = f"GetTables with schemas, {tables:,} tables"
    report.figure(f"{what}, first time, median", median(first), "s", at_most=1)
    report.figure(f"{what}, again, median", median(again), "s", at_most=1)
    report.figure(f"{what}, first time, CPU of the server", median(used), "s")
    _report_pandas(report, f"pandas.read_sql, {tables:,} tables", ours, bare)
    report.details["get_tables_s"] = {"first": first, "again": again}


def _pandas(report: Report, product: Serving, paths: list[str], repeats: int) -> None:
    """``read_sql``, which lists what there is before each statement, less ``read_sql_query``, which does not.

    And less plain DuckDB into a data frame right before it, over the same files; all is cached.
    """
    statements = {
        f"{_GROUPS} groups of 100,000 rows": (
            "SELECT c1, count(*) AS n, sum(c2) AS total FROM {table} WHERE c0 < 100000 "
            "GROUP BY c1 ORDER BY c1"
        ),
        "10,000 rows": "SELECT * FROM {table} WHERE c0 < 10000 ORDER BY c0",
    }
    files = ", ".join(f"'{path}'" for path in paths)
    with (
        flight_sql.connect(product.uri, autocommit=True) as connection,
        contextlib.closing(duckdb.connect()) as duck,
    ):
        duck.execute("SET parquet_metadata_cache = true")
        duck.execute(f"CREATE VIEW longs AS SELECT * FROM read_parquet([{files}])")
        for name, sql in statements.items():
            ours, bare, plain = [], [], []
            for turn in range(-5, repeats):
                began = time.perf_counter()
                expected = duck.execute(sql.format(table="longs")).df()
                first = time.perf_counter()
                frame = pd.read_sql_query(sql.format(table=_TABLE), connection)
                second = time.perf_counter()
                again = pd.read_sql(sql.format(table=_TABLE), connection)
                ended = time.perf_counter()
                for result in (frame, again):
                    _check(result.astype("int64").equals(expected.astype("int64")))
                if turn >= 0:
                    plain.append((first - began) * 1000)
                    bare.append((second - first) * 1000)
                    ours.append((ended - second) * 1000)
            what = f"pandas.read_sql, {name}"
            _report_pandas(report, what, ours, bare)
            over = [mine - other for mine, other in zip(ours, plain, strict=True)]
            report.figure(f"{what}, less plain DuckDB, median", median(over), "ms")
            report.figure(f"{what}, plain DuckDB, median", median(plain), "ms")
            report.details[what]["plain_ms"] = summary(plain)


def _report_pandas(report: Report, what: str, ours: list[float], bare: list[float]) -> None:
    listing = [mine - other for mine, other in zip(ours, bare, strict=True)]
    report.figure(f"{what}, less read_sql_query, median", median(listing), "ms", at_most=20)
    report.figure(f"{what}, median", median(ours), "ms")
    report.details[what] = {"ms": summary(ours), "read_sql_query_ms": summary(bare)}


def _query(sql: str) -> bytes:
    return messages.pack(messages.WRAPPED["CommandStatementQuery"](query=sql))


def _timed(ask: Callable[[], object]) -> float:
    began = time.perf_counter()
    ask()
    return time.perf_counter() - began


def _used_s(server: Serving) -> float:
    return cpu_s({"server": server.pid})["server"]


def _check(is_right: bool) -> None:
    if not is_right:
        raise RuntimeError("an answer is wrong")
