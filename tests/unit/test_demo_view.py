"""The demo's picture: fits every terminal to the cell, and says what is wrong loudly."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console
from rich.screen import Screen

from thermocline.demo.feeds import FLOWS, PROCESSES
from thermocline.demo.ledger import Ledger
from thermocline.demo.observer import Observation, ObservedAnswer, ObservedTable, PartitionView
from thermocline.demo.screen import PlainScreen, plain_line
from thermocline.demo.view import DemoView


def answer(partitions: int, scale: int) -> ObservedAnswer:
    views = tuple(
        PartitionView(p, 30_000 * scale + 977 * p, 34_100 * scale + 977 * p,
                      29_711 * scale + 977 * p, 33_800 * scale + 977 * p)
        for p in range(partitions)
    )  # fmt: skip
    return ObservedAnswer(views, with_later=21_000, age_ms=84.0, took_ms=46.0, at=60.0)


def demo(*, off_by: int = 0, scale: int = 1, elapsed_s: float = 61.4) -> Observation:
    now = time.monotonic()
    processes = ObservedTable(
        PROCESSES,
        Ledger(),
        answer(3, scale),
        210,
        off_by,
        12,
        24_100,
        now - 3.0,
        96,
        14_200_000,
        "signer: a column now",
    )
    flows = ObservedTable(
        FLOWS,
        Ledger(),
        answer(4, scale),
        209,
        0,
        12,
        24_100,
        now - 3.0,
        240,
        31_000_000,
        "service: a column now",
    )
    ages = tuple(60.0 + (n * 37) % 50 for n in range(200))
    latencies = tuple(age * 0.7 for age in ages)
    return Observation([processes, flows], 3_000, now - elapsed_s, ages, latencies, True)


def unanswered() -> Observation:
    return Observation([ObservedTable(feed, Ledger()) for feed in (PROCESSES, FLOWS)], 3_000)


def drawn(observation: Observation, width: int, height: int) -> list[str]:
    """What the terminal shows; drawn as Live does on the alternate screen."""
    console = Console(
        file=io.StringIO(), width=width, height=height, record=True, force_terminal=True
    )
    console.print(Screen(DemoView(observation, 31337)), end="")
    return console.export_text(styles=False).split("\n")


SIZES = [(80, 24), (120, 40), (200, 50), (100, 30), (80, 20), (60, 12), (40, 8)]


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("scale", [1, 1_000])
def test_every_frame_fills_the_terminal_and_nothing_wraps(
    width: int, height: int, scale: int
) -> None:
    for observation in (unanswered(), demo(scale=scale), demo(elapsed_s=0.1)):
        lines = drawn(observation, width, height)
        assert (len(lines), {len(line) for line in lines}) == (height, {width})


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (200, 50)])
def test_what_matters_is_whole_at_common_sizes(width: int, height: int) -> None:
    text = "\n".join(drawn(demo(), width, height))
    for words in (
        *("lake.edr.processes", "lake.edr.flows", "104,331 rows", "✔ exact"),
        *("12 publishes, the last 3 s ago: 24,100 rows", "96 files, 14.2 MB", "3,000 events/s"),
        *("newest row in the answer", "answered through SQL in", "p95", "1:01", "Ctrl-C ends"),
        *(
            "grpc://127.0.0.1:31337",
            "jdbc:arrow-flight-sql://127.0.0.1:31337/?useEncryption=false",
        ),
    ):
        assert words in text, words
    assert "…" not in text


def test_every_snippet_stands_whole_beside_the_tables_on_a_large_terminal() -> None:
    text = "\n".join(drawn(demo(), 200, 50))
    for title in ("ADBC", "pandas", "Polars", "DuckDB"):
        assert f" {title} " in text
    assert "--snippets" not in text


def test_the_seam_stands_where_the_watermark_is() -> None:
    [line] = [text for text in drawn(demo(), 80, 24) if text.startswith("   2 ")][:1]
    cold, hot = line.count("█"), line.count("▒")
    assert "█┃▒" in line
    assert abs(cold / (cold + hot + 1) - 31_954 / 36_054) < 0.05


def test_a_count_that_is_off_is_shown_instead_of_exact() -> None:
    observation = demo(off_by=-7)
    text = "\n".join(drawn(observation, 80, 24))
    assert "off by -7 rows" in text
    assert text.count("✔ exact") == 1
    table = observation.tables[0]
    assert table.answer is not None
    assert "off by -7" in plain_line(table, table.answer)


def test_without_a_terminal_the_first_answer_is_said_when_it_comes_and_then_every_two_seconds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    screen = PlainScreen()
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
    screen = PlainScreen()
    for share in (0.0, 0.04, 0.51, 0.58, 1.0, 1.0):
        screen.step("Kafka jars", share)
    said = [line.partition("] ")[2] for line in capsys.readouterr().out.splitlines()]
    assert said == ["Kafka jars …", "Kafka jars 50 %", "Kafka jars: ready"]


def test_before_spark_is_up_it_is_said() -> None:
    observation = unanswered()
    observation.tables[0].answer = answer(3, 1)
    text = "\n".join(drawn(observation, 80, 24))
    assert "Spark is starting; the tail answers alone meanwhile" in text
    assert "counting" in text
    assert "first answer …" in text
