"""A segment is read through ranges: the same rows, whether few are compared or many are joined."""

from __future__ import annotations

import random

import duckdb
import pyarrow as pa
import pytest

from planner.offsets import OffsetRange
from proxy.tail.segment import _MAX_CASES, bounded

SCHEMA = pa.schema([("kafka_partition", pa.int32()), ("kafka_offset", pa.int64())])


@pytest.mark.parametrize("partitions", [1, 3, _MAX_CASES, _MAX_CASES + 1, 100])
@pytest.mark.parametrize("after", [0, 700])
def test_only_rows_of_the_ranges_are_read(partitions: int, after: int) -> None:
    chance = random.Random(partitions)
    rows = [(chance.randrange(partitions + 2), offset) for offset in range(2_000)]
    expected = [
        OffsetRange(partition, start := chance.randrange(1_500), start + chance.randrange(500))
        for partition in range(partitions)
    ]
    with duckdb.connect() as engine:
        engine.execute("CREATE TABLE held (kafka_partition INTEGER, kafka_offset BIGINT)")
        engine.execute(
            "INSERT INTO held SELECT unnest(?), unnest(?)",
            [*map(list, zip(*rows, strict=True))],
        )
        result = engine.execute(bounded("held", SCHEMA.names, expected, after).sql).fetchall()
    by_partition = {item.partition: item for item in expected}
    assert sorted(result) == sorted(
        (partition, offset)
        for partition, offset in rows[after:]
        if partition in by_partition
        and by_partition[partition].start <= offset < by_partition[partition].stop
    )


def test_no_range_has_no_rows() -> None:
    with duckdb.connect() as engine:
        engine.execute(
            "CREATE TABLE held AS SELECT 0::INTEGER kafka_partition, 5::BIGINT kafka_offset"
        )
        assert engine.execute(bounded("held", SCHEMA.names, []).sql).fetchall() == []
