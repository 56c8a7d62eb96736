"""How soon a call that failed is answered."""

from __future__ import annotations

import pytest

from proxy.access.limits import FAILURES_BURST_S, FAILURES_PER_S, MAX_PAUSE_S, Failures


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def flood(failures: Failures, count: int, owner: str = "ada") -> list[float]:
    return [failures.pause_s(owner) for _ in range(count)]


def test_failures_now_and_then_are_told_at_once() -> None:
    clock = Clock()
    failures = Failures(clock)
    for _ in range(1_000):
        assert failures.pause_s("ada") == 0
        clock.now_s += 1 / FAILURES_PER_S


def test_more_of_them_wait_and_no_longer_than_a_second() -> None:
    failures = Failures(Clock())
    pauses = flood(failures, 1_000)
    at_once = int(FAILURES_PER_S * FAILURES_BURST_S)
    assert pauses[: at_once + 1] == [0.0] * (at_once + 1)
    assert pauses[at_once + 1 : at_once + 3] == pytest.approx(
        [1 / FAILURES_PER_S, 2 / FAILURES_PER_S]
    )
    assert pauses == sorted(pauses)
    assert pauses[-1] == MAX_PAUSE_S


def test_who_waits_for_each_of_them_is_told_so_many_a_second() -> None:
    clock = Clock()
    failures = Failures(clock)
    flood(failures, 1_000)
    began_s = clock.now_s
    for _ in range(200):
        clock.now_s += failures.pause_s("ada")
    assert clock.now_s - began_s == pytest.approx(200 / FAILURES_PER_S, rel=0.15)


def test_a_flood_leaves_no_debt() -> None:
    clock = Clock()
    failures = Failures(clock)
    flood(failures, 100_000)
    clock.now_s += FAILURES_BURST_S + MAX_PAUSE_S + 1 / FAILURES_PER_S
    assert failures.pause_s("ada") == 0


def test_each_has_a_share_of_his_own_and_some_have_no_limit() -> None:
    failures = Failures(Clock())
    flood(failures, 1_000)
    assert failures.pause_s("bob") == 0
    assert failures.pause_s("ada", None) == 0
    assert failures.pause_s("ada", 1e9) == MAX_PAUSE_S


def test_who_failed_longest_ago_is_forgotten() -> None:
    failures = Failures(Clock())
    flood(failures, 1_000)
    for number in range(10_000):
        failures.pause_s(number)
    assert failures.pause_s("ada") == 0
