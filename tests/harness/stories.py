"""Whatever happens underneath, SQL over the server is SQL over all committed rows.

A seed makes a story: producers (plain, and transactions that commit, abort or stay open), bad records,
tombstones, holes, partitions and columns that come later, and between them tiering, compactions, deletes,
rollbacks and expiry by whoever else works on the table. After every step the server is asked through ADBC and
must answer what plain DuckDB answers over the ledger's rows, types included.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, cast

import adbc_driver_flightsql.dbapi as adbc
import duckdb
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from planner.names import TableName
from planner.schema import METADATA_TYPES, TIMESTAMPTZ, Column
from planner.seam.binding import Binding, OnError
from tests.doubles.log import MemoryRecord
from tests.fixtures.kafka import COMPACTED, Kafka
from tests.fixtures.server import TieredServer
from tests.fixtures.spark import BoundTable
from tests.harness.ledger import Ledger, Place, Version
from tests.harness.maintaining import maintain
from tests.harness.oracle import same

PARTITIONS = 3
#: Never written to.
EMPTY_PARTITION = 1
PAYLOAD = (
    Column(0, "n", pa.int32()),
    Column(0, "amount", pa.decimal128(12, 2)),
    Column(0, "seen_at", TIMESTAMPTZ, epoch_unit="ms"),
    Column(0, "label", pa.string()),
    Column(0, "ratio", pa.float64()),
    Column(0, "tags", pa.list_(pa.string())),
    Column(0, "place", pa.struct([pa.field("x", pa.float64()), pa.field("y", pa.int32())])),
)
#: Records carry these from the start; columns of these names and types come later. In Spark's spelling.
LATER = {
    "later_text": ("string", pa.string()),
    "later_count": ("bigint", pa.int64()),
    "later_time": ("timestamp", TIMESTAMPTZ),
}
BAD = (b"", b"not json", b"[1]", b'{"n": "many"}', b'{"n": 1.5}', b"\xff\xfe", b'{"label": 7}')

#: ``{t}`` is the table.
QUERIES = (
    "SELECT kafka_partition, count(*) AS held, min(kafka_offset), max(kafka_offset), sum(n), sum(amount), "
    "max(seen_at), count(ratio), first(tags ORDER BY kafka_offset) FROM {t} GROUP BY ALL ORDER BY 1",
    "SELECT count(*), sum(a.n - b.n) FROM {t} a JOIN {t} b USING (kafka_partition, kafka_offset)",
    "WITH even AS (SELECT * FROM {t} WHERE n % 2 = 0) SELECT (SELECT count(*) FROM even), "
    "(SELECT max(kafka_offset) FROM even), count(*) FROM even x JOIN even y ON x.kafka_offset = y.kafka_offset",
    "SELECT kafka_partition, kafka_offset, place.y, len(tags), kafka_timestamp FROM {t} "
    "WHERE kafka_offset BETWEEN 3 AND 40 AND (ratio > 0.5 OR place.x IS NULL) ORDER BY ALL",
    "SELECT * EXCLUDE (kafka_timestamp) FROM {t} WHERE n IS NOT NULL ORDER BY n DESC, 1, 2 LIMIT 5",
)
HALVES = """
SELECT (SELECT count(*) FROM {cold}) + (SELECT count(*) FROM {tail}) AS parts, count(*) AS whole,
  (SELECT count(*) FROM (FROM {t} EXCEPT ALL (FROM {cold} UNION ALL FROM {tail}))) AS different
FROM {t}"""


Records = dict[Place, MemoryRecord]


@dataclass(frozen=True)
class Kind:
    """What a seed's table and topic are like."""

    on_error: OnError
    compacted: bool
    delete_mode: str
    metadata: tuple[str, ...] = ()
    format_version: int = 2
    partition_by: tuple[str, ...] = ()


KINDS = (
    Kind("null", False, "merge-on-read", ("kafka_key", "kafka_headers")),
    Kind("skip", True, "copy-on-write"),
    Kind("fail", False, "copy-on-write"),
    Kind("null", True, "merge-on-read"),
)
STEPS = (
    *("transaction", "open_transaction", "abort", "abort"),
    *("tier", "tier", "tier", "tier"),
    *("add_column", "add_column", "rename_column", "widen_column", "drop_column"),
    *("add_partition", "holes", "compact", "compact", "delete", "rollback", "expire"),
)

