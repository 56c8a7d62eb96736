"""Where a stream begins, what a batch that is read again has, and what ends a query: by its reader alone, in this process.

Spark asks the same calls in processes of its own, which ``test_spark_source.py`` and ``test_spark_stream_kills.py`` have.
"""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest

from connectors.spark.errors import unpack
from connectors.spark.lake.stream import MAX_OFFSETS, LakeStream
from connectors.spark.maintenance.target import SparkMaintenance
from planner.errors import (
    BadParameter,
    FederationError,
    LogTruncated,
    TailGap,
    TopicRecreated,
)
from planner.maintenance.steps import RowExpiry
from planner.names import TableName
from planner.offsets import OffsetVector
from planner.seam.boundary import RetentionBoundary
from planner.seam.incremental import format_position
from planner.seam.spark_stream import StreamOffset
from tests.fixtures.kafka import Kafka
from tests.fixtures.server import TieredServer
from tests.harness.spark_rows import PAYLOAD, bound_flows, record, settings_of, source_of

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.fixture
def flows(tiered_server: TieredServer, kafka: Kafka) -> tuple[TableName, str]:
    return bound_flows(tiered_server, kafka)


def stream_of(server: TieredServer, table: TableName, **options: str) -> LakeStream:
    """As Spark makes one: for a query that starts, or that goes on."""
    source = source_of(settings_of(server), table=str(table), **options)
    stream = source.streamReader(source.schema())  # type: ignore[arg-type]
    assert isinstance(stream, LakeStream)
    return stream


def rows(
    stream: LakeStream, start: dict[str, Any], end: dict[str, Any]
) -> dict[tuple[int, int], dict[str, Any]]:
    """The records of a batch by their place; none of them is there twice."""
    read = [
        row
        for share in stream.partitions(start, end)
        for batch in stream.read(share)
        for row in batch.to_pylist()
    ]
    by_location = {(row["kafka_partition"], row["kafka_offset"]): row for row in read}
    assert len(by_location) == len(read)
    return by_location


def refusal(ask: Any) -> FederationError:
    with pytest.raises(RuntimeError) as error:
        ask()
    ours = unpack(str(error.value))
    assert ours is not None, error.value
    return ours


def test_a_beginning_is_an_offset_vector_or_a_word(
    tiered_server: TieredServer, flows: tuple[TableName, str], kafka: Kafka
) -> None:
    table, topic = flows
    token = tiered_server.ask(f"SELECT thermocline_cut() AS t FROM {table} LIMIT 1")
    cut = stream_of(tiered_server, table)._cut()
    position = format_position([cut])
    for where, count in (
        ("beginning", 60),
        (token["t"][0].as_py(), 0),
        (position, 0),
        ("since:2020-01-01T00:00:00Z", 60),
        ("since:2999-01-01T00:00:00Z", 0),
    ):
        stream = stream_of(tiered_server, table, startingPosition=where)
        start, end = stream.initialOffset(), stream.latestOffset()
        assert json.dumps(start) == json.dumps(stream.initialOffset())
        assert end["next"] == [[0, 30], [1, 30]]
        assert len(rows(stream, start, end)) == count, where
        stream.stop()
    now = stream_of(tiered_server, table, startingPosition="now")
    start, end = now.initialOffset(), now.latestOffset()
    kafka.produce(topic, [record(900)], partition=1)
    # The first batch says where the stream stands, and has no rows.
    assert rows(now, start, end) == {}
    later = now.latestOffset()
    assert set(rows(now, end, later)) == {(1, 30)}
    assert stream_of(tiered_server, table)._options.max_offsets == MAX_OFFSETS == 2_000_000


def test_a_beginning_that_is_none_is_refused(
    tiered_server: TieredServer, flows: tuple[TableName, str], kafka: Kafka
) -> None:
    table, _ = flows
    other = tiered_server.bind(kafka.topic(1), PAYLOAD)
    foreign = format_position([stream_of(tiered_server, other)._cut()])
    for where, words in (
        ("tomorrow", "'tomorrow' is no startingPosition"),
        (foreign, "the position is of a statement without this table"),
        ("c:nonsense", "the cut is not one a server gave out"),
        ("p:nonsense", "the position is not one this server gave out"),
    ):
        error = refusal(stream_of(tiered_server, table, startingPosition=where).initialOffset)
        assert isinstance(error, BadParameter)
        assert words in error.message


