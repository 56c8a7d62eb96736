"""How large a batch is: the answer of Arrow's own ``nbytes``, which takes longer the more columns there are."""

import pyarrow as pa
import pytest

from planner.schema import size_of

_ROWS = pa.record_batch(
    {
        "n": pa.array([1, None, 3, 4], pa.int32()),
        "text": ["a", "", None, "long enough to be counted"],
        "view": pa.array(["a", "b", None, "longer than twelve bytes"], pa.string_view()),
        "list": pa.array([[1], None, [], [2, 3]], pa.list_(pa.int64())),
        "struct": [{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}, {"a": 2, "b": None}],
        "map": pa.array([[("k", 1)], None, [], [("l", 2)]], pa.map_(pa.string(), pa.int64())),
        "dictionary": pa.array(["x", "y", None, "x"]).dictionary_encode(),
        "nothing": pa.nulls(4),
    }
)


@pytest.mark.parametrize("start", [0, 1, 3, 4])
@pytest.mark.parametrize("count", [0, 1, 4])
def test_the_size_is_that_of_the_rows_also_of_a_slice(start: int, count: int) -> None:
    batch = _ROWS.slice(start, count)
    assert size_of(batch) == batch.nbytes


def test_a_batch_without_columns_has_no_size() -> None:
    assert size_of(pa.record_batch({})) == 0
