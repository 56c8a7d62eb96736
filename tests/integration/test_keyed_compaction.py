"""A keyed table over a topic that the real cleaner compacts, and that loses deletes by its ``delete.retention.ms``."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import pyarrow as pa
import pytest

from connectors.decoding.registry import decoder_for
from connectors.kafka.admin import DeleteRetention, RetentionReader
from connectors.kafka.log import KafkaLog
from planner.errors import TombstonesExpired
from planner.names import TableName
from planner.offsets import OffsetRange, OffsetVector
from planner.ports import TopicSource
from planner.schema import Column
from planner.seam.binding import Binding
from planner.seam.keys import RecordKey, Upsert
from planner.seam.watermark import Watermark
from planner.tiering.plan import TieringBudget, plan_tiering
from proxy.query.executor import Statements
from tests.doubles.cold import MemoryColdStore
from tests.doubles.tiering import MemoryTieringTarget
from tests.fixtures.kafka import COMPACTED, Kafka
from tests.harness.serving import answer_of, forget, plan, serve

TABLE = TableName("lake", ("net",), "devices")
DELETES_S = 2.0
SETTINGS = COMPACTED | {"delete.retention.ms": str(int(DELETES_S * 1000))}


class Site:
    """A topic, its table in memory, and servers over both."""

    def __init__(self, kafka: Kafka, stack: ExitStack) -> None:
        self.kafka, self.stack = kafka, stack
        self.topic = kafka.topic(config=SETTINGS)
        self.log = stack.enter_context(KafkaLog(kafka.settings))
        self.store = MemoryColdStore()
        binding = Binding(self.topic, key=RecordKey("string"), upsert=Upsert((4,)))
        bounds = self.log.measure([self.topic])[self.topic]
        first = Watermark(
            cluster_id=bounds.cluster_id,
            topic=self.topic,
            topic_id=bounds.topic_id,
            next=OffsetVector.of([(0, 0)]),
            shape=binding.shape,
            run="create",
            key=(4,),
        )
        columns = (Column(0, "id", pa.string(), required=True), Column(0, "state", pa.string()))
        self.store.create(TABLE, columns, binding, first)

    def write(self, key: str, state: str | None) -> None:
        value = None if state is None else json.dumps({"state": state}).encode()
        self.kafka.produce(self.topic, [value], keys=[key.encode()])

    def tier(self) -> None:
        decoder = partial(decoder_for, str(TABLE))
        target = MemoryTieringTarget(self.store, TABLE, self.log, decoder)
        bounds = self.log.measure([self.topic])[self.topic]
        target.publish(
            target.stage(plan_tiering(target.pin(), bounds, TieringBudget(1000, 1000)))
        )

    def server(self, delete_retention: Callable[[str, float], float | None]) -> Statements:
        """Start another server, which has not read the log yet."""
        board, tails, statements = serve(
            self.store, self.log, threads=True, delete_retention=delete_retention
        )
        self.stack.callback(forget, board, tails)
        return statements

    def settings(self) -> DeleteRetention:
        return DeleteRetention(partial(RetentionReader, {"": self.kafka.settings}))

    def has_deletes(self) -> bool:
        end = self.log.measure([self.topic])[self.topic].partitions[0].log_end
        ranges = [OffsetRange(0, 0, end)]
        batches = self.log.fetch(TopicSource(self.topic), ranges, timeout_s=20)
        return any(batch.column("kafka_value").null_count for batch in batches)


@pytest.fixture
def site(kafka: Kafka) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(kafka, stack)


def rows(statements: Statements) -> list[tuple[str, str]]:
    ticket, _ = plan(statements, "SELECT id, state FROM devices ORDER BY id")
    return [tuple(row.values()) for row in answer_of(statements, ticket).to_pylist()]


def test_a_delete_that_the_cleaner_removed_is_an_error_and_no_living_row(site: Site) -> None:
    site.write("deleted", "open")
    site.write("other", "open")
    site.tier()
    site.write("deleted", None)
    assert rows(site.server(site.settings())) == [("other", "open")]
    # Closed segments alone are cleaned, and a delete goes with the second cleaning that meets it.
    deadline = time.monotonic() + 60
    while site.has_deletes():
        assert time.monotonic() < deadline
        site.write("other", "done")
        time.sleep(0.2)
    # What was answered otherwise, and is not true.
    assert rows(site.server(lambda *_: math.inf)) == [("deleted", "open"), ("other", "done")]
    with pytest.raises(
        TombstonesExpired, match=r"it keeps deletes for 2 s \(delete.retention.ms\)"
    ):
        rows(site.server(site.settings()))
