"""``thermocline doctor``: tries the set-up out, part by part, and says how to fix what is broken."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict

import click
from rich.console import Console
from rich.text import Text

from connectors.iceberg.store import IcebergStore
from planner.names import TableName
from thermocline.catalog_access import catalog_roots
from thermocline.commands.config import all_problems, plain_table
from thermocline.config.settings import Problem, Settings, load
from thermocline.doctor.engines import address_of, engines, settings_text
from thermocline.doctor.findings import Finding, Findings, fail, ok, warn
from thermocline.doctor.least_rights import Right, TableAccess, least_rights
from thermocline.doctor.machine import machine
from thermocline.doctor.stores import stores
from thermocline.doctor.systems import brokers, catalogs, registries
from thermocline.doctor.tables import tables

_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


@click.command(epilog="Example: thermocline doctor --json")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.option(
    "--permissions",
    "as_rights",
    is_flag=True,
    help="Check nothing; say which rights of brokers, catalogs and stores the tables need, at least.",
)
@click.option(
    "--engines",
    "as_engines",
    is_flag=True,
    help="Print settings of Iceberg engines for the live tables of this server, and try those that are installed.",
)
@click.option("--user", help="Of --engines: who reads; the password is $THERMOCLINE_PASSWORD.")
@click.pass_obj
def command(
    config: str | None, as_json: bool, as_rights: bool, as_engines: bool, user: str | None
) -> None:
    """Check the set-up: machine, settings, brokers, schema registries, catalogs, stores, clocks, rights, bound tables.

    Writes and removes one small file where each catalog has its data; changes nothing else. Exit code 1 when a check fails,
    0 when there are warnings only.
    """
    if as_rights:
        _show_rights(_rights(load(config)), as_json=as_json)
        return
    if as_engines:
        address = address_of(load(config), user, os.environ.get("THERMOCLINE_PASSWORD", ""))
        if not as_json:
            click.echo(settings_text(address))
        _report(list(engines(address)), as_json=as_json)
        return
    findings = []
    with Console(stderr=True).status("") as status:
        for finding in examined(config):
            findings.append(finding)
            status.update(f"{finding.check} …")
    _report(findings, as_json=as_json)


def _report(findings: list[Finding], *, as_json: bool) -> None:
    """Print findings; end with exit code 1 where one failed."""
    failed = any(line.state == "fail" for line in findings)
    if as_json:
        document = {"ok": not failed, "findings": [asdict(line) for line in findings]}
        click.echo(json.dumps(document, indent=2))
    else:
        _show(findings)
    if failed:
        raise SystemExit(1)


def examined(config: str | None) -> Iterator[Finding]:
    """Everything, from what is nearest to what is furthest; settings that do not load end it."""
    problems = all_problems(config)
    yield from _settings(problems)
    if any(problem.severity == "error" for problem in problems):
        return
    settings = load(config)
    yield from machine(settings, config)
    yield from brokers(settings)
    yield from registries(settings)
    by_catalog: dict[str, list[TableName]] = {}
    yield from catalogs(settings, by_catalog)
    yield from stores(settings, by_catalog)
    yield from tables(settings, [name for names in by_catalog.values() for name in names])


def _rights(settings: Settings) -> list[Right]:
    """Raises CatalogUnavailable and the errors of tables that cannot be read."""
    with closing(IcebergStore(settings.catalogs, roots=catalog_roots(settings))) as store:
        pins = [store.pin(name) for name in store.tables()]
    tables = [
        TableAccess(
            None if pin.binding is None else pin.binding.address,
            pin.metadata_location.rpartition("/metadata/")[0],
        )
        for pin in pins
    ]
    return least_rights(settings.catalogs, tables)


def _show_rights(rights: Sequence[Right], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps([asdict(right) for right in rights], indent=2))
        return
    table = plain_table("to", "on", "allow", "")
    for right in rights:
        operations = ", ".join(right.operations)
        table.add_row(right.purpose, right.on, operations, Text(right.note, "dim"))
    Console(highlight=False).print(table)


def _settings(problems: Sequence[Problem]) -> Findings:
    for problem in problems:
        where = f"{problem.origin}: " if problem.origin is not None else ""
        state = fail if problem.severity == "error" else warn
        yield state("settings", f"{where}{problem.key}: {problem.what}", problem.fix)
    if not problems:
        yield ok("settings", "valid")


def _show(findings: list[Finding]) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        for finding in findings:
            fix = f"; {finding.fix}" if finding.fix else ""
            click.echo(f"{finding.state:<4}  {finding.check}: {finding.what}{fix}")
        return
    table = plain_table("", "check", "found", "what to do")
    for finding in findings:
        table.add_row(
            Text(finding.state, _STYLES[finding.state]),
            Text(finding.check),
            Text(finding.what, "dim" if finding.state == "ok" else ""),
            Text(finding.fix),
        )
    console.print(table)
    counts = {state: sum(finding.state == state for finding in findings) for state in _STYLES}
    sys.stdout.write(
        f"{counts['ok']} well, {counts['warn']} doubtful, {counts['fail']} broken\n"
    )
