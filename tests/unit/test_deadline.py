"""The one deadline of a call."""

from __future__ import annotations

import contextlib
import time

import pytest

from planner.errors import Cancelled, DeadlineExceeded, Unavailable
from proxy.deadline import WAITED_FOR_TAIL, Cancellation, Deadline


def test_a_call_that_is_out_of_time_is_told_so_with_its_limit() -> None:
    deadline = Deadline(60)
    deadline.check()
    assert 59 < deadline.left_s <= 60
    over = Deadline(0)
    assert over.is_over
    assert over.left_s == 0
    with pytest.raises(DeadlineExceeded) as refused:
        over.check()
    assert str(refused.value) == (
        "the statement ran longer than 0 s; narrow it, or raise its limit."
    )
    assert refused.value.facts["timeout_s"] == 0
    with pytest.raises(DeadlineExceeded, match="waited longer than 0 s for its tail"):
        over.check(WAITED_FOR_TAIL)


def test_the_reason_of_a_cancellation_comes_before_the_time() -> None:
    deadline = Deadline(0, Cancellation())
    deadline.cancellation.request(Unavailable("the server goes."))
    with pytest.raises(Unavailable, match="the server goes"):
        deadline.check()


def test_the_clock_stands_still_while_it_is_paused() -> None:
    deadline = Deadline(60)
    with contextlib.suppress(KeyError), deadline.paused():
        time.sleep(0.2)
        raise KeyError
    assert deadline.left_s > 59.9


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
