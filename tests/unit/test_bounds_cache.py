"""What is remembered of measurements, and for how long."""

from collections.abc import Mapping, Sequence
from typing import Any

from connectors import cuts
from connectors.cuts import BoundsCache
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
    for number in range(cuts.MAX_ROUNDS + 1):
        value.measure([f"t{number}"])
    assert value.remembered(["t0"], 1e9) is None
    assert value.remembered(["t1"], 1e9) is not None
