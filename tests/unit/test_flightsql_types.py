"""SQL names of Arrow types."""

from __future__ import annotations

import pyarrow as pa
import pytest

from planner.errors import LimitExceeded
from proxy.catalog.sqltypes import sql_type
from proxy.flightsql.metadata.types import described
from proxy.flightsql.outgoing import MAX_BATCH_BYTES, sendable


@pytest.mark.parametrize(
    ("kind", "name", "precision", "scale"),
    [
        (pa.bool_(), "BOOLEAN", 1, None),
        (pa.int32(), "INTEGER", 10, 0),
        (pa.int64(), "BIGINT", 19, 0),
        (pa.uint64(), "UBIGINT", 20, 0),
        (pa.float32(), "FLOAT", 7, None),
        (pa.float64(), "DOUBLE", 15, None),
        (pa.decimal128(38, 0), "DECIMAL(38,0)", 38, 0),
        (pa.date32(), "DATE", 10, None),
        (pa.time64("us"), "TIME", 15, 6),
        (pa.timestamp("us"), "TIMESTAMP", 26, 6),
        (pa.timestamp("s"), "TIMESTAMP", 19, 0),
        (pa.timestamp("us", "UTC"), "TIMESTAMP WITH TIME ZONE", 26, 6),
        (pa.utf8(), "VARCHAR", None, None),
        (pa.string_view(), "VARCHAR", None, None),
        (pa.binary(), "BLOB", None, None),
        (pa.binary(16), "BLOB", 16, None),
        (pa.list_(pa.list_(pa.int32())), "INTEGER[][]", None, None),
        (pa.map_(pa.utf8(), pa.int64()), "MAP(VARCHAR, BIGINT)", None, None),
        (
            pa.struct([("a b", pa.int64()), ('"', pa.utf8())]),
            'STRUCT("a b" BIGINT, """" VARCHAR)',
            None,
            None,
        ),
        (pa.dictionary(pa.int8(), pa.utf8()), "VARCHAR", None, None),
        (pa.null(), "NULL", None, None),
    ],
)
def test_a_type_has_its_sql_name_and_size(
    kind: pa.DataType, name: str, precision: int | None, scale: int | None
) -> None:
    result = sql_type(kind)
    assert (result.name, result.precision, result.scale) == (name, precision, scale)


def test_a_described_column_keeps_nothing_of_the_engine_s_metadata() -> None:
    schema = pa.schema(
        [pa.field("a", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "4"})]
    )
    [field] = described(schema, catalog="c", db_schema="s", table="t")
    assert not field.nullable
    assert all(key.startswith(b"ARROW:FLIGHT:SQL:") for key in field.metadata)


class TestSendable:
    def test_batches_are_cut_by_bytes_and_rows_stay_in_order(self) -> None:
        texts = ["x" * 10] * 1000 + ["y" * 300_000] * 20 + ["z" * 5_000_000] + ["w"] * 100
        batch = pa.record_batch({"t": texts, "n": list(range(len(texts)))})
        parts = sendable(batch, 16 << 20)
        assert pa.Table.from_batches(parts).equals(pa.Table.from_batches([batch]))
        assert all(part.num_rows == 1 for part in parts if part.nbytes > MAX_BATCH_BYTES)
        assert sum(part.nbytes > MAX_BATCH_BYTES for part in parts) == 1
        assert len(parts) < 40

    def test_a_small_batch_and_an_empty_one_stay_one(self) -> None:
        for values in ([], [7]):
            batch = pa.record_batch({"n": pa.array(values, pa.int64())})
            assert sendable(batch) == [batch]

    def test_a_row_above_what_a_message_may_hold_is_refused(self) -> None:
        batch = pa.record_batch({"t": ["y", "x" * (4 * MAX_BATCH_BYTES)]})
        with pytest.raises(LimitExceeded, match=r"One row of the answer has 8,388,\d+ bytes"):
            sendable(batch)
