import pyarrow as pa
import pytest

from planner.verification.rows import Keyed, compare_rows, repeats

NAN = float("nan")


def keyed(keys: list[int], values: list[object], kind: pa.DataType) -> Keyed:
    return Keyed.of(pa.array(keys, pa.int64()), pa.table({"x": pa.array(values, kind)}))


def test_equal_rows_in_any_order_show_no_difference() -> None:
    result = compare_rows(
        pa.array([1, 2, 3], pa.int64()),
        keyed([1, 2, 3], ["a", None, "c"], pa.string()),
        keyed([3, 1, 2], ["c", "a", None], pa.string()),
    )
    assert not any(
        map(
            len,
            (
                result.missing,
                result.duplicated,
                result.surplus,
                result.unexpected,
                result.changed,
            ),
        )
    )
    assert result.columns == ()


def test_each_difference_is_told_apart() -> None:
    result = compare_rows(
        pa.array([1, 2, 3, 4, 5], pa.int64()),
        keyed([1, 2, 3, 5], ["a", "b", "c", "e"], pa.string()),
        keyed([1, 2, 2, 2, 4, 5, 9], ["Z", "b", "b", "b", "t", None, "q"], pa.string()),
    )
    assert result.missing.to_pylist() == [3]
    assert result.duplicated.to_pylist() == [2]
    assert result.unexpected.to_pylist() == [4]
    assert result.surplus.to_pylist() == [9]
    assert result.changed.to_pylist() == [1, 5]
    assert result.columns == ("x",)


def test_a_missing_row_alone_is_told() -> None:
    result = compare_rows(
        pa.array([1, 2], pa.int64()),
        keyed([1, 2], ["a", "b"], pa.string()),
        keyed([2], ["b"], pa.string()),
    )
    assert result.missing.to_pylist() == [1]
    assert len(result.duplicated) == len(result.changed) == 0


def test_two_columns_differ_in_different_rows() -> None:
    one = pa.table({"x": [1, 2, 3], "y": [1, 2, 3]})
    other = pa.table({"x": [1, 0, 3], "y": [1, 2, 0]})
    keys = pa.array([7, 8, 9], pa.int64())
    result = compare_rows(keys, Keyed(keys, one), Keyed(keys, other))
    assert result.changed.to_pylist() == [8, 9]
    assert result.columns == ("x", "y")


@pytest.mark.parametrize(
    ("kind", "same", "other"),
    [
        (pa.float64(), [NAN, -0.0, None], [NAN, 0.0, None]),
        (pa.float32(), [1.5, NAN, None], [1.5, NAN, NAN]),
        (pa.list_(pa.float64()), [[NAN, None], None, []], [[NAN, None], None, [1.0]]),
        (pa.list_(pa.string()), [["a"], None, []], [["a"], None, None]),
        (
            pa.struct([("a", pa.float64()), ("b", pa.string())]),
            [{"a": NAN, "b": "x"}, None, {"a": None, "b": None}],
            [{"a": NAN, "b": "x"}, None, None],
        ),
        (
            pa.map_(pa.string(), pa.float32()),
            [[("k", NAN)], None, []],
            [[("k", NAN)], None, [("k", None)]],
        ),
        (pa.uuid(), [b"0" * 16, None, b"1" * 16], [b"0" * 16, None, b"2" * 16]),
        (pa.decimal128(9, 2), [None, 1, 2], [None, 1, 3]),
    ],
    ids=str,
)
def test_values_of_every_kind_are_compared_to_the_bit(
    kind: pa.DataType, same: list[object], other: list[object]
) -> None:
    keys = [0, 1, 2]
    records = pa.array(keys, pa.int64())
    expected = keyed(keys, same, kind)
    assert len(compare_rows(records, expected, keyed(keys, same, kind)).changed) == 0
    result = compare_rows(records, expected, keyed(keys, other, kind))
    differing = [at for at in keys if repr(same[at]) != repr(other[at])]
    assert result.changed.to_pylist() == differing


def test_repeats_are_those_after_the_first() -> None:
    assert repeats(pa.array([], pa.int64())).to_pylist() == []
    assert repeats(pa.array([1, 1, 2, 2, 2], pa.int64())).to_pylist() == [
        False,
        True,
        False,
        True,
        True,
    ]
