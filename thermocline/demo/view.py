"""Draws the demo as it stands. Every line is cut to the width of the terminal, none wraps."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from thermocline.demo.observer import Observation, ObservedTable, PartitionView
from thermocline.demo.snippets import snippets

# Deep water and warm: dark blue and orange differ for every common kind of colour blindness, and the shapes
# differ without any colour.
COLD, HOT, SEAM = "#3b82f6", "#fb923c", "bold #fde047"
GOOD, BAD, FAINT = "bold #4ade80", "bold #f87171", "grey58"
_SPARKS = "▁▂▃▄▅▆▇█"
#: From this width on, what to paste stands beside the tables instead of below them.
WIDE = 160
_LEFT_WIDE = 92
#: From this height on, a blank line stands between the tables.
ROOMY = 28
_MAX_BAR = 100


class DemoView:
    """Rich calls it for every frame."""

    def __init__(self, demo: Observation, port: int) -> None:
        self._demo = demo
        self._port = port

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        height, width = options.height or console.height, options.max_width
        picture = Table(
            box=box.MINIMAL, show_header=False, show_edge=False, pad_edge=False, style=FAINT
        )
        widths = [_LEFT_WIDE, width - _LEFT_WIDE - 3] if width >= WIDE else [width]
        for column in widths:
            picture.add_column(width=column, no_wrap=True)
        left = list(_panel(self._demo, widths[0], height))
        right: list[Text] = []
        if len(widths) > 1:
            right = [Text(), Text(), *_paste(self._port, widths[1], height - 2)]
        else:
            left += _paste(self._port, width, height - len(left))
        lines = list(zip_longest(left, right, fillvalue=""))
        for line in [*lines, *[("", "")] * height][:height]:
            picture.add_row(*line[: len(widths)])
        yield picture


def _panel(demo: Observation, width: int, height: int) -> Iterator[Text]:
    minutes, seconds = divmod(int(demo.elapsed_s), 60)
    yield _spread(
        width,
        f" [bold]THERMOCLINE[/]  [{COLD}]█ cold: Iceberg[/] [{SEAM}]┃[/] [{HOT}]▒ hot: Kafka[/]",
        f"[{FAINT}]{demo.rate:,} events/s[/]  {minutes}:{seconds:02}  [{FAINT}]Ctrl-C ends[/] ",
    )
    yield Text("─" * width, FAINT)
    for table in demo.tables:
        yield from _table(table, demo, width)
        if height >= ROOMY:
            yield Text()
    columns = max(8, min(40, width - 64))
    for title, unit, values, colour in (
        ("newest row in the answer ", "ms old", demo.ages_ms, HOT),
        ("answered through SQL in  ", "ms    ", demo.latencies_ms, COLD),
    ):
        if values:
            title += f" [bold]{values[-1]:>5,.0f} {unit}[/]"
            yield _figures(f" {title}", values, columns, colour)
    yield Text(f" console: {demo.pages}" if demo.pages else "")


def _figures(title: str, values: tuple[float, ...], columns: int, colour: str) -> Text:
    ordered = sorted(values)
    top = max(*values[-columns:], 1.0)
    spark = "".join(_SPARKS[min(7, int(value / top * 7.99))] for value in values[-columns:])
    p95 = f"  p95 {ordered[int(len(ordered) * 0.95)]:,.0f}" if colour == COLD else ""
    return Text.from_markup(
        f"{title}[{FAINT}]  median {ordered[len(ordered) // 2]:>4,.0f}[/]  "
        f"[{colour}]{spark:<{columns}}[/][{FAINT}]{p95}[/]"
    )


def _table(table: ObservedTable, demo: Observation, width: int) -> Iterator[Text]:
    answer = table.answer
    name = f" [bold]{table.feed.table}[/]"
    if answer is None:
        yield Text.from_markup(f"{name}  [{FAINT}]first answer …[/]")
        yield from [Text()] * (table.feed.partitions + 2)
        return
    rows = (
        f"{name}  {answer.rows:,} rows = [{COLD}]{answer.cold_rows:,} cold[/] + "
        f"[{HOT}]{answer.rows - answer.cold_rows:,} hot[/]"
    )
    check, more = f"[{GOOD}]✔ exact[/]", f"[{FAINT}], {table.checked:,} answers[/]"
    if table.off_by:
        check, more = f"[{BAD}]off by {table.off_by:+,} rows[/]", ""
    elif not table.checked:
        check, more = f"[{FAINT}]counting …[/]", ""
    yield _spread(width, rows, f"{check}{more} ", f"{check} ")
    longest = max(each.log_end for each in answer.partitions)
    for each in answer.partitions:
        yield _partition(each, longest, width)
    yield Text(f"     {_tiering(table, demo)}", FAINT)
    later = f"     {table.later}"
    if answer.with_later:
        later += f"; {answer.with_later:,} rows have it, older ones are NULL there"
    yield Text(later, FAINT)


def _partition(each: PartitionView, longest: int, width: int) -> Text:
    """A bar as long as the log, cold up to the watermark, and the rows on both sides of the seam."""
    hot_rows = each.rows - each.cold_rows
    figures = Text.from_markup(
        f" [{COLD}]{each.cold_rows:>9,}[/] [{SEAM}]│[/] [{HOT}]{hot_rows:<7,}[/]"
    )
    room = min(width - 6 - len(figures), _MAX_BAR)
    total = round(room * each.log_end / max(longest, 1))
    cold = round(total * each.watermark / max(each.log_end, 1))
    hot = total - max(cold, 1)
    bar = f"[{COLD}]{'█' * (cold - 1)}[/][{SEAM}]┃[/][{HOT}]{'▒' * hot}[/]" if total else " "
    text = Text.from_markup(f" [{FAINT}]{each.partition:>3}[/] {bar}")
    text.pad_right(5 + room - len(text))
    return text.append(figures)


def _tiering(table: ObservedTable, demo: Observation) -> str:
    if table.publishes:
        ago_s = max(0, round(demo.began + demo.elapsed_s - table.published_at))
        plural = "es" if table.publishes > 1 else ""
        text = f"{table.publishes} publish{plural}, the last {ago_s} s ago: {table.last_rows:,} rows"
    elif demo.is_spark_up:
        text = "Spark is up; its first publish is on the way"
    else:
        text = "Spark is starting; the tail answers alone meanwhile"
    if table.files:
        text += f" · {table.files:,} files, {table.file_bytes / 1e6:,.1f} MB"
    return text


def _paste(port: int, width: int, room: int) -> list[Text]:
    """As many snippets as fit, whole ones only, the short ones first; the rest is a command away."""
    blocks = []
    for snippet in snippets(port):
        lines = [Text(f" {line}") for line in snippet.text.rstrip().splitlines()]
        head = Text().append(f" {snippet.title:<10}", FAINT)
        blocks.append([head + lines[0]] if len(lines) == 1 else [Text(), head, *lines])
    chosen: list[Text] = []
    rest: list[Text] = []
    for block in sorted(blocks, key=len):
        if len(chosen) + len(block) < room and all(len(line) <= width for line in block):
            chosen += block
        else:
            more = " more to paste (ADBC, pandas, Polars, DuckDB):  thermocline demo --snippets"
            rest = [Text(more, FAINT)]
    return chosen + rest


def _spread(width: int, left: str, *rights: str) -> Text:
    """Put a text at each edge: of those for the right one, the first that fits."""
    text = Text.from_markup(left)
    for right in map(Text.from_markup, rights):
        if len(text) + len(right) < width:
            text.pad_right(width - len(text) - len(right))
            return text + right
    return text
