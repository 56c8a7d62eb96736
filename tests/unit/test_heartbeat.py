"""When a silent process is replaced, by the clock of who waits for it."""

from __future__ import annotations

import pytest

from proxy.process.supervisor import Heartbeat

STEP_S = 0.2


def replaced_at(*answers: tuple[float, bool]) -> list[float]:
    """The times of looks, given as (time, whether an answer came), that found the process to be replaced."""
    heartbeat = Heartbeat(began_s=0.0, interval_s=STEP_S)
    return [at for at, answered in answers if heartbeat.look(at, answered=answered)]


def every(start: float, stop: float, *, answered: bool = False) -> list[tuple[float, bool]]:
    steps = round((stop - start) / STEP_S)
    return [(start + (step + 1) * STEP_S, answered) for step in range(steps)]


def test_one_that_answers_stays() -> None:
    assert replaced_at(*every(0, 60, answered=True)) == []


def test_one_that_never_answered_is_starting() -> None:
    assert replaced_at(*every(0, 600)) == []


def test_one_that_has_answered_is_replaced_after_ten_seconds_of_silence() -> None:
    assert replaced_at(*every(0, 5, answered=True), *every(5, 15.2))[0] == pytest.approx(15)
    assert replaced_at(*every(0, 5, answered=True), *every(5, 14.8)) == []


def test_an_answer_in_between_begins_it_anew() -> None:
    assert replaced_at((STEP_S, True), *every(0.2, 9), (9.2, True), *every(9.2, 19)) == []


@pytest.mark.parametrize("paused_s", [1.3, 60.0, 3_600.0])
def test_nobody_is_replaced_for_time_in_which_the_supervisor_itself_was_late(
    paused_s: float,
) -> None:
    before = every(5, 14.8)
    after = 14.8 + paused_s
    silent = replaced_at((5.0, True), *before, *every(after - STEP_S, after + 9.8))
    assert silent == []
    assert replaced_at((5.0, True), *before, *every(after - STEP_S, after + 10.4))


def test_lateness_of_a_busy_machine_does_not_count() -> None:
    late = [(5.0 + 1.1 * step, False) for step in range(1, 11)]
    assert replaced_at(*every(0, 5, answered=True), *late) == [pytest.approx(16)]
