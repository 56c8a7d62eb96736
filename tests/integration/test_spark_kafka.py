"""The whole tiering path on real parts: Kafka, the JSON decoder on Spark's executors, Iceberg."""

from __future__ import annotations

import functools
import json
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from connectors.decoding.registry import decoder_for
from connectors.iceberg.create import NewTable, create_table
from connectors.jobs.round import RoundResult, tier_once
from connectors.kafka.log import KafkaLog
from connectors.spark.publish.target import SparkTieringTarget
from planner.errors import OffsetsExpired, TopicRecreated, UndecodableRecord
from planner.names import TableName
from planner.offsets import OffsetVector
from planner.ports import ArrowRelation, TopicSource
from planner.schema import RAW_SCHEMA, Column
from planner.seam.binding import Binding
from planner.seam.watermark import Outcomes, Watermark
from planner.tiering.plan import TieringBudget, TieringPlan, plan_tiering
from tests.fixtures.cold import cold_slice
from tests.fixtures.kafka import Kafka
from tests.fixtures.spark import SparkLake
from tests.harness.oracle import oracle_decode, same

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

PAYLOAD = (Column(0, "id", pa.int64()), Column(0, "name", pa.string()))
BUDGET = TieringBudget(split_rows=500)


@dataclass(frozen=True)
class Tiered:
    """One topic bound to one table."""

    lake: SparkLake
    duck: duckdb.DuckDBPyConnection
    log: KafkaLog
    name: TableName
    topic: str
    target: SparkTieringTarget

    def tier(self) -> RoundResult:
        return tier_once(self.log, self.target, BUDGET)

    def plan(self) -> TieringPlan:
        return plan_tiering(
            self.target.pin(), self.log.measure([self.topic])[self.topic], BUDGET
        )

    def cold(self) -> list[dict[str, Any]]:
        """All cold rows, by partition and offset, as the proxy reads them."""
        relation = self.lake.store.scan(cold_slice(self.target.pin()))
        if isinstance(relation, ArrowRelation):  # a table without files is not read
            return relation.table.to_pylist()
        rows = self.duck.cursor().execute(relation.sql).to_arrow_table().to_pylist()
        return sorted(rows, key=lambda row: (row["kafka_partition"], row["kafka_offset"]))


Bind = Callable[..., Tiered]


@pytest.fixture
def bind(lake: SparkLake, kafka: Kafka, duck: duckdb.DuckDBPyConnection) -> Bind:
    """Create a table bound to a topic from its log start: ``bind(topic, columns, **binding options)``."""
    return functools.partial(_bind, lake, kafka, duck)


def _bind(
    lake: SparkLake,
    kafka: Kafka,
    duck: duckdb.DuckDBPyConnection,
    topic: str,
    columns: Sequence[Column] = PAYLOAD,
    **options: Any,
) -> Tiered:
    binding = Binding(topic, **options)
    log = KafkaLog(kafka.settings)
    result = log.measure([topic])[topic]
    name = TableName("lake", ("net",), f"kafka_{next(lake.numbers)}")
    first = Watermark(
        cluster_id=result.cluster_id,
        topic=topic,
        topic_id=result.topic_id,
        next=OffsetVector.of(
            (partition.partition, partition.log_start) for partition in result.partitions
        ),
        shape=binding.shape,
        run="created",
    )
    create_table(lake.catalogs, NewTable(name, columns, binding), first)
    target = SparkTieringTarget(
        lake.session,
        lake.store,
        name,
        open_log=functools.partial(KafkaLog, kafka.settings),
        open_decoder=functools.partial(decoder_for, str(name)),
        open_store=lake.store.files.open_store,
        task_timeout_s=60,
        max_task_offsets=500,
    )
    return Tiered(lake, duck, log, name, topic, target)


def values(start: int, stop: int) -> list[bytes | None]:
    return [json.dumps({"id": n, "name": f"row {n}"}).encode() for n in range(start, stop)]


def test_every_committed_record_ends_in_one_outcome(kafka: Kafka, bind: Bind) -> None:
    topic = kafka.topic(2)
    flows = bind(topic, on_error="skip")
    kafka.produce(topic, [*values(0, 1_200), None, b"not json", None])
    writer = kafka.transactional()
    for commit, first in ((False, 5_000), (True, 6_000)):
        writer.begin_transaction()
        kafka.produce(topic, values(first, first + 300), partition=1, producer=writer)
        kafka.end_transaction(writer, topic, 1, commit=commit)
    result = flows.tier()
    assert result.outcomes == Outcomes(rows=1_500, skipped=1, tombstones=2)
    assert result.watermark.next.as_dict() == {0: 1_203, 1: 602}
    assert result.watermark.outcomes == result.outcomes
    assert [(row["kafka_partition"], row["id"]) for row in flows.cold()] == [
        *((0, n) for n in range(1_200)),
        *((1, n) for n in range(6_000, 6_300)),
    ]
    # An open transaction holds the log's end back; what it wrote is tiered once it commits.
    writer.begin_transaction()
    kafka.produce(topic, values(7_000, 7_010), partition=1, producer=writer)
    assert not flows.tier().published
    kafka.end_transaction(writer, topic, 1, commit=True)
    assert flows.tier().outcomes == Outcomes(rows=10)


