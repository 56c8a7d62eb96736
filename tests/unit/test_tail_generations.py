"""Growing: rows become visible with the ranges that stand for them, or not at all."""

from __future__ import annotations

from types import SimpleNamespace

import duckdb
import pyarrow as pa
import pytest

from planner.errors import LimitExceeded, TopicRecreated
from planner.offsets import OffsetRange
from proxy.engine.segments import Segments
from proxy.tail.generations import Generation

SCHEMA = pa.schema([("kafka_partition", pa.int32()), ("kafka_offset", pa.int64())])


def batch(start: int, stop: int) -> pa.RecordBatch:
    offsets = list(range(start, stop))
    return pa.record_batch([[0] * len(offsets), offsets], schema=SCHEMA)


def rows_in(
    engine: duckdb.DuckDBPyConnection, generation: Generation, *expected: OffsetRange
) -> list[int]:
    tail = generation.acquire(expected)
    assert tail is not None
    with tail:
        sql = " UNION ALL ".join(part.sql for part in tail.relations)
        items = engine.cursor().execute(f"SELECT kafka_offset FROM ({sql})").fetchall()
    return sorted(offset for (offset,) in items)


def test_rows_that_could_not_be_deleted_are_not_read_after_a_later_trim(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = duckdb.connect()
    segments = Segments(engine, None)
    value = Generation("lake.net.flows", SCHEMA, segments)
    value.add_much([OffsetRange(0, 0, 10)], [batch(0, 10)])
    delete = segments.delete
    failing = [LimitExceeded("memory is out")]

    def deleted(name: str, where: str) -> int:
        if failing:
            raise failing.pop()
        return delete(name, where)

    monkeypatch.setattr(segments, "delete", deleted)
    mark = SimpleNamespace(offset=lambda partition: 4)
    with pytest.raises(LimitExceeded):
        value.trim(mark)
    for _ in range(2):
        assert rows_in(engine, value, OffsetRange(0, 4, 10)) == list(range(4, 10))
        value.trim(mark)


def test_rows_that_were_refused_after_they_were_written_are_never_seen() -> None:
    engine = duckdb.connect()
    value = Generation("lake.net.flows", SCHEMA, Segments(engine, None))

    def refuse() -> None:
        raise TopicRecreated("flows: another topic.", topic="flows")

    value.add([OffsetRange(0, 0, 5)], [batch(0, 5)])
    for refused in (batch(5, 8), batch(5, 10)):
        with pytest.raises(TopicRecreated):
            value.add([OffsetRange(0, 5, 10)], [refused], refuse)
    assert value.ranges() == (OffsetRange(0, 0, 5),)
    for stop in (10, 12):
        start = value.stops()[0]
        value.add([OffsetRange(0, start, stop)], [batch(start, stop)])
        assert rows_in(engine, value, OffsetRange(0, 0, stop)) == list(range(stop))
