"""Whose statements ended the process: what the next process knows, and what follows for them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from planner.errors import Overloaded
from proxy.process.suspects import SLOWED_PLACES, Suspects, new_file


class Clock:
    now_s = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def file() -> Iterator[int]:
    descriptor = new_file()
    yield descriptor
    os.close(descriptor)


def is_refused(suspects: Suspects, user: str | None) -> bool:
    try:
        suspects.check(user)
    except Overloaded:
        return True
    return False


def test_one_end_slows_its_user_down_and_nobody_else_across_the_restart(
    file: int, clock: Clock
) -> None:
    Suspects(file, now_s=clock).blame("limited")
    later = Suspects(file, now_s=clock)
    assert not is_refused(later, "limited")
    assert later.most("limited", None) == later.most("limited", 8) == SLOWED_PLACES
    assert later.most("limited", 1) == 1
    assert later.most("admin", None) is None
    clock.now_s += 601
    assert later.most("limited", 8) == 8


def test_who_ends_it_again_is_refused_by_name_for_a_while_and_then_for_longer(
    file: int, clock: Clock
) -> None:
    for minutes in (1, 4, 15, 15):
        for _ in range(2 if minutes == 1 else 1):
            Suspects(file, now_s=clock).blame("limited")
        suspects = Suspects(file, now_s=clock)
        with pytest.raises(
            Overloaded, match=r"user 'limited' ended .* until \d\d:\d\d:\d\d UTC"
        ):
            suspects.check("limited")
        assert not is_refused(suspects, "admin")
        clock.now_s += minutes * 60 - 1
        assert is_refused(suspects, "limited")
        clock.now_s += 1
        assert not is_refused(suspects, "limited")
    clock.now_s += 3600
    assert suspects.most("limited", None) is None


def test_a_process_that_was_killed_leaves_who_had_most_running(file: int, clock: Clock) -> None:
    Suspects(file, now_s=clock).note({"limited": 31.0, "admin": 2.0, "ada": 4.0})
    later = Suspects(file, now_s=clock)
    assert later.most("limited", None) == SLOWED_PLACES
    assert later.most("admin", None) is later.most("ada", None) is None
    # It counts once: the process after that one has nothing against anybody.
    assert not is_refused(Suspects(file, now_s=clock), "limited")


def test_what_is_only_guessed_slows_down_and_refuses_nobody(file: int, clock: Clock) -> None:
    for _ in range(5):
        Suspects(file, now_s=clock).note({"limited": 31.0})
    later = Suspects(file, now_s=clock)
    assert later.most("limited", None) == SLOWED_PLACES
    assert not is_refused(later, "limited")


def test_a_process_that_says_why_it_ends_notes_nothing_more(file: int, clock: Clock) -> None:
    ended = Suspects(file, now_s=clock)
    ended.note({"limited": 31.0})
    ended.blame_nobody()
    ended.note({"limited": 32.0})
    assert Suspects(file, now_s=clock).most("limited", None) is None


def test_where_several_may_be_to_blame_nobody_is(file: int, clock: Clock) -> None:
    Suspects(file, now_s=clock).note({"limited": 5.0, "admin": 5.0})
    assert Suspects(file, now_s=clock).most("limited", None) is None
    ended = Suspects(file, now_s=clock)
    ended.note({"limited": 5.0, "admin": 6.0})
    ended.note({})
    ended.blame_largest()
    assert Suspects(file, now_s=clock).most("admin", None) is None


def test_who_has_most_running_is_blamed_where_memory_ran_out(file: int, clock: Clock) -> None:
    ended = Suspects(file, now_s=clock)
    ended.note({"limited": 9.0, "admin": 5.0})
    ended.blame_largest()
    later = Suspects(file, now_s=clock)
    assert later.most("limited", None) == SLOWED_PLACES
    assert not is_refused(later, "limited")  # noted and blamed is once


def test_anonymous_callers_are_slowed_down_and_never_refused(clock: Clock) -> None:
    suspects = Suspects(now_s=clock)
    for _ in range(5):
        suspects.blame(None)
    assert not is_refused(suspects, None)
    assert suspects.most(None, None) == SLOWED_PLACES


@pytest.mark.parametrize(
    "left", [b"", b"{", b"[]", b'{"ends": 1, "running": 2}', b'{"ends": [["a", "x"]]}', b"\xff"]
)
def test_what_a_dying_process_left_half_written_is_nothing(file: int, left: bytes) -> None:
    os.pwrite(file, left, 0)
    suspects = Suspects(file)
    assert suspects.most("a", None) is None
    suspects.blame("a")
    assert Suspects(file).most("a", None) == SLOWED_PLACES