def test_a_bad_record_stops_the_round_under_policy_fail(kafka: Kafka, bind: Bind) -> None:
    topic = kafka.topic()
    flows = bind(topic)
    kafka.produce(topic, [*values(0, 700), b'{"id": "x"}', *values(701, 800)])
    with pytest.raises(UndecodableRecord) as caught:
        flows.tier()
    assert caught.value.facts["offset"] == 700
    assert "Traceback" not in caught.value.message
    assert flows.cold() == []


def test_bad_records_are_kept_under_policy_null(kafka: Kafka, bind: Bind) -> None:
    topic = kafka.topic()
    flows = bind(topic, on_error="null")
    kafka.produce(topic, [*values(0, 2), b"\xff\x00"])
    assert flows.tier().outcomes == Outcomes(rows=3)
    assert [row["kafka_value"] for row in flows.cold()] == [None, None, b"\xff\x00"]


def test_records_deleted_after_planning_fail_the_stage(kafka: Kafka, bind: Bind) -> None:
    topic = kafka.topic()
    flows = bind(topic)
    kafka.produce(topic, values(0, 900))
    plan = flows.plan()
    kafka.delete_records(topic, 0, 10)
    with pytest.raises(OffsetsExpired):
        flows.target.stage(plan)


def test_a_topic_recreated_after_planning_fails_the_stage(kafka: Kafka, bind: Bind) -> None:
    topic = kafka.topic()
    flows = bind(topic)
    kafka.produce(topic, values(0, 900))
    plan = flows.plan()
    kafka.delete_topic(topic)
    kafka.topic(name=topic)
    kafka.produce(topic, values(0, 900))
    with pytest.raises(TopicRecreated):
        flows.target.stage(plan)
    assert flows.cold() == []


POINT = pa.struct([pa.field("x", pa.float64()), pa.field("when", pa.timestamp("us", tz="UTC"))])
TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "b": (pa.bool_(), [True, False]),
    "i": (pa.int32(), [-(2**31), 2**31 - 1]),
    "l": (pa.int64(), [-(2**63), 2**63 - 1]),
    "f": (pa.float32(), [1.5, "-Infinity"]),
    "d": (pa.float64(), ["NaN", -0.0, 1.7976931348623157e308, 5e-324]),
    "dec": (
        pa.decimal128(38, 10),
        ["1234567890123456789012345678.0123456789", "-0.0000000001"],
    ),
    "dec_small": (pa.decimal128(4, 2), ["99.99", "0.00"]),
    "day": (pa.date32(), ["0001-01-01", "9999-12-31"]),
    "ts": (pa.timestamp("us"), ["0001-01-01T00:00:00", "9999-12-31T23:59:59.999999"]),
    "tz": (
        pa.timestamp("us", tz="UTC"),
        ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "1582-10-10T00:00:00+02:00"],
    ),
    "s": (pa.string(), ["", "grüße 🌊", "a\u0000b"]),
    "bin": (pa.binary(), ["", "00ff"]),
    "fix": (pa.binary(3), ["000102", "ffffff"]),
    "u": (pa.uuid(), [str(uuid.UUID(int=0)), "ffffffff-ffff-4fff-8fff-ffffffffffff"]),
    "ints": (pa.list_(pa.int32()), [[], [1, None, 3]]),
    "points": (
        pa.list_(POINT),
        [[None, {"x": 1.0, "when": None}], [{"x": None, "when": "2026-01-01T00:00:00Z"}]],
    ),
    "names": (pa.map_(pa.string(), pa.int64()), [{}, {"a": 1, "b": None}]),
    "ids": (pa.list_(pa.uuid()), [[str(uuid.UUID(int=7)), None]]),
    "keyed": (
        pa.map_(pa.int32(), pa.list_(pa.binary(2))),
        [{"keys": [1, 2], "values": [["00ff", None], None]}],
    ),
    "deep": (
        pa.struct([pa.field("u", pa.uuid()), pa.field("p", pa.list_(POINT))]),
        [{"u": str(uuid.UUID(int=9)), "p": [{"x": 2.5, "when": None}]}, {"u": None, "p": []}],
    ),
}


def test_every_type_has_the_same_value_in_cold_as_in_the_log(kafka: Kafka, bind: Bind) -> None:
    topic = kafka.topic()
    columns = [Column(0, name, kind) for name, (kind, _) in TYPES.items()]
    flows = bind(topic, columns)
    records = [{}, dict.fromkeys(TYPES)]
    records += [{name: value} for name, (_, items) in TYPES.items() for value in items]
    kafka.produce(topic, [json.dumps(record).encode() for record in records])
    result = flows.tier()
    assert result.outcomes == Outcomes(rows=len(records))
    pin = flows.target.pin()
    raw = pa.Table.from_batches(
        flows.log.fetch(TopicSource(topic), result.plan.splits, timeout_s=30), RAW_SCHEMA
    )
    assert pin.binding is not None
    expected = [oracle_decode(pin.schema, pin.binding, record) for record in raw.to_pylist()]
    cold = flows.cold()
    assert len(cold) == len(expected)
    for want, items in zip(expected, cold, strict=True):
        assert isinstance(want, dict)
        different = {
            name: (want[name], items.get(name))
            for name in want
            if not same(want[name], items.get(name))
        }
        assert different == {}
        assert list(items) == list(want)
