import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from planner.tiering.layout import MAX_OPEN_FILES, Layout, RowKey, RowOrder, plan_layout
from planner.tiering.triggers import ColdSurvey, Distribution, TierOptions

MIB = 1024**2
BY_ID = RowOrder((RowKey(("id",), pa.uuid(), "bucket", 4),), ())
BY_ID_AND_HOST = RowOrder(BY_ID.partition, (RowKey(("host",), pa.string(), "identity"),))


def layout(
    offsets: int,
    *,
    values: int | None = None,  # 0: partitioned, and nobody knows
    parallelism: int = 2,
    distribution: Distribution = "auto",
    order: RowOrder | None = None,
) -> Layout:
    """A table of 50 bytes a row and a target of 200 MB."""
    survey = ColdSurvey(
        TierOptions(distribution=distribution, target_file_bytes=200_000_000),
        rows=1_000_000,
        file_bytes=50_000_000,
        partitioned=values is not None,
        partition_values=1 if values is None else values or None,
    )
    return plan_layout(
        offsets,
        survey,
        bytes_per_offset=200.0,
        parallelism=parallelism,
        max_task_offsets=4_000_000,
        order=order,
    )


def test_a_small_publish_is_one_file() -> None:
    assert layout(1) == Layout(1, "none", fanout=True)
    assert layout(1_900_000, parallelism=64) == Layout(1, "none", fanout=True)


def test_as_many_cores_work_as_leave_good_files() -> None:
    assert layout(2_000_000, parallelism=64).tasks == 2
    assert layout(4_000_000, parallelism=64).tasks == 4
    assert layout(4_000_000, parallelism=2).tasks == 2


def test_a_task_is_bounded() -> None:
    assert layout(40_000_000, parallelism=2).tasks == 10


def test_few_partitions_are_written_where_the_rows_are_read() -> None:
    assert layout(6_000_000, values=3) == Layout(2, "none", fanout=True)
    assert layout(6_000_000, values=3, parallelism=64) == Layout(2, "none", fanout=True)


def test_many_partitions_are_shuffled_once() -> None:
    many = layout(6_000_000, values=MAX_OPEN_FILES + 1, parallelism=8)
    assert many == Layout(8, "hash", fanout=False)


def test_partitions_nobody_has_counted_are_not_all_held_open() -> None:
    assert layout(6_000_000, values=0) == Layout(2, "none", fanout=False)
    assert layout(6_000_000, values=0, distribution="hash") == Layout(2, "hash", fanout=False)


def test_what_the_table_asks_for_is_kept() -> None:
    assert layout(9, values=2, distribution="hash") == Layout(2, "hash", fanout=True)
    assert layout(9, values=99, distribution="none") == Layout(1, "none", fanout=False)
    # Without partitions there is nothing to distribute by.
    assert layout(9, distribution="hash").distribution == "none"


def test_where_spark_does_not_bring_partitions_together_rows_are_sorted_by_us() -> None:
    assert layout(9, values=0, order=BY_ID) == Layout(1, "none", fanout=False, order=BY_ID)
    many = layout(9, values=99, order=BY_ID)
    assert many == Layout(2, "hash", fanout=False, order=BY_ID)
    unshuffled = layout(9, values=99, distribution="none", order=BY_ID)
    assert unshuffled == Layout(1, "none", fanout=False, order=BY_ID)


def test_files_that_are_all_open_need_no_order() -> None:
    assert layout(9, values=2, order=BY_ID) == Layout(1, "none", fanout=True)


def test_a_shuffle_and_a_sort_order_need_what_partitions_are_told_apart_by() -> None:
    shuffled = layout(9, values=2, distribution="hash", order=BY_ID)
    assert shuffled == Layout(2, "hash", fanout=False, order=BY_ID)
    by_host = Layout(1, "none", fanout=False, order=BY_ID_AND_HOST)
    assert layout(9, values=2, order=BY_ID_AND_HOST) == by_host
    # Without partitions too.
    assert layout(9, order=BY_ID_AND_HOST) == by_host


@given(st.integers(1, 10**9), st.integers(1, 500), st.integers(1, 1000))
def test_every_layout_reads_in_bounded_tasks(offsets: int, values: int, cores: int) -> None:
    result = layout(offsets, values=values, parallelism=cores)
    assert result.tasks >= 1
    assert offsets / result.tasks <= 4_000_000
