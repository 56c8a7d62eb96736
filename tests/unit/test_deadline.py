"""The one deadline of a call."""

from __future__ import annotations

import contextlib

import pytest

from planner.errors import Cancelled, DeadlineExceeded, Unavailable
from proxy.session import WAITED_FOR_TAIL, Cancellation, Deadline
from tests.harness.clock import Clock


def test_a_call_that_is_out_of_time_is_told_so_with_its_limit() -> None:
    clock = Clock()
    deadline = Deadline(60, clock=clock)
    clock.now += 59
    deadline.check()
    assert (deadline.left_s, deadline.is_over) == (1, False)
    clock.now += 1
    assert (deadline.left_s, deadline.is_over) == (0, True)
    with pytest.raises(DeadlineExceeded) as refused:
        deadline.check()
    assert str(refused.value) == (
        "the statement ran longer than 60 s; narrow it, or raise its limit."
    )
    assert refused.value.facts["timeout_s"] == 60
    with pytest.raises(DeadlineExceeded, match="waited longer than 60 s for its tail"):
        deadline.check(WAITED_FOR_TAIL)


def test_the_reason_of_a_cancellation_comes_before_the_time() -> None:
    deadline = Deadline(0, Cancellation())
    deadline.cancellation.request(Unavailable("the server goes."))
    with pytest.raises(Unavailable, match="the server goes"):
        deadline.check()


def test_the_clock_stands_still_while_it_is_paused() -> None:
    clock = Clock()
    deadline = Deadline(60, clock=clock)
    clock.now += 10
    with contextlib.suppress(KeyError), deadline.paused():
        clock.now += 3600
        raise KeyError
    assert deadline.left_s == 50


def test_a_wait_is_as_long_as_the_deadline_leaves_unless_the_call_is_given_up() -> None:
    clock = Clock()
    deadline = Deadline(60, clock=clock)
    clock.now += 59
    assert deadline.patience_s() == 1
    clock.now += 2
    assert deadline.patience_s() == 0
    deadline.cancellation.request()
    with pytest.raises(Cancelled):
        deadline.patience_s()


def test_an_interrupt_runs_once_and_never_after_its_block() -> None:
    cancellation, interrupts = Cancellation(), []
    with cancellation.interrupting(lambda: interrupts.append("over")):
        pass
    with cancellation.interrupting(lambda: interrupts.append("now")):
        cancellation.request()
        cancellation.request(Unavailable("too late."))
    assert interrupts == ["now"]
    with pytest.raises(Cancelled), cancellation.interrupting(lambda: None):
        raise AssertionError


def test_a_wait_within_another_ends_and_the_other_goes_on() -> None:
    deadline = Deadline(60)
    words = [deadline.waits_for]
    with deadline.waiting("cut"):
        with deadline.waiting("turn"):
            words.append(deadline.waits_for)
        words.append(deadline.waits_for)
    assert [*words, deadline.waits_for] == [None, "turn", "cut", None]
