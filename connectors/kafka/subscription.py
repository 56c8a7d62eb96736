"""Reads on along one topic: one consumer, assigned once, as long as the tail is followed.

How far a partition was read follows the rules of ``connectors.kafka.fetch``: a record proves every offset below it,
an end-of-partition event proves offsets without a record.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import KafkaException

from connectors.kafka.bounds import BoundsReader, BoundsRequest
from connectors.kafka.consumer import ConsumedBatch, TopicConsumer
from connectors.kafka.errors import lost_history, refused_offsets, translate
from connectors.kafka.fetch import OutOfRange, Rows, stretches, take_events
from connectors.kafka.range_check import Guard
from planner.errors import TopicRecreated
from planner.offsets import NO_EPOCHS, OffsetRange
from planner.ports import LogBatch, TopicSource

#: Records of one step: from here on decoding and inserting cost least per record.
STEP_RECORDS = 32_768
STEP_BYTES = 32 * 1024 * 1024
_CONFIRM_TIMEOUT_S = 10.0


class KafkaSubscription:
    """``planner.ports.LogSubscription`` with librdkafka."""

    def __init__(
        self,
        consumer: TopicConsumer,
        bounds: BoundsReader,
        source: TopicSource,
        starts: Mapping[int, int],
        epochs: Mapping[int, int] = NO_EPOCHS,
    ) -> None:
        """Owns ``consumer``, and closes it."""
        self._consumer = consumer
        self._bounds = bounds
        self._source = source
        self._reached = dict(starts)
        self._rows = Rows()
        self._lock = threading.Lock()
        #: Ranges with holes that were taken since the last confirmation.
        self._holed: dict[int, OffsetRange] = {}
        try:
            consumer.assign(source.topic, starts, epochs)
        except KafkaException as error:
            raise translate(error.args[0], source.topic) from error

    def take(self, timeout_s: float) -> LogBatch | None:
        before = dict(self._reached)
        counts: dict[int, int] = {}
        epochs: dict[int, int] = {}
        batch = self._next_batch(timeout_s)
        while batch:
            epochs |= batch.epochs
            self._add(batch, counts)
            if len(self._rows) >= STEP_RECORDS or self._rows.size_bytes >= STEP_BYTES:
                break
            batch = self._next_batch(0)
        ranges = tuple(
            OffsetRange(partition, before[partition], at)
            for partition, at in self._reached.items()
            if at > before[partition]
        )
        if not ranges:
            return None
        with self._lock:
            for item in ranges:
                if len(item) != counts.get(item.partition):
                    start = self._holed.get(item.partition, item).start
                    self._holed[item.partition] = OffsetRange(item.partition, start, item.stop)
        return LogBatch(self._rows.take(), ranges, epochs)

    def _next_batch(self, wait_s: float) -> ConsumedBatch:
        return self._consumer.take(
            wait_s, STEP_RECORDS - len(self._rows), with_key=self._source.with_key
        )

    def _add(self, batch: ConsumedBatch, counts: dict[int, int]) -> None:
        for stretch in stretches(batch.records):
            partition = stretch.partition
            self._reached[partition] = stretch.last + 1
            counts[partition] = counts.get(partition, 0) + stretch.count
        self._rows.add(batch.records)
        try:
            take_events(batch.events, self._source.topic, self._reached)
        except OutOfRange as error:
            at = [OffsetRange(partition, at, at) for partition, at in self._reached.items()]
            self._guard(at).check_before()
            if error.is_truncation:
                reached = self._reached.get(error.partition)
                raise lost_history(self._source.topic, error.partition, reached) from error
            raise refused_offsets(self._source.topic) from error

    def begin_confirm(self) -> Callable[[], None]:
        """See ``planner.ports.LogSubscription.begin_confirm``.

        Records without a hole between them need no look at the log start: nothing can be missing.
        """
        with self._lock:
            holed, self._holed = tuple(self._holed.values()), {}
        if holed:
            return self._guard(holed).check_before
        deadline = time.monotonic() + _CONFIRM_TIMEOUT_S
        round_ = self._bounds.begin_identity(self._source.topic, deadline=deadline)
        return lambda: self._check_identity(round_)

    def _guard(self, ranges: Sequence[OffsetRange]) -> Guard:
        return Guard(self._bounds, self._source, ranges, timeout_s=_CONFIRM_TIMEOUT_S)

    def _check_identity(self, round_: BoundsRequest) -> None:
        identity = self._bounds.settle_identity(round_)
        if self._source.topic_id not in (None, identity):
            raise TopicRecreated(
                f"{self._source.topic}: the topic has id {identity}, its tail was followed on id {self._source.topic_id}: it "
                f"was deleted and created again, so its offsets start over.",
                topic=self._source.topic,
                expected=self._source.topic_id,
                found=identity,
            )

    def close(self) -> None:
        self._consumer.close()
