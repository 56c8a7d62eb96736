"""What is under a NULL was somebody's memory: it does not leave the server."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest
from pyarrow import types

from proxy.engine.result import cleared

CANARY = b"CANARY-X"
#: Values of every width, and of everything that has children.
VALUES = {
    "boolean": "true",
    "tinyint": "1::TINYINT",
    "smallint": "2::SMALLINT",
    "integer": "3",
    "bigint": "1::BIGINT << 60",
    "hugeint": "4::HUGEINT",
    "float": "0.5::FLOAT",
    "double": "'inf'::DOUBLE",
    "decimal": "1.5::DECIMAL(38, 3)",
    "date": "DATE '2026-11-23'",
    "time": "TIME '03:04:05'",
    "timestamp": "TIMESTAMP '2026-11-23 01:02:03'",
    "zoned": "TIMESTAMPTZ '2026-11-23 01:02:03+00'",
    "interval": "INTERVAL 3 DAY",
    "text": "'a text of more than twelve characters'",
    "blob": "'ab'::BLOB",
    "uuid": "UUID 'd8a5b0d4-0000-4000-8000-000000000000'",
    "bignum": "'12345678901234567890'::BIGNUM",
    "null": "NULL",
    "struct": "{'a': 1::BIGINT, 'b': NULL::BIGINT, 'c': 'x'}",
    "list": "[1::BIGINT, NULL]",
    "list of structs": "[{'a': 1::BIGINT}, NULL, {'a': NULL}]",
    "struct of lists": "{'a': [1.5::DOUBLE, NULL], 'b': NULL::DOUBLE[]}",
    "array": "[1::BIGINT, NULL]::BIGINT[2]",
    "array of structs": "[{'a': 1::BIGINT}, NULL]::STRUCT(a BIGINT)[2]",
    "map": "MAP {'a': 1::BIGINT, 'b': NULL}",
    "map of structs": "MAP {1::BIGINT: {'a': NULL::BIGINT}}",
    "union": "union_value(a := 1::BIGINT)::UNION(a BIGINT, b VARCHAR, c DOUBLE)",
}


@pytest.mark.parametrize("sql", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("first", [0, 3])
def test_values_stay_and_bytes_under_nulls_are_zero(sql: str, first: int) -> None:
    with duckdb.connect() as connection:
        value = f"(SELECT true AS is_there, {sql} AS x)"
        rows = f"SELECT x FROM range(100) t(i) LEFT JOIN {value} ON is_there = (i % 3 > 0)"
        whole = connection.execute(rows).to_arrow_table().to_batches()[0]
    for leaf in _leaves(whole.column(0)):
        _write_under_nulls(leaf)
    batch = whole.slice(first)
    sent = cleared(batch, batch.schema)
    sent.validate(full=True)
    assert sent.equals(batch)
    assert sent.to_pylist() == batch.to_pylist()
    for leaf in _leaves(sent.column(0)):
        assert not _bytes_under_nulls(leaf).strip(b"\0")


def test_a_null_struct_hides_its_fields() -> None:
    """The engine makes them NULL, too; nothing says that it must."""
    field = pa.array([7, 8, 9], pa.int64())
    mask = pa.array([False, True, False])
    column = pa.StructArray.from_arrays([field], ["a"], mask=mask)
    sent = cleared(pa.record_batch([column], ["x"]), pa.schema([("x", column.type)])).column(0)
    assert sent.equals(column)
    assert sent.field(0).buffers()[1].to_pybytes()[8:16] == bytes(8)


def test_columns_without_nulls_are_not_copied() -> None:
    batch = pa.record_batch({"a": [1, 2], "b": [{"c": [1]}, {"c": [2]}]})
    sent = cleared(batch, batch.schema)
    for before, after in zip(batch.columns, sent.columns, strict=True):
        pairs = zip(before.buffers(), after.buffers(), strict=True)
        assert all(a is None or a.address == b.address for a, b in pairs)


def test_a_window_shows_no_text_of_other_tables() -> None:
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE h AS SELECT 'CANARY-X' || md5(i::VARCHAR) AS n FROM range(20000) t(i)"
        )
        connection.execute("CREATE TABLE o AS SELECT i AS a FROM range(100) t(i)")
        columns = ", ".join(f"lag(a, {by}) OVER (ORDER BY a)" for by in range(300))
        before = after = 0
        for _ in range(10):
            connection.execute("SELECT * FROM h").to_arrow_table()
            for batch in connection.execute(f"SELECT {columns} FROM o").to_arrow_reader(1_000):
                before += _canaries(batch)
                after += _canaries(cleared(batch, batch.schema))
    assert before, "the engine clears its memory now"
    assert not after


def _leaves(column: pa.Array) -> Iterator[pa.Array]:
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        yield from _leaves(column.storage)
    elif types.is_map(kind):
        yield from _leaves(column.keys)
        yield from _leaves(column.items)
    elif types.is_struct(kind) or types.is_union(kind):
        for index in range(kind.num_fields):
            yield from _leaves(column.field(index))
    elif types.is_list(kind) or types.is_fixed_size_list(kind):
        yield from _leaves(column.values)
    else:
        yield column


def _width(leaf: pa.Array) -> int:
    """Bytes of a value; 0: not fixed, or bits."""
    try:
        return int(leaf.type.bit_width) // 8
    except ValueError:
        return 0


def _write_under_nulls(leaf: pa.Array) -> None:
    width = _width(leaf)
    for row, value in enumerate(leaf if width else ()):
        if not value.is_valid:
            address = leaf.buffers()[1].address + (leaf.offset + row) * width
            ctypes.memmove(address, (CANARY * 2)[:width], width)


def _bytes_under_nulls(leaf: pa.Array) -> bytes:
    width = _width(leaf)
    rows = [row for row, value in enumerate(leaf if width else ()) if not value.is_valid]
    starts = [(leaf.offset + row) * width for row in rows]
    return b"".join(leaf.buffers()[1].to_pybytes()[start : start + width] for start in starts)


def _canaries(batch: pa.RecordBatch) -> int:
    buffers = [buffer for column in batch.columns for buffer in column.buffers() if buffer]
    return sum(buffer.to_pybytes().count(CANARY[:7]) for buffer in buffers)
