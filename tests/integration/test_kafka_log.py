"""Reading a real broker: what the behaviour suite of ``tests/contract/test_log.py`` does not cover."""

from __future__ import annotations

import concurrent.futures
import itertools
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from connectors.kafka.log import KafkaLog
from planner.errors import LogUnavailable, OffsetsExpired
from planner.offsets import OffsetRange
from planner.ports import TopicSource
from tests.fixtures.kafka import COMPACTED, Kafka
from tests.harness.log_reading import positions, whole
from tests.harness.quick_jvm import quick_jvm
from thermocline.demo.broker import Broker

pytestmark = pytest.mark.kafka


#: Little is read ahead, so that a fetch is still under way when something happens.
SMALL_QUEUE = {"queued.max.messages.kbytes": "1024"}


@pytest.fixture
def log(kafka: Kafka) -> Iterator[KafkaLog]:
    with KafkaLog(kafka.settings, with_high_watermark=True) as log:
        yield log


@pytest.fixture(scope="module")
def own_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A broker that a test may kill, if it starts it again."""
    with Broker(tmp_path_factory.mktemp("broker"), jvm_flags=quick_jvm("kafka")) as broker:
        yield Kafka(broker)


def test_open_transactions_show_as_the_distance_to_the_high_watermark(
    kafka: Kafka, log: KafkaLog
) -> None:
    topic = kafka.topic()
    kafka.produce(topic, [b"v"] * 3)
    producer = kafka.transactional()
    producer.begin_transaction()
    kafka.produce(topic, [b"t"] * 4, producer=producer)
    (bounds,) = log.measure([topic])[topic].partitions
    assert (bounds.log_end, bounds.high_watermark) == (3, 7)
    kafka.end_transaction(producer, topic, commit=False)
    (bounds,) = log.measure([topic])[topic].partitions
    assert (bounds.log_end, bounds.high_watermark) == (8, 8)


def test_the_leader_epoch_is_measured(kafka: Kafka, log: KafkaLog) -> None:
    topic = kafka.topic()
    kafka.produce(topic, [b"v"])
    assert log.measure([topic])[topic].partitions[0].leader_epoch == 0


def test_fifty_partitions_with_one_that_is_empty(kafka: Kafka, log: KafkaLog) -> None:
    topic = kafka.topic(50)
    for partition in range(50):
        if partition != 17:
            kafka.produce(topic, [b"v"] * (partition % 5 + 1), partition=partition)
    ranges = whole(log, topic)
    assert [len(item) for item in ranges][15:19] == [1, 2, 0, 4]
    expected = [(item.partition, at) for item in ranges for at in range(item.stop)]
    assert sorted(positions(log, topic, ranges)) == expected


def test_records_of_a_megabyte_keep_every_byte_and_batches_stay_bounded(
    kafka: Kafka, log: KafkaLog
) -> None:
    topic = kafka.topic(config={"max.message.bytes": "4000000"})
    values = [
        os.urandom(1_000_000 + index) for index in range(80)
    ]  # more than a client buffers
    kafka.produce(topic, values, producer=kafka.producer(message_max_bytes=4_000_000))
    batches = list(log.fetch(TopicSource(topic), whole(log, topic), timeout_s=30))
    assert [
        value for batch in batches for value in batch.column("kafka_value").to_pylist()
    ] == values
    assert len(batches) > 1


def test_a_compacted_topic_under_the_real_cleaner_reads_the_same_before_and_after(
    kafka: Kafka, log: KafkaLog
) -> None:
    topic = kafka.topic(config=COMPACTED)
    for generation in range(3):
        keys = [f"k{index}".encode() for index in range(20)]
        kafka.produce(topic, [f"{generation}".encode()] * 20, keys=keys)
        time.sleep(0.1)
    kafka.produce(topic, [None], keys=[b"k3"])  # a tombstone stays for delete.retention.ms
    time.sleep(0.1)
    kafka.produce(topic, [b"end"], keys=[b"end"])
    expected = [(0, at) for at in range(40, 62) if at != 43]
    deadline = time.monotonic() + 30
    while (result := positions(log, topic, whole(log, topic))) != expected:
        assert time.monotonic() < deadline, result
        time.sleep(0.1)
    assert positions(log, topic, [OffsetRange(0, 5, 43)]) == expected[:3]
    assert positions(log, topic, [OffsetRange(0, 0, 40)]) == []


def test_records_deleted_before_and_while_reading_are_named(
    kafka: Kafka, log: KafkaLog
) -> None:
    topic = kafka.topic()
    kafka.produce(topic, [b"v" * 100] * 50_000)
    ranges = whole(log, topic)
    batches = log.fetch(TopicSource(topic), ranges, timeout_s=20)
    got = next(batches).num_rows
    assert got < 50_000
    kafka.delete_records(topic, 0, 49_999)
    with pytest.raises(OffsetsExpired, match=f"{topic}/0: offsets 0 to 50000") as caught:
        list(batches)
    assert caught.value.facts["log_start"] == 49_999
    assert positions(log, topic, whole(log, topic)) == [(0, 49_999)]


def test_a_growing_log_is_read_to_the_measured_end_only(kafka: Kafka, log: KafkaLog) -> None:
    topic = kafka.topic(3)
    stop = threading.Event()

    def write() -> None:
        producer = kafka.producer()
        for index in itertools.count():
            if stop.is_set():
                break
            producer.produce(topic, str(index).encode(), partition=index % 3)
            producer.poll(0)
            time.sleep(0.001)
        producer.flush(10)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(30):
            ranges = whole(log, topic)
            result = sorted(positions(log, topic, ranges))
            assert result == [
                (item.partition, at) for item in ranges for at in range(item.stop)
            ]
    finally:
        stop.set()
        writer.join()


def test_many_readers_share_one_log(kafka: Kafka, log: KafkaLog) -> None:
    topic = kafka.topic(2)
    for partition in (0, 1):
        kafka.produce(topic, [str(at).encode() for at in range(2000)], partition=partition)

    def read(seed: int) -> bool:
        start, stop = seed * 37 % 1000, 1000 + seed * 91 % 1000
        ranges = [OffsetRange(0, start, stop), OffsetRange(1, 2000 - stop, 2000 - start)]
        if seed % 5 == 0:
            batches = log.fetch(TopicSource(topic), ranges, timeout_s=20)
            next(batches)
            batches.close()
            return True
        log.measure([topic])
        result = sorted(positions(log, topic, ranges))
        return result == [
            (item.partition, at) for item in ranges for at in range(item.start, item.stop)
        ]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(120)))


def test_two_measurements_at_once_never_call_each_other_stale(
    kafka: Kafka, log: KafkaLog
) -> None:
    topic = kafka.topic()
    log.measure([topic])

    def measure(_: int) -> int:
        return log.measure([topic])[topic].partitions[0].log_end

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        ends = pool.map(measure, range(300))
        for _ in range(60):
            kafka.produce(topic, [b"v"])
        assert max(ends) <= 60


def test_a_client_that_loses_a_request_is_left_for_a_new_one(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real client loses requests once in some hundred outages; here this one loses all it is given."""
    topic = kafka.topic()
    kafka.produce(topic, [b"v"] * 3)
    with KafkaLog(kafka.settings, measure_timeout_s=1) as log:
        assert whole(log, topic) == [OffsetRange(0, 0, 3)]
        lost = log._bounds._admin
        for request in ("described", "offsets"):
            monkeypatch.setattr(lost, request, lambda *_, **__: _Nothing(), raising=True)
        with pytest.raises(LogUnavailable, match=topic):
            log.measure([topic])
        kafka.produce(topic, [b"v"])
        assert whole(log, topic) == [OffsetRange(0, 0, 4)]
        assert log._bounds._admin is not lost


