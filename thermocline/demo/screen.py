"""What the demo prints: lines. The picture is the console's."""

from __future__ import annotations

import time

import click

from thermocline.demo.observer import Observation, ObservedAnswer, ObservedTable
from thermocline.demo.snippets import printed

_LINE_S = 2.0


class Screen:
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

    def begin(self, port: int) -> None:
        """Print what to paste: events flow now."""
        click.echo(printed(port))

    def show(self, demo: Observation) -> None:
        elapsed_s = demo.elapsed_s
        if elapsed_s < self._due_s:
            return
        for table in demo.tables:
            if table.answer is not None:
                self._due_s = elapsed_s + _LINE_S
                self.say(line_of(table, table.answer))
        if demo.devices is not None:
            self.say(demo.devices.line())


def line_of(table: ObservedTable, answer: ObservedAnswer) -> str:
    """Return how a table stands."""
    check = f"off by {table.off_by:+,}" if table.off_by else f"exact {table.checked:,} times"
    age = "no event yet" if answer.age_ms is None else f"newest row {answer.age_ms:.0f} ms old"
    later = f"; {table.later}" if table.later else ""
    return (
        f"{table.feed.table}: {answer.rows:,} rows = {answer.cold_rows:,} cold + "
        f"{answer.rows - answer.cold_rows:,} hot; {table.publishes} publishes, {table.files} files; "
        f"answered in {answer.took_ms:.0f} ms, {age}; {check}{later}"
    )
