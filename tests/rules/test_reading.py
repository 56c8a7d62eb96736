"""The rules of docs/seam-rules.md about reading a log, over a scripted broker: shapes no real one makes on demand."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from connectors.kafka.log import KafkaLog
from planner.errors import LogUnavailable
from planner.names import TableName
from planner.offsets import OffsetRange, OffsetVector
from planner.ports import TopicSource
from planner.seam.binding import Binding
from planner.seam.watermark import Watermark
from proxy.session import Deadline
from proxy.tail.budget import TailLimits
from tests.doubles.cold import MemoryColdStore
from tests.fixtures.fake_broker import TOPIC, FakeBroker, Script
from tests.harness.records import FLOWS_COLUMNS
from tests.harness.serving import SESSION, forget, serve

FLOWS = TableName("lake", ("net",), "flows")
#: An end that is never reached, so no end-of-partition event ever arrives.
FAR = 1_000_000


@pytest.fixture
def log(fake_broker: FakeBroker) -> Iterator[KafkaLog]:
    with KafkaLog({"bootstrap.servers": fake_broker.bootstrap}, measure_timeout_s=2) as log:
        yield log


@pytest.fixture
def script(fake_broker: FakeBroker) -> Script:
    return fake_broker.script


def offsets(log: KafkaLog, start: int, stop: int) -> list[int]:
    batches = log.fetch(TopicSource(TOPIC), [OffsetRange(0, start, stop)], timeout_s=2)
    return [offset for batch in batches for offset in batch.column("kafka_offset").to_pylist()]


def test_in_a_growing_log_the_records_alone_end_a_range(log: KafkaLog, script: Script) -> None:
    """T6: the end-of-partition event comes only where the log ends."""
    script.add(0, [(offset, b"a") for offset in range(6)])
    script.stable_end = script.high_watermark = FAR
    began = time.monotonic()
    assert offsets(log, 1, 4) == [1, 2, 3]
    assert time.monotonic() - began < 1.5


def test_a_range_with_holes_ends_at_its_stop_not_after_as_many_records(
    log: KafkaLog, script: Script
) -> None:
    """T8: compaction took 1 to 3, so offsets 0 to 5 hold three records."""
    script.add(0, [(0, b"a"), (4, b"b"), (5, b"c"), (6, b"d"), (7, b"e")])
    script.stable_end = script.high_watermark = FAR
    assert offsets(log, 0, 6) == [0, 4, 5]
    assert offsets(log, 0, 8) == [0, 4, 5, 6, 7]


def test_a_partition_that_ends_short_fails_the_statement(log: KafkaLog, script: Script) -> None:
    """T26: two of six records arrive, then nothing."""
    script.add(0, [(0, b'{"n": 1}'), (1, b'{"n": 2}')])
    script.stable_end = 6
    store = MemoryColdStore()
    bounds = log.measure([TOPIC])[TOPIC]
    binding = Binding(TOPIC)
    first = Watermark(
        bounds.cluster_id, TOPIC, bounds.topic_id, OffsetVector(((0, 0),)), binding.shape, "run"
    )
    store.create(FLOWS, FLOWS_COLUMNS, binding, first)
    board, tails, statements = serve(store, log, TailLimits(100, 1 << 20, fetch_timeout_s=1))
    try:
        planned = statements.plan(SESSION, "SELECT n FROM flows", None, Deadline(60))
        with pytest.raises(LogUnavailable, match="records up to offset 6 must be read"):
            list(statements.open(SESSION, planned.ticket, Deadline(60)))
    finally:
        forget(board, tails)
