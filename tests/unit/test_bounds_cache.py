"""What is remembered of measurements, and for how long."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from connectors import bounds_cache
from connectors.bounds_cache import BoundsCache
from planner.errors import LogUnavailable
from planner.seam.cut import LogBounds


class Clock:
    """Time passes while the log answers."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


class CountingLog:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def measure(self, topics: Sequence[str]) -> Mapping[str, LogBounds]:
        self._clock.now += 2
        return {topic: LogBounds("c", topic, f"{self._clock.now:g}", ()) for topic in topics}


def made() -> tuple[BoundsCache, Clock]:
    clock = Clock()
    log: Any = CountingLog(clock)
    return BoundsCache(log, clock=clock), clock


def test_the_age_counts_from_before_the_question() -> None:
    value, clock = made()
    value.measure(["a"])
    assert value.remembered(["a"], 1.9) is None
    result = value.remembered(["a"], 2)
    assert result is not None
    assert value.age_s(result) == 2
    clock.now += 1
    assert value.remembered(["a"], 2) is None


def test_only_topics_of_one_round_go_together() -> None:
    value, _ = made()
    value.measure(["a"])
    value.measure(["b"])
    assert value.remembered(["a", "b"], 60) is None
    value.measure(["a", "b", "c"])
    result = value.remembered(["b", "a", "a"], 60)
    assert result is not None
    assert result.bounds["a"].topic_id == result.bounds["b"].topic_id == "106"
    # A round of more topics is as good as one of fewer, and the newest is taken.
    alone = value.remembered(["a"], 60)
    assert alone is result
    value.measure(["a"])
    newest = value.remembered(["a"], 60)
    assert newest is not None
    assert newest.bounds["a"].topic_id == "108"


def test_what_turned_out_to_be_gone_is_forgotten() -> None:
    value, _ = made()
    value.measure(["a"])
    value.forget()
    assert value.remembered(["a"], 60) is None


def test_old_rounds_make_room() -> None:
    value, _ = made()
    for number in range(bounds_cache.MAX_ROUNDS + 1):
        value.measure([f"t{number}"])
    assert value.remembered(["t0"], 1e9) is None
    assert value.remembered(["t1"], 1e9) is not None


class GatedLog:
    """Answers with how many rounds began, each when it is let go."""

    def __init__(self) -> None:
        self.began = 0
        self.gates = [threading.Event() for _ in range(9)]
        self.errors: dict[int, Exception] = {}

    def measure(self, topics: Sequence[str]) -> Mapping[str, LogBounds]:
        number = self.began
        self.began += 1
        assert self.gates[number].wait(60)
        if number in self.errors:
            raise self.errors[number]
        return {topic: LogBounds("c", topic, str(number), ()) for topic in topics}


Ask = Callable[..., Future[Mapping[str, LogBounds]]]


@pytest.fixture
def log() -> GatedLog:
    return GatedLog()


@pytest.fixture
def ask(log: GatedLog, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ask]:
    """Ask one cache from a thread of its own; returns when the question has been put."""
    monkeypatch.setattr(bounds_cache, "PATIENCE_S", 60)
    cache = BoundsCache(log)

    def put(*topics: str) -> Future[Mapping[str, LogBounds]]:
        began, waiting = log.began, _waiting(cache)
        future = threads.submit(cache.measure, topics)
        until = time.monotonic() + 60
        while (log.began, _waiting(cache)) == (began, waiting) and time.monotonic() < until:
            time.sleep(0.001)
        return future

    with ThreadPoolExecutor(9) as threads:
        yield put
        for gate in log.gates:
            gate.set()


def _waiting(cache: BoundsCache) -> int:
    return sum(len(each.waiting) for each in list(cache._next.values()))


def test_who_comes_while_a_round_runs_shares_the_next(log: GatedLog, ask: Ask) -> None:
    first = ask("a")
    later = [ask("a"), ask("a"), ask("a")]
    assert log.began == 1
    for gate in log.gates[:2]:
        gate.set()
    assert first.result(60)["a"].topic_id == "0"
    # None has an answer of the round that began before it came.
    assert [each.result(60)["a"].topic_id for each in later] == ["1"] * 3
    assert log.began == 2
    log.gates[2].set()
    assert ask("a").result(60)["a"].topic_id == "2"


def test_other_topics_do_not_wait_for_a_round(log: GatedLog, ask: Ask) -> None:
    first, other = ask("a"), ask("a", "b")
    log.gates[1].set()
    assert other.result(60)["b"].topic_id == "1"
    assert not first.done()


def test_all_who_share_a_round_get_its_error_and_the_next_one_begins(
    log: GatedLog, ask: Ask
) -> None:
    log.errors[1] = LogUnavailable("no answer.", topic="a")
    first, later = ask("a"), [ask("a"), ask("a")]
    log.gates[0].set()
    first.result(60)
    while log.began < 2:
        time.sleep(0.001)
    last = ask("a")
    for gate in log.gates[1:3]:
        gate.set()
    errors = [each.exception(60) for each in later]
    assert [(type(each), str(each)) for each in errors] == [(LogUnavailable, "no answer.")] * 2
    # Each caller adds its own frames to the one that it raises.
    assert errors[0] is not errors[1]
    assert last.result(60)["a"].topic_id == "2"


def test_an_error_of_ours_is_the_first_ones_alone(log: GatedLog, ask: Ask) -> None:
    log.errors[1] = KeyError("a")
    first, later = ask("a"), [ask("a"), ask("a")]
    for gate in log.gates[:3]:
        gate.set()
    first.result(60)
    assert sorted(str(each.exception(60)) for each in later) == ["'a'", "None"]


def test_who_waits_for_long_measures_alone(
    log: GatedLog, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ask("a")
    monkeypatch.setattr(bounds_cache, "PATIENCE_S", 0)
    later = ask("a")
    log.gates[1].set()
    assert later.result(60)["a"].topic_id == "1"
    # Who comes then is not kept waiting for one that has left.
    monkeypatch.setattr(bounds_cache, "PATIENCE_S", 60)
    last = ask("a")
    for gate in log.gates:
        gate.set()
    assert first.result(60)["a"].topic_id == "0"
    assert last.result(30)["a"].topic_id == "2"
