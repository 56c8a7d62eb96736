"""Where the demo is shown: a live terminal, or plain lines where there is none."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Protocol

import click
from rich.console import Console
from rich.live import Live
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from thermocline.demo.observer import Moment
from thermocline.demo.snippets import printed
from thermocline.demo.view import DemoView
from thermocline.demo.world import Steps

FRAMES_PER_SECOND = 4
_LINE_S = 2.0


class Screen(Protocol):
    """Shows set-up, then moments, and says things that stay."""

    def setting_up(self) -> contextlib.AbstractContextManager[Steps]: ...

    def live(self, port: int) -> contextlib.AbstractContextManager[DemoView]: ...

    def say(self, text: str) -> None: ...


class Terminal:
    """Progress bars, then one picture on the alternate screen: nothing flickers, nothing scrolls."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextlib.contextmanager
    def setting_up(self) -> Iterator[Steps]:
        with Progress(
            SpinnerColumn(finished_text="[green]✔"),
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TimeElapsedColumn(),
            console=self._console,
        ) as progress:
            bars = _Bars(progress)
            yield bars
            bars.leave()

    @contextlib.contextmanager
    def live(self, port: int) -> Iterator[DemoView]:
        # Before the picture takes the screen: what is printed here can be scrolled back to, and copied.
        self._console.print(f"\n{printed(port)}", highlight=False, markup=False, soft_wrap=True)
        view = DemoView(port)
        with Live(
            view,
            console=self._console,
            screen=True,
            refresh_per_second=FRAMES_PER_SECOND,
            redirect_stdout=False,
            redirect_stderr=False,
        ):
            yield view

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


class _Bars:
    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def begin(self, step: str, share: float | None = None) -> None:
        if step not in self._tasks:
            self._tasks[step] = self._progress.add_task(step, total=None)
        if share is not None:
            self._progress.update(self._tasks[step], total=1.0, completed=share)

    def done(self, step: str) -> None:
        self._progress.update(self._tasks[step], total=1.0, completed=1.0)

    def leave(self) -> None:
        """Say of what is not done that nobody waits for it."""
        for task in self._progress.tasks:
            if not task.finished:
                self._progress.update(task.id, description=f"{task.description} (goes on)")


class Plain:
    """A line per step, and one per table every two seconds."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    @contextlib.contextmanager
    def setting_up(self) -> Iterator[Steps]:
        yield _Lines(self)

    @contextlib.contextmanager
    def live(self, port: int) -> Iterator[DemoView]:
        click.echo(printed(port))
        yield _PlainView(self)

    def say(self, text: str) -> None:
        click.echo(f"[{time.monotonic() - self._began:5.1f} s] {text}")


class _Lines:
    def __init__(self, plain: Plain) -> None:
        self._plain = plain
        self._printed: dict[str, int] = {}

    def begin(self, step: str, share: float | None = None) -> None:
        tenth = int((share or 0.0) * 10)
        if self._printed.get(step, -1) < tenth:
            self._printed[step] = tenth
            done = f" {tenth * 10} %" if tenth else " …"
            self._plain.say(f"{step}{done}")

    def done(self, step: str) -> None:
        self._plain.say(f"{step}: ready")


class _PlainView(DemoView):
    """Says a moment now and then instead of drawing it."""

    def __init__(self, plain: Plain) -> None:
        self._plain = plain
        self._due = 0.0
        self._last: Moment | None = None

    @property
    def moment(self) -> Moment | None:
        return self._last

    @moment.setter
    def moment(self, moment: Moment | None) -> None:
        self._last = moment
        if moment is None or moment.elapsed_s < self._due:
            return
        for line in plain_lines(moment):
            # Not before there is one: the first answer is told when it comes.
            self._due = moment.elapsed_s + _LINE_S
            self._plain.say(line)


def plain_lines(moment: Moment) -> Iterator[str]:
    """One line a table, without colour or drawing."""
    for view in moment.feeds:
        answer = view.answer
        if answer is None:
            continue
        check = f"off by {view.off_by:+,}" if view.off_by else f"exact {view.checked:,} times"
        age = (
            "no event yet"
            if answer.age_ms is None
            else f"newest row {answer.age_ms:.0f} ms old"
        )
        later = f"; {view.later}" if view.later else ""
        yield (
            f"{view.feed.table}: {answer.rows:,} rows = {answer.cold_rows:,} cold + "
            f"{answer.rows - answer.cold_rows:,} hot; {view.published.count} publishes, {view.files} files; "
            f"answered in {answer.took_ms:.0f} ms, {age}; {check}{later}"
        )
