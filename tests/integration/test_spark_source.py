"""The registered source: one load is one cut, options are checked, and its stream delivers every record once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceReader, EqualTo, Filter
from pyspark.sql.streaming.query import StreamingQuery

from connectors.spark.errors import unpack
from connectors.spark.lake.source import source_class
from planner.errors import BadParameter, TopicRecreated, UnknownTable, UnknownTopic
from planner.names import TableName
from planner.seam.formats import JsonFormat
from tests.fixtures.kafka import Kafka
from tests.fixtures.server import TieredServer
from tests.harness.spark_rows import (
    PAYLOAD,
    bound_flows,
    in_order,
    over_flight,
    read_here,
    record,
    rows_of,
    settings_of,
    source_of,
)

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.fixture
def session(tiered_server: TieredServer) -> SparkSession:
    spark = tiered_server.lake.session
    spark.dataSource.register(source_class(settings_of(tiered_server)))
    return spark


@pytest.fixture
def flows(tiered_server: TieredServer, kafka: Kafka) -> tuple[TableName, str]:
    return bound_flows(tiered_server, kafka)


def loaded(session: SparkSession, table: TableName, **options: Any) -> DataFrame:
    reader = session.read.format("thermocline").option("table", str(table))
    for key, value in options.items():
        reader = reader.option(key, value)
    return reader.load()


def test_one_load_is_one_cut(
    session: SparkSession,
    tiered_server: TieredServer,
    flows: tuple[TableName, str],
    kafka: Kafka,
) -> None:
    table, topic = flows
    token = tiered_server.ask(f"SELECT thermocline_cut() AS t FROM {table} LIMIT 1")
    frame = loaded(session, table)
    assert frame.where("id = 25").count() == 1
    kafka.produce(topic, [record(25)])
    assert frame.count() == 60
    # With pushed filters both sides would have the rows of the first filter (PySpark 4.1).
    joined = frame.where("id = 5").alias("a").crossJoin(frame.where("id = 25").alias("b"))
    assert [tuple(row) for row in joined.select("a.id", "b.id").collect()] == [(5, 25)]
    text = token.to_pylist()[0]["t"]
    assert rows_of(frame) == over_flight(tiered_server, table, text)
    assert loaded(session, table, cut=text).count() == 60


def test_filters_that_a_source_takes_are_those_of_another_action(
    session: SparkSession, tiered_server: TieredServer, flows: tuple[TableName, str]
) -> None:
    """Why ours takes none. Where this fails, Spark has mended it: then the source may have its filters pushed."""
    ours = source_class(settings_of(tiered_server))

    class Pushing(DataSourceReader):
        def __init__(self, reader: Any) -> None:
            self.reader = reader
            self.ids: list[int] = []

        def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
            for each in filters:
                if isinstance(each, EqualTo) and each.attribute == ("id",):
                    self.ids.append(each.value)
                else:
                    yield each

        def partitions(self) -> Any:
            return self.reader.partitions()

        def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
            for batch in self.reader.read(partition):
                yield batch.filter(pc.is_in(batch["id"], pa.array(self.ids, pa.int32())))

    class PushingSource(ours):  # type: ignore[valid-type, misc]
        @classmethod
        def name(cls) -> str:
            return "pushing"

        def reader(self, schema: Any) -> DataSourceReader:
            return Pushing(super().reader(schema))

    session.dataSource.register(PushingSource)
    session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = session.read.format("pushing").option("table", str(flows[0])).load()
        joined = frame.where("id = 5").alias("a").crossJoin(frame.where("id = 25").alias("b"))
        pairs = [tuple(row) for row in joined.select("a.id", "b.id").collect()]
    finally:
        session.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert pairs != [(5, 25)]


def test_columns_and_sides_are_chosen(
    session: SparkSession, tiered_server: TieredServer, flows: tuple[TableName, str]
) -> None:
    table, _ = flows
    chosen = loaded(session, table, columns="host, kafka_offset")
    assert chosen.columns == ["host", "kafka_offset"]
    assert chosen.count() == 60
    assert loaded(session, table, side="cold").count() == 40
    assert loaded(session, table, side="tail").count() == 20
    session.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW chosen USING thermocline OPTIONS (table '{table}', columns 'id')"
    )
    assert session.sql("SELECT count(id) FROM chosen").collect()[0][0] == 60
    # Row deletes are applied, by the engine's own scan.
    tiered_server.spark(table).sql(
        "ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')"
    )
    tiered_server.spark(table).sql("DELETE FROM {t} WHERE id = 3")
    assert loaded(session, table).count() == 59


#: Each is true of some rows of both sides, and means the same in the server's SQL and in Spark's.
FILTERS = (
    "id > 15",
    "NOT (host = 'host-1' OR id IN (3, 25))",
    "load > 5.5 AND kafka_partition = 1",
    "seen_at >= '2026-11-24 08:10:00+00:00'",
    "kafka_offset BETWEEN 5 AND 24 OR ID <= 2.0",
    "host <> 'host-2' AND place IS NOT NULL",
    "upper(host) = 'HOST-1' OR place.zip > 20",
)


def test_a_filter_is_exact_on_both_sides(
    session: SparkSession, tiered_server: TieredServer, kafka: Kafka
) -> None:
    """As Spark itself says it, also of NULL and of NaN, and wherever a row is."""
    topic = kafka.topic(2)
    table = tiered_server.bind(topic, PAYLOAD, format=JsonFormat("lenient"))
    odd = [b'{"id": null, "load": "NaN"}', b'{"id": 16, "load": -0.0}', record(25)]
    for start in (0, 20):
        values = [record(n) for n in range(start, start + 17)] + odd
        kafka.produce(topic, values, partition=0)
        kafka.produce(topic, values, partition=1)
        if start == 0:
            tiered_server.tier(table)
    tiered_server.refresh(table)
    whole = loaded(session, table).cache()
    options = {"table": str(table), "columns": "kafka_partition, kafka_offset"}
    assert loaded(session, table, filter=FILTERS[0]).count() == whole.where(FILTERS[0]).count()
    for condition in FILTERS:
        expected = in_order(whole.where(condition).select(*PLACES).toArrow())
        rows = read_here(settings_of(tiered_server), filter=condition, **options)
        assert sorted(rows, key=lambda row: tuple(row.values())) == expected, condition
        assert 0 < len(expected) < 80
    whole.unpersist()


PLACES = ("kafka_partition", "kafka_offset")


def test_a_load_says_how_new_it_is(
    tiered_server: TieredServer, flows: tuple[TableName, str], kafka: Kafka
) -> None:
    table, topic = flows
    kafka.produce(topic, [record(77)], partition=0)
    settings = settings_of(tiered_server)
    counts = [
        len(read_here(settings, table=str(table), **options))
        for options in (
            {"freshness": "cold"},
            {"freshness": "tail"},
            {"freshness": "max_staleness 5s"},
            {"wait_for": f"{topic}/0:30"},
        )
    ]
    assert counts == [40, 21, 61, 61]


def test_options_are_refused_by_name(
    session: SparkSession, tiered_server: TieredServer, flows: tuple[TableName, str]
) -> None:
    table, _ = flows
    settings = settings_of(tiered_server)
    with pytest.raises(PySparkException) as refusal:
        loaded(session, TableName("lake", ("net",), f"{table.name}x"))
    assert isinstance(unpack(str(refusal.value)), UnknownTable)
    with pytest.raises(PySparkException) as refusal:
        loaded(session, table, startingPosition="now").count()
    error = unpack(str(refusal.value))
    assert isinstance(error, BadParameter)
    assert "option startingposition is unknown here" in error.message
    for options, words in (
        ({"filter": "`host` = 'A'"}, "write double quotes around names"),
        ({"filtre": "id = 1"}, "did you mean filter"),
        ({"freshness": "fresh"}, "'fresh' is no freshness"),
        ({"freshness": "cold", "side": "tail"}, "freshness and side contradict each other"),
        ({"side": "cold", "wait_for": f"{table.name}/0:1"}, "leave the option wait_for out"),
        ({"query": "SELECT 1"}, "add the option server"),
        ({"token": "x"}, "token is for a server"),
    ):
        with pytest.raises(RuntimeError, match=words):
            source_of(settings, table=str(table), **options).schema()
    with pytest.raises(PySparkException, match=r"leave \.schema"):
        session.read.format("thermocline").schema("n int").option(
            "table", str(table)
        ).load().count()
    with pytest.raises(PySparkException, match="loses its options"):
        session.sql(f"CREATE TABLE kept USING thermocline OPTIONS (table '{table}')")


class Stream:
    """A query into Parquet files, and what they hold."""

    def __init__(self, session: SparkSession, table: TableName, folder: Path) -> None:
        self.session = session
        self.table = table
        self.folder = folder

    def run(self, **options: Any) -> None:
        """Process what there is, and stop."""
        query = self.start(**options)
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    def start(self, **options: Any) -> StreamingQuery:
        reader = self.session.readStream.format("thermocline").option("table", str(self.table))
        for key, value in options.items():
            reader = reader.option(key, value)
        return (
            reader.load()
            .writeStream.format("parquet")
            .option("path", str(self.folder / "rows"))
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .start()
        )

    def rows(self) -> list[dict[str, Any]]:
        return in_order(self.session.read.parquet(str(self.folder / "rows")).toArrow())

    def batches(self) -> list[str]:
        folder = self.folder / "checkpoint" / "offsets"
        return sorted(
            (file.name for file in folder.iterdir() if not file.name.startswith(".")), key=int
        )


@pytest.fixture
def stream(
    session: SparkSession, flows: tuple[TableName, str], tmp_path: Path
) -> Iterator[Stream]:
    yield Stream(session, flows[0], tmp_path)
    for query in session.streams.active:
        query.stop()


def test_a_stream_begins_with_the_bounded_answer_and_goes_on(
    stream: Stream, tiered_server: TieredServer, flows: tuple[TableName, str], kafka: Kafka
) -> None:
    table, topic = flows
    stream.run()
    everything = tiered_server.ask(f"FROM {table}")
    assert stream.rows() == in_order(everything)
    kafka.produce(topic, [record(n) for n in range(500, 510)], partition=1)
    # What it has not seen is tiered, and gone from the log.
    tiered_server.tier(table)
    for partition, end in ((0, 30), (1, 40)):
        kafka.delete_records(topic, partition, end)
    tiered_server.refresh(table)
    kafka.add_partitions(topic, 3)
    # A producer that knows the topic goes on to believe in two.
    kafka.produce(
        topic, [record(n) for n in range(900, 905)], partition=2, producer=kafka.producer()
    )
    stream.run()
    assert stream.rows() == in_order(tiered_server.ask(f"FROM {table}"))
    assert len(stream.rows()) == 75


def test_a_batch_that_is_repeated_comes_from_cold(
    stream: Stream, tiered_server: TieredServer, flows: tuple[TableName, str], kafka: Kafka
) -> None:
    """A crash between a batch's rows and its commit; then everything is tiered and the log is emptied."""
    table, topic = flows
    stream.run(maxOffsetsPerTrigger=16)
    before = stream.rows()
    batches = stream.batches()
    assert len(batches) == 4
    for folder in ("checkpoint/commits", "rows/_spark_metadata"):
        for name in (batches[-1], f".{batches[-1]}.crc"):
            (stream.folder / folder / name).unlink(missing_ok=True)
    tiered_server.tier(table)
    for partition in (0, 1):
        kafka.delete_records(topic, partition, 30)
    kafka.produce(topic, [record(700)])
    stream.run(maxOffsetsPerTrigger=16)
    assert stream.rows()[:30] == before[:30]
    assert len(stream.rows()) == 61
    assert stream.rows() == in_order(tiered_server.ask(f"FROM {table}"))


