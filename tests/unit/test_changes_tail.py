"""The tail of a keyed table: the newest change of each key, at any end of a cut and from any watermark, as a dictionary has it."""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import KeyInTwoPartitions, TopicRecreated
from planner.names import KAFKA_OP
from planner.offsets import OffsetRange
from proxy.engine.segments import Segments
from proxy.tail import generations
from proxy.tail.generations import Generation
from proxy.tail.newest_changes import NewestChanges

SCHEMA = pa.schema(
    [
        pa.field("kafka_partition", pa.int32(), nullable=False),
        pa.field("kafka_offset", pa.int64(), nullable=False),
        pa.field("id", pa.int64(), nullable=False),
        pa.field("region", pa.string(), nullable=False),
        pa.field(KAFKA_OP, pa.string(), nullable=False),
    ]
)
#: Of one partition, by offset: what its change is of, and ``u`` or ``d``; None where there is no change.
Log = list[tuple[int, str] | None]


def batch(partition: int, start: int, changes: Log) -> pa.RecordBatch:
    rows = [
        {
            "kafka_partition": partition,
            "kafka_offset": offset,
            "id": change[0],
            "region": f"r{change[0] % 2}",
            KAFKA_OP: change[1],
        }
        for offset, change in enumerate(changes, start)
        if change is not None
    ]
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


def generation(engine: duckdb.DuckDBPyConnection) -> Generation:
    return Generation("lake.net.t", SCHEMA, Segments(engine, None), ["id", "region"])


def winners(
    engine: duckdb.DuckDBPyConnection, tail: Generation, ranges: list[OffsetRange]
) -> dict[int, tuple[int, str]]:
    """The newest change of each key by what statements read: its offset and op, by id."""
    leased = tail.acquire(ranges)
    assert leased is not None
    with leased:
        rows, superseded = (
            " UNION ALL ".join(each.sql for each in relations)
            for relations in (leased.relations, leased.superseded)
        )
        if not rows:
            return {}
        newest = (
            engine.cursor()
            .execute(
                f"SELECT id, t.kafka_offset, kafka_op FROM ({rows}) t ANTI JOIN ({superseded}) s "
                "ON t.kafka_partition = s.kafka_partition AND t.kafka_offset = s.kafka_offset"
            )
            .fetchall()
        )
    by_id = {key: (offset, op) for key, offset, op in newest}
    assert len(by_id) == len(newest), "a key has two newest changes"
    return by_id


def expected(logs: list[Log], ranges: list[OffsetRange]) -> dict[int, tuple[int, str]]:
    rows = {}
    for item in ranges:
        for offset in range(item.start, item.stop):
            change = logs[item.partition][offset]
            if change is not None:
                rows[change[0]] = (offset, change[1])
    return rows


def changes_of(partition: int) -> st.SearchStrategy[Log]:
    key = st.integers(0, 4).map(lambda number: number * 2 + partition)
    return st.lists(
        st.one_of(st.none(), st.tuples(key, st.sampled_from("uud"))), min_size=0, max_size=14
    )


STEPS = st.lists(
    st.sampled_from(["add", "much", "pack", "close", "fail", "forget", "trim"]), max_size=14
)


@settings(deadline=None, max_examples=20, derandomize=True)
@given(st.tuples(changes_of(0), changes_of(1)), STEPS, st.data())
def test_the_newest_changes_are_a_dictionarys_at_every_end_and_every_watermark(
    both: tuple[Log, Log], steps: list[str], data: st.DataObject
) -> None:
    before, generations.SEGMENT_ROWS = generations.SEGMENT_ROWS, 4
    engine = duckdb.connect()
    try:
        logs, tail = list(both), generation(engine)
        starts, stops = [0, 0], [0, 0]
        tail.begin(enumerate(stops), ())
        for step in [*steps, "rest"]:
            ends = [
                len(log) if step == "rest" else data.draw(st.integers(stop, len(log)))
                for log, stop in zip(logs, stops, strict=True)
            ]
            ranges = [OffsetRange(at, stops[at], ends[at]) for at in (0, 1)]
            pieces = [batch(at, stops[at], logs[at][stops[at] : ends[at]]) for at in (0, 1)]
            if step in ("add", "rest"):
                tail.add(ranges, pieces)
                stops = ends
            elif step == "much":
                tail.add_much(ranges, pieces)
                stops = ends
            elif step == "fail":
                with pytest.raises(TopicRecreated):
                    tail.add(ranges, pieces, refuse)
            elif step == "pack":
                tail.pack()
            elif step == "close":
                tail.close_last()
            else:
                floors = [data.draw(st.integers(starts[at], stops[at])) for at in (0, 1)]
                floor = SimpleNamespace(offset=lambda at, floors=floors: floors[at])
                tail.forget(floor) if step == "forget" else tail.trim(floor)
                starts = floors
        for first in range(starts[0], stops[0] + 1):
            for end in range(first, stops[0] + 1):
                second = data.draw(st.integers(starts[1], stops[1]))
                ranges = [
                    OffsetRange(0, first, end),
                    OffsetRange(1, second, data.draw(st.integers(second, stops[1]))),
                ]
                assert winners(engine, tail, ranges) == expected(logs, ranges)
    finally:
        generations.SEGMENT_ROWS = before
        engine.close()


