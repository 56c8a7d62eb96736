"""Guessing at a user's password gets slow; the user's own password goes on working."""

from __future__ import annotations

import threading

import pytest

from planner.errors import Overloaded
from proxy.access.authentication import lockout
from proxy.access.authentication.callers import Caller, Unauthenticated
from proxy.access.authentication.lockout import FREE_TRIES, MAX_PAUSE_S, Lockout


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Users:
    def __init__(self) -> None:
        self.right = "right"
        self.checks = 0

    def __call__(self, user: str, password: str) -> Caller | None:
        self.checks += 1
        return Caller(user) if password == self.right else None


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def users() -> Users:
    return Users()


@pytest.fixture
def guarded(users: Users, clock: Clock) -> Lockout:
    return Lockout(users, clock)


def fail(guarded: Lockout, times: int, user: str = "ada") -> None:
    for number in range(times):
        assert guarded(user, f"wrong {number}") is None


def test_typing_errors_cost_nothing(guarded: Lockout) -> None:
    fail(guarded, FREE_TRIES - 1)
    assert guarded("ada", "right") == Caller("ada")
    fail(guarded, FREE_TRIES)


def test_one_too_many_is_refused_unchecked_for_a_time_that_doubles(
    guarded: Lockout, users: Users, clock: Clock
) -> None:
    fail(guarded, FREE_TRIES)
    pauses = []
    for number in range(10):
        request = users.checks
        with pytest.raises(Unauthenticated, match=r"Try again in \d+ s") as refused:
            guarded("ada", "right")
        assert users.checks == request
        pauses.append(int(str(refused.value).split()[-2]))
        clock.now_s += pauses[-1]
        assert guarded("ada", f"guess {number}") is None
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60]
    clock.now_s += MAX_PAUSE_S
    assert guarded("ada", "right") == Caller("ada")


def test_a_password_that_was_right_before_is_let_in_while_others_are_refused(
    guarded: Lockout, users: Users
) -> None:
    assert guarded("ada", "right") is not None
    fail(guarded, FREE_TRIES)
    with pytest.raises(Unauthenticated):
        guarded("ada", "guess")
    assert guarded("ada", "right") is not None
    fail(guarded, FREE_TRIES)
    # But it is checked: a password that was changed is not.
    users.right = "another"
    assert guarded("ada", "right") is None


def test_others_and_those_who_do_not_exist_are_counted_by_themselves(guarded: Lockout) -> None:
    fail(guarded, FREE_TRIES, "nobody")
    with pytest.raises(Unauthenticated) as refused:
        guarded("nobody", "x")
    assert refused.value.facts["user"] == "nobody"
    assert guarded("ada", "right") is not None


def test_failures_are_forgotten_after_a_while(guarded: Lockout, clock: Clock) -> None:
    fail(guarded, FREE_TRIES)
    clock.now_s += lockout.FORGOTTEN_AFTER_S + 1
    fail(guarded, FREE_TRIES)


def test_a_check_that_could_not_be_made_is_no_failure(clock: Clock) -> None:
    def busy(user: str, password: str) -> Caller | None:
        raise Overloaded("Too many logins are being checked.")

    guarded = Lockout(busy, clock)
    for _ in range(3 * FREE_TRIES):
        with pytest.raises(Overloaded):
            guarded("ada", "x")


def test_after_a_pause_one_guess_passes_and_not_a_crowd(clock: Clock) -> None:
    entered, go_on = threading.Event(), threading.Event()
    slow = False

    def check(user: str, password: str) -> Caller | None:
        if slow:
            entered.set()
            assert go_on.wait(30)
        return None

    guarded = Lockout(check, clock)
    fail(guarded, FREE_TRIES)
    clock.now_s += MAX_PAUSE_S
    slow = True
    first = threading.Thread(target=guarded, args=("ada", "guess"))
    first.start()
    assert entered.wait(30)
    with pytest.raises(Unauthenticated):
        guarded("ada", "another")
    go_on.set()
    first.join(30)
    slow = False
    clock.now_s += MAX_PAUSE_S
    assert guarded("ada", "x") is None


def test_what_is_remembered_is_bounded(
    users: Users, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lockout, "_MAX_REMEMBERED", 10)
    guarded = Lockout(users, clock)
    for number in range(50):
        fail(guarded, 1, f"user {number}")
        assert guarded(f"friend {number}", "right") is not None
    assert len(guarded._failures) == len(guarded._right) == 10


def test_what_was_right_is_known_without_a_check(users: Users, clock: Clock) -> None:
    guarded = Lockout(users, clock)
    assert not guarded.remembers("ada", "right")
    fail(guarded, 1, "ada")
    assert guarded("ada", "right") is not None
    checks = users.checks
    assert guarded.remembers("ada", "right")
    assert not guarded.remembers("ada", "wrong")
    assert not guarded.remembers("bob", "right")
    assert users.checks == checks
