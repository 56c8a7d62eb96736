"""Statements of one user take turns; nobody else waits for them."""

from __future__ import annotations

import contextlib
import threading

import pytest

from planner.errors import Cancelled, DeadlineExceeded
from proxy.deadline import Deadline
from proxy.query.turns import LONG_CHARS, Turns
from proxy.session import Session

LONG = "x" * LONG_CHARS
ADA, BOB = Session("1", user="ada"), Session("2", user="bob")
SOON_S = 60.0


def test_long_statements_of_one_user_take_turns_and_nothing_else_waits() -> None:
    turns = Turns()
    at_work = threading.Event()

    def second() -> None:
        with turns.one(ADA, LONG, Deadline(SOON_S)):
            at_work.set()

    with turns.one(ADA, LONG, Deadline(SOON_S)):
        waiting = threading.Thread(target=second)
        waiting.start()
        with (
            turns.one(ADA, "SELECT 1", Deadline(SOON_S)),
            turns.one(BOB, LONG, Deadline(0)),
        ):
            assert not at_work.is_set()
    waiting.join(SOON_S)
    assert at_work.is_set()
    assert not turns._turns


def test_a_short_statement_waits_for_no_long_one_and_for_nobody_else() -> None:
    turns = Turns()
    with contextlib.ExitStack() as stack:
        stack.enter_context(turns.one(ADA, "SELECT 1", Deadline(SOON_S)))
        with (
            pytest.raises(DeadlineExceeded, match="few are planned at a time"),
            turns.one(ADA, "SELECT 1", Deadline(0)),
        ):
            raise AssertionError
        with turns.one(BOB, "SELECT 1", Deadline(0)), turns.one(ADA, LONG, Deadline(0)):
            pass
    with turns.one(ADA, "SELECT 1", Deadline(0)):
        pass
    assert not turns._turns


def test_who_waits_is_answered_by_his_deadline_and_may_leave() -> None:
    turns, left = Turns(), Deadline(SOON_S)
    left.cancellation.request()
    with turns.one(ADA, LONG, Deadline(SOON_S)):
        with (
            pytest.raises(DeadlineExceeded, match="send fewer at once"),
            turns.one(ADA, LONG, Deadline(0)),
        ):
            raise AssertionError
        with pytest.raises(Cancelled), turns.one(ADA, LONG, left):
            raise AssertionError
    assert not turns._turns


def test_anonymous_sessions_wait_for_themselves_only() -> None:
    turns = Turns()
    with (
        turns.one(Session("1"), LONG, Deadline(SOON_S)),
        turns.one(Session("2"), LONG, Deadline(0)),
        pytest.raises(DeadlineExceeded),
        turns.one(Session("1"), LONG, Deadline(0)),
    ):
        raise AssertionError
