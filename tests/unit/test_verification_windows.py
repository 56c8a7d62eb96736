import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.verification.run import windows
from planner.offsets import OffsetRange
from planner.schema import RAW_SCHEMA
from planner.verification.window import MAX_SIDE_BY_SIDE, Window, plan_fetches

ranges = st.dictionaries(
    st.integers(0, 9), st.tuples(st.integers(0, 99), st.integers(1, 40)), min_size=1, max_size=5
).map(
    lambda windows: tuple(OffsetRange(p, at, at + n) for p, (at, n) in sorted(windows.items()))
)


@given(ranges, st.data())
def test_keys_lead_back_to_the_offsets_they_came_from(
    spans: tuple[OffsetRange, ...], data: st.DataObject
) -> None:
    places = [(item.partition, at) for item in spans for at in range(item.start, item.stop)]
    chosen = data.draw(st.lists(st.sampled_from(places), unique=True))
    rows = pa.table(
        {
            "kafka_partition": pa.array([p for p, _ in chosen], pa.int32()),
            "kafka_offset": pa.array([at for _, at in chosen], pa.int64()),
        }
    )
    window = Window(spans)
    keys = window.keys(rows)
    assert keys.to_pylist() == [places.index(place) for place in chosen]
    back = list(window.spans(pa.array(sorted(keys.to_pylist()), pa.int64())))
    result = [(item.partition, at) for item in back for at in range(item.start, item.stop)]
    assert result == sorted(chosen)


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64()], ids=str)
def test_a_batch_has_keys_as_a_table_has(kind: pa.DataType) -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "kafka_partition": pa.array([3], kind),
            "kafka_offset": pa.array([12], pa.int64()),
        }
    )
    window = Window((OffsetRange(0, 5, 9), OffsetRange(3, 10, 20)))
    assert window.keys(batch).to_pylist() == [6]


def test_a_window_has_one_range_of_a_partition() -> None:
    with pytest.raises(ValueError, match="more than one range"):
        Window((OffsetRange(0, 0, 5), OffsetRange(0, 5, 9)))


@given(ranges, st.integers(1, 50))
def test_fetches_together_are_the_ranges_and_none_is_too_large(
    spans: tuple[OffsetRange, ...], most: int
) -> None:
    groups = list(plan_fetches(spans, most))
    assert all(0 < sum(map(len, group)) <= most + len(spans) for group in groups)
    items = [
        (item.partition, at)
        for group in groups
        for item in group
        for at in range(item.start, item.stop)
    ]
    # Each offset once, and those of a partition in order.
    assert sorted(items) == [(i.partition, at) for i in spans for at in range(i.start, i.stop)]
    assert all(
        [at for p, at in items if p == item.partition] == list(range(item.start, item.stop))
        for item in spans
    )


def test_partitions_alike_in_their_offsets_are_read_side_by_side() -> None:
    value = (OffsetRange(0, 100, 200), OffsetRange(1, 90, 190), OffsetRange(7, 100, 201))
    assert list(plan_fetches(value, 151)) == [
        (OffsetRange(0, 100, 150), OffsetRange(1, 90, 140), OffsetRange(7, 100, 150)),
        (OffsetRange(0, 150, 200), OffsetRange(1, 140, 190), OffsetRange(7, 150, 201)),
    ]


@pytest.mark.parametrize(
    "spans",
    [
        (OffsetRange(0, 0, 100), OffsetRange(1, 900, 1000)),
        tuple(OffsetRange(p, 0, 100) for p in range(MAX_SIDE_BY_SIDE + 1)),
    ],
)
def test_others_are_read_one_after_the_other(spans: tuple[OffsetRange, ...]) -> None:
    cut = [
        OffsetRange(item.partition, at, at + 50)
        for item in spans
        for at in (item.start, item.start + 50)
    ]
    assert list(plan_fetches(spans, 50)) == [(item,) for item in cut]


def test_small_ranges_share_a_fetch() -> None:
    value = (OffsetRange(0, 0, 3), OffsetRange(1, 900, 903), OffsetRange(2, 50, 53))
    assert list(plan_fetches(value, 100)) == [value]


def test_a_share_of_less_than_an_offset_waits_for_the_next_fetch() -> None:
    value = (OffsetRange(0, 4, 5), OffsetRange(1, 4, 5))
    assert list(plan_fetches(value, 1)) == [value]


def test_no_window_is_left_where_the_last_batch_fills_one() -> None:
    rows = pa.RecordBatch.from_pylist(
        [{"kafka_partition": 0, "kafka_offset": at} for at in (5, 6)], RAW_SCHEMA
    )
    items = list(windows([rows], [OffsetRange(0, 5, 7)], max_rows=2, max_bytes=1 << 20))
    assert [(window.ranges, records.num_rows) for window, records in items] == [
        ((OffsetRange(0, 5, 7),), 2)
    ]
    empty = list(windows([], [OffsetRange(0, 5, 7)], max_rows=2, max_bytes=1 << 20))
    assert [(window.ranges, records.num_rows) for window, records in empty] == [
        ((OffsetRange(0, 5, 7),), 0)
    ]


def test_nothing_needs_no_fetch() -> None:
    assert list(plan_fetches((OffsetRange(0, 5, 5),), 10)) == []
