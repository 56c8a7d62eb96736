"""The demo's picture: fits every terminal to the cell, and says what is wrong loudly."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from thermocline.demo.feeds import FLOWS, PROCESSES
from thermocline.demo.observer import FeedView, Moment, ObservedAnswer, PartitionView, Published
from thermocline.demo.screen import Plain, plain_lines
from thermocline.demo.view import DemoView


def answer(partitions: int, scale: int) -> ObservedAnswer:
    items = tuple(
        PartitionView(p, 30_000 * scale + 977 * p, 34_100 * scale + 977 * p,
                      29_711 * scale + 977 * p, 33_800 * scale + 977 * p)
        for p in range(partitions)
    )  # fmt: skip
    return ObservedAnswer(
        partitions=items,
        rows=sum(p.rows for p in items),
        with_later=21_000,
        age_ms=84.0,
        took_ms=46.0,
        at=60.0,
    )


def moment(*, off_by: int = 0, scale: int = 1, spark_up: bool = True) -> Moment:
    published = Published(12, 24_100, 130, 58.0)
    ages = tuple(60.0 + (n * 37) % 50 for n in range(200))
    return Moment(
        elapsed_s=61.0,
        rate=3_000,
        feeds=(
            FeedView(PROCESSES, answer(3, scale), published, 96, 14_200_000, 210, off_by, 0,
                     "signer: a column now"),
            FeedView(FLOWS, answer(4, scale), published, 240, 31_000_000, 209, 0, 0,
                     "service: a column now"),
        ),
        latencies_ms=tuple(age * 0.7 for age in ages),
        ages_ms=ages,
        answers=419,
        spark_up=spark_up,
    )  # fmt: skip


def drawn(moment: Moment | None, width: int, height: int) -> list[str]:
    console = Console(
        file=io.StringIO(), width=width, height=height, record=True, force_terminal=True
    )
    view = DemoView(31337)
    view.moment = moment
    console.print(view, end="", height=height)
    return console.export_text(styles=False).split("\n")


SIZES = [(80, 24), (120, 40), (200, 50), (100, 30), (80, 20), (60, 12), (40, 8)]


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("scale", [1, 1_000])
def test_every_frame_fills_the_terminal_and_nothing_wraps(
    width: int, height: int, scale: int
) -> None:
    for value in (None, moment(scale=scale), Moment(0.1, 3_000, moment().feeds)):
        lines = drawn(value, width, height)
        assert (len(lines), {len(line) for line in lines}) == (height, {width})


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (200, 50)])
def test_what_matters_is_whole_at_common_sizes(width: int, height: int) -> None:
    text = "\n".join(drawn(moment(), width, height))
    for access_filter in (
        *("lake.edr.processes", "lake.edr.flows", "104,331 rows", "✔ exact"),
        *("12 publishes, the last 3 s ago: 24,100 rows", "96 files, 14.2 MB", "3,000 events/s"),
        *("newest row in the answer", "answered through SQL in", "p95", "1:01", "Ctrl-C ends"),
        *(
            "grpc://127.0.0.1:31337",
            "jdbc:arrow-flight-sql://127.0.0.1:31337/?useEncryption=false",
        ),
    ):
        assert access_filter in text, access_filter
    assert "…" not in text


def test_every_snippet_stands_whole_beside_the_tables_on_a_large_terminal() -> None:
    text = "\n".join(drawn(moment(), 200, 50))
    for title in ("ADBC", "pandas", "Polars", "DuckDB"):
        assert f" {title} " in text
    assert "--snippets" not in text


def test_the_seam_stands_where_the_watermark_is() -> None:
    [line] = [text for text in drawn(moment(), 80, 24) if text.startswith("   2 ")][:1]
    cold, hot = line.count("█"), line.count("▒")
    assert "█┃▒" in line
    assert abs(cold / (cold + hot + 1) - 31_954 / 36_054) < 0.05


def test_a_count_that_is_off_is_told_instead_of_exact() -> None:
    value = moment(off_by=-7)
    text = "\n".join(drawn(value, 80, 24))
    assert "off by -7 rows" in text
    assert text.count("✔ exact") == 1
    assert "off by -7" in next(iter(plain_lines(value)))


def test_without_a_terminal_the_first_answer_is_told_when_it_comes_and_then_every_two_seconds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Plain().live(31337) as view:
        capsys.readouterr()
        for elapsed_s, is_answered, lines in (
            (0.5, False, 0), (0.6, True, 2), (1.5, True, 0), (2.7, True, 2),
        ):  # fmt: skip
            value = moment()
            feeds = (
                value.feeds
                if is_answered
                else tuple(replace(f, answer=None) for f in value.feeds)
            )
            view.moment = replace(value, elapsed_s=elapsed_s, feeds=feeds)
            assert capsys.readouterr().out.count(" rows = ") == lines


def test_before_spark_is_up_it_is_said() -> None:
    views = tuple(FeedView(view.feed, view.answer) for view in moment().feeds)
    starting = Moment(5.0, 3_000, views, spark_up=False)
    text = "\n".join(drawn(starting, 80, 24))
    assert "Spark is starting; the tail answers alone meanwhile" in text
    assert "counting" in text
