from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import (
    BadBinding,
    ClusterChanged,
    FederationError,
    Inconsistent,
    LogTruncated,
    TailGap,
    TopicRecreated,
)
from planner.offsets import OffsetRange, OffsetVector
from planner.seam.binding import Binding
from planner.seam.cut import (
    HotSlice,
    Increment,
    LogBounds,
    PartitionBounds,
    TableCut,
    cold_cut,
    plan_cut,
)
from planner.seam.keys import RecordKey, Upsert
from tests.harness.builders import BINDING, bounds, pin, vector, watermark


def test_the_tail_runs_from_the_watermark_to_the_log_end() -> None:
    cut = plan_cut(pin(10, 20), bounds((0, 15), (5, 20)))
    assert cut.hot == HotSlice("flows", "topic-1", (OffsetRange(0, 10, 15),))
    assert cut.cold.snapshot_id == 1
    assert cut.end == vector(15, 20)


def test_an_unbound_table_has_no_tail() -> None:
    cut = plan_cut(pin(binding=None), None)
    assert cut.hot is None
    assert cut.end == OffsetVector()


def test_a_partition_born_after_the_watermark_starts_at_zero() -> None:
    cut = plan_cut(pin(10), bounds((0, 10), (0, 3)))
    assert cut.hot is not None
    assert cut.hot.ranges == (OffsetRange(1, 0, 3),)


KEYED = Binding("flows", key=RecordKey("json"), upsert=Upsert((4,)))
REFUSED = {
    "gap": (
        pin(10),
        bounds((11, 15)),
        TailGap,
        r"flows/0: cold data ends at offset 10 but the log starts at 11; 1 offsets",
    ),
    "gap in a new partition": (
        pin(10),
        bounds((0, 10), (2, 3)),
        TailGap,
        r"flows/1: cold data ends at offset 0",
    ),
    "gap that emptied the log": (pin(10), bounds((12, 12)), TailGap, "2 offsets were removed"),
    "gap of a keyed table": (
        replace(pin(10, binding=KEYED), watermark=watermark(10, shape=KEYED.shape, key=(4,))),
        bounds((11, 15)),
        TailGap,
        "then run `thermocline rebuild lake.net.flows`: it reads all that the log has again.",
    ),
    "truncated": (
        pin(10),
        bounds((0, 9)),
        LogTruncated,
        "ends at offset 10 but the log ends at 9",
    ),
    "partition gone": (
        pin(10, 20),
        bounds((0, 10)),
        LogTruncated,
        "the topic has no partition 1",
    ),
    "recreated": (
        pin(10),
        bounds((0, 10), topic_id="other"),
        TopicRecreated,
        "deleted and created again",
    ),
    "other topic": (
        pin(10),
        bounds((0, 10), topic="other"),
        BadBinding,
        r"thermocline.topic names topic other, but the table holds offsets of topic flows.* Set .* back to flows",
    ),
    "other cluster": (
        pin(10),
        bounds((0, 10), cluster_id="other"),
        ClusterChanged,
        "cluster other",
    ),
}


@pytest.mark.parametrize(
    ("value", "log", "error", "text"), REFUSED.values(), ids=REFUSED.keys()
)
def test_a_log_that_is_not_the_watermarks_is_refused(
    value: object, log: LogBounds, error: type[FederationError], text: str
) -> None:
    with pytest.raises(error, match=text) as caught:
        plan_cut(value, log)  # type: ignore[arg-type]
    assert str(caught.value).startswith("lake.net.flows: ")


def test_an_older_leader_epoch_is_a_replaced_log() -> None:
    def log(epoch: int | None) -> LogBounds:
        return bounds(partitions=(PartitionBounds(0, 0, 15, leader_epoch=epoch),))

    marked = pin(10)
    object.__setattr__(marked, "watermark", watermark(10, epochs=vector(7)))
    with pytest.raises(LogTruncated, match="leader epoch is 6, below 7"):
        plan_cut(marked, log(6))
    for epoch in (7, 8, None):
        assert plan_cut(marked, log(epoch)).end == vector(15)


