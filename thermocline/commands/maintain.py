"""``thermocline maintain``: keep tables fast: compact files, expire snapshots, remove orphans."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from contextlib import closing

import click

from connectors.iceberg.maintenance_facts import MaintenanceReader
from connectors.jobs.round import not_bound
from planner.errors import FederationError
from planner.maintenance.steps import TITLES, Situation, Step, plan_upkeep
from planner.names import TableName
from thermocline.catalog_access import catalog_roots
from thermocline.config.settings import load
from thermocline.maintaining import command_loop
from thermocline.options import option, options, takes
from thermocline.output.units import size_text

EXAMPLES = """\b
Examples:
  thermocline maintain --dry-run
  thermocline maintain --once lake.net.flows
"""


@options
class MaintenanceOptions:
    once: bool = option(help="Until nothing is due, then stop.")
    dry_run: bool = option(
        help="Only say what is due, why, and what it costs. Starts no Spark."
    )


@click.command(epilog=EXAMPLES)
@click.argument("tables", nargs=-1, metavar="[CATALOG.NAMESPACE.TABLE]...")
@takes(MaintenanceOptions)
@click.pass_obj
def command(config: str | None, chosen: MaintenanceOptions, /, tables: tuple[str, ...]) -> None:
    """Keep tables fast: compact files, rewrite manifests, expire snapshots, remove orphans.

    Without names, all bound tables. Rows older than a table's thermocline.retention_days are removed, too. Snapshots and
    files that servers may still read stay: those that were current within the table's thermocline.maintain.pin_grace_s (2 h),
    and what tags and branches name. A line per step. Spark starts with the first step. One table's failure stops no other;
    with --once each is told, and the first is the exit code.
    """
    names = [TableName.parse(text) for text in tables]
    settings = load(config).require_catalogs()
    with closing(MaintenanceReader(settings.catalogs, catalog_roots(settings))) as reader:
        if chosen.dry_run:
            _show(reader, names)
            return
        with command_loop(settings, reader, names) as loop:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: loop.stop())
            if not chosen.once:
                loop.run()
            elif not loop.drain():
                raise click.UsageError(
                    "there is no bound table; make one with `thermocline create`."
                )


def _show(reader: MaintenanceReader, names: Sequence[TableName]) -> None:
    """Print the plan of each table, and all failures but the first; raise that in the end."""
    situation = Situation(int(time.time() * 1000), by_command=True)
    failures: list[FederationError] = []
    for name in names or reader.tables():
        try:
            facts = reader.read(name)
            if facts is None:
                if names:
                    raise not_bound(name)
                continue
            upkeep = plan_upkeep(facts, situation)
        except FederationError as error:
            if failures:
                click.echo(f"{name}: {type(error).__name__}: {error.message}", err=True)
            failures.append(error)
            continue
        files = facts.files
        click.echo(
            f"{name}: {len(files.files):,} files of {size_text(files.bytes)}, {files.delete_files:,} delete files, "
            f"{len(files.manifests):,} manifests, {len(facts.committed_ms):,} snapshots"
        )
        for step in upkeep.steps:
            click.echo(f"  {described(step)}")
        for reason in upkeep.withheld:
            click.echo(f"  not done: {reason}")
        if not upkeep.steps:
            click.echo("  nothing is due")
    if failures:
        raise failures[0]


def described(step: Step) -> str:
    """Say what a step does, why, and what it costs."""
    cost = f"; reads {size_text(step.cost_bytes)}" if step.cost_bytes else ""
    return f"{TITLES[type(step)]}: {step.reason} (score {step.score:.1f}{cost})"
