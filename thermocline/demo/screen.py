"""Where the demo is shown: plain lines, or a live picture on a terminal."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import click
from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from thermocline.demo.observer import Observation, ObservedAnswer, ObservedTable
from thermocline.demo.snippets import printed
from thermocline.demo.view import DemoView

_LINE_S = 2.0


class PlainScreen:
    """A line for each step, and one for each table every two seconds."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._tenths: dict[str, int] = {}
        self._due_s = 0.0

    def say(self, text: str) -> None:
        click.echo(f"[{time.monotonic() - self._began:5.1f} s] {text}")

    def step(self, name: str, fraction: float = 0.0) -> None:
        """Show a step of set-up: as begun, where a share of it is known, and at 1 as done."""
        tenth = int(fraction * 10)
        if self._tenths.get(name, -1) < tenth:
            self._tenths[name] = tenth
            progress = f" {tenth}0 %" if tenth else " …"
            self.say(f"{name}{': ready' if fraction == 1 else progress}")

    @contextlib.contextmanager
    def setting_up(self) -> Iterator[None]:
        yield

    @contextlib.contextmanager
    def live(self, demo: Observation, port: int) -> Iterator[None]:
        del demo
        click.echo(printed(port))
        yield

    def show(self, demo: Observation) -> None:
        elapsed_s = demo.elapsed_s
        if elapsed_s < self._due_s:
            return
        for table in demo.tables:
            if table.answer is not None:
                self._due_s = elapsed_s + _LINE_S
                self.say(plain_line(table, table.answer))


class LiveScreen(PlainScreen):
    """Progress bars, then one picture on the alternate screen: nothing flickers, nothing scrolls."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._progress = Progress(
            SpinnerColumn(finished_text="[green]✔"),
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TimeElapsedColumn(),
            console=console,
        )

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def step(self, name: str, fraction: float = 0.0) -> None:
        for task in self._progress.tasks:
            if task.description == name:
                self._progress.update(task.id, total=1.0, completed=fraction)
                return
        self._progress.add_task(name, total=None)

    @contextlib.contextmanager
    def setting_up(self) -> Iterator[None]:
        with self._progress:
            yield
            # What is not done is not waited for.
            for task in self._progress.tasks:
                if not task.finished:
                    self._progress.update(task.id, description=f"{task.description} (goes on)")

    @contextlib.contextmanager
    def live(self, demo: Observation, port: int) -> Iterator[None]:
        # Before the picture takes the screen: what is printed here can be scrolled back to, and copied.
        self.say(f"\n{printed(port)}")
        with Live(
            DemoView(demo, port),
            console=self._console,
            screen=True,
            redirect_stdout=False,
            redirect_stderr=False,
        ):
            yield

    def show(self, demo: Observation) -> None:
        """Nothing: the picture looks for itself, four times a second."""


def plain_line(table: ObservedTable, answer: ObservedAnswer) -> str:
    """Return how a table stands, without colour or drawing."""
    check = f"off by {table.off_by:+,}" if table.off_by else f"exact {table.checked:,} times"
    age = "no event yet" if answer.age_ms is None else f"newest row {answer.age_ms:.0f} ms old"
    later = f"; {table.later}" if table.later else ""
    return (
        f"{table.feed.table}: {answer.rows:,} rows = {answer.cold_rows:,} cold + "
        f"{answer.rows - answer.cold_rows:,} hot; {table.publishes} publishes, {table.files} files; "
        f"answered in {answer.took_ms:.0f} ms, {age}; {check}{later}"
    )
