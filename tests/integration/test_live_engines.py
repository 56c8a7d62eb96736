"""Stock engines over live tables: each reads what Flight reads at the same cut, and none can do harm."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyiceberg.types import StringType
from pyspark.errors import PySparkException

from planner.names import TableName
from planner.schema import Column
from proxy.rest.catalog import LiveCatalog
from tests.fixtures.kafka import Kafka
from tests.fixtures.live import LiveServer
from tests.harness.events import TYPES
from tests.harness.oracle import same

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    # Its own planner is a package of its own; without it polars plans with pyiceberg, and says so.
    pytest.mark.filterwarnings("ignore::polars.exceptions.PerformanceWarning"),
]

NOW_MS = time.time_ns() // 1_000_000
COLUMNS = (
    Column(0, "n", pa.int32()),
    Column(0, "host", pa.string()),
    Column(0, "ratio", pa.float64()),
    Column(0, "price", pa.decimal128(11, 3)),
    Column(0, "day", pa.date32()),
)
#: The same text for Spark, DuckDB and Flight.
STATEMENTS = (
    "SELECT count(*) FROM {t}",
    "SELECT min(kafka_offset), max(kafka_offset), count(kafka_offset) FROM {t}",
    "SELECT min(n), max(n), min(host), max(host), min(day), max(day) FROM {t}",
    "SELECT min(price), max(price), sum(price) FROM {t}",
    "SELECT count(*) FROM {t} WHERE host IS NULL",
    "SELECT count(*) FROM {t} WHERE ratio IS NULL",
    "SELECT count(*) FROM {t} WHERE n > 990",
    "SELECT count(*), sum(n) FROM {t} WHERE host = 'host 3'",
    "SELECT host, count(*) FROM {t} GROUP BY host ORDER BY host NULLS LAST",
    "SELECT kafka_partition, count(*), min(kafka_offset), max(kafka_offset) FROM {t} "
    "GROUP BY kafka_partition ORDER BY kafka_partition",
    "SELECT n FROM {t} WHERE kafka_offset >= 3 AND kafka_offset < 6 ORDER BY n",
    "SELECT count(*) FROM {t} a JOIN {t} b ON a.kafka_partition = b.kafka_partition "
    "AND a.kafka_offset = b.kafka_offset",
    "SELECT count(*) FROM {t} WHERE day >= DATE '2026-01-05'",
    "SELECT n, host, price, day FROM {t} WHERE n < 5 ORDER BY n",
    "SELECT DISTINCT day FROM {t} ORDER BY day NULLS LAST",
)
ALL_STATEMENTS = (
    *STATEMENTS,
    "SELECT count(DISTINCT host) FROM {t}",
    "SELECT avg(n) FROM {t} WHERE kafka_partition = 1",
    "SELECT host, max(day) FROM {t} WHERE n BETWEEN 100 AND 450 GROUP BY host HAVING count(*) > 3 "
    "ORDER BY host NULLS LAST",
    "SELECT n FROM {t} WHERE host IN ('host 1', 'host 3') AND n < 30 ORDER BY n",
    "SELECT count(*) FROM {t} WHERE NOT (n > 100) OR host IS NULL",
    "SELECT count(*) FROM {t} WHERE price > 250.125",
    "SELECT count(*) FROM {t} WHERE host LIKE 'host 2%'",
    "SELECT n, kafka_offset FROM {t} ORDER BY n DESC LIMIT 7",
    "SELECT count(*) FROM {t} WHERE kafka_timestamp IS NULL",
    "SELECT sum(CASE WHEN ratio > 0 THEN 1 ELSE 0 END) FROM {t}",
    "SELECT day, count(*), sum(n) FROM {t} GROUP BY day ORDER BY day NULLS LAST",
    "SELECT count(*) FROM (SELECT DISTINCT kafka_partition, kafka_offset FROM {t}) x",
    "SELECT n, host FROM {t} WHERE kafka_partition = 0 AND kafka_offset = 2",
    "SELECT count(*) FROM {t} WHERE day = DATE '2026-01-03' AND host = 'host 2'",
    "SELECT max(u.n), count(*) FROM (SELECT n FROM {t} WHERE n < 10 UNION ALL SELECT n FROM {t} WHERE n > 500) u",
)


def record(n: int) -> bytes:
    row = {
        "n": n,
        "host": None if n % 10 == 7 else f"host {n % 5}",
        "ratio": (0.5, "NaN", None, -1.5)[n % 4],
        "price": f"{n}.125",
        "day": str(dt.date(2026, 1, 1) + dt.timedelta(n % 9)),
    }
    return json.dumps(row).encode()


def produce(kafka: Kafka, topic: str, start: int, stop: int) -> None:
    for partition in range(2):
        own = [record(n) for n in range(start, stop) if n % 2 == partition]
        kafka.produce(topic, own, partition=partition, timestamp_ms=NOW_MS + start)


def check_engines(
    live: LiveServer,
    table: TableName,
    statements: tuple[str, ...] = STATEMENTS,
    of_duckdb: tuple[str, ...] = (),
) -> None:
    """Ask all engines, and Flight, at the cut of one load; ``of_duckdb`` not of Spark, which takes its time."""
    cut = live.cut(table)
    warehouse = f"lake@{cut}"
    at = f"{table} AT (VERSION => '{cut}')"
    spark = live.through_spark(table, warehouse)
    with live.through_duckdb(table, warehouse) as duck, live.cursor() as flight:
        for sql in statements + of_duckdb:
            alias = sql.replace("{t} a", f"(SELECT * FROM {at}) a").replace(
                "{t} b", f"(SELECT * FROM {at}) b"
            )
            flight.execute(alias.format(t=at))
            expected = flight.fetchall()
            assert duck(sql) == expected, sql
            if sql not in of_duckdb:
                assert spark(sql) == expected, sql
    rows = live.ask(f"SELECT * FROM {at} ORDER BY kafka_partition, kafka_offset")
    read = live.arrow(table, warehouse).sort_by(
        [("kafka_partition", "ascending"), ("kafka_offset", "ascending")]
    )
    for ours, theirs in zip(rows.to_pylist(), read.to_pylist(), strict=True):
        assert all(same(ours[key], theirs[key]) for key in ours), (ours, theirs)
    names = ["kafka_partition", "kafka_offset", "n", "host", "price", "day"]
    frame = live.polars(table, warehouse)
    assert frame.select(pl.len()).collect().item() == rows.num_rows
    polars = frame.select(names).sort(names[:2]).collect().rows()
    assert polars == [tuple(row[name] for name in names) for row in rows.to_pylist()]
    few = frame.filter(pl.col("n") < 50, pl.col("host") == "host 1").select("n").collect()
    assert sorted(few["n"].to_list()) == sorted(
        row["n"] for row in rows.to_pylist() if row["n"] < 50 and row["host"] == "host 1"
    )


@pytest.mark.parametrize(
    ("partition_by", "version", "of_spark"),
    [
        pytest.param(("bucket(4, n)", "day"), 3, STATEMENTS[::2], id="bucket and day"),
        pytest.param(
            ("bucket(4, n)", "day"), 2, ALL_STATEMENTS, id="version 2", marks=pytest.mark.soak
        ),
        pytest.param((), 2, ALL_STATEMENTS, id="unpartitioned", marks=pytest.mark.soak),
        pytest.param(
            ("truncate(3, host)",), 3, ALL_STATEMENTS, id="truncate", marks=pytest.mark.soak
        ),
    ],
)
def test_engines_read_what_flight_reads_while_rows_are_tiered(
    kafka: Kafka,
    live: LiveServer,
    partition_by: tuple[str, ...],
    version: int,
    of_spark: tuple[str, ...],
) -> None:
    """Tables are made with version 2; one of version 3 has deletion vectors and row ids in the end."""
    topic = kafka.topic(2)
    table = live.bind(topic, COLUMNS, partition_by=partition_by)
    produce(kafka, topic, 0, 300)
    if not partition_by:
        check_engines(live, table)  # a tail and no cold file
    produce(kafka, topic, 300, 400)
    live.tier(table)
    produce(kafka, topic, 400, 500)
    live.refresh(table)
    check_engines(
        live, table, STATEMENTS[:5]
    )  # both sides; all statements are asked in the end
    live.spark(table).sql("ALTER TABLE {t} RENAME COLUMN ratio TO quota")
    live.spark(table).sql("ALTER TABLE {t} ADD COLUMN added string")
    live.spark(table).sql("ALTER TABLE {t} ALTER COLUMN n TYPE bigint")
    live.spark(table).sql("DELETE FROM {t} WHERE n = 11")
    live.spark(table).sql("ALTER TABLE {t} RENAME COLUMN quota TO ratio")
    live.spark(table).compact()
    spark = live.through_spark(table)
    count_ids = "SELECT count(*), count(_row_id), count(DISTINCT _row_id) FROM {t}"
    if version == 3:
        live.spark(table).sql(
            "ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3', 'write.delete.mode' = 'merge-on-read')"
        )
        live.refresh(table)
        # Rows of before it was of version 3 have ids in the answer, too.
        assert spark(count_ids) == [(499, 499, 499)]
        live.spark(table).sql("DELETE FROM {t} WHERE n = 13")
    live.refresh(table)
    produce(kafka, topic, 500, 600)
    others = tuple(sql for sql in ALL_STATEMENTS if sql not in of_spark)
    check_engines(live, table, of_spark, others)
    if version == 3:
        assert spark(count_ids) == [(598, 598, 598)]
        live.tier(table)  # the next commit gives out ids that live rows had
        live.refresh(table)
        produce(kafka, topic, 600, 610)
        assert spark(count_ids) == [(608, 608, 608)]


def test_every_type_is_the_same_in_a_live_file(kafka: Kafka, live: LiveServer) -> None:
    topic = kafka.topic()
    table = live.bind(topic, [Column(0, name, kind) for name, (kind, _, _) in TYPES.items()])
    records = [{}, dict.fromkeys(TYPES)]
    records += [{name: value} for name, (_, _, items) in TYPES.items() for value in items]
    kafka.produce(topic, [json.dumps(record).encode() for record in records])

    def by_offset(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return sorted(rows, key=lambda row: row["kafka_offset"])

    spark = live.through_spark(table)
    names = [name for name in TYPES if name not in ("local", "instant", "day")]
    listed = ", ".join(f"`{name}`" for name in ("kafka_offset", *names))
    before = spark(f"SELECT {listed} FROM {{t}} ORDER BY kafka_offset")
    first = by_offset(live.arrow(table).to_pylist())
    assert len(first) == len(records)
    live.tier(table)
    live.refresh(table)
    tiered = by_offset(live.arrow(table).to_pylist())
    for one, other in zip(first, tiered, strict=True):
        different = {
            key: (one[key], other[key]) for key in one if not same(one[key], other[key])
        }
        assert not different
    after = spark(f"SELECT {listed} FROM {{t}} ORDER BY kafka_offset")
    assert all(
        same(list(map(str, a)), list(map(str, b))) for a, b in zip(before, after, strict=True)
    )


def refused(run: Callable[[], object]) -> str:
    with pytest.raises((PySparkException, Py4JJavaError)) as error:
        run()
    return str(error.value)


def test_no_write_and_no_maintenance_gets_through(kafka: Kafka, live: LiveServer) -> None:
    topic = kafka.topic(2)
    table = live.bind(topic, COLUMNS)
    produce(kafka, topic, 0, 100)
    live.tier(table)
    live.refresh(table)
    produce(kafka, topic, 100, 200)
    catalog = live.spark_catalog()
    name, session = f"{catalog}.{table.schema}.{table.name}", live.lake.session
    assert session.sql(f"SELECT count(*) FROM {name}").collect()[0][0] == 200
    before = live.files()
    location = f"'{table.schema}.{table.name}'"
    for statement in (
        f"CALL {catalog}.system.remove_orphan_files(table => {location}, "
        "older_than => TIMESTAMP '2030-01-01 00:00:00')",
        f"CALL {catalog}.system.expire_snapshots(table => {location}, "
        "older_than => TIMESTAMP '2030-01-01 00:00:00', retain_last => 1)",
        f"CALL {catalog}.system.rewrite_data_files(table => {location}, "
        "options => map('rewrite-all', 'true'))",
        f"CALL {catalog}.system.rewrite_manifests(table => {location})",
        f"INSERT INTO {name} SELECT * FROM {name} LIMIT 1",
        f"DELETE FROM {name} WHERE n = 1",
        f"UPDATE {name} SET host = 'x' WHERE n = 1",
        f"MERGE INTO {name} t USING (SELECT 1 AS n) s ON t.n = s.n WHEN MATCHED THEN DELETE",
        f"ALTER TABLE {name} ADD COLUMN other int",
        f"ALTER TABLE {name} SET TBLPROPERTIES ('gc.enabled' = 'true')",
        f"TRUNCATE TABLE {name}",
        f"DROP TABLE {name} PURGE",
        f"DROP TABLE {name}",
        f"CREATE TABLE {catalog}.{table.schema}.other (a int)",
    ):
        refused(lambda statement=statement: session.sql(statement).collect())  # type: ignore[misc]
    missing = before - live.files()
    assert not missing
    assert session.sql(f"SELECT count(*) FROM {name}").collect()[0][0] == 200
    assert live.ask(f"SELECT count(*) AS n FROM {table}")["n"].to_pylist() == [200]
    with live.through_duckdb(table) as duck:
        for statement in ("INSERT INTO {t} SELECT * FROM {t} LIMIT 1", "DROP TABLE {t}"):
            with pytest.raises(Exception, match=r"."):
                duck(statement)
        assert duck("SELECT count(*) FROM {t}") == [(200,)]
    opened = live.pyiceberg()
    loaded = opened.load_table((*table.namespace, table.name))
    for write in (
        lambda: loaded.append(loaded.scan(limit=1).to_arrow()),
        lambda: loaded.delete("n = 1"),
        lambda: opened.drop_table((*table.namespace, table.name)),
        lambda: opened.purge_table((*table.namespace, table.name)),
        lambda: loaded.maintenance.expire_snapshots().older_than(dt.datetime.now()).commit(),
        lambda: loaded.update_schema().add_column("other", StringType()).commit(),
        lambda: (
            loaded.transaction().set_properties({"gc.enabled": "true"}).commit_transaction()
        ),
        lambda: loaded.manage_snapshots().remove_tag("cold").commit(),
    ):
        with pytest.raises(Exception, match=r"write to catalog lake itself|not support"):
            write()
    opened.close()
    assert not before - live.files()


def test_the_past_stays_what_was_committed(kafka: Kafka, live: LiveServer) -> None:
    topic = kafka.topic(2)
    table = live.bind(topic, COLUMNS)
    produce(kafka, topic, 0, 100)
    live.tier(table)
    live.refresh(table)
    produce(kafka, topic, 100, 150)
    spark = live.through_spark(table)
    assert spark("SELECT count(*) FROM {t}") == [(150,)]
    later = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
    assert spark(f"SELECT count(*) FROM {{t}} TIMESTAMP AS OF '{later:%Y-%m-%d %H:%M:%S}'") == [
        (100,)
    ]
    assert spark("SELECT count(*) FROM {t} VERSION AS OF 'cold'") == [(100,)]
    assert spark("SELECT count(*) FROM {t}.snapshots")[0][0] >= 3
    assert spark("SELECT sum(record_count) FROM {t}.files") == [(150,)]
    opened = live.pyiceberg()
    loaded = opened.load_table((*table.namespace, table.name))
    past = loaded.snapshot_as_of_timestamp(int(later.timestamp() * 1000))
    assert past is not None
    assert loaded.scan(snapshot_id=past.snapshot_id).to_arrow().num_rows == 100
    opened.close()
    # The same by a warehouse, which every engine can name.
    count = "SELECT count(*) FROM {t}"
    assert live.through_spark(table, "lake@cold")(count) == [(100,)]
    with live.through_duckdb(table, "lake@cold") as duck:
        assert duck(count) == [(100,)]
    assert live.arrow(table, "lake@cold").num_rows == 100
    assert live.arrow(table, f"lake@max_staleness 1h; wait_for {topic}/0:74").num_rows == 150
    # A cut whose snapshot is expired is refused with where to read it.
    cut = live.cut(table)
    produce(kafka, topic, 150, 160)
    live.tier(table)
    live.spark(table).expire_to_one()
    live.refresh(table)
    spark = live.through_spark(table, f"lake@{cut}")
    assert "read the cut over Flight SQL" in refused(lambda: spark("SELECT * FROM {t}"))
    rows = live.ask(f"SELECT count(*) AS n FROM {table} AT (VERSION => '{cut}')")
    assert rows["n"].to_pylist() == [150]


def test_users_of_engines_are_told_our_sentence_when_the_log_lost_records(
    kafka: Kafka, live: LiveServer
) -> None:
    topic = kafka.topic(2)
    table = live.bind(topic, COLUMNS)
    produce(kafka, topic, 0, 100)
    spark = live.through_spark(table)
    spark("SELECT count(*) FROM {t}")
    kafka.delete_records(topic, 0, 10)
    began_s = time.monotonic()
    said = refused(lambda: spark("SELECT count(*) FROM {t}"))
    assert "10 offsets were removed before they were tiered" in said
    assert time.monotonic() - began_s < 5
    began_s = time.monotonic()
    with (
        live.through_duckdb(table) as duck,
        pytest.raises(Exception, match="10 offsets were removed before they were tiered"),
    ):
        duck("SELECT count(*) FROM {t}")
    assert time.monotonic() - began_s < 5
    with pytest.raises(Exception, match="removed before they were tiered"):
        live.arrow(table)


def test_an_empty_table_is_read_by_all(live: LiveServer, kafka: Kafka) -> None:
    table = live.bind(kafka.topic(2), COLUMNS)
    assert live.through_spark(table)("SELECT count(*), max(n) FROM {t}") == [(0, None)]
    with live.through_duckdb(table) as duck:
        assert duck("SELECT count(*), max(n) FROM {t}") == [(0, None)]
    assert live.arrow(table).num_rows == 0
    assert live.polars(table).select(pl.len()).collect().item() == 0


@pytest.mark.parametrize("publishes", [0, 1, pytest.param(3, marks=pytest.mark.soak)])
def test_no_row_is_streamed_twice(
    kafka: Kafka, live: LiveServer, tmp_path: Path, publishes: int
) -> None:
    topic = kafka.topic(2)
    table = live.bind(topic, COLUMNS)
    produce(kafka, topic, 0, 20)
    live.tier(table)
    live.refresh(table)
    produce(kafka, topic, 20, 40)
    name = f"{live.spark_catalog()}.{table.schema}.{table.name}"
    session, sink = live.lake.session, str(tmp_path / "sink")

    def stream() -> None:
        query = (
            session.readStream.format("iceberg")
            .load(name)
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .option("path", sink)
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination(60)
        finally:
            query.stop()

    def rows() -> list[int]:
        return sorted(row[0] for row in session.read.parquet(sink).select("n").collect())

    stream()
    assert rows() == list(range(40))
    for number in range(publishes):
        produce(kafka, topic, 40 + 10 * number, 50 + 10 * number)
        live.tier(table)
        live.refresh(table)
    produce(kafka, topic, 100, 110)
    said = refused(stream)
    assert "snapshot" in said
    assert rows() == list(range(40))


def test_what_is_one_cut_and_what_may_be_two(
    kafka: Kafka, live: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each load more records arrive, so two loads are two cuts."""
    topic = kafka.topic(2)
    table = live.bind(topic, COLUMNS)
    produce(kafka, topic, 0, 10)
    name = f"{live.spark_catalog()}.{table.schema}.{table.name}"
    session, numbers = live.lake.session, itertools.count(100, 2)
    load = LiveCatalog.load

    def after_more(catalog: LiveCatalog, *arguments: Any, **options: Any) -> Any:
        at = next(numbers)
        produce(kafka, topic, at, at + 2)
        return load(catalog, *arguments, **options)

    def count(sql: str) -> int:
        rows: int = session.sql(f"SELECT count(*) FROM {sql}").collect()[0][0]
        return rows

    def unmatched(one: str, other: str) -> int:
        """How many rows of either are not in the other: 0 where both are read at one cut."""
        return count(
            f"{one} a FULL OUTER JOIN {other} b ON a.n = b.n WHERE a.n IS NULL OR b.n IS NULL"
        )

    frame = session.table(name)
    assert frame.count() == 10
    monkeypatch.setattr(LiveCatalog, "load", after_more)
    # One statement, however often it names the table.
    assert unmatched(name, name) == 0
    assert count(f"{name} WHERE n NOT IN (SELECT n FROM {name})") == 0
    session.sql(f"CREATE TEMP VIEW later AS SELECT * FROM {name}")
    assert unmatched("later", "later") == 0
    assert unmatched("later", name) == 0
    # Two DataFrames, of which one was made earlier, in one statement.
    frame.createOrReplaceTempView("earlier")
    assert unmatched("earlier", name) == 0
    # Two statements, or two actions of one DataFrame.
    assert count(name) < count(name)
    assert count("later") < count("later")
    assert frame.count() < frame.count()
    # What is cached stays, until it is not any more.
    cached = session.table(name).cache()
    session.sql(f"CACHE TABLE kept AS SELECT * FROM {name}")
    before = cached.count(), count("kept")
    assert (cached.count(), count("kept")) == before
    cached.unpersist()
    session.sql("UNCACHE TABLE kept")
    # A cut of its own name.
    cut = live.cut(table)
    at_cut = f"{live.spark_catalog(f'lake@{cut}')}.{table.schema}.{table.name}"
    rows = session.table(at_cut).count()
    assert [session.table(at_cut).count(), count(at_cut)] == [rows, rows]
    assert count(name) > rows
