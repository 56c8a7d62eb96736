"""Whose statements ended the process: what the next process knows, and what follows for them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from planner.errors import Overloaded
from proxy.access.limits import SLOWED_SLOTS, Blame, new_file


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


def is_refused(blame: Blame, user: str | None) -> bool:
    try:
        blame.check(user)
    except Overloaded:
        return True
    return False


def test_one_end_slows_its_user_down_and_nobody_else_across_the_restart(
    file: int, clock: Clock
) -> None:
    Blame(file, now_s=clock).assign("limited")
    later = Blame(file, now_s=clock)
    assert not is_refused(later, "limited")
    assert later.most("limited", None) == later.most("limited", 8) == SLOWED_SLOTS
    assert later.most("limited", 1) == 1
    assert later.most("admin", None) is None
    clock.now_s += 601
    assert later.most("limited", 8) == 8


def test_who_ends_it_again_is_refused_by_name_for_a_while_and_then_for_longer(
    file: int, clock: Clock
) -> None:
    for minutes in (1, 4, 15, 15):
        for _ in range(2 if minutes == 1 else 1):
            Blame(file, now_s=clock).assign("limited")
        blame = Blame(file, now_s=clock)
        with pytest.raises(
            Overloaded, match=r"user 'limited' ended .* until \d\d:\d\d:\d\d UTC"
        ):
            blame.check("limited")
        assert not is_refused(blame, "admin")
        clock.now_s += minutes * 60 - 1
        assert is_refused(blame, "limited")
        clock.now_s += 1
        assert not is_refused(blame, "limited")
    clock.now_s += 3600
    assert blame.most("limited", None) is None


def test_a_process_that_was_killed_leaves_who_had_most_running(file: int, clock: Clock) -> None:
    Blame(file, now_s=clock).note({"limited": 31.0, "admin": 2.0, "ada": 4.0})
    later = Blame(file, now_s=clock)
    assert later.most("limited", None) == SLOWED_SLOTS
    assert later.most("admin", None) is later.most("ada", None) is None
    # It counts once: the process after that one has nothing against anybody.
    assert not is_refused(Blame(file, now_s=clock), "limited")


def test_what_is_only_guessed_slows_down_and_refuses_nobody(file: int, clock: Clock) -> None:
    for _ in range(5):
        Blame(file, now_s=clock).note({"limited": 31.0})
    later = Blame(file, now_s=clock)
    assert later.most("limited", None) == SLOWED_SLOTS
    assert not is_refused(later, "limited")


def test_a_process_that_says_why_it_ends_notes_nothing_more(file: int, clock: Clock) -> None:
    ended = Blame(file, now_s=clock)
    ended.note({"limited": 31.0})
    ended.acquit()
    ended.note({"limited": 32.0})
    assert Blame(file, now_s=clock).most("limited", None) is None


def test_where_several_may_be_to_blame_nobody_is(file: int, clock: Clock) -> None:
    Blame(file, now_s=clock).note({"limited": 5.0, "admin": 5.0})
    assert Blame(file, now_s=clock).most("limited", None) is None
    ended = Blame(file, now_s=clock)
    ended.note({"limited": 5.0, "admin": 6.0})
    ended.note({})
    ended.assign_largest()
    assert Blame(file, now_s=clock).most("admin", None) is None


def test_who_has_most_running_is_blamed_where_memory_ran_out(file: int, clock: Clock) -> None:
    ended = Blame(file, now_s=clock)
    ended.note({"limited": 9.0, "admin": 5.0})
    ended.assign_largest()
    later = Blame(file, now_s=clock)
    assert later.most("limited", None) == SLOWED_SLOTS
    assert not is_refused(later, "limited")  # noted and blamed is once


def test_anonymous_callers_are_slowed_down_and_never_refused(clock: Clock) -> None:
    blame = Blame(now_s=clock)
    for _ in range(5):
        blame.assign(None)
    assert not is_refused(blame, None)
    assert blame.most(None, None) == SLOWED_SLOTS


@pytest.mark.parametrize(
    "left", [b"", b"{", b"[]", b'{"ends": 1, "running": 2}', b'{"ends": [["a", "x"]]}', b"\xff"]
)
def test_what_a_dying_process_left_half_written_is_nothing(file: int, left: bytes) -> None:
    os.pwrite(file, left, 0)
    blame = Blame(file)
    assert blame.most("a", None) is None
    blame.assign("a")
    assert Blame(file).most("a", None) == SLOWED_SLOTS