#: Each kind once, but a transaction that is left open and ended, and one more publish.
ONCE = (*dict.fromkeys(STEPS), "open_transaction", "tier")


@dataclass
class Story:
    """One table's life. Steps change the world and the ledger; ``check`` compares."""

    kafka: Kafka
    server: TieredServer
    rng: random.Random
    kind: Kind
    cursor: adbc.Cursor

    topic: str = field(init=False)
    name: TableName = field(init=False)
    spark: BoundTable = field(init=False)
    ledger: Ledger = field(init=False)
    broker: Consumer = field(init=False)
    partitions: int = PARTITIONS
    sent: int = 0
    #: Snapshots a rollback may go to, oldest first, with what it brings back.
    history: list[tuple[int, Version]] = field(default_factory=list)
    #: Rows that each commit above the last watermark took away.
    removed_since_tiering: list[int] = field(default_factory=list)
    rolled_back: bool = False
    log_starts: dict[int, int] = field(default_factory=dict)
    pending: tuple[Producer, Records] | None = None

    def __post_init__(self) -> None:
        self.topic = self.kafka.topic(
            PARTITIONS, config=COMPACTED if self.kind.compacted else None
        )
        columns = [Column(0, name, METADATA_TYPES[name]) for name in self.kind.metadata]
        columns += PAYLOAD
        binding = Binding(self.topic, on_error=self.kind.on_error)
        self.ledger = Ledger(binding, columns, PARTITIONS)
        self.name = self.server.bind(
            self.topic,
            columns,
            on_error=self.kind.on_error,
            partition_by=self.kind.partition_by,
        )
        self.spark = self.server.spark(self.name)
        mode, version = self.kind.delete_mode, self.kind.format_version
        self.spark.sql(
            f"ALTER TABLE {{t}} SET TBLPROPERTIES ('write.delete.mode'='{mode}', 'format-version'='{version}')"
        )
        self.broker = Consumer(
            {"bootstrap.servers": self.kafka.bootstrap, "group.id": "x", "log_level": 0}
        )
        self._remember()

    def close(self) -> None:
        if self.pending is not None:
            self.pending[0].abort_transaction(30)
        self.broker.close()

    # --- producers ---

    def produce(self) -> None:
        self.ledger.commit(self._send(self.kafka.producer(), self.rng.randrange(5, 25)))

    def transaction(self) -> None:
        self._end_transaction(*self._transaction(), commit=True)

    def abort(self) -> None:
        self._end_transaction(*self._transaction(), commit=False)

    def open_transaction(self) -> None:
        """Leave one open for some steps, or end it."""
        if self.pending is None:
            self.pending = self._transaction()
            return
        pending, self.pending = self.pending, None
        self._end_transaction(*pending, commit=self.rng.random() < 0.7)

    def _transaction(self) -> tuple[Producer, Records]:
        producer = self.kafka.transactional()
        producer.begin_transaction()
        return producer, self._send(producer, self.rng.randrange(3, 12))

    def _end_transaction(self, producer: Producer, records: Records, *, commit: bool) -> None:
        partition, _ = next(iter(records))
        self.kafka.end_transaction(producer, self.topic, partition, commit=commit)
        # Markers reach the other partitions a moment later; until then they hold back the ends.
        for other in {partition for partition, _ in records}:
            last = max(offset for partition, offset in records if partition == other)
            _until(lambda other=other, last=last: self._high(other) > last + 1)
        if commit:
            self.ledger.commit(records)

    def _send(self, producer: Producer, count: int, **fixed: Any) -> Records:
        """Send and wait for every acknowledgement: only the broker knows the offsets."""
        acknowledged: Records = {}
        targets = [at for at in range(self.partitions) if at != EMPTY_PARTITION]
        for _ in range(count):
            self.sent += 1
            value = self._value()
            key = b"key-%d" % self.sent
            headers: list[tuple[str, bytes | None]] | None = None
            if self.rng.random() >= 0.5:
                headers = [("h", b"\x00"), ("h", None)]
            sent = {"key": key, "value": value, "partition": self.rng.choice(targets), **fixed}

            def done(
                error: KafkaError | None,
                message: Message,
                sent: dict[str, Any] = sent,
                headers: Any = headers,
            ) -> None:
                assert error is None, error
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                acknowledged[partition, offset] = MemoryRecord(
                    sent["value"], sent["key"], headers, message.timestamp()[1]
                )

            producer.produce(self.topic, headers=cast("Any", headers), on_delivery=done, **sent)
        assert producer.flush(30) == 0
        assert len(acknowledged) == count
        return acknowledged

    def _value(self) -> bytes | None:
        rng = self.rng
        chance = rng.random()
        if chance < 0.06:
            return None
        if chance < 0.15 and self.kind.on_error != "fail":
            return rng.choice(BAD)
        # Beyond int32 it is a bad record until the column is widened.
        large = self.kind.on_error != "fail" and rng.random() < 0.05
        event: dict[str, Any] = {
            "n": rng.randrange(2**31, 2**40) if large else rng.randrange(-1000, 1000),
            "amount": f"{rng.randrange(-(10**9), 10**9)}.{rng.randrange(100):02}",
            "seen_at": 1_700_000_000_000 + rng.randrange(10**9),
            rng.choice(("label", "title")): rng.choice(("", "grüße", "a\u0000b", f"{chance}")),
            "ratio": rng.choice(("NaN", "Infinity", -0.0, rng.random(), rng.random())),
            "tags": [rng.choice(("a", "b", None)) for _ in range(rng.randrange(4))],
            "place": rng.choice((None, {}, {"x": rng.random(), "y": rng.randrange(9)})),
            "later_text": f"text {self.sent}",
            "later_count": self.sent,
            "later_time": "2026-01-02T03:04:05.678901+01:00",
        }
        for name in list(event):
            if rng.random() < 0.1:
                event[name] = None
            if rng.random() < 0.1:
                del event[name]
        return json.dumps(event).encode()

    # --- tierer, and others who work on the table and the topic ---

    def tier(self) -> None:
        self._measure()
        expected = self.ledger.tier()
        done = self.server.tier(self.name)
        if not done.published:
            assert expected.records == 0
            return
        assert done.outcomes == expected
        self.removed_since_tiering, self.rolled_back = [], False
        self._remember()

    def add_column(self) -> None:
        names = {column.name for column in self.ledger.schema.columns}
        missing = [name for name in LATER if name not in names]
        if missing:
            name = self.rng.choice(missing)
            spelled, kind = LATER[name]
            self.spark.sql(f"ALTER TABLE {{t}} ADD COLUMN {name} {spelled}")
            self.ledger.add_column(name, kind)

    def drop_column(self) -> None:
        value = [column.name for column in self.ledger.schema.columns if column.name in LATER]
        if value:
            name = self.rng.choice(value)
            self.spark.sql(f"ALTER TABLE {{t}} DROP COLUMN {name}")
            self.ledger.drop_column(name)

    def rename_column(self) -> None:
        self.spark.sql("ALTER TABLE {t} RENAME COLUMN label TO title")
        self.ledger.rename_column("label", "title")

    def widen_column(self) -> None:
        self.spark.sql("ALTER TABLE {t} ALTER COLUMN n TYPE bigint")
        self.ledger.widen_column("n", pa.int64())

    def add_partition(self) -> None:
        self.partitions += 1
        self.kafka.add_partitions(self.topic, self.partitions)
        self.broker.list_topics(self.topic, 15)  # a client learns of it minutes later by itself

    def holes(self) -> None:
        """Make the log lose records the way its topic does."""
        if self.kind.compacted:
            self._compact_log()
            return
        for partition, end in self.ledger.head.covered.items():
            before = self.rng.randint(self.log_starts.get(partition, 0), end)
            if before:
                self.kafka.delete_records(self.topic, partition, before)
                self.log_starts[partition] = before

    def _compact_log(self) -> None:
        """Write one key several times and wait until the cleaner left the last."""
        if self.pending is not None:  # nothing above an open transaction is cleaned
            self.open_transaction()
        producer = self.kafka.producer()
        # Not tombstones: those would be cleaned too, at a time of the cleaner's choice.
        value = b'{"n": 1}'
        doubled = self._send(producer, 6, partition=0, key=b"same key", value=value)
        self.ledger.commit(doubled)
        *gone, _ = sorted(doubled)
        time.sleep(0.1)

        def cleaned() -> bool:
            # An append closes the segment before it; only closed ones are cleaned.
            self.ledger.commit(self._send(producer, 1, partition=0))
            return not self._readable(0, gone[0][1]).intersection(offset for _, offset in gone)

        _until(cleaned, pause_s=0.3)
        self.ledger.compacted_away(gone)

    def compact(self) -> None:
        before = self._head()
        self.spark.compact()
        if self._head() != before:
            self.removed_since_tiering.append(0)
            self._remember()

    def delete(self) -> None:
        remainder = self.rng.randrange(7)
        chosen = [
            (partition, offset)
            for partition, offset in self.ledger.cold_places()
            if offset % 7 == remainder and partition != 2
        ]
        before = self._head()
        self.spark.sql(
            f"DELETE FROM {{t}} WHERE kafka_offset % 7 = {remainder} AND kafka_partition <> 2"
        )
        self.ledger.delete(chosen)
        if self._head() != before:
            self.removed_since_tiering.append(len(chosen))
            self._remember()

    def rollback(self) -> None:
        """Somebody's rollback; forward again where the log no longer has what cold then lacks."""
        if len(self.history) < 2:
            return
        (newest, _), index = self.history[-1], self.rng.randrange(len(self.history) - 1)
        snapshot, cold = self.history[index]
        self.spark.call("rollback_to_snapshot", f"snapshot_id => {snapshot}")
        lost = [
            (partition, cold.covered.get(partition, 0), start)
            for partition, start in sorted(self.log_starts.items())
            if cold.covered.get(partition, 0) < start
        ]
        if lost:
            self.server.refresh(self.name)
            partition, mark, start = lost[0]
            self._refused(
                f"{self.topic}/{partition}: cold data ends at offset {mark} but the log starts at {start}"
            )
            self.spark.call("set_current_snapshot", f"snapshot_id => {newest}")
            return
        self.ledger.head = cold
        del self.history[index + 1 :]
        self.removed_since_tiering, self.rolled_back = [], True

    def expire(self) -> None:
        """Somebody's expiry to one snapshot, where it hides nothing (see docs/limits.md)."""
        if self.rolled_back or any(self.removed_since_tiering[:-1]):
            self.produce()
            if self.pending is not None:
                self.open_transaction()
            self.tier()
        self.spark.expire_to_one()
        del self.history[:-1]

    def maintain(self) -> None:
        """All that maintenance finds due a month from now: nothing is promised any more but what is named and the head."""
        self.spark.sql("ALTER TABLE {t} SET TBLPROPERTIES ('thermocline.maintain.mode' = 'on')")
        maintain(self.spark, hours=24 * 30)
        retained = self.spark.state().history.snapshots
        self.history = [each for each in self.history if each[0] in retained]
        if [each[0] for each in self.history[-1:]] != [self._head()]:
            self._remember()
        # The head carries the watermark by itself.
        self.removed_since_tiering, self.rolled_back = [], False

    def _remember(self) -> None:
        self.history.append((self._head(), self.ledger.head))

    # --- looking at broker and catalog without our code ---

    def _head(self) -> int:
        with self.server.catalog() as catalog:
            loaded = catalog.load_table((*self.name.namespace, self.name.name))
            snapshot = loaded.current_snapshot()
            assert snapshot is not None
            return snapshot.snapshot_id

    def _measure(self) -> None:
        """Ask the broker where committed readers end."""
        for partition in range(self.partitions):
            at = TopicPartition(self.topic, partition)
            _, self.ledger.stable_ends[partition] = self.broker.get_watermark_offsets(at, 15)

    def _high(self, partition: int) -> int:
        return self.kafka.high_watermark(self.topic, partition)

    def _readable(self, partition: int, start: int) -> set[int]:
        """Offsets of one partition from ``start`` that a bare consumer gets."""
        _, end = self.broker.get_watermark_offsets(TopicPartition(self.topic, partition), 15)
        self.broker.assign([TopicPartition(self.topic, partition, start)])
        counts: set[int] = set()
        while end - 1 not in counts:  # the last one was written plainly, by us
            message = self.broker.poll(10)
            assert message is not None
            assert message.error() is None, message.error()
            offset = message.offset()
            assert offset is not None
            counts.add(offset)
        self.broker.unassign()
        return counts

    # --- the promise ---

    def check(self) -> None:
        self._measure()
        whole = self._ask("SELECT * FROM {t}")
        self.ledger.observe(places(whole))
        rows = self.ledger.rows()
        self._same_rows(rows, whole)
        with closing(duckdb.connect()) as plain:
            plain.execute("SET TimeZone = 'UTC'")
            plain.register("ledger", self.ledger.table())
            plain.execute("CREATE TABLE expected AS FROM ledger")
            assert whole.schema.equals(plain.table("expected").to_arrow_table().schema)
            for sql in QUERIES:
                expected = plain.sql(sql.format(t="expected")).to_arrow_table()
                if self.kind.on_error == "null" and "* EXCLUDE" in sql:
                    sql = sql.replace("(kafka_timestamp)", "(kafka_timestamp, kafka_error)")
                    expected = plain.sql(sql.format(t="expected")).to_arrow_table()
                table = self._ask(sql)
                assert table.schema.equals(expected.schema), (table.schema, expected.schema)
                assert same(expected.to_pylist(), table.to_pylist()), sql
        self._same_rows(self.ledger.cold_rows(), self._ask("SELECT * FROM {cold}"))
        self._same_rows(self.ledger.tail_rows(), self._ask("SELECT * FROM {tail}"))
        assert self._ask(HALVES).to_pylist() == [
            {"parts": len(rows), "whole": len(rows), "different": 0}
        ]
        seam = self._ask("SELECT kafka_partition, watermark, log_end, topic FROM {seam}")
        assert seam.to_pylist() == [
            {
                "kafka_partition": partition,
                "watermark": self.ledger.head.covered.get(partition, 0),
                "log_end": end,
                "topic": self.topic,
            }
            for partition, end in sorted(self.ledger.stable_ends.items())
            if end or partition < PARTITIONS or partition in self.ledger.head.covered
        ]

    def end(self) -> None:
        """Ask the broker where committed readers end, and have the server look at the table."""
        self._measure()
        self.server.refresh(self.name)

    def same_rows(self, expected: list[dict[str, Any]], table: pa.Table) -> None:
        self._same_rows(expected, table)

    def _ask(self, sql: str) -> pa.Table:
        names = {
            side: f'{self.name.catalog}.{self.name.schema}."{self.name.name}${side}"'
            for side in ("cold", "tail", "seam")
        }
        self.cursor.execute(sql.format(t=self.name, **names))
        return self.cursor.fetch_arrow_table()

    def _same_rows(self, expected: list[dict[str, Any]], table: pa.Table) -> None:
        value = sorted(
            table.to_pylist(), key=lambda row: (row["kafka_partition"], row["kafka_offset"])
        )
        for want, got in zip(expected, value, strict=False):
            assert same(want, got), f"expected {want}\nfound    {got}"
        assert len(expected) == len(value)

    def _refused(self, message: str) -> None:
        with pytest.raises(adbc.Error, match=re.escape(message)):
            self._ask("SELECT count(*) FROM {t}")