class _Nothing(concurrent.futures.Future[object]):
    """An answer that never comes, to one request or for each topic of it."""

    def __getitem__(self, _topic: str) -> concurrent.futures.Future[object]:
        return self


#: Several times what a reader buffers.
RECORDS = 20_000


def test_a_broker_killed_while_reading_is_waited_for(own_kafka: Kafka) -> None:
    topic = own_kafka.topic(2)
    for partition in (0, 1):
        own_kafka.produce(topic, [b"v" * 500] * RECORDS, partition=partition)
    with KafkaLog(own_kafka.settings | SMALL_QUEUE) as log:
        ranges = whole(log, topic)
        batches = log.fetch(TopicSource(topic), ranges, timeout_s=60)
        items = [next(batches)]
        own_kafka.broker.kill()
        restart = threading.Thread(target=own_kafka.broker.start)
        restart.start()
        try:
            items += batches
        finally:
            restart.join()
        read = sorted(
            position
            for batch in items
            for position in zip(
                batch.column("kafka_partition").to_pylist(),
                batch.column("kafka_offset").to_pylist(),
                strict=True,
            )
        )
        assert read == [(partition, at) for partition in (0, 1) for at in range(RECORDS)]


def test_a_broker_that_stays_away_fails_the_read_by_its_deadline(own_kafka: Kafka) -> None:
    topic = own_kafka.topic()
    own_kafka.produce(topic, [b"v" * 500] * RECORDS)
    with KafkaLog(own_kafka.settings | SMALL_QUEUE, measure_timeout_s=1) as log:
        batches = log.fetch(TopicSource(topic), whole(log, topic), timeout_s=2)
        got = next(batches).num_rows
        own_kafka.broker.kill()
        began = time.monotonic()
        with pytest.raises(LogUnavailable) as caught:
            got += sum(batch.num_rows for batch in batches)
        assert got < RECORDS
        assert time.monotonic() - began < 5
        began = time.monotonic()
        with pytest.raises(LogUnavailable):
            log.measure([topic])
        assert time.monotonic() - began < 3
        own_kafka.broker.start()
        assert len(positions(log, topic, whole(log, topic))) == RECORDS
    message = caught.value.message
    assert own_kafka.bootstrap not in message
    assert "\n" not in message
    pickle.loads(pickle.dumps(caught.value))


def test_a_process_without_the_proxy_reads_from_plain_settings(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.produce(topic, [b"v"] * 5)
    program = (
        "import sys\n"
        "from connectors.kafka.log import KafkaLog\n"
        "from planner.offsets import OffsetRange\n"
        "from planner.ports import TopicSource\n"
        f"log = KafkaLog({kafka.settings!r})\n"
        f"print(sum(b.num_rows for b in log.fetch(TopicSource({topic!r}), [OffsetRange(0, 1, 5)], timeout_s=20)))\n"
        "assert not [name for name in sys.modules if name.startswith(('proxy', 'thermocline'))]\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert (ran.stdout, ran.stderr) == ("4\n", "")
