"""Both ways to consume give the same columns, whatever is on the log and however it was written."""

from __future__ import annotations

import ctypes
import random

import pyarrow as pa
import pytest

from connectors.kafka import consumers, structs
from connectors.kafka.librdkafka import Library, library
from connectors.kafka.log import KafkaLog
from planner.offsets import OffsetRange
from planner.schema import RAW_SCHEMA
from tests.fixtures.fake_broker import TOPIC, FakeBroker
from tests.fixtures.kafka import Kafka

KEY = [("kafka_partition", "ascending"), ("kafka_offset", "ascending")]


def read(log: KafkaLog, topic: str, *, with_key: bool) -> pa.Table:
    held = log.measure([topic])[topic].partitions
    ranges = [OffsetRange(item.partition, item.log_start, item.log_end) for item in held]
    batches = list(log.fetch(topic, ranges, timeout_s=30, with_key=with_key))
    for batch in batches:
        batch.validate(full=True)
    return pa.Table.from_batches(batches, RAW_SCHEMA).sort_by(KEY)


@pytest.mark.kafka
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_structs_and_objects_hold_the_same(kafka: Kafka, codec: str) -> None:
    chance = random.Random(3)
    topic = kafka.topic(3)
    # Small batches: buffers of many sizes, one of which may be what another just gave back.
    producer = kafka.producer(compression_type=codec, batch_size=4_000)
    sizes = (0, 1, 30, 200, 5_000)
    for partition in range(3):
        values = [
            None if chance.random() < 0.1 else chance.randbytes(chance.choice(sizes))
            for _ in range(500)
        ]
        keys = [None if chance.random() < 0.3 else chance.randbytes(5) for _ in values]
        kafka.produce(topic, values, partition=partition, keys=keys, producer=producer)
    with KafkaLog(kafka.settings) as log, KafkaLog(kafka.settings, with_structs=False) as other:
        for with_key in (False, True):
            found = read(log, topic, with_key=with_key)
            assert found.num_rows == 1_500
            assert found.equals(read(other, topic, with_key=with_key))
            assert (found["kafka_key"].null_count < 1_500) == with_key


def test_what_does_not_fit_one_batch_comes_with_the_next(
    fake_broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(structs, "_MAX_BYTES", 10)
    values = [b"v" * (at % 15) for at in range(100)]
    fake_broker.script.add(0, list(enumerate(values)))
    with KafkaLog({"bootstrap.servers": fake_broker.bootstrap}) as log:
        for start in (0, 50):  # the second time with the consumer of the first
            batches = log.fetch(TOPIC, [OffsetRange(0, start, 90)], timeout_s=10)
            rows = [row for batch in batches for row in batch.to_pylist()]
            assert [row["kafka_value"] for row in rows] == values[start:90]


def test_a_read_given_up_leaves_nothing_for_the_next(
    fake_broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(structs, "_MAX_BYTES", 10)
    monkeypatch.setattr("connectors.kafka.fetch.BATCH_ROWS", 4)
    fake_broker.script.add(0, [(at, b"value") for at in range(100)])
    with KafkaLog({"bootstrap.servers": fake_broker.bootstrap}) as log:
        given_up = log.fetch(TOPIC, [OffsetRange(0, 0, 90)], timeout_s=10)
        assert next(given_up).column("kafka_offset").to_pylist() == [0, 1, 2, 3]
        given_up.close()
        again = log.fetch(TOPIC, [OffsetRange(0, 50, 53)], timeout_s=10)
        offsets = [at for batch in again for at in batch.column("kafka_offset").to_pylist()]
        assert offsets == [50, 51, 52]


def test_the_loaded_library_is_used_where_it_can_be_reached(
    fake_broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert library() is not None, "every platform CI runs on has it"
    with pytest.raises(AttributeError):
        Library(ctypes.pythonapi._name or "")
    monkeypatch.setattr(structs.StructConsumer, "take", None)
    monkeypatch.setattr(consumers.librdkafka, "library", lambda: None)
    fake_broker.script.add(0, [(0, b"a")])
    with KafkaLog({"bootstrap.servers": fake_broker.bootstrap}) as log:
        batches = list(log.fetch(TOPIC, [OffsetRange(0, 0, 1)], timeout_s=10))
    assert batches[0].column("kafka_value").to_pylist() == [b"a"]
