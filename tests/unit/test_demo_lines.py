"""What the demo prints: a line for each step and each table, which says what is wrong."""

from __future__ import annotations

import time

import pytest

from thermocline.demo.feeds import FLOWS, PROCESSES
from thermocline.demo.observer import Observation, ObservedAnswer, ObservedTable, PartitionView
from thermocline.demo.screen import Screen, line_of


def answer(partitions: int) -> ObservedAnswer:
    views = tuple(PartitionView(n, 34_100, 29_711, 33_800) for n in range(partitions))
    return ObservedAnswer(views, with_later=21_000, age_ms=84.0, took_ms=46.0, at=60.0)


def demo(*, off_by: int = 0, elapsed_s: float = 61.4) -> Observation:
    processes = ObservedTable(
        PROCESSES,
        answer=answer(3),
        checked=210,
        off_by=off_by,
        publishes=12,
        files=96,
        later="signer: a column now",
    )
    flows = ObservedTable(FLOWS, answer=answer(4), checked=209, publishes=12, files=240)
    return Observation([processes, flows], time.monotonic() - elapsed_s)


@pytest.mark.parametrize(("off_by", "verdict"), [(0, "exact 210 times"), (-7, "off by -7")])
def test_a_line_says_how_a_table_stands_and_whether_its_count_is_off(
    off_by: int, verdict: str
) -> None:
    [table, _] = demo(off_by=off_by).tables
    assert table.answer is not None
    assert line_of(table, table.answer) == (
        "lake.edr.processes: 101,400 rows = 89,133 cold + 12,267 hot; 12 publishes, 96 files; "
        f"answered in 46 ms, newest row 84 ms old; {verdict}; signer: a column now"
    )


def test_the_first_answer_is_said_when_it_comes_and_then_every_two_seconds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    screen = Screen()
    for elapsed_s, is_answered, lines in (
        (0.5, False, 0), (0.6, True, 2), (1.5, True, 0), (2.7, True, 2),
    ):  # fmt: skip
        observation = demo(elapsed_s=elapsed_s)
        if not is_answered:
            for table in observation.tables:
                table.answer = None
        screen.show(observation)
        assert capsys.readouterr().out.count(" rows = ") == lines


def test_steps_of_set_up_are_lines(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen()
    for share in (0.0, 0.04, 0.51, 0.58, 1.0, 1.0):
        screen.step("Kafka jars", share)
    said = [line.partition("] ")[2] for line in capsys.readouterr().out.splitlines()]
    assert said == ["Kafka jars …", "Kafka jars 50 %", "Kafka jars: ready"]
