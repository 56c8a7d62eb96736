"""A followed tail on a real broker in trouble: statements wait or fail by their deadline, never short.

A proxy stands between server and broker; producers write past it. The server is whole but for the Flight
protocol around it.
"""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

from planner.errors import DeadlineExceeded, LogUnavailable
from planner.schema import RAW_SCHEMA, Column
from tests.fixtures.kafka import Kafka
from tests.harness.followed_parts import (
    COLUMNS,
    FETCH_TIMEOUT_S,
    Writer,
    ask,
    bind,
    count,
    parts_over,
)
from tests.harness.json_decoder import json_decoder
from tests.harness.poison import POISON
from tests.harness.tcp_proxy import Mode

pytestmark = pytest.mark.kafka

#: Measuring, then waiting for the tail, each with its own limit; and a busy machine.
DEADLINE_S = 5.0 + 2 * FETCH_TIMEOUT_S + 10.0
RECOVERY_S = 30.0


@pytest.mark.parametrize("mode", [mode for mode in Mode if mode is not Mode.OPEN])
def test_whatever_the_network_does_no_answer_is_short_and_none_is_late(
    kafka: Kafka, tmp_path: Path, mode: Mode
) -> None:
    proxy = kafka.proxy
    assert proxy is not None
    topic = kafka.topic(2)
    writer = Writer(kafka, topic)
    table = bind(kafka, tmp_path, topic, COLUMNS)
    writer.write(50)
    with parts_over(tmp_path, kafka.proxied_settings) as parts:
        assert count(parts, table) == 50
        writer.write(20)
        assert count(parts, table) == 70
        answered, failed = [], []
        proxy.set(mode)
        try:
            over = threading.Event()

            def read() -> None:
                while not over.is_set():
                    least, began = writer.acknowledged, time.monotonic()
                    try:
                        result = count(parts, table)
                    except (LogUnavailable, DeadlineExceeded) as error:
                        failed.append(error)
                        over.wait(0.05)  # a connection that is refused is so at once
                    else:
                        answered.append(result)
                        assert least <= result <= writer.sent
                    assert time.monotonic() - began < DEADLINE_S

            problems: list[BaseException] = []

            def guarded() -> None:
                try:
                    read()
                except BaseException as error:
                    problems.append(error)

            readers = [threading.Thread(target=guarded) for _ in range(2)]
            for reader in readers:
                reader.start()
            for _ in range(10):
                writer.write(30)
                time.sleep(0.2)
            over.set()
            for reader in readers:
                reader.join(DEADLINE_S + 10)
            assert not problems, problems
        finally:
            proxy.set(Mode.OPEN)
        assert answered if mode is Mode.SLOW else failed
        deadline = time.monotonic() + RECOVERY_S
        while True:
            try:
                assert count(parts, table) == writer.sent
                break
            except LogUnavailable:
                assert time.monotonic() < deadline, "it does not come back"
        (state,) = parts.tails.states()
        assert state.is_followed


def test_a_broker_that_stands_still_delays_statements_to_their_deadline_only(
    kafka: Kafka, tmp_path: Path
) -> None:
    topic = kafka.topic()
    writer = Writer(kafka, topic)
    table = bind(kafka, tmp_path, topic, COLUMNS)
    with parts_over(tmp_path, kafka.settings) as parts:
        writer.write(10)
        assert count(parts, table) == 10
        kafka.freeze()
        try:
            began = time.monotonic()
            with pytest.raises(LogUnavailable):
                count(parts, table)
            assert time.monotonic() - began < DEADLINE_S
        finally:
            kafka.thaw()
        writer.write(5)
        assert count(parts, table) == 15


def test_every_payload_of_the_corpus_passes_through_a_live_followed_topic(
    kafka: Kafka, tmp_path: Path
) -> None:
    """The process lives, the good rows are all there, the bad ones counted and named by offset."""
    topic = kafka.topic(config={"max.message.bytes": "20971520"})
    columns = (
        Column(0, "a", pa.int64()),
        Column(0, "i", pa.int32()),
        Column(0, "d", pa.float64()),
        Column(0, "s", pa.string()),
    )
    table = bind(kafka, tmp_path, topic, columns, on_error="skip")
    producer = kafka.producer(message_max_bytes=20_971_520)
    # It is about no limit: the one of a server by default, not the short one of the others.
    with parts_over(tmp_path, kafka.settings, fetch_timeout_s=30) as parts:
        kafka.produce(topic, [b'{"a": -1}'], producer=producer)
        assert count(parts, table) == 1
        values: list[bytes] = []
        for number, payload in enumerate(POISON.values()):
            values += [payload, json.dumps({"a": number, "s": "good"}).encode()]
        kafka.produce(topic, values, producer=producer)
        pin = parts.pins.get(table)
        assert pin.binding is not None
        exact = json_decoder("t", pin.schema, pin.binding, exact_only=True)
        records = [
            {"kafka_partition": 0, "kafka_offset": at, "kafka_value": value}
            for at, value in enumerate(values, start=1)
        ]
        expected = exact.decode(pa.RecordBatch.from_pylist(records, RAW_SCHEMA))
        good = ask(parts, f"SELECT a FROM {table} WHERE s = 'good' ORDER BY a")
        assert good["a"].to_pylist() == list(range(len(POISON)))
        assert count(parts, table) == 1 + expected.outcomes.rows
        (state,) = parts.tails.states()
        assert state.is_followed
        assert state.error is None
        assert state.outcomes.rows == 1 + expected.outcomes.rows
        assert state.outcomes.skipped == expected.outcomes.skipped > 10
