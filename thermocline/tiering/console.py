"""What ``thermocline tier`` prints: a line per publish on standard output, what a person should know on standard
error, and on a terminal a bar per table that is far behind.
"""

from __future__ import annotations

import threading
import time

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from connectors.jobs import events
from connectors.jobs.loop import TELL_AGAIN_S
from planner.errors import FederationError
from planner.maintenance.steps import TITLES, Step, StepResult
from planner.names import TableName
from planner.seam.binding import Binding
from planner.tiering.schedule import Backfill
from planner.tiering.triggers import Lag, exceeds_tail_budget
from thermocline.output.units import size_text, span_text


class Lines:
    """A tierer's events as text, and those of maintenance ``beside`` it. Thread-safe."""

    def __init__(self, *, bars: bool) -> None:
        """``bars``: standard error is a terminal; they are drawn while ``progress`` is entered."""
        self._lock = threading.Lock()
        self._over_budget: set[TableName] = set()
        self._lines: dict[tuple[TableName | None, type], tuple[str, bool, float]] = {}
        self._bars: dict[TableName, TaskID] = {}
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %  {task.fields[left]}"),
            console=Console(stderr=True),
            transient=True,
            disable=not bars,
        )

    def beside(self, event: events.Event) -> None:
        """Tell an event of the loop beside the tierer's; what both meet is one line."""
        self._hear(event, is_beside=True)

    def __call__(self, event: events.Event) -> None:
        self._hear(event, is_beside=False)

    def _hear(self, event: events.Event, *, is_beside: bool) -> None:
        match event:
            case events.TableMeasured(table, lag, binding):
                self._compare_budget(table, lag, binding)
            case events.RoundPublished():
                self._publish(event)
            case events.RoundRefused(table, error):
                self._tell(_about(table, error))
            case events.StepDone(table, step, result):
                click.echo(f"{_now()} {table}: {step_text(step, result)}")
            case events.StepInVain(table, step):
                what = f"{TITLES[type(step)]} changed nothing of what is due; not again for an hour"
                self._tell(f"{_now()} {table}: {what}")
            case events.StepRefused(table, step, failure):
                what = (
                    f"{TITLES[type(step)]}: {type(failure).__name__}: {_about(table, failure)}"
                )
                self._tell(f"{_now()} {what} (again in an hour; the rest goes on)")
            case events.BacklogGrows(table, files, before):
                what = f"{files:,} files wait to be compacted, {before:,} an hour ago, and it did not keep up since"
                self._tell(f"{_now()} {table}: {what}")
            case events.TableEvolved(table, changes):
                what = ", ".join(map(str, changes)) or "no column changes"
                self._tell(f"{_now()} {table}: took up new schemas of its topic: {what}")
            case events.SchemasNotFollowed(table, failure):
                what = f"{type(failure).__name__}: {_about(table, failure)}"
                self._tell(f"{_now()} {what} (new schemas wait; it is tiered all the same)")
            case events.DrainFailed(table, failure):
                self._tell(f"{type(failure).__name__}: {_about(table, failure)}")
            case events.TableFailed(about, failure, is_first=True):
                what = f"{type(failure).__name__}: {_about(about, failure)}"
                if not self._is_double(event, what, is_beside=is_beside):
                    self._tell(f"{_now()} {what} ({_tries(event)})")
            case events.TableRecovered(table):
                if not self._is_double(event, "", is_beside=is_beside):
                    self._tell(f"{_now()} {table}: works again")
            case events.TableRemoved(table):
                if not self._is_double(event, "", is_beside=is_beside):
                    self._tell(f"{table}: is not there any more")

    def _is_double(self, event: events.Event, text: str, *, is_beside: bool) -> bool:
        """Whether the other loop told the same of the table a moment ago; note it otherwise."""
        key, now_s = (event.table, type(event)), time.monotonic()
        with self._lock:
            before = self._lines.get(key)
            is_lines = before is not None and before[:2] == (text, not is_beside)
            if before is not None and is_lines and now_s - before[2] < TELL_AGAIN_S:
                return True
            self._lines[key] = text, is_beside, now_s
        return False

    def _compare_budget(self, table: TableName, lag: Lag, binding: Binding) -> None:
        over = exceeds_tail_budget(lag, binding)
        with self._lock:
            if over == (table in self._over_budget):
                return
            if over:
                self._over_budget.add(table)
                self._tell(
                    f"{table}: {lag.rows:,} rows wait, more than the table's tail budget: statements on it are "
                    f"refused (TailTooLarge) until tiering has caught up"
                )
            else:
                self._over_budget.discard(table)
                self._tell(f"{table}: its tail is within the budget again")

    def _publish(self, event: events.RoundPublished) -> None:
        table, done, backfill = event.table, event.done, event.backfill
        rate = done.outcomes.records / done.stage_s if done.stage_s else 0.0
        behind = "" if backfill is None else f"; backfill {progress(backfill)}"
        line = (
            f"{_now()} {table}: published {', '.join(done.outcomes.texts)}; "
            f"{rate:,.0f} records/s, publish {done.publish_s * 1000:.0f} ms, lag {done.lag:,}; by {event.trigger.kind}{behind}"
        )
        with self._lock:
            click.echo(line)
            self._draw(table, backfill)

    def _draw(self, table: TableName, backfill: Backfill | None) -> None:
        if backfill is None or not backfill.left:
            if table in self._bars:
                self.progress.remove_task(self._bars.pop(table))
            return
        if table not in self._bars:
            self._bars[table] = self.progress.add_task(str(table), left="")
        done, total = backfill.done, backfill.done + backfill.left
        bar, left = self._bars[table], _left(backfill)
        self.progress.update(bar, completed=done, total=total, left=left)

    def _tell(self, line: str) -> None:
        click.echo(line, err=True)


def step_text(step: Step, result: StepResult) -> str:
    """Say what a step of maintenance did: ``compact files: 7 small files; 12.1 MiB in 3.2s``."""
    size = f"{size_text(result.bytes)} in " if result.bytes else ""
    return f"{TITLES[type(step)]}: {step.reason}; {size}{span_text(result.seconds)}"


def _about(table: TableName | None, error: FederationError) -> str:
    """The message, which mostly begins with the table it is about."""
    if table is None or error.message.startswith(str(table)):
        return error.message
    return f"{table}: {error.message}"


def _now() -> str:
    return time.strftime("%H:%M:%S")


def _tries(failed: events.TableFailed) -> str:
    next_try = f"next try in {failed.retry_s:.0f} s"
    if failed.count == 1:
        return next_try
    return f"{failed.count} tries in {span_text(failed.failing_s)}; {next_try}"


def progress(backfill: Backfill) -> str:
    """Say how far a backfill is: ``45 %, 12 min left``."""
    return f"{backfill.fraction:.0%}".replace("%", " %") + f", {_left(backfill)}"


def _left(backfill: Backfill) -> str:
    if not backfill.left:
        return "done"
    if backfill.eta_s is None:
        return "time unknown"
    if backfill.eta_s < 120:
        return f"{backfill.eta_s:.0f} s left"
    if backfill.eta_s < 7200:
        return f"{backfill.eta_s / 60:.0f} min left"
    return f"{backfill.eta_s / 3600:.1f} h left"