def test_values_that_contradict_themselves_cannot_exist() -> None:
    with pytest.raises(ValueError, match="bounds come with a bound table"):
        plan_cut(pin(10), None)
    with pytest.raises(ValueError, match="bounds come with a bound table"):
        plan_cut(pin(binding=None), bounds((0, 1)))
    cut = plan_cut(pin(10), bounds((0, 15)))
    with pytest.raises(ValueError, match="come together"):
        TableCut(cut.table, cut.table_uuid, cut.cold, BINDING, None, None)
    late = HotSlice("flows", "topic-1", (OffsetRange(0, 11, 15),))
    with pytest.raises(ValueError, match="does not start at the watermark"):
        TableCut(cut.table, cut.table_uuid, cut.cold, BINDING, cut.watermark, late)
    with pytest.raises(ValueError, match="exactly when it has a watermark"):
        type(pin(1))(cut.table, "u", "m", None, cut.cold.schema, BINDING, None)


def test_a_cold_cut_ends_at_its_watermark_and_has_no_tail() -> None:
    cut = cold_cut(pin(10, 20))
    assert cut.end == vector(10, 20)
    assert cut.new_cold == (OffsetRange(0, 0, 10), OffsetRange(1, 0, 20))
    assert cut.new_hot == ()
    assert cut.is_cold_whole
    plain = cold_cut(pin(binding=None))
    assert plain.hot is None
    assert plain.is_cold_whole


def test_all_of_a_tail_is_new_to_who_does_not_follow_whatever_is_empty() -> None:
    whole = plan_cut(pin(10, 20), bounds((0, 15), (0, 25)))
    assert whole.hot is not None
    assert whole.new_hot == whole.hot.ranges == (OffsetRange(0, 10, 15), OffsetRange(1, 20, 25))
    ranges = (OffsetRange(0, 10, 10), OffsetRange(1, 20, 25))
    cut = replace(whole, hot=replace(whole.hot, ranges=ranges))
    # As to a follower who has seen nothing, who is told range by range.
    assert cut.new_hot == replace(cut, increment=Increment(vector())).new_hot == ranges[1:]


def test_a_cut_may_end_below_its_watermark() -> None:
    whole = plan_cut(pin(10, 20, 30), bounds((0, 15), (0, 25), (0, 35)))
    hot = HotSlice("flows", "topic-1", (OffsetRange(1, 20, 22),))
    cut = replace(whole, hot=hot, until=vector(4, 22))
    assert cut.end == vector(4, 22, 0)
    assert cut.new_cold == (OffsetRange(0, 0, 4), OffsetRange(1, 0, 20))
    assert cut.new_hot == (OffsetRange(1, 20, 22),)
    assert not cut.is_cold_whole
    assert replace(whole, until=vector(10, 20, 30)).is_cold_whole
    assert not replace(whole, increment=Increment(vector(1))).is_cold_whole
    assert not replace(whole, increment=Increment(vector(), since_us=1)).is_cold_whole
    assert replace(whole, increment=Increment(vector())).is_cold_whole


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50)), max_size=6)
)
def test_a_cut_is_disjoint_and_complete_or_an_error(facts: list[tuple[int, int, int]]) -> None:
    marks = [mark for mark, _, _ in facts]
    log = bounds(*((min(a, b), max(a, b)) for _, a, b in facts))
    try:
        cut = plan_cut(pin(*marks), log)
    except Inconsistent:
        assert any(
            not value.log_start <= mark <= value.log_end
            for mark, value in zip(marks, log.partitions, strict=True)
        )
        return
    assert cut.hot is not None
    hot = {(r.partition, offset) for r in cut.hot.ranges for offset in range(r.start, r.stop)}
    cold = {(p, offset) for p, mark in enumerate(marks) for offset in range(mark)}
    everything = {(h.partition, offset) for h in log.partitions for offset in range(h.log_end)}
    assert hot.isdisjoint(cold)
    assert hot | cold == everything


def test_a_cut_names_the_pin_it_was_made_from() -> None:
    pinned = pin(3)
    assert cold_cut(pinned).cold_reference == pinned.reference