def test_two_streams_from_one_checkpoint_agree(
    stream: Stream,
    session: SparkSession,
    tiered_server: TieredServer,
    flows: tuple[TableName, str],
    kafka: Kafka,
    tmp_path: Path,
) -> None:
    """One reads on from the log; the other a day later, when all of it is tiered, compacted and gone from the log."""
    table, topic = flows
    stream.run(maxOffsetsPerTrigger=16)
    later = Stream(session, table, tmp_path / "later")
    shutil.copytree(stream.folder / "checkpoint", later.folder / "checkpoint")
    kafka.produce(topic, [record(n) for n in range(700, 712)], partition=0)
    stream.run(maxOffsetsPerTrigger=16)
    tiered_server.tier(table)
    tiered_server.spark(table).compact()
    for partition, end in ((0, 42), (1, 30)):
        kafka.delete_records(topic, partition, end)
    later.run(maxOffsetsPerTrigger=5)
    # The sink's own list has the first one's batches, too, which went elsewhere.
    files = [str(file) for file in (later.folder / "rows").glob("*.parquet")]
    tables = [pq.read_table(file, coerce_int96_timestamp_unit="us") for file in files]
    delivered = in_order(pa.concat_tables(tables))
    assert [row["id"] for row in delivered] == list(range(700, 712))
    names = ("kafka_partition", "kafka_offset", "id", "host", "load", "place")
    expected = [row for row in stream.rows() if row["id"] >= 700]
    assert [[row[name] for name in names] for row in delivered] == [
        [row[name] for name in names] for row in expected
    ]


