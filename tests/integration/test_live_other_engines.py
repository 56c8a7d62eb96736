"""Engines from other packages over live tables: each reads what Flight reads at the same cut.

Their first look found rows that a condition on a partition's column should have left out, and tables that did not open.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from connectors.iceberg.store import IcebergStore
from connectors.spark.catalogs import catalog_conf
from planner.names import TableName
from planner.seam.binding import LIVE_CUT
from tests.fixtures.engines import EngineError, OtherEngine, OtherEngines
from tests.fixtures.flink import Flink
from tests.fixtures.kafka import Kafka
from tests.fixtures.live import LiveServer
from tests.fixtures.object_store import ObjectStore
from tests.fixtures.server import settings_of
from tests.fixtures.spark import SparkLake
from tests.fixtures.trino import Trino
from tests.harness.engine_programs import plain
from tests.harness.go_programs import go_program
from tests.harness.live_rows import COLUMNS, NOW_MS, record
from thermocline.config.settings import IcebergRest
from thermocline.serve.assembly import running_server

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.soak,
    pytest.mark.timeout(0),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]

DAY_MS = 86_400_000
#: Noon three days ago: a fifth of the records is from there, and two fifths from before.
NOON_MS = NOW_MS - NOW_MS % DAY_MS - 3 * DAY_MS + DAY_MS // 2
PARTITIONS: tuple[tuple[str, ...], ...] = (
    (),
    ("host",),
    ("host", "day", "price"),
    ("bucket(4, n)",),
    ("day(kafka_timestamp)", "truncate(4, host)"),
)
#: Conditions on what partitions are made of, and their negations.
CONDITIONS = (
    "host = 'host 3'",
    "host <> 'host 3'",
    "NOT (host = 'host 3')",
    "host IN ('host 1', 'host 3')",
    "host NOT IN ('host 1', 'host 3')",
    "host >= 'host 2' AND host < 'host 4'",
    "host LIKE 'host 2%'",
    "host IS NULL",
    "host IS NOT NULL",
    "host = 'host 3' OR n < 20",
    "n = 17",
    "n <> 17",
    "n IN (3, 17, 145)",
    "n NOT IN (3, 17, 145)",
    "n BETWEEN 90 AND 120",
    "NOT (n > 30)",
    "day = DATE '2026-01-03'",
    "day <> DATE '2026-01-03'",
    "NOT (day < DATE '2026-01-05')",
    "price > 25.125",
    "price = 25.125",
    "kafka_timestamp < {noon}",
    "NOT (kafka_timestamp < {noon})",
    "kafka_timestamp = {noon}",
    "kafka_timestamp <> {noon}",
    "kafka_offset >= 3 AND kafka_offset < 6",
)
STATEMENTS = (
    *(f"SELECT count(*) AS a, sum(n) AS b FROM {{t}} WHERE {sql}" for sql in CONDITIONS),
    "SELECT count(*) AS a, count(host) AS b, count(ratio) AS c FROM {t}",
    "SELECT min(n) AS a, max(n) AS b, min(host) AS c, max(host) AS d, min(day) AS e, max(day) AS f FROM {t}",
    "SELECT min(price) AS a, max(price) AS b, sum(price) AS c FROM {t}",
    "SELECT host, count(*) AS a FROM {t} GROUP BY host ORDER BY host NULLS LAST",
    "SELECT kafka_partition, min(kafka_offset) AS a, max(kafka_offset) AS b FROM {t} "
    "GROUP BY kafka_partition ORDER BY kafka_partition",
    "SELECT n, host, price, day FROM {t} ORDER BY n",
    "SELECT count(*) AS rows_of_both FROM {t} a JOIN {t} b ON a.kafka_partition = b.kafka_partition "
    "AND a.kafka_offset = b.kafka_offset WHERE a.host = 'host 3'",
)
#: How a moment is written; Flight takes the first.
NOON = "TIMESTAMP '{:%Y-%m-%d %H:%M:%S}+00:00'"


def produce(kafka: Kafka, topic: str, start: int, stop: int) -> None:
    """Records of five days, in two partitions."""
    for partition in range(2):
        for day in range(5):
            rows = [n for n in range(start, stop) if (n % 2, n % 5) == (partition, day)]
            moment = NOON_MS + (day - 2) * DAY_MS
            values = [record(n) for n in rows]
            kafka.produce(topic, values, partition=partition, timestamp_ms=moment)


def made(kafka: Kafka, live: LiveServer, partition_by: Sequence[str]) -> TableName:
    """A table whose rows are in files to two thirds."""
    topic = kafka.topic(2)
    table = live.bind(topic, COLUMNS, partition_by=partition_by)
    produce(kafka, topic, 0, 100)
    live.tier(table)
    produce(kafka, topic, 100, 150)
    live.refresh(table)
    return table


@pytest.fixture(params=PARTITIONS, ids=", ".join)
def partition_by(request: pytest.FixtureRequest) -> tuple[str, ...]:
    terms: tuple[str, ...] = request.param
    return terms


def rendered(sql: str, noon: str) -> str:
    moment = pa.scalar(NOON_MS, pa.timestamp("ms", "UTC")).as_py()
    return sql.replace("{noon}", noon.format(moment))


def check(
    live: LiveServer,
    table: TableName,
    cut: str,
    ask: Callable[[str], Sequence[Sequence[Any]]],
    noon: str = NOON,
) -> None:
    at = f"(SELECT * FROM {table} AT (VERSION => '{cut}'))"
    wrong = {}
    with live.cursor() as flight:
        for sql in STATEMENTS:
            flight.execute(rendered(sql, NOON).format(t=at))
            expected = [[plain(value) for value in row] for row in flight.fetchall()]
            rows = [[plain(value) for value in row] for row in ask(rendered(sql, noon))]
            if rows != expected:
                wrong[sql] = (rows[:3], expected[:3])
    assert not wrong


def opened(engine: OtherEngine, live: LiveServer, table: TableName, warehouse: str) -> None:
    engine.open(address=live.address, warehouse=warehouse, schema=table.schema, name=table.name)


@pytest.mark.parametrize("name", ["daft", "datafusion", "sail"])
def test_an_engine_in_a_python_of_its_own_reads_what_flight_reads(
    kafka: Kafka,
    live: LiveServer,
    other_engines: OtherEngines,
    name: str,
    partition_by: tuple[str, ...],
) -> None:
    table = made(kafka, live, partition_by)
    cut = live.cut(table)
    engine = other_engines(name)
    opened(engine, live, table, f"lake@{cut}")
    check(live, table, cut, engine.ask)


@pytest.mark.parametrize("side", ["cold", "plain"])
def test_daft_reads_partitioned_files_right_without_a_tail(
    kafka: Kafka, live: LiveServer, other_engines: OtherEngines, side: str
) -> None:
    """It prunes by negated transforms, so that a table of any catalog may lack rows."""
    table = made(kafka, live, ("bucket(4, n)",))
    warehouse = "lake@cold"
    if side == "plain":
        live.spark(table).sql(
            "ALTER TABLE {t} UNSET TBLPROPERTIES ('thermocline.topic', 'thermocline.watermark')"
        )
        live.refresh(table)
        warehouse = "lake"
    cut = live.document(table, warehouse)["metadata"]["properties"][LIVE_CUT]
    engine = other_engines("daft")
    opened(engine, live, table, warehouse)
    check(live, table, cut, engine.ask)


def test_trino_reads_what_flight_reads(
    kafka: Kafka, live: LiveServer, trino: Trino, partition_by: tuple[str, ...]
) -> None:
    table = made(kafka, live, partition_by)
    cut = live.cut(table)
    name = f"{trino.catalog(live.address, f'lake@{cut}')}.{table.schema}.{table.name}"
    check(live, table, cut, lambda sql: trino.ask(sql.format(t=name)))


def test_flink_reads_what_flight_reads(
    kafka: Kafka, live: LiveServer, flink: Flink, partition_by: tuple[str, ...]
) -> None:
    table = made(kafka, live, partition_by)
    cut = live.cut(table)
    catalog = f"other_{table.name}"
    flink.define(
        f"CREATE CATALOG {catalog} WITH ('type' = 'iceberg', 'catalog-type' = 'rest', "
        f"'uri' = '{live.address}', 'warehouse' = 'lake@{cut}')"
    )
    at = f"(SELECT * FROM {table} AT (VERSION => '{cut}'))"
    name = f"{catalog}.{table.schema}.{table.name}"
    for condition in CONDITIONS:
        if "{noon}" in condition:
            continue
        sql = f"SELECT count(*), count(host), max(n) FROM {{t}} WHERE {condition}"
        [expected] = live.ask(sql.format(t=at)).to_pylist()
        flinks = sql.replace(" day", " `day`").replace("(day", "(`day`").format(t=name)
        [row] = flink.ask(flinks)
        assert row == [str(value) if value is not None else "null" for value in expected.values()], sql  # fmt: skip


#: Conditions as Iceberg's own parser has them, and in SQL.
GO_CONDITIONS: dict[str, Any] = {
    "true": None,
    "host = 'host 3'": {"type": "eq", "term": "host", "value": "host 3"},
    # Iceberg's negations hold for NULL, SQL's do not.
    "host NOT IN ('host 1', 'host 3') OR host IS NULL": {
        "type": "not-in", "term": "host", "values": ["host 1", "host 3"]},
    "n IN (3, 17, 145)": {"type": "in", "term": "n", "values": [3, 17, 145]},
    "n NOT IN (3, 17, 145)": {"type": "not-in", "term": "n", "values": [3, 17, 145]},
    "NOT (n > 30)": {"type": "not", "child": {"type": "gt", "term": "n", "value": 30}},
    "host IS NULL": {"type": "is-null", "term": "host"},
}  # fmt: skip


def test_iceberg_go_reads_what_flight_reads(
    kafka: Kafka, live: LiveServer, partition_by: tuple[str, ...]
) -> None:
    program = go_program("iceberg-go")
    if program is None:
        pytest.skip("needs the go command (1.25 or newer) to build what reads with iceberg-go")
    table = made(kafka, live, partition_by)
    cut = live.cut(table)
    at = f"(SELECT * FROM {table} AT (VERSION => '{cut}'))"
    listed = "SELECT n, host, price, day, kafka_offset FROM {t} ORDER BY n"
    for sql, condition in GO_CONDITIONS.items():
        done = subprocess.run(
            [program, live.address, f"lake@{cut}", f"{table.schema}.{table.name}",
             json.dumps(condition) if condition else ""],
            capture_output=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()
        with pa.ipc.open_stream(done.stdout) as stream, duckdb.connect() as plain_duckdb:
            plain_duckdb.register("t", stream.read_all())
            rows = plain_duckdb.execute(listed.format(t="t")).fetchall()
        expected = live.ask(listed.format(t=f"(SELECT * FROM {at} WHERE {sql})")).to_pylist()
        assert rows == [tuple(row.values()) for row in expected], sql


@pytest.fixture(scope="module")
def live_on_s3(
    kafka: Kafka,
    lake: SparkLake,
    object_store: ObjectStore,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[LiveServer]:
    """ClickHouse reads a disk below one folder of its own only."""
    folder: Path = tmp_path_factory.mktemp("other_engines")
    catalogs = {"clickhouse": object_store.catalog(folder)}
    for key, value in catalog_conf("clickhouse", catalogs["clickhouse"]).items():
        lake.session.conf.set(key, value)
    settings = settings_of(catalogs, kafka.settings)
    settings = settings.model_copy(update={"iceberg_rest": IcebergRest(port=0)})
    with (
        contextlib.closing(IcebergStore(catalogs)) as store,
        running_server(settings) as running,
    ):
        own = dataclasses.replace(lake, catalogs=catalogs, store=store, catalog="clickhouse")
        yield LiveServer(running, settings, lake=own, own_catalog="clickhouse")


def clickhouse_reads(
    engine: OtherEngine, live: LiveServer, table: TableName, warehouse: str
) -> None:
    store = live.settings.catalogs["clickhouse"]
    bucket = str(store["warehouse"]).removeprefix("s3://").split("/")[0]
    engine.open(
        address=live.address,
        warehouse=warehouse,
        schema=table.schema,
        name=table.name,
        store=f"{store['s3.endpoint']}/{bucket}",
        key=str(store["s3.access-key-id"]),
        secret=str(store["s3.secret-access-key"]),
    )


def test_clickhouse_reads_what_flight_reads(
    kafka: Kafka,
    live_on_s3: LiveServer,
    other_engines: OtherEngines,
    partition_by: tuple[str, ...],
) -> None:
    live = live_on_s3
    table = made(kafka, live, partition_by)
    cut = live.document(table, "clickhouse")["metadata"]["properties"][LIVE_CUT]
    engine = other_engines("clickhouse")
    clickhouse_reads(engine, live, table, f"clickhouse@{cut}")
    noon = "toDateTime64('{:%Y-%m-%d %H:%M:%S}', 6, 'UTC')"
    check(live, table, cut, engine.ask, noon)
    # A table without a topic has its metadata where it lies.
    live.spark(table).sql(
        "ALTER TABLE {t} UNSET TBLPROPERTIES ('thermocline.topic', 'thermocline.watermark')"
    )
    live.refresh(table)
    clickhouse_reads(engine, live, table, "clickhouse")
    assert engine.ask("SELECT count(*), sum(n) FROM {t}") == [[100, 4950]]


@pytest.mark.parametrize("name", ["daft", "datafusion", "clickhouse"])
def test_what_a_person_has_to_look_at_reaches_who_asks(
    kafka: Kafka, live_on_s3: LiveServer, other_engines: OtherEngines, name: str
) -> None:
    live = live_on_s3
    table = made(kafka, live, ())
    with (
        live.catalog() as catalog,
        catalog.load_table((*table.namespace, table.name)).transaction() as change,
    ):
        change.set_properties({"encryption.key-id": "k"})
    live.refresh(table)
    engine = other_engines(name)
    read = clickhouse_reads if name == "clickhouse" else opened

    def ask() -> None:
        read(engine, live, table, "clickhouse")
        engine.ask("SELECT count(*) AS a FROM {t}")

    with pytest.raises(EngineError, match="its files are encrypted"):
        ask()
