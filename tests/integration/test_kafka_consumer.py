"""A consumer's columns hold the records as they were written, whatever is on the log."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from connectors.kafka.consumer import ConsumerPool, timestamps
from connectors.kafka.log import KafkaLog
from planner.offsets import OffsetRange
from planner.ports import TopicSource
from tests.fixtures.fake_broker import TOPIC, FakeBroker
from tests.fixtures.kafka import Kafka


@pytest.mark.kafka
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_come_as_they_were_written(kafka: Kafka, codec: str) -> None:
    chance = random.Random(3)
    topic = kafka.topic(3)
    producer = kafka.producer(compression_type=codec, batch_size=4_000)
    sizes = (0, 1, 30, 200, 5_000)
    written = {}
    for partition in range(3):
        values = [
            None if chance.random() < 0.1 else chance.randbytes(chance.choice(sizes))
            for _ in range(500)
        ]
        keys = [None if chance.random() < 0.3 else chance.randbytes(5) for _ in values]
        kafka.produce(topic, values, partition=partition, keys=keys, producer=producer)
        written[partition] = (values, keys)
    ranges = [OffsetRange(partition, 0, 500) for partition in range(3)]
    with KafkaLog(kafka.settings) as log:
        for with_key in (False, True):
            batches = list(
                log.fetch(TopicSource(topic, with_key=with_key), ranges, timeout_s=30)
            )
            for batch in batches:
                batch.validate(full=True)
            table = pa.Table.from_batches(batches)
            for partition, (values, keys) in written.items():
                rows = table.filter(pa.compute.equal(table["kafka_partition"], partition))
                assert rows["kafka_offset"].to_pylist() == list(range(500))
                assert rows["kafka_value"].to_pylist() == values
                assert rows["kafka_key"].to_pylist() == (keys if with_key else [None] * 500)


def test_an_unfinished_fetch_leaves_nothing_for_the_next(
    fake_broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.kafka.fetch.BATCH_ROWS", 4)
    fake_broker.script.add(0, [(at, b"value") for at in range(100)])
    with KafkaLog({"bootstrap.servers": fake_broker.bootstrap}) as log:
        unfinished = log.fetch(TopicSource(TOPIC), [OffsetRange(0, 0, 90)], timeout_s=10)
        assert next(unfinished).column("kafka_offset").to_pylist() == [0, 1, 2, 3]
        unfinished.close()
        again = log.fetch(TopicSource(TOPIC), [OffsetRange(0, 50, 53)], timeout_s=10)
        offsets = [at for batch in again for at in batch.column("kafka_offset").to_pylist()]
        assert offsets == [50, 51, 52]


@pytest.mark.parametrize("limit", [1, 2, 511, 513, 700, 1_025, 5_000])
def test_a_batch_has_all_that_is_there_up_to_its_limit(
    fake_broker: FakeBroker, limit: int
) -> None:
    # Messages come by 512: no number of them may lose, repeat or reorder a record.
    fake_broker.script.add(0, [(at, b"%d" % at) for at in range(1_500)])
    pool = ConsumerPool({"bootstrap.servers": fake_broker.bootstrap})
    offsets: list[int] = []
    with pool.assigned(TopicSource(TOPIC), [OffsetRange(0, 0, 1_500)]) as consumer:
        while len(offsets) < 1_500:
            batch = consumer.take(5, limit, with_key=False)
            assert batch
            assert batch.records.num_rows + len(batch.events) <= limit
            numbers = batch.records.column("kafka_offset").to_pylist()
            assert batch.records.column("kafka_value").to_pylist() == [
                b"%d" % at for at in numbers
            ]
            offsets += numbers
    pool.close()
    assert offsets == list(range(1_500))


def test_times_of_a_batch_are_microseconds() -> None:
    largest = (2**63 - 1) // 1000
    times = timestamps([0, 1_767_225_600_123, largest])
    assert times.type == pa.timestamp("us", "UTC")
    assert times.cast(pa.int64()).to_pylist() == [0, 1_767_225_600_123_000, largest * 1000]


@pytest.mark.parametrize("ahead", [0, 600])
def test_times_that_are_none_or_beyond_microseconds_are_null(ahead: int) -> None:
    largest = (2**63 - 1) // 1000
    times = timestamps([*([1] * ahead), -1, 0, largest, largest + 1])
    assert times.cast(pa.int64()).to_pylist()[ahead:] == [None, 0, largest * 1000, None]
