"""What an engine cannot do with a live table: write, maintain, stream a row twice, be told a store."""

from __future__ import annotations

import contextlib
import datetime as dt
from pathlib import Path

import duckdb
import pytest
from pyiceberg.types import StringType

from tests.fixtures.kafka import Kafka
from tests.fixtures.live import LiveServer
from tests.harness.live_rows import COLUMNS, produce, refused

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]


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
        for statement in (
            "INSERT INTO {t} SELECT * FROM {t} LIMIT 1",
            "DELETE FROM {t} WHERE n = 1",
            "UPDATE {t} SET host = 'x' WHERE n = 1",
            "MERGE INTO {t} t USING (SELECT 1 AS n) s ON t.n = s.n WHEN MATCHED THEN DELETE",
            "ALTER TABLE {t} ADD COLUMN other INTEGER",
            "ALTER TABLE {t} RENAME TO other",
            "CREATE TABLE {t}_copy AS SELECT * FROM {t}",
            "DROP TABLE {t}",
        ):
            with pytest.raises(duckdb.Error):
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


@pytest.mark.parametrize(
    "publishes", [1, *(pytest.param(count, marks=pytest.mark.soak) for count in (0, 3))]
)
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

    for _ in range(2):  # the second time nothing is new
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


def test_no_job_goes_on_from_a_live_snapshot(kafka: Kafka, live: LiveServer) -> None:
    """Jobs that remember where they ended: before a publish and after it."""
    topic = kafka.topic(2)
    table = live.bind(topic, COLUMNS)
    produce(kafka, topic, 0, 20)
    live.tier(table)
    live.refresh(table)
    produce(kafka, topic, 20, 40)
    metadata = live.document(table)["metadata"]
    last, cold = metadata["current-snapshot-id"], metadata["refs"]["cold"]["snapshot-id"]
    name = f"{live.spark_catalog()}.{table.schema}.{table.name}"

    def in_spark(after: int) -> list[int]:
        rows = live.lake.session.read.option("start-snapshot-id", after).table(name)
        return sorted(row[0] for row in rows.select("n").collect())

    def in_pyiceberg(after: int) -> list[int]:
        with contextlib.closing(live.pyiceberg()) as catalog:
            loaded = catalog.load_table((*table.namespace, table.name))
            scan = loaded.incremental_append_scan(from_snapshot_id_exclusive=after)
            return sorted(scan.to_arrow()["n"].to_pylist())

    for read in (in_spark, in_pyiceberg):
        assert read(cold) == list(range(20, 40))
    for is_tiered in (False, True):
        produce(kafka, topic, 40, 60)
        if is_tiered:
            live.tier(table)
            live.refresh(table)
        refused(lambda: in_spark(last))
        with pytest.raises(ValueError, match=str(last)):
            in_pyiceberg(last)
        with live.through_duckdb(table) as duck, pytest.raises(duckdb.Error, match=str(last)):
            duck(f"SELECT count(*) FROM {{t}} AT (VERSION => {last})")


def test_what_a_table_says_of_stores_reaches_no_engine(kafka: Kafka, live: LiveServer) -> None:
    topic = kafka.topic(2)
    table = live.bind(topic, COLUMNS)
    produce(kafka, topic, 0, 10)
    evil = {
        "io-impl": "org.example.Elsewhere",
        "py-io-impl": "os.system",
        "s3.endpoint": "http://127.0.0.1:9",
        "warehouse": "file:///elsewhere",
    }
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in evil.items())
    live.spark(table).sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({listed})")
    live.tier(table)
    live.refresh(table)
    produce(kafka, topic, 10, 20)
    document = live.document(table)
    assert document["config"] == {}
    assert not evil.keys() & document["metadata"]["properties"].keys()
    count = "SELECT count(*) FROM {t}"
    assert live.through_spark(table)(count) == [(20,)]
    with live.through_duckdb(table) as duck:
        assert duck(count) == [(20,)]
    assert live.arrow(table).num_rows == 20
    # Nor do Spark's own catalogs, over which rows are tiered, heed it.
    assert [tuple(row) for row in live.spark(table).sql(count)] == [(10,)]
