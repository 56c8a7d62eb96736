import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import BadParameter, Inconsistent
from planner.names import Side
from planner.offsets import OffsetVector
from planner.seam.cut import cold_cut, plan_cut
from planner.seam.freshness import (
    LIVE,
    Freshness,
    Uncovered,
    caught_up,
    parse_freshness,
    parse_wait_for,
    uncovered,
)
from tests.harness.builders import bounds, pin, vector, watermark


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("live", LIVE),
        (" Cold ", Freshness("cold")),
        ("TAIL", Freshness("tail")),
        ("max_staleness 5s", Freshness("max_staleness", 5)),
        ("MAX_STALENESS  500 ms", Freshness("max_staleness", 0.5)),
        ("max_staleness 2m", Freshness("max_staleness", 120)),
        ("max_staleness 2min", Freshness("max_staleness", 120)),
        ("max_staleness 1h", Freshness("max_staleness", 3600)),
        ("max_staleness 1d", Freshness("max_staleness", 86400)),
        ("max_staleness 999d", Freshness("max_staleness", 999 * 86400)),
        ("max_staleness 0s", Freshness("max_staleness", 0)),
    ],
)
def test_a_contract_is_read(text: str, expected: Freshness) -> None:
    assert parse_freshness(text) == expected
    assert parse_freshness(str(expected)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "fresh",
        "live now",
        "max_staleness",
        "max_staleness 5",
        "max_staleness -1s",
        "cold 5s",
    ],
)
def test_what_is_no_contract_is_refused(text: str) -> None:
    with pytest.raises(BadParameter, match="is no freshness; write live, max_staleness"):
        parse_freshness(text)


def test_a_contract_says_what_a_plain_name_means() -> None:
    sides = [
        parse_freshness(text).side for text in ("live", "max_staleness 1s", "cold", "tail")
    ]
    assert sides == [Side.BOTH, Side.BOTH, Side.COLD, Side.TAIL]


def test_records_to_wait_for_are_read_as_ends() -> None:
    assert parse_wait_for("flows/0:4,flows/2:0 , a.b-c_d/1:7 flows/0:3") == {
        "flows": OffsetVector(((0, 5), (2, 1))),
        "a.b-c_d": OffsetVector(((1, 8),)),
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "flows",
        "flows/0",
        "flows:0/1",
        "flows/-1:3",
        "flows/0:x",
        f"flows/0:{2**63 - 1}",
        "/0:1",
    ],
)
def test_what_names_no_record_is_refused(text: str) -> None:
    with pytest.raises(BadParameter, match="names no record to wait for"):
        parse_wait_for(text)


def test_a_record_is_covered_when_the_cut_ends_behind_it() -> None:
    cut = plan_cut(pin(10, 20), bounds((0, 15), (0, 20)))
    assert uncovered(parse_wait_for("flows/0:14 flows/1:19"), cut) is None
    assert uncovered(parse_wait_for("flows/0:15"), cut) == Uncovered("flows", 0, 15, 15)
    assert uncovered(parse_wait_for("flows/7:0"), cut) == Uncovered("flows", 7, 0, 0)
    assert uncovered(parse_wait_for("other/0:99"), cut) is None
    assert uncovered(parse_wait_for("flows/0:99"), cold_cut(pin(binding=None))) is None
    assert uncovered(parse_wait_for("flows/0:10"), cold_cut(pin(10))) is not None


def test_an_old_measurement_knows_no_epoch_and_no_partition_born_since() -> None:
    value = watermark(10, 20, 3, epochs=vector(9, 9, 9))
    then = bounds((2, 12), (0, 15))
    now = caught_up(then, value)
    assert [(b.partition, b.log_start, b.log_end) for b in now.partitions] == [
        (0, 2, 12),
        (1, 0, 20),
        (2, 3, 3),
    ]
    assert {b.leader_epoch for b in now.partitions} == {None}
    marked = pin(10, 20, 3)
    object.__setattr__(marked, "watermark", value)
    assert plan_cut(marked, now).end == vector(12, 20, 3)


@given(st.lists(st.tuples(*[st.integers(0, 30)] * 4), min_size=1, max_size=4))
def test_an_old_measurement_gives_all_that_was_committed_then(
    facts: list[tuple[int, int, int, int]],
) -> None:
    """Whatever was tiered since: nothing below the ends of then is missing, and nothing is refused."""
    # Log starts only rise, and tiering reads what the log has: start <= end <= end now, watermark <= end now.
    start_end = [(min(a, b), max(a, b)) for a, b, _, _ in facts]
    marks = [max(start, c) for (start, _), (_, _, c, _) in zip(start_end, facts, strict=True)]
    cut = plan_cut(pin(*marks), caught_up(bounds(*start_end), watermark(*marks)))
    for (_, end), (_, reached) in zip(start_end, cut.end, strict=True):
        assert reached >= end


def test_a_gap_that_was_there_then_is_refused_still() -> None:
    with pytest.raises(Inconsistent):
        plan_cut(pin(3), caught_up(bounds((5, 9)), watermark(3)))