def test_each_change_supersedes_the_one_before_it() -> None:
    engine = duckdb.connect()
    tail = generation(engine)
    tail.begin([(0, 0)], ())
    log: Log = [(1, "u"), (1, "d"), (2, "u"), (1, "u"), None, (1, "u")]
    tail.add([OffsetRange(0, 0, 6)], [batch(0, 0, log)])
    ends = [winners(engine, tail, [OffsetRange(0, 0, end)]) for end in range(7)]
    assert ends == [
        {},
        {1: (0, "u")},
        {1: (1, "d")},
        {1: (1, "d"), 2: (2, "u")},
        {1: (3, "u"), 2: (2, "u")},
        {1: (3, "u"), 2: (2, "u")},
        {1: (5, "u"), 2: (2, "u")},
    ]


def refuse() -> None:
    raise TopicRecreated("t: another topic.", topic="t")


def test_a_key_in_two_partitions_is_refused_and_nothing_of_its_batch_counts() -> None:
    engine = duckdb.connect()
    tail = generation(engine)
    tail.begin([(0, 0), (1, 0)], ())
    tail.add([OffsetRange(0, 0, 2)], [batch(0, 0, [(1, "u"), (2, "u")])])
    with pytest.raises(KeyInTwoPartitions) as refused:
        tail.add([OffsetRange(1, 0, 2)], [batch(1, 0, [(3, "u"), (2, "d")])])
    assert refused.value.facts == {
        "table": "lake.net.t",
        "partition": 1,
        "offset": 1,
        "other": 0,
    }
    tail.add([OffsetRange(1, 0, 1)], [batch(1, 0, [(3, "u")])])
    both = [OffsetRange(0, 0, 2), OffsetRange(1, 0, 1)]
    assert winners(engine, tail, both) == {1: (0, "u"), 2: (1, "u"), 3: (0, "u")}


def test_the_memory_of_keys_is_counted_and_goes_with_their_rows() -> None:
    tail = generation(duckdb.connect())
    tail.begin([(0, 0)], ())
    assert tail.keys_size == 0
    tail.add([OffsetRange(0, 0, 1000)], [batch(0, 0, [(at, "u") for at in range(1000)])])
    size = tail.keys_size
    assert 100_000 < size < 500_000
    tail.add([OffsetRange(0, 1000, 1010)], [batch(0, 1000, [(7, "u")] * 10)])
    assert tail.keys_size == size
    tail.trim(SimpleNamespace(offset=lambda _: 1000))
    assert tail.keys_size == size / 1000
    tail.clear()
    assert tail.keys_size == 0


def test_the_memory_of_keys_is_counted_while_they_are_being_added() -> None:
    """A first read of a whole tail is refused where it goes beyond the limits, not once it has."""
    tail = generation(duckdb.connect())
    tail.begin([(0, 0)], ())
    sizes = []

    def batches() -> Iterator[pa.RecordBatch]:
        for start in (0, 100, 200):
            yield batch(0, start, [(start + at, "u") for at in range(100)])
            sizes.append(tail.keys_size)

    tail.add_much([OffsetRange(0, 0, 300)], batches())
    assert sizes == [tail.keys_size // 3, tail.keys_size * 2 // 3, tail.keys_size]


def test_a_tail_of_rows_has_nothing_of_it() -> None:
    tail = Generation("lake.net.t", SCHEMA, Segments(duckdb.connect(), None))
    tail.begin([(0, 0)], ())
    tail.add([OffsetRange(0, 0, 1)], [batch(0, 0, [(1, "u")])])
    leased = tail.acquire([OffsetRange(0, 0, 1)])
    assert leased is not None
    with leased:
        assert leased.superseded == ()
        assert leased.least_rows == 1
    assert tail.keys_size == 0


KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int": (pa.int32(), [1, 2, 1]),
    "boolean": (pa.bool_(), [True, False, True]),
    "string": (pa.string(), ["a", "b", "a"]),
    "binary": (pa.binary(), [b"a", b"b", b"a"]),
    "fixed": (pa.binary(2), [b"aa", b"bb", b"aa"]),
    "uuid": (pa.uuid(), [uuid.UUID(int=1), uuid.UUID(int=2), uuid.UUID(int=1)]),
    "decimal": (pa.decimal128(5, 2), [decimal.Decimal("1.50"), None, decimal.Decimal("1.5")]),
    "date": (pa.date32(), [datetime.date(1, 1, 1), None, datetime.date(1, 1, 1)]),
    "timestamptz": (
        pa.timestamp("us", "UTC"),
        [
            datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
            None,
            datetime.datetime(
                2026, 1, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=1))
            ),
        ],
    ),
}


@pytest.mark.parametrize("name", KEYS)
def test_keys_are_the_same_by_their_values(name: str) -> None:
    kind, values = KEYS[name]
    if isinstance(kind, pa.BaseExtensionType):
        storage = pa.array([each.bytes for each in values], kind.storage_type)
        keys = pa.ExtensionArray.from_storage(kind, storage)
    else:
        keys = pa.array(values, kind)
    numbers = [pa.array([0, 0, 0], pa.int32()), pa.array([3, 4, 5], pa.int64())]
    rows = pa.RecordBatch.from_arrays(
        [*numbers, keys], names=["kafka_partition", "kafka_offset", "key"]
    )
    with NewestChanges("t", ["key"]).adding([rows]) as linked:
        [one] = linked
    assert one.column("kafka_previous").to_pylist() == [None, None, 3]
