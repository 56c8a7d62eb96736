"""``thermocline config``: what is in force and where it came from; what is wrong with it."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from connectors.kafka.log import KafkaLog
from connectors.kafka.settings import section_of
from connectors.registry.options import section_of as registry_section
from connectors.spark.catalogs import catalog_conf
from planner.errors import BadConfig, RequestError
from thermocline.catalog_access import engine_secrets
from thermocline.config.masking import MASK, masked
from thermocline.config.settings import Problem, Settings, load, own_sections, validate
from thermocline.config.sources import Written, read


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Show or check the settings in force."""


@command.command(
    short_help="Show every setting in force, and where it came from.",
    epilog="Example: thermocline config show --json",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.pass_obj
def show(config: str | None, as_json: bool) -> None:
    """Show every setting in force, and where it came from: default, file, or variable.

    Secrets are masked.
    """
    settings, written = load(config), read(config)
    rows = [
        (key, value, written.origins.get(key, "default")) for key, value in _printable(settings)
    ]
    if as_json:
        document = {key: {"value": value, "from": origin} for key, value, origin in rows}
        click.echo(json.dumps(document, indent=2))
        return
    console = Console(highlight=False)
    console.print(
        f"file: {written.file or 'none; variables and defaults alone'}", soft_wrap=True
    )
    table = plain_table("setting", "value", "from")
    for key, value, origin in rows:
        dim = "dim" if origin == "default" else ""
        plain = str(value).lower() if isinstance(value, bool) else str(value)
        text = "(none)" if value in (None, []) else plain
        where = "file" if origin == written.file else origin
        table.add_row(Text(key, dim), Text(text, dim), Text(where, dim))
    console.print(table)


@command.command(
    short_help="Check the settings without asking any system.",
    epilog="Example: thermocline config check --json",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.pass_obj
def check(config: str | None, as_json: bool) -> None:
    """Check the settings without asking any system: what is wrong, where, and how to fix it.

    Exit code 2 when something is wrong; warnings alone are 0.
    """
    problems = all_problems(config)
    failed = any(problem.severity == "error" for problem in problems)
    if as_json:
        document = {"ok": not failed, "problems": [_facts(p) for p in problems]}
        click.echo(json.dumps(document, indent=2))
    else:
        console = Console(highlight=False)
        styles = {"error": "bold red", "warning": "yellow"}
        for problem in problems:
            mark = f"{problem.severity:<7}", styles[problem.severity]
            console.print(Text.assemble(mark, "  ", problem.sentence), soft_wrap=True)
        if not problems:
            console.print("the settings are fine; `thermocline doctor` tries them out")
    if failed:
        raise SystemExit(2)


def plain_table(*titles: str) -> Table:
    """Return a table without lines, whose cells fold."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in titles:
        table.add_column(title, overflow="fold")
    return table


def _printable(settings: Settings) -> Iterator[tuple[str, object]]:
    """Every setting as (dotted key, value fit to print): sections in the file's order."""
    vendors = {f"catalogs.{name}": options for name, options in settings.catalogs.items()}
    vendors |= {section_of(name): options for name, options in settings.clusters.items()}
    vendors |= {registry_section(name): each for name, each in settings.registries.items()}
    for section, options in vendors.items():
        for key, value in options.items():
            yield f"{section}.{key}", masked(key, value)
    for section in own_sections():
        for key, value in getattr(settings, section):
            full = f"{section}.{key}"
            if isinstance(value, dict) and value:
                for name, item in value.items():
                    yield f"{full}.{name}", MASK if key == "users" else masked(name, str(item))
            else:
                yield full, _plain(value)
    for name, limits in settings.limits.items():
        for key, value in limits:
            yield f"limits.{name}.{key}", _plain(value)
    for name, granted in (settings.permissions or {}).items():
        masks = {f"masks.{column}": mask for column, mask in granted.masks.items()}
        for key, value in (*granted, *masks.items()):
            if key != "masks":
                yield f"permissions.{name}.{key}", _plain(value)


def all_problems(config: str | None) -> tuple[Problem, ...]:
    """What loading refuses, and what a command would find out only later."""
    try:
        written = read(config)
    except BadConfig as error:
        file = str(error.facts.get("file", ""))
        return (Problem("error", file, error.message.removeprefix(f"{file}: ").rstrip("."),
                        "correct the file"),)  # fmt: skip
    settings, problems = validate(written)
    if settings is None:
        return problems
    reported = {problem.key.split(".")[1] for problem in problems}
    return (*problems, *_later(settings, written, reported))


def _later(settings: Settings, written: Written, reported: set[str]) -> Iterator[Problem]:
    """``reported``: catalogs that have a problem already."""
    from thermocline.serve.access import access, tls
    from thermocline.serve.permissions import mistakes

    if not settings.catalogs:
        yield Problem("error", "catalogs", "no catalog is configured", "add [catalogs.<name>]")
    for name, options in settings.catalogs.items():
        if name in reported:
            continue
        key = f"catalogs.{name}"
        try:
            catalog_conf(name, options)
        except BadConfig as error:
            what = error.message.partition(": ")[2].rstrip(".").replace("; ", ", ")
            fix = "it is served, but `tier` will refuse it"
            yield Problem("warning", key, what, fix, written.origin(key))
        warehouse = options.get("warehouse", "")
        if not settings.server.storage_roots and "/" not in warehouse:
            what = "its warehouse says no place where data files are"
            fix = "list the places in server.storage_roots, or no data file can be read"
            yield Problem("warning", key, what, fix, written.origin(key))
    yield from _refused("catalogs", written, lambda: engine_secrets(settings))
    for name, options in settings.clusters.items():
        yield from _refused(section_of(name), written, lambda o=options: KafkaLog(o).close())
    if not settings.clusters:
        yield Problem("warning", "kafka", "no broker is configured",
                      "set bootstrap.servers in [kafka]; without it only cold tables answer")  # fmt: skip
    for key in sorted({"cache_dir", "max_cache_bytes"} & settings.cold.model_fields_set):
        yield Problem("warning", f"cold.{key}", "it has no effect: decoded manifests are kept in memory",
                      "delete it", written.origin(f"cold.{key}"))  # fmt: skip
    for check in (access, tls):
        yield from _refused("access", written, functools.partial(check, settings))
    for mistake in mistakes(settings):
        yield _problem("permissions", written, mistake)


def _refused(key: str, written: Written, attempt: Any) -> Iterator[Problem]:
    try:
        attempt()
    except RequestError as error:
        yield _problem(key, written, error)


def _problem(key: str, written: Written, error: RequestError) -> Problem:
    full = f"{key}.{error.facts['key']}" if "key" in error.facts else key
    what, _, fix = error.message.rstrip(".").rpartition("; ")
    return Problem("error", full, what.removeprefix(f"{full}: "), fix, written.origin(full))


def _plain(value: object) -> object:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple):
        return list(value)
    return MASK if value else None


def _facts(problem: Problem) -> dict[str, object]:
    facts = asdict(problem)
    facts["from"] = facts.pop("origin")
    return facts
