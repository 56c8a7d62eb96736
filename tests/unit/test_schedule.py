import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.names import TableName
from planner.tiering.schedule import MAX_BACKOFF_S, Backfill, backoff_s, choose
from planner.tiering.triggers import Trigger


def name(number: int) -> TableName:
    return TableName("lake", ("net",), f"t{number}")


def test_the_most_urgent_tables_start_first_as_many_as_there_is_room_for() -> None:
    due = {
        name(1): Trigger("age", 5.0),
        name(2): Trigger("pressure", 1.1),
        name(3): Trigger("pressure", 2.0),
        name(4): Trigger("bytes", 9.0),
        name(5): Trigger("pressure", 3.0),
    }
    assert choose(due, {name(5), name(9)}, at_once=5) == (name(3), name(2), name(4))
    assert choose(due, {name(5), name(9)}, at_once=2) == ()
    assert choose(due, {name(5), name(9)}, at_once=1) == ()


def test_equals_start_by_name() -> None:
    due = {name(2): Trigger("age", 1.0), name(1): Trigger("age", 1.0)}
    assert choose(due, set(), at_once=1) == (name(1),)


@given(st.integers(1, 10_000), st.floats(0, 1))
def test_waiting_grows_and_ends_at_five_minutes(failures: int, jitter: float) -> None:
    assert 1.0 <= backoff_s(failures, jitter) <= MAX_BACKOFF_S
    assert backoff_s(failures, 1.0) >= backoff_s(failures, jitter)
    assert backoff_s(failures + 1, jitter) >= backoff_s(failures, jitter)


def test_what_passes_by_itself_is_tried_every_half_minute_at_least() -> None:
    assert backoff_s(9, 1.0, passes=True) == 30.0
    assert backoff_s(1, 1.0, passes=True) == backoff_s(1, 1.0)


def test_the_first_failure_waits_seconds() -> None:
    assert [backoff_s(count, 1.0) for count in (1, 2, 3)] == [2.0, 4.0, 8.0]
    assert backoff_s(1, 0.0) == 1.0


@pytest.mark.parametrize(
    ("backfill", "share", "eta_s"),
    [
        (Backfill(0, 100, 5.0), 0.0, None),
        (Backfill(25, 75, 5.0), 0.25, 15.0),
        (Backfill(100, 0, 20.0), 1.0, 0.0),
        (Backfill(0, 0, 0.0), 1.0, None),
        (Backfill(5, 5, 0.0), 0.5, None),
    ],
)
def test_a_backfill_knows_its_share_and_its_time_to_come(
    backfill: Backfill, share: float, eta_s: float | None
) -> None:
    assert (backfill.fraction, backfill.eta_s) == (share, eta_s)
