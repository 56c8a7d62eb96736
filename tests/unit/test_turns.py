"""Statements of one user take turns; nobody else waits for them."""

from __future__ import annotations

import contextlib
import threading

import pytest

from planner.errors import Cancelled, DeadlineExceeded
from proxy.deadline import Deadline
from proxy.query.turns import LONG_CHARS, SHORT_AT_ONCE, Turns

LONG = "x" * LONG_CHARS
SOON_S = 60.0


def test_long_statements_of_one_user_take_turns_and_nothing_else_waits() -> None:
    turns = Turns()
    at_work = threading.Event()

    def second() -> None:
        with turns.one("ada", LONG, Deadline(SOON_S)):
            at_work.set()

    with turns.one("ada", LONG, Deadline(SOON_S)):
        waiting = threading.Thread(target=second)
        waiting.start()
        with (
            turns.one("ada", "SELECT 1", Deadline(SOON_S)),
            turns.one("bob", LONG, Deadline(0)),
        ):
            assert not at_work.is_set()
    waiting.join(SOON_S)
    assert at_work.is_set()
    assert not turns._turns


def test_few_short_statements_of_one_user_are_planned_at_a_time() -> None:
    turns = Turns()
    with contextlib.ExitStack() as stack:
        for _ in range(SHORT_AT_ONCE):
            stack.enter_context(turns.one("ada", "SELECT 1", Deadline(SOON_S)))
        with (
            pytest.raises(DeadlineExceeded, match="few are planned at a time"),
            turns.one("ada", "SELECT 1", Deadline(0)),
        ):
            raise AssertionError
        with turns.one("bob", "SELECT 1", Deadline(0)), turns.one("ada", LONG, Deadline(0)):
            pass
    with turns.one("ada", "SELECT 1", Deadline(0)):
        pass
    assert not turns._turns


def test_who_waits_is_answered_by_his_deadline_and_may_leave() -> None:
    turns, left = Turns(), Deadline(SOON_S)
    left.cancellation.request()
    with turns.one("ada", LONG, Deadline(SOON_S)):
        with (
            pytest.raises(DeadlineExceeded, match="send fewer at once"),
            turns.one("ada", LONG, Deadline(0)),
        ):
            raise AssertionError
        with pytest.raises(Cancelled), turns.one("ada", LONG, left):
            raise AssertionError
    assert not turns._turns
