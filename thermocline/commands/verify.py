"""``thermocline verify``: a proof that cold holds what the log held, as far as it can be had."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import re
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from planner.errors import BadParameter, FederationError
from planner.names import TableName
from planner.verification.findings import Report
from thermocline.config.settings import load
from thermocline.verify_report import document, say
from thermocline.verifying import VerifyRequest, verify_tables

if TYPE_CHECKING:
    from connectors.verification.run import Progress as Steps

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
#: Without a terminal, a line this often.
_PLAIN_EVERY_S = 10.0


EXAMPLES = """\b
Examples:
  thermocline verify lake.net.flows
  thermocline verify --since 24h --json
  thermocline verify --offsets-only
\b
Exit codes: 0 as promised; 1 a finding; others: a table could not be read
(3: a system did not answer), and nothing is said of it.
"""


@click.command(epilog=EXAMPLES)
@click.argument("tables", nargs=-1, metavar="[CATALOG.NAMESPACE.TABLE]...")
@click.option(
    "--since",
    metavar="TIME",
    help="Only what was tiered since: a duration (90m, 24h, 7d) or a time (2026-11-20T08:00Z).",
)
@click.option(
    "--offsets-only",
    is_flag=True,
    help="Compare which offsets have a row, and decode nothing.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
@click.pass_obj
def command(
    config: str | None,
    tables: tuple[str, ...],
    since: str | None,
    offsets_only: bool,
    as_json: bool,
) -> None:
    """Read again what Kafka retains and compare it with cold.

    Every offset below the watermark must have one outcome and every row the values of its record; of a keyed table
    every key must have its newest row, and one alone; no data file may be referenced twice; watermarks, tag and
    mirror must agree. Says what could not be checked.
    """
    settings = load(config).require_catalogs()
    since_ms = None if since is None else parse_since(since, time.time())
    console = Console(highlight=False)
    request = VerifyRequest(
        settings,
        tuple(TableName.parse(text) for text in tables),
        with_values=not offsets_only,
        since_ms=since_ms,
        bound_only=not tables,
    )
    reports: list[Report] = []
    failures: list[FederationError] = []
    for outcome in verify_tables(request, progress_bar):
        if isinstance(outcome, FederationError):
            failures.append(outcome)
        else:
            reports.append(outcome)
            if not as_json:
                say(console, outcome)
    if as_json:
        click.echo(json.dumps([document(report) for report in reports], indent=2))
    elif not reports and not failures:
        click.echo("no bound tables; make one with `thermocline create`")
    is_clean = all(report.is_clean for report in reports)
    for failure in failures[1:] if is_clean else failures:
        click.echo(f"thermocline: {failure.message}", err=True)
    if not is_clean:
        raise SystemExit(1)
    if failures:
        raise failures[0]


def parse_since(text: str, now_s: float) -> int:
    """Return milliseconds since 1970 of a time, or of a duration before ``now_s``.

    Raises:
        BadParameter: it is neither, or lies in the future.
    """
    duration = _DURATION.fullmatch(text.strip())
    if duration is not None:
        return int((now_s - float(duration[1]) * _SECONDS[duration[2]]) * 1000)
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise BadParameter(
            f"--since {text!r} is neither a duration (90m, 24h, 7d) nor a time (2026-11-20T08:00Z)."
        ) from error
    # A time without a zone is this machine's, as on its clock.
    at_s = moment.timestamp()
    if at_s > now_s:
        raise BadParameter(f"--since {text!r} is in the future.")
    return int(at_s * 1000)


class _Bar:
    def __init__(self, bar: Progress, title: str) -> None:
        self._bar = bar
        self._task = bar.add_task(title, total=None)

    def start(self, total: int) -> None:
        self._bar.update(self._task, total=total)

    def advance(self, offsets: int) -> None:
        self._bar.advance(self._task, offsets)


class _Lines:
    """A line now and then on standard error, where it is no terminal."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._total = self._done = 0
        self._said_at = time.monotonic()

    def start(self, total: int) -> None:
        self._total = total

    def advance(self, offsets: int) -> None:
        self._done += offsets
        now = time.monotonic()
        if now - self._said_at >= _PLAIN_EVERY_S:
            self._said_at = now
            click.echo(f"{self._title}: {self._done:,} of {self._total:,} offsets", err=True)


@contextlib.contextmanager
def progress_bar(title: str) -> Iterator[Steps]:
    """Show how far a verification is: a bar on a terminal, plain lines elsewhere."""
    if not sys.stderr.isatty():
        yield _Lines(title)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("offsets"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield _Bar(bar, title)
