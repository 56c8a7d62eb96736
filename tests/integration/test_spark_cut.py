"""Cuts in Spark: the same answer as over Flight at the same token, one cut whatever is done with a DataFrame."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import functools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from connectors.cuts import WaitFor
from connectors.spark.lake.lake import Lake
from connectors.spark.options import LakeSettings
from connectors.spark.remote.load import ServedTails
from connectors.spark.remote.plan import ServerAddress
from connectors.spark.session_check import check_catalog, check_same_table
from planner.errors import (
    BadConfig,
    BadParameter,
    CutExpired,
    NotYetCommitted,
    UnknownTable,
    UnsupportedStatement,
)
from planner.names import TableName
from planner.ports import Log
from planner.schema import Column
from planner.seam.time_travel import parse_cut
from tests.fixtures.kafka import Kafka
from tests.fixtures.server import TieredServer, sqlite_catalog
from tests.harness.spark_rows import (
    PAYLOAD,
    bound_flows,
    over_flight,
    record,
    rows_of,
    settings_of,
)

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.fixture
def spark_lake(tiered_server: TieredServer) -> Iterator[Lake]:
    with Lake(tiered_server.lake.session, settings_of(tiered_server)) as lake:
        yield lake


@pytest.fixture
def flows(tiered_server: TieredServer, kafka: Kafka) -> tuple[TableName, str]:
    return bound_flows(tiered_server, kafka)


@pytest.fixture(scope="module")
def quiet_flows(tiered_server: TieredServer, kafka: Kafka) -> tuple[TableName, str]:
    """Of tests that change nothing and leave no view."""
    return bound_flows(tiered_server, kafka)


def test_a_cut_is_the_answer_over_flight_at_its_token(
    tiered_server: TieredServer, spark_lake: Lake, quiet_flows: tuple[TableName, str]
) -> None:
    table, _ = quiet_flows
    cut = spark_lake.at(str(table))
    frame = cut.table(str(table))
    answer = rows_of(frame)
    assert len(answer) == 60
    assert answer == over_flight(tiered_server, table, cut.token)
    assert frame.columns == tiered_server.ask(f"FROM {table} LIMIT 0").column_names
    assert cut.table(str(table), side="cold").count() == 40
    assert cut.table(str(table), side="tail").count() == 20


def test_a_token_of_flight_is_the_same_cut_in_spark(
    tiered_server: TieredServer,
    spark_lake: Lake,
    flows: tuple[TableName, str],
    kafka: Kafka,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table, topic = flows
    answer_then = tiered_server.ask(f"SELECT thermocline_cut() AS token FROM {table} LIMIT 1")
    token = answer_then.to_pylist()[0]["token"]
    assert spark_lake.at(str(table)).token == token
    kafka.produce(topic, [record(n) for n in range(30, 40)], partition=0)
    tiered_server.tier(table)
    cut = spark_lake.at(cut=token)
    assert cut.tables == (table,)
    answer = rows_of(cut.table(str(table)))
    assert len(answer) == 60
    assert answer == over_flight(tiered_server, table, token)
    # From its own snapshot while that is retained; from a newer one, bounded by offsets, when it has expired.
    (entry,), (exact,) = parse_cut(token).tables, parse_cut(cut.token).tables
    assert (exact.snapshot_id, exact.end) == (entry.snapshot_id, entry.end)
    tiered_server.spark(table).expire_to_one()
    later = spark_lake.at(str(table), cut=token)
    assert rows_of(later.table(str(table))) == answer
    (newer,) = parse_cut(later.token).tables
    assert (newer.snapshot_id != entry.snapshot_id, newer.end) == (True, entry.end)
    # The ends of many partitions are a table of their own.
    monkeypatch.setattr("connectors.spark.lake.cold.MAX_CONDITIONS", 1)
    assert rows_of(spark_lake.at(cut=token).table(str(table))) == answer


def test_columns_are_those_of_the_cut_by_field_id(
    tiered_server: TieredServer, spark_lake: Lake, flows: tuple[TableName, str], kafka: Kafka
) -> None:
    table, topic = flows
    spark = tiered_server.spark(table)
    spark.sql("ALTER TABLE {t} RENAME COLUMN host TO machine")
    spark.sql("ALTER TABLE {t} ADD COLUMN host string")
    spark.sql("ALTER TABLE {t} ALTER COLUMN id TYPE bigint")
    spark.sql("ALTER TABLE {t} RENAME COLUMN place.zip TO code")
    spark.sql("ALTER TABLE {t} ADD COLUMN place.note string")
    tiered_server.refresh(table)
    big = 2**40
    kafka.produce(
        topic, [record(big, machine="new", place={"city": "x", "code": 5})], partition=0
    )
    cut = spark_lake.at(str(table))
    answer = rows_of(cut.table(str(table)))
    assert answer == over_flight(tiered_server, table, cut.token)
    cold = [row for row in answer if row["kafka_offset"] < 20]
    assert {row["machine"] for row in cold} == {f"host-{n}" for n in range(7)}
    assert {row["host"] for row in cold} == {None}
    assert cold[3]["place"] == {"city": "c0", "code": 3, "note": None}
    assert answer[30]["id"] == big


def test_one_dataframe_is_one_cut(
    spark_lake: Lake, flows: tuple[TableName, str], kafka: Kafka
) -> None:
    table, topic = flows
    frame = spark_lake.at(str(table)).table(str(table))
    assert frame.where("id = 25").count() == 1
    kafka.produce(topic, [record(25)], partition=1)
    assert frame.count() == 60
    joined = frame.where("id = 5").alias("a").crossJoin(frame.where("id = 25").alias("b"))
    assert [(row[0], row[1]) for row in joined.select("a.id", "b.id").collect()] == [(5, 25)]
    assert frame.cache().count() == 60
    frame.unpersist()
    # Nor is anything lost with the log it was read from.
    kafka.delete_records(topic, 0, 30)
    assert frame.count() == 60
    assert frame.where("id = 25").count() == 1


def test_several_tables_are_one_cut_with_views(
    tiered_server: TieredServer, spark_lake: Lake, flows: tuple[TableName, str], kafka: Kafka
) -> None:
    table, _ = flows
    other_topic = kafka.topic(1)
    other = tiered_server.bind(other_topic, PAYLOAD, name=tiered_server.name("edr"))
    kafka.produce(other_topic, [record(n) for n in range(5)])
    cut = spark_lake.at(f"net.{table.name}", str(other))
    session = tiered_server.lake.session
    views = cut.views()
    assert views[str(table)] == table
    assert views[f"edr_{other.name}"] == other
    for frame in (
        session.sql(f"SELECT count(*) FROM `{table}` a JOIN {other.name} b ON a.id = b.id"),
        cut.sql(f"SELECT count(*) FROM {table} a JOIN {other} ON a.id = {other.name}.id"),
    ):
        kafka.produce(other_topic, [record(1)])
        assert frame.collect()[0][0] == 5
    with pytest.raises(UnsupportedStatement, match="is no table of this cut"):
        cut.sql("SELECT * FROM lake.net.nowhere")
    session.sql("USE lake.net")
    try:
        with pytest.raises(UnsupportedStatement, match="say USE spark_catalog first"):
            cut.sql(f"SELECT * FROM {other.name}")
    finally:
        session.sql("USE spark_catalog.default")
    with pytest.raises(UnsupportedStatement, match="begin begins no query"):
        cut.sql(f"begin USE lake; SELECT * FROM net.{table.name}; END")
    cut.views()
    session.range(1).createOrReplaceTempView("mine")
    session.catalog.dropTempView(other.name)
    session.range(1).createOrReplaceTempView(other.name)
    # One that was ours may be replaced, also by somebody else, and by us again.
    assert spark_lake.at(str(other)).views()


def test_a_cut_reads_no_view_of_another(
    tiered_server: TieredServer, spark_lake: Lake, flows: tuple[TableName, str], kafka: Kafka
) -> None:
    table, topic = flows
    other = tiered_server.bind(kafka.topic(1), PAYLOAD, name=tiered_server.name("edr"))
    session = tiered_server.lake.session
    first = spark_lake.at(str(table))
    first.views()
    kafka.produce(topic, [record(1)])
    second = spark_lake.at(str(table), str(other))
    count = f"SELECT count(*) FROM {table} JOIN (SELECT 1) ON {table.name}.id IS NOT NULL"
    frame = second.sql(count)
    assert first.sql(count).collect()[0][0] == 60
    assert frame.collect()[0][0] == 61
    assert session.table(table.name).count() == 60
    for name in (table.name, f"`{table}`"):
        with pytest.raises(UnsupportedStatement, match="is a view of another cut"):
            second.sql(f"SELECT * FROM {name}")
    second.views()
    assert second.sql(f"SELECT * FROM {table.name}").count() == 61
    spark_lake.at(str(other)).views()
    assert not session.catalog.tableExists(table.name)
    # Views of one statement go with it.
    listed = [each["viewName"] for each in session.sql("SHOW VIEWS").collect()]
    assert [name for name in listed if name.startswith("thermocline_")] == []
    assert other.name in listed


def test_views_of_a_session_are_not_replaced(
    spark_lake: Lake, flows: tuple[TableName, str], tiered_server: TieredServer
) -> None:
    table, _ = flows
    session = tiered_server.lake.session
    # One for all sessions has a namespace: nobody takes it for the cut's.
    session.range(2).createGlobalTempView(table.name)
    session.range(1).createTempView(table.name.upper())
    try:
        with pytest.raises(BadParameter, match=f"temporary view {table.name} of its own"):
            spark_lake.at(str(table)).views()
        assert session.table(table.name).count() == 1
        session.catalog.dropTempView(table.name)
        assert spark_lake.at(str(table)).views()
        assert session.table(table.name).count() == 60
        assert session.table(f"global_temp.{table.name}").count() == 2
    finally:
        session.catalog.dropTempView(table.name)
        session.catalog.dropGlobalTempView(table.name)


def test_views_are_made_without_a_look_at_the_tables_of_the_session(
    spark_lake: Lake, flows: tuple[TableName, str], tiered_server: TieredServer
) -> None:
    table, _ = flows
    session, broken = tiered_server.lake.session, tiered_server.name("broken")
    tiered_server.create_plain(pa.table({"id": [1]}), name=broken)
    with tiered_server.catalog() as catalog:
        location = catalog.load_table(("broken", broken.name)).metadata_location
    Path(location.removeprefix("file://")).unlink()
    session.sql("USE lake.broken")
    try:
        assert spark_lake.at(str(table)).views()
    finally:
        session.sql("USE spark_catalog.default")
        with tiered_server.catalog() as catalog:
            catalog.drop_table(("broken", broken.name))


def test_a_time_is_before_its_first_row(
    tiered_server: TieredServer, spark_lake: Lake, kafka: Kafka
) -> None:
    topic = kafka.topic(1)
    table = tiered_server.bind(topic, PAYLOAD)
    stamps = [1_000, 2_000, 3_000, 4_000]
    for number, stamp in enumerate(stamps):
        kafka.produce(topic, [record(number)], timestamp_ms=1_750_000_000_000 + stamp)
        if number == 1:
            tiered_server.tier(table)
    for ending, rows in ((1_500, 1), (3_000, 2), (3_500, 3), (9_000, 4)):
        moment = dt.datetime.fromtimestamp(1_750_000_000 + ending / 1_000, dt.UTC)
        cut = spark_lake.at(str(table), timestamp=moment)
        assert cut.table(str(table)).count() == rows
        assert over_flight(tiered_server, table, cut.token) == rows_of(cut.table(str(table)))


@pytest.mark.parametrize("way", ["small", "executors", "stored"])
def test_what_spark_compares_otherwise_is_not_left_out_of_either_side(
    way: str, tiered_server: TieredServer, kafka: Kafka
) -> None:
    """NaN is in no bounds of Parquet, and -0.0 equals 0.0, which a dictionary that has the one alone does not know."""
    topic = kafka.topic(1)
    place = pa.struct([pa.field("x", pa.float32()), pa.field("y", pa.int32())])
    columns = (Column(0, "load", pa.float64()), Column(0, "place", place))
    table = tiered_server.bind(topic, columns)
    nan, small = b'{"load": "NaN", "place": {"x": "NaN"}}', b'{"load": -0.0, "place": {"y": 1}}'
    # As many as make a dictionary worth its bytes.
    kafka.produce(topic, [nan, *[small] * 50, b'{"load": 1.5}'])
    session, settings = tiered_server.lake.session, settings_of(tiered_server)
    local_bytes = 1 << 20 if way == "small" else 0
    with Lake(session, settings, tail_local_bytes=local_bytes) as lake:
        if way == "stored":  # as on a cluster
            lake._tails = dataclasses.replace(lake._tails, folder=None)
        for _ in range(2):
            frame = lake.at(str(table)).table(str(table))
            values = [row["load"] for row in rows_of(frame)]
            assert values[1:] == [*[-0.0] * 50, 1.5]
            assert math.copysign(1, values[1]) == -1
            assert math.isnan(values[0])
            for condition in ("load = 0.0", "load >= 0.0 AND load < 1", "load IN (0.0, 7.0)"):
                assert frame.where(condition).count() == 50, condition
            # Iceberg's own reader leaves its file out: by the bounds of that there is nothing above 1.5.
            for condition in ("load > 5", "place.x > 5"):
                assert frame.where(condition).count() == 1, condition
            assert frame.where("place IS NULL").count() == 1
            tiered_server.tier(table)
        assert lake.at(str(table)).table(str(table), side="cold").count() == 52


def test_a_zero_with_a_sign_is_found_in_files_without_nan(
    tiered_server: TieredServer, spark_lake: Lake, kafka: Kafka
) -> None:
    """Statistics and dictionaries of files tell -0.0 from 0.0, which are equal to SQL."""
    topic = kafka.topic(1)
    place = pa.struct([pa.field("x", pa.float32())])
    columns = (Column(0, "load", pa.float64()), Column(0, "place", place))
    table = tiered_server.bind(topic, columns)
    kafka.produce(topic, [b'{"load": -0.0, "place": {"x": -0.0}}'] * 50)
    tiered_server.tier(table)
    kafka.produce(topic, [b'{"load": -1.5, "place": {"x": -1.5}}', b'{"load": 0.0}'] * 50)
    tiered_server.tier(table)
    frame = spark_lake.at(str(table)).table(str(table))
    for condition, rows in (
        ("load = 0.0", 100),
        ("load >= 0.0", 100),
        ("load IN (0.0, 7.0)", 100),
        ("load < -0.0", 50),
        ("load <= -0.0", 150),
        ("load = -0.0", 100),
        ("place.x = 0.0", 50),
        ("load < -1", 50),
    ):
        assert frame.where(condition).count() == rows, condition


@pytest.mark.usefixtures("compiled")
def test_what_no_filter_stands_over_is_read_in_columns(
    tiered_server: TieredServer, spark_lake: Lake, quiet_flows: tuple[TableName, str]
) -> None:
    table, _ = quiet_flows
    session = tiered_server.lake.session
    total = spark_lake.at(str(table)).table(str(table)).agg({"id": "sum"})
    # An adaptive plan shows them only once it has run.
    session.conf.set("spark.sql.adaptive.enabled", "false")
    # Rows are made of columns once, above the union: below it, each would be copied one by one.
    plan = total._jdf.queryExecution().executedPlan().toString()
    session.conf.set("spark.sql.adaptive.enabled", "true")
    assert plan.count("ColumnarToRow") == 1, plan
    assert plan.index("ColumnarToRow") < plan.index("Union"), plan


def test_a_task_of_a_shuffle_opens_one_file_not_one_for_every_partition(
    spark_lake: Lake, quiet_flows: tuple[TableName, str]
) -> None:
    """A small tail is a task of its own before a shuffle: 200 files take longer than its rows do."""
    table, _ = quiet_flows
    rows = spark_lake.at(str(table)).table(str(table))
    spark = rows.sparkSession
    adaptive = spark.conf.get("spark.sql.adaptive.enabled")
    # Without it the plan is not behind another one.
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        exchange = rows.repartition(200, "kafka_offset")._jdf.queryExecution().executedPlan()
        handle = exchange.shuffleDependency().shuffleHandle().getClass().getSimpleName()
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", adaptive or "true")
    assert handle == "SerializedShuffleHandle"


@pytest.mark.parametrize("way", ["executors", "relation", "kept in Spark", "server"])
def test_every_way_of_a_tail_gives_its_rows(
    tiered_server: TieredServer, quiet_flows: tuple[TableName, str], way: str
) -> None:
    table, _ = quiet_flows
    session = tiered_server.lake.session
    local_bytes = 1 << 20 if way in ("relation", "server") else 0
    served = ServedTails(ServerAddress.of(tiered_server.uri)) if way == "server" else None
    settings = settings_of(tiered_server)
    with Lake(session, settings, tail_local_bytes=local_bytes, served=served) as lake:
        if way == "server":  # which alone is asked
            lake._tails = dataclasses.replace(lake._tails, log=cast("Log", None))
        elif way != "executors":  # as on a cluster
            lake._tails = dataclasses.replace(lake._tails, folder=None)
        cut = lake.at(str(table))
        answer = rows_of(cut.table(str(table)))
        assert answer == over_flight(tiered_server, table, cut.token)


def test_a_session_without_the_catalog_is_told_what_it_lacks(
    tiered_server: TieredServer,
) -> None:
    properties = {**tiered_server.settings.catalogs["lake"], "s3.secret-access-key": "hush"}
    session = tiered_server.lake.session
    with pytest.raises(BadConfig) as refusal:
        check_catalog(session, "pond", {"pond": properties})
    assert "no catalog pond" in refusal.value.message
    assert "spark.sql.catalog.pond=org.apache.iceberg.spark.SparkCatalog" in (
        refusal.value.message
    )
    assert "hush" not in refusal.value.message


def test_another_table_of_the_name_is_refused(
    tiered_server: TieredServer, quiet_flows: tuple[TableName, str]
) -> None:
    table, _ = quiet_flows
    with pytest.raises(BadConfig, match="has another table of that name"):
        check_same_table(tiered_server.lake.session, table, "another-uuid")


def test_a_cut_of_another_table_of_the_name_is_refused(
    tiered_server: TieredServer, spark_lake: Lake, flows: tuple[TableName, str], kafka: Kafka
) -> None:
    table, topic = flows
    token = spark_lake.at(str(table)).token
    tiered_server.spark(table).sql("DROP TABLE {t}")
    tiered_server.bind(topic, PAYLOAD, name=table)
    with pytest.raises(CutExpired, match="was dropped and created again"):
        spark_lake.at(cut=token)


def test_a_session_without_icebergs_runtime_is_told_the_package(
    tiered_server: TieredServer, tmp_path: Path
) -> None:
    properties = sqlite_catalog(tmp_path)
    with contextlib.closing(load_catalog("dry", **properties)) as catalog:
        catalog.create_namespace("net")
        rows = pa.table({"id": [1]})
        catalog.create_table("net.plain", rows.schema).append(rows)
    session = tiered_server.lake.session
    session.conf.set("spark.sql.catalog.dry", "org.example.NoSuchCatalog")
    with (
        Lake(session, LakeSettings({"dry": properties}, {})) as lake,
        pytest.raises(BadConfig) as refusal,
    ):
        lake.at("net.plain")
    assert refusal.value.message == (
        "dry.net.plain: this Spark session has no Iceberg; start it with the package "
        "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13."
    )


def test_names_options_and_tokens_are_refused_by_name(
    tiered_server: TieredServer,
    spark_lake: Lake,
    flows: tuple[TableName, str],
    kafka: Kafka,
) -> None:
    table, topic = flows
    with pytest.raises(UnknownTable, match=f"did you mean .*{table.name}"):
        spark_lake.at(f"net.{table.name[:-1]}")
    with pytest.raises(BadParameter, match="the cut is not one a server gave out"):
        spark_lake.at(str(table), cut="c:nonsense")
    with pytest.raises(BadParameter, match="contradict"):
        spark_lake.at(str(table), cut="c:x", timestamp="2026-01-01")
    with pytest.raises(BadParameter, match="is no time"):
        spark_lake.at(str(table), timestamp="yesterday")
    cut = spark_lake.at(str(table))
    with pytest.raises(UnknownTable, match=r"this cut has no table 'lake\.net\.other'"):
        cut.table("lake.net.other")
    ahead = spark_lake.at(str(table), wait_for=f"{topic}/0:29")
    assert ahead.table(str(table)).count() == 60
    assert spark_lake.at(str(table), max_staleness="1m").token == cut.token
    tiered_server.spark(table).sql("DROP TABLE {t}")
    with pytest.raises((CutExpired, UnknownTable)):
        spark_lake.at(str(table), cut=cut.token)


def test_a_record_that_never_comes_is_waited_for_in_vain(
    spark_lake: Lake, quiet_flows: tuple[TableName, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table, topic = quiet_flows
    brief = functools.partial(WaitFor, limit_s=0.3)
    monkeypatch.setattr("connectors.spark.lake.lake.WaitFor", brief)
    with pytest.raises(NotYetCommitted):
        spark_lake.at(str(table), wait_for=f"{topic}/0:1000")
