import dataclasses
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.decoding.json.decoder import JsonRecords
from planner.errors import BadBinding, LogTruncated, ShapeMismatch, TailGap
from planner.offsets import OffsetRange, cut_up
from planner.schema import FIELD_ID, Column
from planner.seam.binding import Binding
from planner.seam.cut import PartitionBounds
from planner.seam.formats import JsonFormat
from planner.seam.keys import RecordKey, Upsert
from planner.tiering.plan import TieringBudget, plan_rebuild, plan_tiering
from tests.harness.builders import bounds, pin, schema, vector, watermark

KEYED = Binding("flows", key=RecordKey("json"), upsert=Upsert((4,)))

lags = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=1, max_size=8)


def numbered(name: str, number: int, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, metadata={FIELD_ID: str(number)})


@given(lags, st.integers(1, 2000), st.integers(1, 300))
def test_a_plan_is_whole_bounded_and_fair(
    facts: list[tuple[int, int]], max_rows: int, split_rows: int
) -> None:
    marks = [min(pair) for pair in facts]
    log = bounds(*((0, max(pair)) for pair in facts))
    plan = plan_tiering(
        pin(*marks), log, TieringBudget(max_rows=max_rows, split_rows=split_rows)
    )
    lag = sum(max(pair) - min(pair) for pair in facts)
    assert plan.offsets == min(lag, max_rows)
    assert plan.advances == (lag > 0)
    for partition, (low, high) in enumerate((min(p), max(p)) for p in facts):
        mine = [split for split in plan.splits if split.partition == partition]
        assert all(0 < len(split) <= split_rows for split in mine)
        stops = [low, *(split.stop for split in mine)]
        assert [split.start for split in mine] == stops[:-1]
        assert plan.next.get(partition) == stops[-1] <= high
        share = (high - low) * min(Fraction(1), Fraction(max_rows, max(lag, 1)))
        assert abs(stops[-1] - low - share) <= 1 or lag <= max_rows


def test_a_new_partition_enters_the_watermark_even_when_empty() -> None:
    plan = plan_tiering(pin(5), bounds((0, 5), (0, 0)), TieringBudget())
    assert plan.splits == ()
    assert plan.next == vector(5, 0)
    assert plan.advances


def test_bytes_bound_a_plan_too() -> None:
    budget = TieringBudget(max_bytes=1000)
    plan = plan_tiering(pin(0), bounds((0, 500)), budget, bytes_per_offset=100.0)
    assert plan.splits == (OffsetRange(0, 0, 10),)
    tiny = plan_tiering(pin(0), bounds((0, 500)), budget, bytes_per_offset=1e9)
    assert tiny.offsets == 1


@pytest.mark.parametrize(("lag", "moved"), [(20, 20), (21, 10), (500, 10)])
def test_a_long_backfill_starts_with_little(lag: int, moved: int) -> None:
    budget = TieringBudget(max_rows=50, start_rows=10)
    assert plan_tiering(pin(0), bounds((0, lag)), budget).offsets == moved


def test_epochs_travel_where_known() -> None:
    log = bounds(
        partitions=(PartitionBounds(0, 0, 5, leader_epoch=3), PartitionBounds(1, 0, 5))
    )
    plan = plan_tiering(pin(0, 0), log, TieringBudget())
    assert plan.epochs.as_dict() == {0: 3}


def test_another_shape_is_refused() -> None:
    value = dataclasses.replace(pin(0), binding=Binding(topic="flows", on_error="skip"))
    with pytest.raises(
        ShapeMismatch, match=r"lake\.net\.flows: rows below the watermark were decoded"
    ):
        plan_tiering(value, bounds((0, 5)), TieringBudget())


@pytest.mark.parametrize(
    ("declared", "kind", "what"),
    [
        (
            {"epoch_units": ((9, "ms"),)},
            pa.int64(),
            "an epoch unit is declared for a, which is long",
        ),
        (
            {"epoch_units": ((12, "s"),)},
            pa.list_(pa.struct([numbered("b", 12, pa.string())])),
            "an epoch unit is declared for a[].b, which is string",
        ),
        (
            {"floors": (13,)},
            pa.map_(pa.string(), numbered("value", 13, pa.date32())),
            "a floor of times is declared for a.value, which is date",
        ),
    ],
)
def test_a_unit_or_floor_of_what_is_no_time_is_named_before_a_moved_shape(
    declared: dict[str, Any], kind: pa.DataType, what: str
) -> None:
    binding = Binding("flows", JsonFormat(**declared), on_error="skip")
    value = dataclasses.replace(pin(0), schema=schema(Column(9, "a", kind)), binding=binding)
    with pytest.raises(BadBinding) as tiered:
        plan_tiering(value, bounds((0, 5)), TieringBudget())
    with pytest.raises(BadBinding) as selected:
        JsonRecords(str(value.table), value.schema, binding)
    assert tiered.value.message == selected.value.message
    assert tiered.value.message.startswith(f"lake.net.flows: {what}; only ")


def test_a_gap_is_never_tiered_over() -> None:
    with pytest.raises(TailGap):
        plan_tiering(pin(3), bounds((4, 5)), TieringBudget())


@pytest.mark.parametrize(
    ("budget", "following"),
    [
        # The older partition's changes first: one of them may be of a key that a newer one deletes.
        (10, {0: 13}),
        (96, {0: 99}),
        (97, {0: 100, 1: 1}),
        (100, {0: 100, 1: 3}),
        (200, {0: 100, 1: 50}),
    ],
)
def test_partitions_that_were_added_to_a_keyed_table_come_last(
    budget: int, following: dict[int, int]
) -> None:
    value = pin(3, binding=KEYED)
    value = dataclasses.replace(value, watermark=watermark(3, shape=KEYED.shape, key=(4,)))
    plan = plan_tiering(value, bounds((0, 100), (0, 50)), TieringBudget(max_rows=budget))
    assert plan.next.as_dict() == following
    assert plan.reaches_end == (following == {0: 100, 1: 50})


def test_a_rebuild_reads_all_that_the_log_holds() -> None:
    """From the log's start, whatever the watermark and the shape are; offsets that retention removed are no gap."""
    value = dataclasses.replace(pin(3, 8, binding=KEYED), schema=schema())
    plan = plan_rebuild(value, bounds((4, 9), (0, 8), (2, 2)), split_rows=3)
    retained = OffsetRange(0, 4, 9), OffsetRange(1, 0, 8)
    assert plan.splits == tuple(split for each in retained for split in cut_up(each, 3))
    assert plan.next == vector(9, 8, 2)
    assert plan.is_rebuild
    assert plan.start == value.watermark


def test_a_rebuild_never_loses_what_the_watermark_says_of_the_log() -> None:
    with pytest.raises(LogTruncated):
        plan_rebuild(pin(10, binding=KEYED), bounds((0, 9)), split_rows=3)


def test_a_table_with_a_row_for_each_record_is_not_rebuilt() -> None:
    with pytest.raises(BadBinding) as caught:
        plan_rebuild(pin(3), bounds((4, 9)), split_rows=3)
    assert caught.value.message == (
        "lake.net.flows: only a keyed table can be rebuilt: this one has a row for each record, and of those that the log has "
        "lost nothing would be left."
    )


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="not bound"):
        plan_rebuild(pin(binding=None), bounds((0, 5)), split_rows=3)
    with pytest.raises(ValueError, match="not bound"):
        plan_tiering(pin(binding=None), bounds((0, 5)), TieringBudget())
    with pytest.raises(ValueError, match="at least 1"):
        TieringBudget(max_rows=0)
