import pytest

from planner.offsets import OffsetRange, OffsetVector, check_one_per_partition, joined


def test_a_range_is_half_open() -> None:
    items = OffsetRange(partition=3, start=100, stop=250)
    assert len(items) == 150
    assert 100 in items
    assert 249 in items
    assert 250 not in items
    assert 99 not in items


@pytest.mark.parametrize(("partition", "start", "stop"), [(-1, 0, 1), (0, 2, 1), (0, -1, 1)])
def test_a_range_that_exists_is_valid(partition: int, start: int, stop: int) -> None:
    with pytest.raises(ValueError, match="not a"):
        OffsetRange(partition, start, stop)


def test_a_vector_tells_absent_from_zero() -> None:
    items = OffsetVector.of([(2, 7), (0, 0)])
    assert items.get(0) == 0
    assert items.get(1) is None
    assert items.get(2) == 7
    assert items.partitions == (0, 2)
    assert items.as_dict() == {0: 0, 2: 7}
    assert len(items) == 2


@pytest.mark.parametrize("items", [((1, 0), (0, 0)), ((0, 1), (0, 2)), ((-1, 0),), ((0, -1),)])
def test_a_vector_that_exists_is_valid(items: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(ValueError, match=r"partition"):
        OffsetVector(items)


def test_ranges_that_touch_become_one() -> None:
    cut = [
        OffsetRange(1, 5, 9),
        OffsetRange(0, 0, 3),
        OffsetRange(0, 3, 3),
        OffsetRange(0, 3, 7),
    ]
    assert joined(cut) == (OffsetRange(0, 0, 7), OffsetRange(1, 5, 9))
    apart = (OffsetRange(0, 0, 3), OffsetRange(0, 4, 7))
    assert joined(apart) == apart
    assert joined([]) == ()


def test_two_ranges_of_a_partition_are_a_bug_of_the_caller() -> None:
    check_one_per_partition([OffsetRange(0, 0, 3), OffsetRange(1, 0, 3)])
    with pytest.raises(ValueError, match="more than one range of a partition"):
        check_one_per_partition([OffsetRange(0, 0, 3), OffsetRange(0, 4, 7)])
