"""A log of changes that needs no broker and travels to Spark's executors, and what a keyed table over it has.

A change is (partition, offset, key, state); ``state`` None is a delete. Offsets that no change has are holes.
"""

from __future__ import annotations

import datetime as dt
import json
import random
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import pyarrow as pa

from planner.offsets import NO_EPOCHS, OffsetRange
from planner.ports import TopicSource
from planner.schema import RAW_SCHEMA, Column
from planner.seam.binding import Binding
from planner.seam.cut import LogBounds, PartitionBounds
from planner.seam.keys import RecordKey, Upsert
from tests.harness.generated_log import CLUSTER, TOPIC, TOPIC_ID, LogForTiering

KEYED = Binding(TOPIC, key=RecordKey("json"), upsert=Upsert(()))
KEYED_COLUMNS = (Column(0, "id", pa.int64()), Column(0, "state", pa.string()))
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
_BATCH_RECORDS = 50


class Change(NamedTuple):
    partition: int
    offset: int
    key: int
    state: str | None


#: (partition, offset, key, state)
KeyedRow = tuple[int, int, int, str | None]


def newest(changes: Iterable[Change], *ends: int) -> list[KeyedRow]:
    """The rows of a keyed table whose watermark is ``ends``, sorted by key."""
    last: dict[int, Change] = {}
    for change in sorted(changes, key=lambda each: each.offset):
        if change.offset < ends[change.partition]:
            last[change.key] = change
    rows = (last[key] for key in sorted(last))
    return [(at, offset, key, state) for at, offset, key, state in rows if state is not None]


@dataclass(frozen=True)
class KeyedLog(LogForTiering):
    changes: tuple[Change, ...]
    ends: tuple[int, ...]
    starts: tuple[int, ...] = ()

    @classmethod
    def random(cls, seed: int, *ends: int, keys: int) -> KeyedLog:
        """Make changes of ``keys`` keys: a third deletes, a tenth of the offsets holes; a key stays in its partition."""
        chance = random.Random(seed)
        changes = [
            Change(partition, offset, key, None if chance.random() < 1 / 3 else f"s{offset}")
            for partition, end in enumerate(ends)
            for offset in range(end)
            if chance.random() > 0.1
            for key in (chance.randrange(keys) // len(ends) * len(ends) + partition,)
        ]
        return cls(tuple(changes), ends)

    def to(self, *ends: int) -> KeyedLog:
        """Return the log as it was when it ended there."""
        return replace(self, ends=ends)

    @property
    def rows(self) -> list[KeyedRow]:
        return newest(self.changes, *self.ends)

    def measure(self, topics: Sequence[str]) -> Mapping[str, LogBounds]:
        partitions = tuple(
            PartitionBounds(
                partition, self.starts[partition] if self.starts else 0, end, leader_epoch=3
            )
            for partition, end in enumerate(self.ends)
        )
        return {topic: LogBounds(CLUSTER, topic, TOPIC_ID, partitions) for topic in topics}

    def fetch(
        self,
        source: TopicSource,
        ranges: Sequence[OffsetRange],
        *,
        timeout_s: float,
        epochs: Mapping[int, int] = NO_EPOCHS,
    ) -> Generator[pa.RecordBatch, None, None]:
        assert source.topic_id in (None, TOPIC_ID)
        assert source.with_key
        for span in ranges:
            records = [
                change
                for change in self.changes
                if change.partition == span.partition and change.offset in span
            ]
            for first in range(0, len(records), _BATCH_RECORDS):
                yield _batch(records[first : first + _BATCH_RECORDS])


def _batch(records: Sequence[Change]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [
            {
                "kafka_partition": change.partition,
                "kafka_offset": change.offset,
                # Times fall: offsets alone decide.
                "kafka_timestamp": START - dt.timedelta(seconds=change.offset),
                "kafka_key": json.dumps(change.key).encode(),
                "kafka_value": None
                if change.state is None
                else json.dumps({"state": change.state}).encode(),
            }
            for change in records
        ],
        RAW_SCHEMA,
    )


#: 40 keys, a third of the changes deletes, in two partitions.
DEVICES = KeyedLog.random(7, 300, 300, keys=40)
