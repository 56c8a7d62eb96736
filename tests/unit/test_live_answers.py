"""What loads were answered, for how long it is good, and which files may go then."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from planner.errors import Cancelled, Overloaded
from planner.live.tiling import LivePiece
from planner.offsets import OffsetRange, OffsetVector
from proxy.live.load_ledger import Answer, TableAnswers, Texts, etag_of
from proxy.live.room import Room, Rooms
from proxy.session import Cancellation, Deadline

KEY = ("tail",)


def piece(path: str | None) -> LivePiece:
    return LivePiece((OffsetRange(0, 0, 1),), OffsetVector(), path, 1)


def answer(cut: str, *pieces: LivePiece, raw: bytes = b"{}") -> Answer:
    at = f"at {cut}"
    return Answer(cut, at, "table", etag_of(at, raw), (f"list of {cut}", at), pieces, 0.0)


def note(answers: TableAnswers, *pieces: LivePiece) -> None:
    answers.note(pieces, answers.rooms.live, "ada")


def keep(answers: TableAnswers, new: Answer) -> Answer:
    note(answers, *new.pieces)
    assert answers.keep(new, answers.rooms.live, "ada", 10) is new
    return new


@pytest.fixture
def clock() -> list[float]:
    return [0.0]


@pytest.fixture
def answers(clock: list[float]) -> TableAnswers:
    return TableAnswers(lambda: clock[0], Rooms())


def test_files_go_once_no_answer_that_is_good_names_them(
    answers: TableAnswers, clock: list[float]
) -> None:
    shared, own = piece("shared"), piece("own")
    answers.use(KEY, "live", [shared, own])
    note(answers, shared, own, piece(None))
    keep(answers, answer("first", shared, own))
    clock[0] = 50.0
    keep(answers, answer("second", shared))
    answers.use(KEY, "live", [shared])
    clock[0] = 101.0
    assert set(answers.expired(1.0)) == {"own", "list of first", "at first"}
    assert answers.of("first") is None
    assert answers.usable(KEY) == (shared,)  # from here on a load may be at work with it
    assert set(answers.expired(60.0)) == {"list of second", "at second"}
    clock[0] = 300.0
    assert answers.expired(200.0) == ("shared",)
    assert answers.usable(KEY) == ()
    assert answers.expired(200.0) == ()


def test_each_contract_has_pieces_of_its_own_and_all_may_be_used(answers: TableAnswers) -> None:
    old, new, both = piece("old"), piece("new"), piece(None)
    answers.use(KEY, "max_staleness 5s", [old, both])
    answers.use(KEY, "live", [new, both])
    assert set(map(id, answers.usable(KEY))) == {id(old), id(new), id(both)}
    for number in range(8):
        answers.use(KEY, f"max_staleness {number}s", [])
        answers.use(KEY, "live", [new])
    assert answers.usable(KEY) == (new,)
    answers.use(("another tail",), "live", [both])
    assert answers.usable(KEY) == ()
    assert answers.usable(("another tail",)) == (both,)


def test_a_piece_that_stands_for_others_is_used_beside_them(answers: TableAnswers) -> None:
    small = [piece("one"), piece("two")]
    assert not answers.has(KEY, small)
    answers.use(KEY, "live", small)
    assert answers.has(KEY, small)
    assert not answers.has(("another tail",), small)
    assert not answers.has(KEY, [piece("one")])  # another one of that name
    large = piece("both")
    answers.add(("another tail",), "live", large)
    answers.add(KEY, "max_staleness 5s", large)
    assert answers.usable(KEY) == tuple(small)
    answers.add(KEY, "live", large)
    assert answers.usable(KEY) == (*small, large)


def test_what_a_larger_piece_stands_for_may_be_claimed_until_it_goes(
    answers: TableAnswers, clock: list[float]
) -> None:
    small, large, nothing = piece("small"), piece("large"), piece(None)
    note(answers, small)
    answers.use(KEY, "live", [small, nothing])
    clock[0] = 50.0
    note(answers, large)
    answers.use(KEY, "live", [large])
    assert answers.usable(KEY) == (large,)
    assert answers.others(KEY) == (small, large)
    assert answers.others(("another tail",)) == ()
    assert answers.claim([small, nothing])
    assert answers.expired(40.0) == ()  # it stays from then on
    clock[0] = 100.0
    assert answers.claim([large])
    assert answers.expired(60.0) == ("small",)
    assert answers.others(KEY) == (large,)
    assert not answers.claim([small, large])
    answers.use(("another tail",), "live", [])
    assert answers.others(("another tail",)) == ()


def test_an_answer_is_good_from_when_it_was_answered_last(
    answers: TableAnswers, clock: list[float]
) -> None:
    own = keep(answers, answer("cut", piece("file")))
    clock[0] = 90.0
    assert answers.of("cut") is own
    assert answers.again(own) is own
    assert answers.expired(80.0) == ()


def test_an_answer_whose_files_went_meanwhile_is_not_handed_out_again(
    answers: TableAnswers, clock: list[float]
) -> None:
    own = keep(answers, answer("cut", piece("file")))
    answers.began(5.0, own)
    clock[0] = 101.0
    assert set(answers.expired(1.0)) == {"file", "list of cut", "at cut"}
    assert answers.again(own) is None
    assert answers.expired(101.0) == ()


def test_an_answer_that_names_a_file_that_went_is_not_kept(
    answers: TableAnswers, clock: list[float]
) -> None:
    own = piece("file")
    note(answers, own)
    clock[0] = 50.0
    assert answers.expired(10.0) == ("file",)
    assert answers.keep(answer("cut", own), answers.rooms.live, None, 10) is None
    assert answers.of("cut") is None


def test_the_same_text_at_another_address_is_another_answer() -> None:
    assert etag_of("one", b"{}") == etag_of("one", b"{}") != etag_of("other", b"{}")


def test_texts_in_memory_are_bounded_and_the_oldest_go_first() -> None:
    texts = Texts(10)
    texts.put("a", b"1234")
    texts.put("b", b"1234")
    assert texts.get("a") == b"1234"
    texts.put("c", b"1234")
    assert (texts.get("a"), texts.get("b"), texts.get("c")) == (b"1234", None, b"1234")
    texts.put("large", b"12345678901")
    assert (texts.get("large"), texts.size) == (None, 8)


def test_who_waited_shares_what_began_after_he_asked(
    answers: TableAnswers, clock: list[float]
) -> None:
    newest = keep(answers, answer("cut"))
    assert answers.since(0.0) is None
    answers.began(5.0, newest)
    assert answers.since(4.9) is newest
    assert answers.since(5.0) is None
    clock[0] = 100.0
    answers.expired(50.0)
    assert answers.since(0.0) is None


def test_another_answer_to_the_same_cut_leaves_the_first_its_time(
    answers: TableAnswers, clock: list[float]
) -> None:
    keep(answers, answer("cut", piece("a")))
    clock[0] = 10.0
    second = keep(answers, answer("cut", piece("b"), raw=b"[]"))
    assert answers.of("cut") is second
    assert answers.expired(5.0) == ("a", "list of cut", "at cut")


def test_a_text_that_is_made_again_is_the_same_answer_and_counts_once(
    answers: TableAnswers, clock: list[float]
) -> None:
    room = answers.rooms.live = Room("tables as they are", 2, 100)
    first, *others = (
        Answer("cut", "plain", "table", etag_of("plain", b"{}"), (), (), 0.0) for _ in range(3)
    )
    assert answers.keep(first, room, "ada", 0) is first
    clock[0] = 10.0
    for other in others:
        assert answers.keep(other, room, "ada", 0) is first
    room.check("ada")
    assert answers.expired(10.0) == ()
    assert answers.of("cut") is first
    clock[0] = 20.0
    answers.expired(15.0)
    assert answers.of("cut") is None
    room.add_answer("another", "bob")
    room.check("bob")


def test_pieces_of_named_cuts_are_for_named_cuts(
    answers: TableAnswers, clock: list[float]
) -> None:
    live, merged, named = piece("live"), piece("merged"), piece("named")
    note(answers, live, merged, named)
    answers.use(KEY, "live", [live, piece(None)])
    answers.add(KEY, "live", merged)
    answers.leave(KEY, [named, piece(None), piece("never written")])
    assert set(answers.for_named(KEY)) == {live, merged, named}
    assert answers.usable(KEY)[0] is live
    assert named not in (*answers.usable(KEY), *answers.others(KEY))
    assert answers.for_named(("another tail",)) == ()
    answers.use(("another tail",), "live", [])
    assert answers.for_named(KEY) == (named,)
    clock[0] = 50.0
    answers.expired(10.0)
    assert answers.for_named(KEY) == ()


def test_answers_and_files_take_room_until_they_go(
    answers: TableAnswers, clock: list[float]
) -> None:
    answers.rooms = Rooms(max_bytes=320)
    live = answers.rooms.live
    large = replace(piece("large"), size=220)
    keep(answers, answer("cut", large))  # and 10 of its own
    with pytest.raises(Overloaded, match="230 bytes of files of tables as they are that you"):
        live.check("ada")
    live.check("bob")
    answers.rooms.named.check("ada")
    clock[0] = 10.0
    assert set(answers.expired(5.0)) == {"large", "list of cut", "at cut"}
    live.check("ada")
    keep(answers, answer("cut", replace(large, path="again")))
    answers.forget()
    live.check("ada")


def test_what_is_written_after_the_folder_was_lost_takes_no_room(
    answers: TableAnswers,
) -> None:
    answers.rooms = Rooms(max_bytes=320)
    live = answers.rooms.live
    answers.forget()  # a load is still at work
    late = replace(piece("late"), size=290)
    note(answers, late)
    assert answers.keep(answer("cut", late), live, "ada", 10) is None
    assert answers.keep(answer("empty"), live, "ada", 290) is None
    assert answers.of("cut") is answers.of("empty") is None
    live.check("ada")


def test_a_turn_of_a_named_cut_holds_no_other_load_up(answers: TableAnswers) -> None:
    with (
        answers.turn(Deadline(60), is_named=True),
        answers.turn(Deadline(0.01)),
        pytest.raises(Overloaded),
        answers.turn(Deadline(0.01), is_named=True),
    ):
        pass


def test_a_load_waits_for_its_turn_no_longer_than_it_may(answers: TableAnswers) -> None:
    with answers.turn(Deadline(60)):
        with (
            pytest.raises(Overloaded, match="take longer than this one may wait"),
            answers.turn(Deadline(0.01)),
        ):
            pass
        cancellation = Cancellation()
        cancellation.request()
        with pytest.raises(Cancelled), answers.turn(Deadline(60, cancellation)):
            pass
        came = threading.Event()

        def wait() -> None:
            with answers.turn(Deadline(60)):
                came.set()

        waiting = threading.Thread(target=wait)
        waiting.start()
        assert not came.is_set()
    waiting.join(10)
    assert came.is_set()