@pytest.mark.parametrize(
    "way", ["now", *(pytest.param(way, marks=pytest.mark.soak) for way in ("cut", "since"))]
)
def test_a_stream_begins_where_it_is_told(
    stream: Stream,
    tiered_server: TieredServer,
    flows: tuple[TableName, str],
    kafka: Kafka,
    way: str,
) -> None:
    table, topic = flows
    start, expected = "now", 3
    if way == "cut":
        answer = tiered_server.ask(f"SELECT thermocline_cut() AS t FROM {table} LIMIT 1")
        start = answer.to_pylist()[0]["t"]
        kafka.produce(topic, [record(800)], partition=1)
        expected = 4
    elif way == "since":
        stamps = tiered_server.ask(
            f"SELECT epoch_us(kafka_timestamp) AS t FROM {table} WHERE kafka_partition = 1 AND kafka_offset = 10"
        )
        start = f"since:{stamps.to_pylist()[0]['t']}"
        counted = tiered_server.ask(
            f"SELECT kafka_partition AS p, min(kafka_offset) AS first FROM {table} "
            f"WHERE epoch_us(kafka_timestamp) >= {start.removeprefix('since:')} GROUP BY ALL"
        )
        expected = 3 + sum(30 - row["first"] for row in counted.to_pylist())
    query = stream.start(startingPosition=start)
    query.processAllAvailable()
    kafka.produce(topic, [record(n) for n in range(600, 603)])
    query.processAllAvailable()
    query.stop()
    assert len(stream.rows()) == expected
    assert [row["id"] for row in stream.rows() if row["id"] >= 600][:3] == [600, 601, 602]


def test_columns_of_a_stream_are_those_of_its_start(
    stream: Stream, tiered_server: TieredServer, flows: tuple[TableName, str], kafka: Kafka
) -> None:
    table, topic = flows
    query = stream.start()
    query.processAllAvailable()
    tiered_server.spark(table).sql("ALTER TABLE {t} RENAME COLUMN host TO machine")
    kafka.produce(topic, [record(650)])
    tiered_server.tier(table)
    kafka.produce(topic, [record(651)])
    query.processAllAvailable()
    query.stop()
    rows = {row["id"]: row["host"] for row in stream.rows()}
    assert (len(rows), rows[650], rows[651]) == (62, "host-6", "host-0")
    assert PAYLOAD[1].name == "host"


def test_a_recreated_topic_ends_the_query(
    stream: Stream, flows: tuple[TableName, str], kafka: Kafka
) -> None:
    _, topic = flows
    query = stream.start()
    query.processAllAvailable()
    kafka.delete_topic(topic)
    kafka.topic(2, name=topic)
    with pytest.raises(StreamingQueryException) as refusal:
        query.processAllAvailable()
    # A query that looks in between sees no topic at all.
    assert isinstance(unpack(str(refusal.value)), TopicRecreated | UnknownTopic)