def places(table: pa.Table) -> list[Place]:
    columns = (table[name].to_pylist() for name in ("kafka_partition", "kafka_offset"))
    return list(zip(*columns, strict=True))


def _until(holds: Any, *, pause_s: float = 0.02, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "the broker did not get there"
        time.sleep(pause_s)


#: Right from a pin that has not seen them: any retained snapshot with the tail from its watermark answers.
BEHIND_AN_OLD_PIN = {"produce", "transaction", "open_transaction", "abort", "tier", "compact"}


def tell(
    seed: int,
    steps: int,
    kafka: Kafka,
    tiered_server: TieredServer,
    cursor: adbc.Cursor,
    kinds: Sequence[str] = STEPS,
) -> None:
    rng = random.Random(seed)
    with closing(Story(kafka, tiered_server, rng, KINDS[seed % len(KINDS)], cursor)) as story:
        story.check()
        items = []
        plan = [step for _ in range(-(-steps // len(kinds))) for step in shuffled(rng, kinds)]
        for step in plan[:steps]:
            for action in ("produce", step):
                items.append(action)
                try:
                    if action in ("rename_column", "widen_column") and items.count(action) > 1:
                        continue
                    getattr(story, action)()
                    if action == "tier":
                        _check_behind(story)
                    story.server.refresh(story.name)
                    if action == step:
                        story.check()
                except BaseException as error:
                    error.add_note(f"seed {seed}, {story.kind}: {' '.join(items)}")
                    raise


def _check_behind(story: Story) -> None:
    """Ask before the server has seen the newest commit.

    The tail above the old watermark may have what the cleaner removed before the tierer came.
    """
    table = story._ask("SELECT * FROM {t}")
    counts = Counter(place for place in places(table) if not story.ledger.is_compacted(place))
    assert counts == Counter(
        place for place in story.ledger.places() if not story.ledger.is_compacted(place)
    )


def shuffled(rng: random.Random, kinds: Sequence[str]) -> list[str]:
    steps = list(kinds)
    rng.shuffle(steps)
    return ["tier", *steps]
