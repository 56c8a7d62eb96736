"""What is under a NULL was somebody's memory: it does not leave the server."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest

from proxy.flightsql.outgoing import sendable

VALUES: list[tuple[pa.DataType, object]] = [
    (pa.int8(), -3),
    (pa.int64(), 1 << 60),
    (pa.float32(), 0.5),
    (pa.float64(), float("inf")),
    (pa.bool_(), True),
    (pa.date32(), date(2026, 11, 23)),
    (pa.time64("us"), time(3, 4, 5)),
    (pa.timestamp("us", "UTC"), datetime(2026, 11, 23, tzinfo=UTC)),
    (pa.duration("us"), timedelta(seconds=5)),
    (pa.decimal128(38, 3), Decimal("1.500")),
]


@pytest.mark.parametrize(("kind", "value"), VALUES, ids=[str(kind) for kind, _ in VALUES])
def test_values_stay_and_bytes_under_nulls_are_zero(kind: pa.DataType, value: object) -> None:
    plain = pa.array([value, value, None, value] * 5, kind)
    dirty = pa.Array.from_buffers(
        kind, 20, [plain.buffers()[0], pa.py_buffer(b"\xff" * len(plain.buffers()[1]))], 5
    )
    for column, expected in (
        (plain, plain),
        (plain.slice(3, 9), plain.slice(3, 9)),
        (dirty, None),
    ):
        (sent,) = sendable(pa.record_batch([column], ["a"]))
        if expected is not None:
            sent.validate(full=True)
            assert sent.column(0).equals(expected)
        assert sent.column(0).is_null().equals(column.is_null())
    if kind.bit_width >= 8:
        width = kind.bit_width // 8
        assert sent.column(0).buffers()[1].to_pybytes()[2 * width : 3 * width] == bytes(width)


def test_a_window_shows_no_text_of_other_tables() -> None:
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE h AS SELECT 'CANARY-' || md5(i::VARCHAR) AS n FROM range(20000) t(i)"
        )
        connection.execute("CREATE TABLE o AS SELECT i AS a FROM range(100) t(i)")
        columns = ", ".join(f"lag(a, {by}) OVER (ORDER BY a)" for by in range(300))
        before = after = 0
        for _ in range(10):
            connection.execute("SELECT * FROM h").to_arrow_table()
            for batch in connection.execute(f"SELECT {columns} FROM o").to_arrow_reader(1_000):
                before += _canaries(batch)
                after += sum(map(_canaries, sendable(batch)))
    assert before, "the engine clears its memory now"
    assert not after


def _canaries(batch: pa.RecordBatch) -> int:
    buffers = [buffer for column in batch.columns for buffer in column.buffers() if buffer]
    return sum(buffer.to_pybytes().count(b"CANARY-") for buffer in buffers)
