import uuid

import pyarrow as pa
import pytest

from connectors.spark.columns import to_spark

A, B = uuid.UUID(int=1), uuid.UUID("ffffffff-ffff-4fff-8fff-ffffffffffff")


def stored(kind: pa.DataType) -> pa.DataType:
    if kind == pa.uuid():
        return pa.binary(16)
    if pa.types.is_list(kind):
        return pa.list_(stored(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(stored(field.type)) for field in kind])
    return kind


def converted(values: list[object], kind: pa.DataType, *, skip: int = 0) -> pa.Array:
    # pyarrow builds no nested uuids from Python values, but casts their storage.
    array = pa.array(values, stored(kind)).cast(kind)[skip:]
    return to_spark(pa.RecordBatch.from_arrays([array], names=["c"])).column(0)


UUIDS = pa.struct([pa.field("u", pa.uuid()), pa.field("n", pa.int32())])


@pytest.mark.parametrize("skip", [0, 1])
@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (pa.uuid(), [A.bytes, None, B.bytes], [str(A), None, str(B)]),
        (pa.binary(2), [b"ab", None], [b"ab", None]),
        (
            pa.list_(pa.uuid()),
            [[A.bytes], [], None, [None, B.bytes]],
            [[str(A)], [], None, [None, str(B)]],
        ),
        (
            UUIDS,
            [{"u": A.bytes, "n": 1}, None, {"u": None, "n": 2}],
            [{"u": str(A), "n": 1}, None, {"u": None, "n": 2}],
        ),
        (
            pa.map_(pa.string(), pa.binary(1)),
            [[("k", b"v")], [], None, [("x", None)]],
            [[("k", b"v")], [], None, [("x", None)]],
        ),
        (
            pa.list_(pa.list_(UUIDS)),
            [[[{"u": A.bytes, "n": 1}], None], None, [[]]],
            [[[{"u": str(A), "n": 1}], None], None, [[]]],
        ),
    ],
)
def test_uuid_is_text_and_fixed_is_binary_at_any_depth(
    kind: pa.DataType, values: list[object], expected: list[object], skip: int
) -> None:
    table = converted(values, kind, skip=skip)
    table.validate(full=True)
    assert table.to_pylist() == expected[skip:]


def test_columns_spark_holds_as_they_are_are_not_copied() -> None:
    array = pa.array([[1], None], pa.list_(pa.int64()))
    value = to_spark(pa.RecordBatch.from_arrays([array], names=["c"])).column(0)
    assert value.buffers()[-1].address == array.buffers()[-1].address
