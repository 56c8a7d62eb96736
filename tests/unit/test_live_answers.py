"""What loads were answered, for how long it is good, and which files may go then."""

from __future__ import annotations

import threading

import pytest

from planner.errors import Cancelled, Overloaded
from planner.live_pieces import LivePiece
from planner.offsets import OffsetRange, OffsetVector
from proxy.deadline import Cancellation, Deadline
from proxy.live import answers as module
from proxy.live.answers import Answer, TableAnswers, etag_of

KEY = ("tail",)


def piece(path: str | None) -> LivePiece:
    return LivePiece((OffsetRange(0, 0, 1),), OffsetVector(), path, 1)


def answer(cut: str, *pieces: LivePiece, raw: bytes = b"{}") -> Answer:
    at = f"at {cut}"
    return Answer(cut, at, etag_of(at, raw), raw, (f"list of {cut}", at), pieces, 0.0)


@pytest.fixture
def clock() -> list[float]:
    return [0.0]


@pytest.fixture
def answers(clock: list[float]) -> TableAnswers:
    return TableAnswers(lambda: clock[0])


def test_files_go_once_no_answer_that_is_good_names_them(
    answers: TableAnswers, clock: list[float]
) -> None:
    shared, own = piece("shared"), piece("own")
    answers.use(KEY, [shared, own])
    answers.note([shared, own, piece(None)])
    answers.keep(answer("first", shared, own))
    clock[0] = 50.0
    answers.keep(answer("second", shared))
    answers.use(KEY, [shared])
    clock[0] = 101.0
    assert set(answers.expired(1.0)) == {"own", "list of first", "at first"}
    assert answers.of("first") is None
    clock[0] = 200.0
    assert answers.expired(100.0) == (
        "list of second",
        "at second",
    )  # a later load may use the other
    answers.use(KEY, [])
    assert answers.expired(100.0) == ("shared",)
    assert answers.expired(100.0) == ()


def test_an_answer_is_good_from_when_it_was_answered_last(
    answers: TableAnswers, clock: list[float]
) -> None:
    own = answers.keep(answer("cut", piece("file")))
    clock[0] = 90.0
    assert answers.of("cut") is own
    assert answers.again(own) is own
    assert answers.expired(80.0) == ()


def test_an_answer_whose_files_went_meanwhile_is_not_handed_out_again(
    answers: TableAnswers, clock: list[float]
) -> None:
    answers.keep(answer("cut", piece("file")))
    answers.began(5.0, answer("cut"))
    own = answers.of("cut")
    assert own is not None
    clock[0] = 101.0
    assert set(answers.expired(1.0)) == {"file", "list of cut", "at cut"}
    assert answers.again(own) is None
    assert answers.expired(101.0) == ()


def test_what_passes_through_is_answered_as_long_as_its_text_is_there(
    answers: TableAnswers,
) -> None:
    first = answers.keep(Answer("0", "of the catalog", "", b"{}", (), (), 0.0))
    assert answers.of("0") is answers.again(first) is first
    for cut in range(1, 9):
        answers.keep(answer(f"{cut}"))
    assert first.raw is None
    assert answers.of("0") is answers.again(first) is None


def test_the_same_text_at_another_address_is_another_answer() -> None:
    assert etag_of("one", b"{}") == etag_of("one", b"{}") != etag_of("other", b"{}")


def test_who_waited_shares_what_began_after_he_asked(
    answers: TableAnswers, clock: list[float]
) -> None:
    newest = answers.keep(answer("cut"))
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
    answers.keep(answer("cut", piece("a")))
    clock[0] = 10.0
    second = answers.keep(answer("cut", piece("b"), raw=b"[]"))
    assert answers.of("cut") is second
    assert answers.expired(5.0) == ("a", "list of cut", "at cut")


def test_few_texts_stay_in_memory_and_few_answers_at_all(
    answers: TableAnswers, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = [answers.keep(answer(f"{n}")) for n in range(20)]
    assert [item.raw is None for item in many] == [True] * 12 + [False] * 8
    monkeypatch.setattr(module, "_MAX_ANSWERS", 20)
    with pytest.raises(Overloaded, match="20 answers of this table are still good"):
        answers.check_room()


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
