"""Draws one moment of the demo. Fits the terminal it is given: every line is cut to the width, none wraps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from thermocline.demo.observer import FeedView, Moment, PartitionView
from thermocline.demo.snippets import Snippet, snippets

# Deep water and warm: dark blue and orange differ for every common kind of colour blindness, and the shapes
# differ without any colour.
COLD, HOT, SEAM = (
    Style(color="#3b82f6"),
    Style(color="#fb923c"),
    Style(color="#fde047", bold=True),
)
GOOD, BAD = Style(color="#4ade80", bold=True), Style(color="#f87171", bold=True)
STRONG, FAINT = Style(bold=True), Style(color="grey58")
_COLD_CELL, _HOT_CELL, _SEAM_CELL = "█", "▒", "┃"
_SPARKS = "▁▂▃▄▅▆▇█"
#: From this width on, what to paste stands beside the tables instead of below them.
WIDE = 160
_LEFT_WIDE = 92
#: From this height on, a blank line stands between the tables.
ROOMY = 28
_MAX_BAR = 100


class DemoView:
    """Rich calls it for every frame; ``moment`` is replaced between frames."""

    def __init__(self, port: int) -> None:
        self.moment: Moment | None = None
        self._snippets = snippets(port)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        height = options.height or console.height
        width = options.max_width
        for number, line in enumerate(self.lines(width, height)):
            if number:
                yield Segment.line()
            yield from line.render(console, end="")

    def lines(self, width: int, height: int) -> list[Text]:
        """Exactly ``height`` lines of exactly ``width`` cells."""
        if self.moment is None:
            return _fitted([], width, height)
        left_width = _LEFT_WIDE if width >= WIDE else width
        left = _panel(self.moment, left_width, height)
        if width < WIDE:
            spare = height - len(left)
            left += _paste(self._snippets, width, spare)
            return _fitted(left, width, height)
        right = [Text(), Text(), *_paste(self._snippets, width - left_width - 3, height - 2)]
        left, right = (
            _fitted(left, left_width, height),
            _fitted(right, width - left_width - 3, height),
        )
        return [Text.assemble(a, (" │ ", FAINT), b) for a, b in zip(left, right, strict=True)]


def _panel(moment: Moment, width: int, height: int) -> list[Text]:
    lines = [_title(moment, width), _rule(width)]
    for view in moment.feeds:
        lines += _feed(view, moment, width)
        if height >= ROOMY:
            lines.append(Text())
    lines += [*_figures(moment, width), Text()]
    return lines


def _title(moment: Moment, width: int) -> Text:
    left = Text.assemble(
        (" THERMOCLINE  ", STRONG),
        (f"{_COLD_CELL} cold: Iceberg ", COLD),
        (_SEAM_CELL, SEAM),
        (f" {_HOT_CELL} hot: Kafka", HOT),
    )
    minutes, seconds = divmod(int(moment.elapsed_s), 60)
    right = Text.assemble(
        (f"{moment.rate:,} events/s  ", FAINT),
        f"{minutes}:{seconds:02}",
        ("  Ctrl-C ends ", FAINT),
    )
    return _spread(left, right, width)


def _feed(view: FeedView, moment: Moment, width: int) -> Iterator[Text]:
    answer = view.answer
    if answer is None:
        yield Text.assemble((f" {view.feed.table}", STRONG), ("  first answer …", FAINT))
        yield from (Text() for _ in range(view.feed.partitions + 2))
        return
    hot = answer.rows - answer.cold_rows
    left = Text.assemble(
        (f" {view.feed.table}", STRONG),
        f"  {answer.rows:,} rows = ",
        (f"{answer.cold_rows:,} cold", COLD),
        " + ",
        (f"{hot:,} hot", HOT),
    )
    yield _spread(left, _verdict(view, width - left.cell_len), width)
    longest = max((part.log_end for part in answer.partitions), default=0)
    for part in answer.partitions:
        yield _partition(part, longest, width)
    yield _tiering(view, moment)
    yield _drift(view)


def _verdict(view: FeedView, room: int) -> Text:
    if view.off_by:
        return Text(f"off by {view.off_by:+,} rows ", BAD)
    if not view.checked:
        return Text("counting … ", FAINT)
    exact = Text("✔ exact", GOOD)
    counted = Text.assemble(exact, (f", {view.checked:,} answers ", FAINT))
    return counted if counted.cell_len < room else Text.assemble(exact, " ")


def _partition(part: PartitionView, longest: int, width: int) -> Text:
    """A bar as long as the log, cold up to the watermark, and the rows on both sides of the seam."""
    figures = Text.assemble(
        (f"{part.cold_rows:>9,}", COLD),
        (" │ ", SEAM),
        (f"{part.rows - part.cold_rows:<7,}", HOT),
    )
    label = Text(f" {part.partition:>3} ", FAINT)
    room = min(width - len(label) - len(figures) - 2, _MAX_BAR)
    total = round(room * part.log_end / longest) if longest else 0
    cold = round(total * part.watermark / part.log_end) if part.log_end else 0
    bar = Text(_COLD_CELL * max(cold - 1, 0), COLD)
    if total:
        bar.append(_SEAM_CELL, SEAM)
        bar.append(_HOT_CELL * (total - max(cold, 1)), HOT)
    bar.append(" " * (room - len(bar)))
    return Text.assemble(label, bar, " ", figures)


def _tiering(view: FeedView, moment: Moment) -> Text:
    published = view.published
    if published.count:
        ago_s = max(0, round(moment.elapsed_s - published.at_s))
        plural = "es" if published.count > 1 else ""
        text = f"     {published.count} publish{plural}, the last {ago_s} s ago: {published.last_rows:,} rows"
    elif moment.spark_up:
        text = "     Spark is up; its first publish is on the way"
    else:
        text = "     Spark is starting; the tail answers alone meanwhile"
    if view.files:
        text += f" · {view.files:,} files, {_size(view.file_bytes)}"
    return Text(text, FAINT)


def _drift(view: FeedView) -> Text:
    if not view.later:
        return Text()
    text = f"     {view.later}"
    if view.answer is not None and view.answer.with_later:
        text += f"; {view.answer.with_later:,} rows have it, older ones are NULL there"
    return Text(text, FAINT)


def _figures(moment: Moment, width: int) -> Iterator[Text]:
    columns = max(8, min(40, width - 64))
    if moment.ages_ms:
        yield Text.assemble(
            " newest row in the answer  ",
            (f"{moment.ages_ms[-1]:>5,.0f} ms old", STRONG),
            (f"  median {_quantile(moment.ages_ms, 0.5):>4,.0f}  ", FAINT),
            (_spark(moment.ages_ms, columns), HOT),
        )
    if moment.latencies_ms:
        yield Text.assemble(
            " answered through SQL in   ",
            (f"{moment.latencies_ms[-1]:>5,.0f} ms    ", STRONG),
            (f"  median {_quantile(moment.latencies_ms, 0.5):>4,.0f}  ", FAINT),
            (_spark(moment.latencies_ms, columns), COLD),
            (f"  p95 {_quantile(moment.latencies_ms, 0.95):,.0f}", FAINT),
        )


def _paste(snippets: Sequence[Snippet], width: int, room: int) -> list[Text]:
    """As many snippets as fit, whole ones only, the short ones first; the rest is a command away."""
    rest = Text(
        " more to paste (ADBC, pandas, Polars, DuckDB):  thermocline demo --snippets", FAINT
    )
    blocks: list[list[Text]] = []
    for snippet in snippets:
        lines = snippet.text.rstrip().splitlines()
        if len(lines) == 1:
            blocks.append([Text.assemble((f" {snippet.title:<11}", FAINT), lines[0])])
        else:
            head = Text(f" {snippet.title}", FAINT)
            blocks.append([Text(), head, *(Text(f" {line}") for line in lines)])
    blocks.sort(key=len)
    chosen: list[Text] = []
    left_out = False
    for block in blocks:
        fits = len(chosen) + len(block) < room and all(len(line) <= width for line in block)
        chosen += block if fits else []
        left_out |= not fits
    return [*chosen, rest] if left_out else chosen


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def _spark(values: Sequence[float], columns: int) -> str:
    visible = values[-columns:]
    top = max(visible) or 1.0
    return "".join(_SPARKS[min(7, int(value / top * 7.99))] for value in visible).ljust(columns)


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count < 1e9 else f"{count / 1e9:,.2f} GB"


def _rule(width: int) -> Text:
    return Text("─" * width, FAINT)


def _spread(left: Text, right: Text, width: int) -> Text:
    gap = width - left.cell_len - right.cell_len
    if gap < 1:
        return left
    return Text.assemble(left, " " * gap, right)


def _fitted(lines: list[Text], width: int, height: int) -> list[Text]:
    lines = lines[:height] + [Text() for _ in range(height - len(lines))]
    for line in lines:
        # A text's own style is left to whoever prints it; here its spans alone are.
        line.stylize(line.style)
        line.no_wrap = True
        line.truncate(width, overflow="ellipsis", pad=True)
    return lines
