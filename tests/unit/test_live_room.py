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
        "7,501 answers of named cuts that you asked for are still good, of 10,000 in all; what is left is for others. "
        "Load less often, or lower iceberg_rest.live_ttl_s."
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
        "3,221,225,473 bytes of files of named cuts that you asked for are still good, of 4,294,967,296 in all; what is "
        "left is for others. Load less often, or raise iceberg_rest.max_live_bytes."
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