def test_rows_that_were_changed_before_a_batch_is_repeated_come_as_they_are_now(
    tiered_server: TieredServer,
    flows: tuple[TableName, str],
    kafka: Kafka,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tiering and retention change nothing of a batch; somebody who changes cold rows in between does."""
    table, topic = flows
    stream = stream_of(tiered_server, table)
    start, end = stream.initialOffset(), stream.latestOffset()
    before = rows(stream, start, end)
    assert len(before) == 60
    kafka.produce(topic, [record(901)], partition=0)
    tiered_server.tier(table)
    for partition in (0, 1):
        kafka.delete_records(topic, partition, 30)
    stream.stop()
    again = stream_of(tiered_server, table)
    assert len(again.partitions(start, end)) > 1
    assert rows(again, start, end) == before
    # Files share tasks where there are more than tasks.
    monkeypatch.setattr("connectors.spark.lake.tasks.MAX_SHARES", 1)
    assert len(again.partitions(start, end)) == 1
    assert rows(again, start, end) == before
    spark = tiered_server.spark(table)
    spark.sql("DELETE FROM {t} WHERE id = 3")
    spark.sql("UPDATE {t} SET host = 'changed' WHERE id = 104")
    repeated = rows(stream_of(tiered_server, table), start, end)
    assert set(before) - set(repeated) == {(0, 3)}
    assert repeated.pop((1, 4))["host"] == "changed"
    assert all(before[place] == row for place, row in repeated.items())


def test_rows_that_aged_out_and_late_ones_are_in_no_batch(
    tiered_server: TieredServer, flows: tuple[TableName, str], kafka: Kafka
) -> None:
    """By ``seen_at``, in cold and in the tail, whichever of the two a batch is read from."""
    table, topic = flows
    stream = stream_of(tiered_server, table)
    start, end = stream.initialOffset(), stream.latestOffset()
    before = rows(stream, start, end)
    schema = tiered_server.lake.store.pin(table).schema
    [column] = [each for each in schema.columns if each.name == "seen_at"]
    limit = dt.datetime(2026, 11, 24, 8, 5, tzinfo=dt.UTC)
    boundary = RetentionBoundary(column.field_id, int(limit.timestamp()) * 1_000_000)
    spark = tiered_server.spark(table)
    SparkMaintenance(spark.session, table, lambda _: ()).take(RowExpiry(boundary, column))
    left = {place: row for place, row in before.items() if row["seen_at"] >= limit}
    gone = sorted(set(before) - set(left))
    assert gone == [*((0, at) for at in range(5)), *((1, at) for at in range(20, 25))]
    again = stream_of(tiered_server, table)
    assert rows(again, start, end) == left
    kafka.produce(topic, [record(4), record(30)], partition=0)
    later = again.latestOffset()
    (new,) = rows(again, end, later)
    assert new == (0, 31)
    sql = f"SELECT kafka_partition AS p, kafka_offset AS o FROM {table} ORDER BY ALL"
    everything = sorted((*left, new))
    for _ in range(2):
        tiered_server.refresh(table)
        answer = tiered_server.ask(sql)
        assert (
            list(zip(answer["p"].to_pylist(), answer["o"].to_pylist(), strict=True))
            == everything
        )
        assert set(rows(stream_of(tiered_server, table), start, later)) == set(everything)
        assert tiered_server.tier(table).outcomes.expired in (6, 0)
    assert len(spark.sql("SELECT * FROM {t}")) == len(everything)


def test_a_gap_and_a_log_that_lost_records_end_the_query(
    tiered_server: TieredServer, flows: tuple[TableName, str], kafka: Kafka
) -> None:
    table, topic = flows
    stream = stream_of(tiered_server, table)
    start, end = stream.initialOffset(), stream.latestOffset()
    ahead = StreamOffset(end["topic"], OffsetVector.of([(0, 5_000)])).document
    for first, last in ((end, ahead), (ahead, ahead)):
        error = refusal(lambda first=first, last=last: stream.partitions(first, last))
        assert isinstance(error, LogTruncated)
    gone = stream_of(tiered_server, table)
    kafka.delete_records(topic, 0, 25)
    for ask in (gone.latestOffset, lambda: gone.partitions(start, end)):
        error = refusal(ask)
        assert isinstance(error, TailGap)
        assert "20" in error.message


def test_a_checkpoint_of_something_else_is_refused(
    tiered_server: TieredServer, flows: tuple[TableName, str], kafka: Kafka
) -> None:
    table, _ = flows
    stream = stream_of(tiered_server, table)
    start, end = stream.initialOffset(), stream.latestOffset()
    other, _ = bound_flows(tiered_server, kafka)
    of_other = stream_of(tiered_server, other)
    # Of another table: its topic has another id.
    assert isinstance(refusal(lambda: of_other.partitions(start, end)), TopicRecreated)
    for document in ({**end, "v": 2}, {"sourceVersion": 1, "0": 17}):
        error = refusal(lambda document=document: stream.partitions(document, document))
        assert isinstance(error, BadParameter)
        assert "start the query with a new one" in error.message


def test_columns_that_are_new_come_after_a_restart(
    tiered_server: TieredServer, flows: tuple[TableName, str], kafka: Kafka
) -> None:
    table, topic = flows
    stream = stream_of(tiered_server, table)
    end = stream.latestOffset()
    tiered_server.spark(table).sql("ALTER TABLE {t} ADD COLUMN note string")
    kafka.produce(topic, [record(902, note="new")], partition=0)
    (row,) = rows(stream, end, stream_of(tiered_server, table).latestOffset()).values()
    assert "note" not in row
    again = stream_of(tiered_server, table)
    (row,) = rows(again, end, again.latestOffset()).values()
    assert row["note"] == "new"
