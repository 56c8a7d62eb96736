"""Statements of one user take turns; nobody else waits for them."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest

from planner.errors import Cancelled, DeadlineExceeded
from proxy.access.fairness import LONG_CHARS, PlanningQueue
from proxy.session import Deadline, Session

LONG = "x" * LONG_CHARS
ADA, BOB = "ada", "bob"
SOON_S = 60.0


def test_long_statements_of_one_user_take_turns_and_nothing_else_waits() -> None:
    turns = PlanningQueue()
    at_work, late = threading.Event(), Deadline(SOON_S)

    def second() -> None:
        with turns.slot(ADA, LONG, late):
            assert late.waits_for is None
            at_work.set()

    with turns.slot(ADA, LONG, Deadline(SOON_S)):
        waiting = threading.Thread(target=second)
        waiting.start()
        with (
            turns.slot(ADA, "SELECT 1", Deadline(SOON_S)),
            turns.slot(BOB, LONG, Deadline(0)),
        ):
            assert not at_work.is_set()
        until_s = time.monotonic() + SOON_S
        while late.waits_for != "turn":
            assert time.monotonic() < until_s
            time.sleep(0.01)
    waiting.join(SOON_S)
    assert at_work.is_set()
    assert not turns._in_use


def test_a_short_statement_waits_for_no_long_one_and_for_nobody_else() -> None:
    turns = PlanningQueue()
    with contextlib.ExitStack() as stack:
        stack.enter_context(turns.slot(ADA, "SELECT 1", Deadline(SOON_S)))
        with (
            pytest.raises(DeadlineExceeded, match="few are planned at a time"),
            turns.slot(ADA, "SELECT 1", Deadline(0)),
        ):
            raise AssertionError
        with turns.slot(BOB, "SELECT 1", Deadline(0)), turns.slot(ADA, LONG, Deadline(0)):
            pass
    with turns.slot(ADA, "SELECT 1", Deadline(0)):
        pass
    assert not turns._in_use


def test_who_waits_is_answered_by_his_deadline_and_may_leave() -> None:
    turns, left = PlanningQueue(), Deadline(SOON_S)
    left.cancellation.request()
    with turns.slot(ADA, LONG, Deadline(SOON_S)):
        with (
            pytest.raises(DeadlineExceeded, match="send fewer at once"),
            turns.slot(ADA, LONG, Deadline(0)),
        ):
            raise AssertionError
        with pytest.raises(Cancelled), turns.slot(ADA, LONG, left):
            raise AssertionError
        assert left.waits_for is None
    assert not turns._in_use


def test_anonymous_sessions_wait_for_themselves_only() -> None:
    turns = PlanningQueue()
    with (
        turns.slot(Session("1").payer, LONG, Deadline(SOON_S)),
        turns.slot(Session("2").payer, LONG, Deadline(0)),
        pytest.raises(DeadlineExceeded),
        turns.slot(Session("1").payer, LONG, Deadline(0)),
    ):
        raise AssertionError


class Times:
    """A clock, and the processor time of a thread, that go on when they are told to."""

    now_s = processor_s = 0.0

    def turns(self) -> PlanningQueue:
        return PlanningQueue(lambda: self.now_s, lambda: self.processor_s)

    def plan(self, turns: PlanningQueue, user: str, sql: str, processor_s: float) -> None:
        with turns.slot(user, sql, Deadline(0)):
            self.processor_s += processor_s


def test_a_user_rests_after_a_second_of_long_statements_while_others_ask() -> None:
    times = Times()
    turns = times.turns()
    times.plan(turns, BOB, "SELECT 1", 0.0)
    for _ in range(4):
        times.plan(turns, ADA, LONG, 0.3)
    with pytest.raises(DeadlineExceeded, match="few are planned at a time"):
        times.plan(turns, ADA, LONG, 0.0)
    times.plan(turns, ADA, "SELECT 1", 0.0)  # a short one has turns of its own
    times.plan(turns, BOB, LONG, 0.0)
    times.now_s = 0.59
    with pytest.raises(DeadlineExceeded):
        times.plan(turns, ADA, LONG, 0.0)
    times.now_s = 0.61
    times.plan(turns, ADA, LONG, 0.0)
    assert not turns._in_use


def test_a_rest_has_an_end() -> None:
    times = Times()
    turns = times.turns()
    times.plan(turns, ADA, LONG, 1_000.0)
    for times.now_s in (9.9, 10.1):
        times.plan(turns, BOB, "SELECT 1", 0.0)
        with contextlib.suppress(DeadlineExceeded):
            times.plan(turns, ADA, LONG, 0.0)
            assert times.now_s == 10.1
            return
    raise AssertionError


def test_nobody_rests_for_short_ones_nor_where_nobody_else_asks() -> None:
    times = Times()
    turns = times.turns()
    times.plan(turns, BOB, "SELECT 1", 0.0)
    for _ in range(3):
        times.plan(turns, ADA, "SELECT 1", 5.0)
    times.now_s = 1.1  # Bob does not ask any more
    for _ in range(3):
        times.plan(turns, ADA, LONG, 5.0)


def test_who_rests_goes_on_as_soon_as_he_may() -> None:
    times = Times()
    turns = times.turns()
    times.plan(turns, BOB, "SELECT 1", 0.0)
    times.plan(turns, ADA, LONG, 1.1)
    begun_s: list[float] = []

    def plan() -> None:
        with turns.slot(ADA, LONG, Deadline(SOON_S)):
            begun_s.append(times.now_s)

    resting = threading.Thread(target=plan)
    resting.start()
    for times.now_s in (0.2, 0.29, 0.31):
        resting.join(0.15)  # it looks every tenth of a second
    resting.join(SOON_S)
    assert begun_s == [0.31]
    assert not turns._in_use


def test_turns_come_in_the_order_of_the_statements() -> None:
    turns, order = PlanningQueue(), []

    def work(number: int) -> None:
        with turns.slot(ADA, LONG, Deadline(SOON_S)):
            order.append(number)

    with turns.slot(ADA, LONG, Deadline(SOON_S)):
        threads = []
        for number in range(20):
            threads.append(threading.Thread(target=work, args=(number,)))
            threads[-1].start()
            while turns.waiting <= number:
                time.sleep(0.001)
    for thread in threads:
        thread.join(SOON_S)
    assert order == list(range(20))
    assert not turns._in_use


def test_who_leaves_the_queue_holds_nobody_up() -> None:
    turns, left = PlanningQueue(), Deadline(SOON_S)
    ended = []

    def leave() -> None:
        with pytest.raises(Cancelled), turns.slot(ADA, LONG, left):
            raise AssertionError
        ended.append("left")

    def wait() -> None:
        with turns.slot(ADA, LONG, Deadline(SOON_S)):
            ended.append("done")

    with turns.slot(ADA, LONG, Deadline(SOON_S)):
        threads = []
        for number, work in enumerate((leave, wait)):
            threads.append(threading.Thread(target=work))
            threads[-1].start()
            while turns.waiting <= number:
                time.sleep(0.001)
        left.cancellation.request()
        threads[0].join(SOON_S)
        assert ended == ["left"]
    threads[1].join(SOON_S)
    assert ended == ["left", "done"]
    assert not turns._in_use
