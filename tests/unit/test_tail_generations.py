"""Growing: rows become visible with the ranges that stand for them, or not at all."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from planner.errors import TopicRecreated
from planner.offsets import OffsetRange
from proxy.engine.segments import Segments
from proxy.tail.generations import Generation

SCHEMA = pa.schema([("kafka_partition", pa.int32()), ("kafka_offset", pa.int64())])


def batch(start: int, stop: int) -> pa.RecordBatch:
    offsets = list(range(start, stop))
    return pa.record_batch([[0] * len(offsets), offsets], schema=SCHEMA)


def test_rows_that_were_refused_after_they_were_written_are_never_seen() -> None:
    engine = duckdb.connect()
    held = Generation("lake.net.flows", SCHEMA, Segments(engine, None))

    def refuse() -> None:
        raise TopicRecreated("flows: another topic.", topic="flows")

    held.add([OffsetRange(0, 0, 5)], [batch(0, 5)])
    for refused in (batch(5, 8), batch(5, 10)):
        with pytest.raises(TopicRecreated):
            held.add([OffsetRange(0, 5, 10)], [refused], refuse)
    assert held.ranges() == (OffsetRange(0, 0, 5),)
    for stop in (10, 12):
        start = held.stops()[0]
        held.add([OffsetRange(0, start, stop)], [batch(start, stop)])
        tail = held.lease({0: OffsetRange(0, 0, stop)})
        assert tail is not None
        with tail:
            sql = " UNION ALL ".join(part.sql for part in tail.relations)
            found = engine.cursor().execute(f"SELECT kafka_offset FROM ({sql})").fetchall()
        assert sorted(offset for (offset,) in found) == list(range(stop))
