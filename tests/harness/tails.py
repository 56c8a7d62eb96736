"""A log of two partitions in memory, the tails over it, and what was asked of both."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from connectors.decoding.registry import decoder_for
from connectors.registry.decoders import Decoders
from planner.names import TableName
from planner.offsets import OffsetVector
from planner.ports import Decoded, Decoder, DecoderFactory
from planner.schema import Column, TableSchema
from planner.seam.binding import Binding
from planner.seam.cut import Pin, TableCut, plan_cut
from planner.seam.watermark import Watermark
from proxy.engine.segments import Segments
from proxy.tail.budget import TailLimits, TailSpace, TailState
from proxy.tail.followed_table import FollowSettings
from proxy.tail.follower import Follower
from proxy.tail.pacing import Pacing
from proxy.tail.reader.readers import local_readers
from proxy.tail.segment import LeasedTail
from proxy.tail.tails import Tails
from tests.doubles.followers import SteppedFollowers, stepped_readers
from tests.doubles.log import MemoryLog, MemoryRecord
from tests.harness.builders import FLOWS, schema

SCHEMA = schema(Column(4, "n", pa.int64()))
LIMITS = TailLimits(max_rows=10_000, max_bytes=10_000_000, fetch_timeout_s=5)
FOLLOWED = FollowSettings(keep_s=0)
NOT_FOLLOWED = FollowSettings(max_tables=0, keep_s=0)
OTHER = TableName("lake", ("net",), "other")


class TailHarness:
    """A log of two partitions, the tails over it, and how many records were decoded."""

    def __init__(
        self,
        *,
        limits: TailLimits = LIMITS,
        binding: Binding | None = None,
        following: FollowSettings = NOT_FOLLOWED,
        threads: bool = True,
        space: TailSpace | None = None,
        scratch: Path | None = None,
        is_serving: Callable[[], bool] = lambda: False,
        pacing: Pacing = Pacing(gather_s=0.0),  # noqa: B008 - a frozen value
        on_decode: Callable[[pa.RecordBatch], None] = lambda batch: None,
        decoders: Decoders | None = None,
    ) -> None:
        self.make_decoder: DecoderFactory = decoders or decoder_for
        self.on_batch: Callable[[], None] = lambda: None
        self.log = MemoryLog(batch_rows=7, on_batch=lambda: self.on_batch())
        self.log.create_topic("flows", 2)
        self.binding = binding or Binding(topic="flows")
        self.decoded = 0
        self.engine = duckdb.connect()
        self.fetched = 0
        self.checked = 0
        self.now_s = 0.0
        self.on_decode = on_decode
        self.followers = SteppedFollowers()
        self.tails = Tails(
            local_readers(_Counted(self), self.decoder, pacing=pacing)
            if threads
            else stepped_readers(_Counted(self), self.decoder),
            Segments(self.engine, scratch),
            limits,
            following=following,
            space=space,
            is_serving=is_serving,
            pacing=pacing,
            heritages=(lambda *_: None) if decoders is None else decoders.heritage,
            clock=lambda: self.now_s,
            make_follower=Follower if threads else self.followers,
        )

    def decoder(self, table: str, columns: TableSchema, binding: Binding) -> Decoder:
        inner, harness = self.make_decoder(table, columns, binding), self

        class Counting:
            reads = inner.reads

            def decode(self, batch: pa.RecordBatch) -> Decoded:
                harness.on_decode(batch)
                harness.decoded += batch.num_rows
                return inner.decode(batch)

        return Counting()

    def write(self, partition: int, *values: int | bytes, topic: str = "flows") -> None:
        for value in values:
            text = value if isinstance(value, bytes) else json.dumps({"n": value}).encode()
            self.log.append(topic, partition, MemoryRecord(text))

    def cut(
        self,
        *watermark: int,
        columns: TableSchema = SCHEMA,
        table: TableName = FLOWS,
        topic: str = "flows",
        epochs: Sequence[int] = (),
    ) -> TableCut:
        return plan_cut(
            self.pin(*watermark, columns=columns, table=table, topic=topic, epochs=epochs),
            self.log.measure([topic])[topic],
        )

    def pin(
        self,
        *watermark: int,
        columns: TableSchema = SCHEMA,
        table: TableName = FLOWS,
        topic: str = "flows",
        epochs: Sequence[int] = (),
    ) -> Pin:
        mark = Watermark(
            cluster_id="memory",
            topic=topic,
            topic_id=self.log.measure([topic])[topic].topic_id,
            next=OffsetVector(tuple(enumerate(watermark))),
            shape=self.binding.shape,
            run="run",
            epochs=OffsetVector(tuple(enumerate(epochs))),
        )
        return Pin(table, "uuid", "m", 1, columns, self.binding, mark)

    def state(self, table: TableName = FLOWS) -> TailState:
        (result,) = [state for state in self.tails.states() if state.table == table]
        return result

    def rows(
        self, tail: LeasedTail, columns: str = "kafka_partition, kafka_offset, n"
    ) -> list[tuple[Any, ...]]:
        parts = [f"SELECT {columns} FROM ({part.sql})" for part in tail.relations]
        cursor = self.engine.cursor()
        return sorted(cursor.execute(" UNION ALL ".join(parts)).fetchall()) if parts else []

    def read(self, cut: TableCut) -> list[tuple[Any, ...]]:
        with self.tails.read(cut, lambda: None) as tail:
            return self.rows(tail)

    def segments(self) -> int:
        query = (
            "SELECT count(*) FROM duckdb_tables() "
            "WHERE schema_name = 'tail_segments' OR starts_with(database_name, 'tail_')"
        )
        (count,) = self.engine.cursor().execute(query).fetchall()[0]
        return int(count)


class _Counted:
    """The bench's log, counting fetches and questions for its history."""

    def __init__(self, harness: TailHarness) -> None:
        self._bench = harness

    def fetch(self, *inputs: Any, **named: Any) -> Any:
        self._bench.fetched += 1
        return self._bench.log.fetch(*inputs, **named)

    def check_history(self, *inputs: Any) -> None:
        self._bench.checked += 1
        self._bench.log.check_history(*inputs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bench.log, name)


@contextmanager
def tail_harness(**options: Any) -> Iterator[TailHarness]:
    options = {"following": FOLLOWED, "threads": False, **options}
    harness = TailHarness(**options)
    try:
        yield harness
    finally:
        harness.tails.close()
        assert harness.segments() == 0


def offsets(*stops: tuple[int, int]) -> list[tuple[int, int]]:
    """Partition and offset of every record below the stops."""
    return [(partition, offset) for partition, stop in stops for offset in range(stop)]


def started(prefix: str, before: list[threading.Thread]) -> list[str]:
    """Threads of this name that were not there before: servers of other tests have theirs."""
    now = (thread for thread in threading.enumerate() if thread not in before)
    return [thread.name for thread in now if thread.name.startswith(prefix)]


def places(harness: TailHarness, cut: TableCut) -> list[tuple[int, int]]:
    return [row[:2] for row in harness.read(cut)]
