"""Long statements of one user take turns; nobody else waits for them."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from planner.errors import Cancelled, DeadlineExceeded
from proxy.deadline import Cancellation
from proxy.query.punctual import Prompt, Punctual
from proxy.query.turns import LONG_CHARS, Turns
from proxy.session import Session

LONG = "x" * LONG_CHARS
SOON_S = 60.0


def unchecked() -> None:
    """Somebody waits."""


def test_long_statements_of_one_user_take_turns_and_nothing_else_waits() -> None:
    turns = Turns()
    at_work = threading.Event()

    def second() -> None:
        with turns.one("ada", LONG, unchecked, SOON_S):
            at_work.set()

    with turns.one("ada", LONG, unchecked, SOON_S):
        waiting = threading.Thread(target=second)
        waiting.start()
        with (
            turns.one("ada", "SELECT 1", unchecked, SOON_S),
            turns.one("bob", LONG, unchecked, 0),
        ):
            assert not at_work.is_set()
    waiting.join(SOON_S)
    assert at_work.is_set()
    assert not turns._turns


def test_who_waits_is_answered_by_his_deadline_and_may_leave() -> None:
    turns = Turns()

    def left() -> None:
        raise Cancelled("The client ended the call.")

    with turns.one("ada", LONG, unchecked, SOON_S):
        with (
            pytest.raises(DeadlineExceeded, match="send fewer at once"),
            turns.one("ada", LONG, unchecked, 0),
        ):
            raise AssertionError
        with pytest.raises(Cancelled), turns.one("ada", LONG, left, SOON_S):
            raise AssertionError
    assert not turns._turns


class Counting:
    """A backend that notes how many plans of it are made at the same time, and lets each wait for a second one."""

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._lock = threading.Lock()
        self._together = threading.Semaphore(0)
        self.most = self._now = 0

    def plan_at_once(self, *_: Any) -> None:
        return None

    def plan(self, *_: Any) -> None:
        self._plan()

    def prepare(self, *_: Any) -> None:
        self._plan()

    def _plan(self) -> None:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
            if self._now > 1:
                self._together.release(2)
        self._together.acquire(timeout=self._wait_s)
        with self._lock:
            self._now -= 1


@pytest.mark.parametrize(("sql", "most", "wait_s"), [("SELECT 1", 2, SOON_S), (LONG, 1, 0.02)])
@pytest.mark.parametrize("how", ["plan", "prepare"])
def test_the_backend_plans_and_prepares_in_turns(
    sql: str, most: int, wait_s: float, how: str
) -> None:
    inner = Counting(wait_s)
    backend = Punctual(cast("Prompt", inner), lambda _: SOON_S)
    session = Session("s", user="ada")

    def ask() -> None:
        if how == "plan":
            backend.plan(session, sql, None, Cancellation())
        else:
            backend.prepare(session, sql, Cancellation())

    callers = [threading.Thread(target=ask) for _ in range(2)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(SOON_S)
    backend.close()
    assert inner.most == most
