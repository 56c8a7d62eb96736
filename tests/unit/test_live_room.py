"""Of what answers may take each user has a share, and cuts that readers name have room apart."""

from __future__ import annotations

import pytest

from planner.errors import Overloaded
from proxy.live.room import MAX_LIVE_ANSWERS, MAX_NAMED_ANSWERS, Room, Rooms


def fill(room: Room, user: str | None) -> int:
    """Add answers until no more may be added; return how many."""
    added = 0
    while True:
        try:
            room.check(user)
        except Overloaded:
            return added
        room.add_answer((user, added), user)
        added += 1


def test_one_reader_takes_three_quarters_and_others_are_still_answered() -> None:
    rooms = Rooms()
    assert fill(rooms.named, "eve") == MAX_NAMED_ANSWERS * 3 // 4 + 1
    with pytest.raises(Overloaded) as refused:
        rooms.named.check("eve")
    assert str(refused.value) == (
        "7,501 answers of named cuts that you asked for are still good, and 7,501 of all users, of 10,000; what is left "
        "is for others. Load less often, or lower iceberg_rest.live_ttl_s."
    )
    rooms.named.check("ada")
    rooms.live.check("eve")
    assert fill(rooms.live, None) == MAX_LIVE_ANSWERS * 3 // 4 + 1
    rooms.live.check("ada")


def test_so_it_is_with_bytes() -> None:
    rooms = Rooms()
    gib, named, at = 1 << 30, rooms.named, 0
    while at < 3:
        named.check("eve")
        named.add_file(f"{at}", "eve", gib)
        at += 1
    named.add_file("one more byte", "eve", 1)
    with pytest.raises(Overloaded) as refused:
        named.check("eve")
    assert str(refused.value) == (
        "3,221,225,473 bytes of files of named cuts that you asked for are still good, and 3,221,225,473 of all users, "
        "of 4,294,967,296; what is left is for others. Load less often, or raise iceberg_rest.max_live_bytes."
    )
    named.check("ada")
    rooms.live.check("eve")
    rooms.forget([], ["one more byte", "never counted"])
    named.check("eve")


def test_what_went_takes_no_room() -> None:
    room = Room("cuts", 4, 4)
    answers = [object() for _ in range(4)]
    for answer in answers[:3]:
        room.add_answer(answer, "ada")
    room.add_answer(answers[3], "bob")
    with pytest.raises(Overloaded):
        room.check("cid")
    room.forget(answers[:1], [])
    room.check("cid")
    room.forget(answers[:1], [])
    room.add_answer(answers[0], "cid")
    with pytest.raises(Overloaded):
        room.check("dan")


def test_who_has_none_gets_some_after_others_went_beyond_the_total_at_once() -> None:
    room = Rooms(max_bytes=16 << 20).live
    for _ in range(6):
        room.check("alice")
    for number in range(6):  # all were let in before one had written
        room.add_file(f"{number}", "alice", 3 << 20)
    with pytest.raises(Overloaded, match="bytes of files of tables as they are that you asked"):
        room.check("alice")
    room.check("bob")
    room.add_file("of bob", "bob", 1 << 20)
    with pytest.raises(Overloaded) as refused:
        room.check("bob")
    assert str(refused.value) == (
        "1,048,576 bytes of files of tables as they are that you asked for are still good, and 19,922,944 of all users, of "
        "15,728,640; what is left is for others. Load less often, or raise iceberg_rest.max_live_bytes."
    )
    room.forget([], ["0", "1"])
    room.check("bob")
    with pytest.raises(Overloaded):
        room.check("alice")


def test_no_one_goes_beyond_the_bound_for_all() -> None:
    room = Room("cuts", 1_000, 100)
    for number in range(125):
        room.check(f"user {number}")
        room.add_file(f"{number}", f"user {number}", 1)
    with pytest.raises(Overloaded) as refused:
        room.check("one more")
    assert str(refused.value) == (
        "Other users have 125 bytes of files of cuts that are still good, which is all there may be. Try again later, or "
        "raise iceberg_rest.max_live_bytes."
    )
