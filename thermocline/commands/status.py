"""``thermocline status``: where each bound table stands."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from planner.names import TableName
from thermocline.catalog_access import catalog_roots
from thermocline.config.settings import load
from thermocline.connect import connect_server, login_options
from thermocline.options import option, options, takes
from thermocline.output.units import coloured, size_text, span_text

if TYPE_CHECKING:
    from connectors.table_standings import TableStatus, TailReading
    from planner.maintenance.standing import CareStanding

EXAMPLES = """\b
Examples:
  thermocline status
  thermocline status lake.net.flows --partitions
  thermocline status --json | jq '.[] | select(.lag_s > 3600) | .table'
  thermocline status --watch 5
  thermocline status --server "$THERMOCLINE_URI"
"""


@options
class StatusOptions:
    partitions: bool = option(help="Offsets of every partition, too.")
    care: bool = option(help="What waits for maintenance, too. Reads the table's manifests.")
    as_json: bool = option("--json", help="One JSON document, partitions included.")
    watch_s: float | None = option(
        "--watch",
        type=click.FloatRange(min=0.2),
        metavar="SECONDS",
        help="Again every so often, until Ctrl-C.",
    )
    uri: str | None = option(
        "--server",
        metavar="URI",
        help="Ask this server; IN MEMORY is how far it has read each tail.",
    )


@click.command(epilog=EXAMPLES)
@click.argument("tables", nargs=-1, metavar="[CATALOG.NAMESPACE.TABLE]...")
@takes(StatusOptions)
@login_options
@click.pass_obj
def command(
    config: str | None, chosen: StatusOptions, /, tables: tuple[str, ...], **login: str | None
) -> None:
    """Show watermark, log and lag of every bound table, as broker and catalog say now.

    With --server, a server is asked instead (its system.tails), as of a second or so ago; then no catalog and no broker
    need be in the settings. LAG counts offsets that are not tiered yet: an upper bound of records. BYTES is estimated from
    the first of them. OLDEST is the age of the oldest, and HEADROOM how long retention still keeps it: at zero, records are
    lost before they are tiered. Exit code 6 when a table does not answer.

    With --care: files and bytes that wait to be compacted, bytes compacted within an hour by bytes published, the oldest
    snapshot, what the last look for orphans removed, how long ago maintenance last did something, and which rows aged out
    last, and when.
    """
    if chosen.care and chosen.uri is not None:
        raise click.UsageError("--care reads the tables' own files; leave out --server.")
    names = [TableName.parse(text) for text in tables]
    with _answering(config, chosen.uri, is_with_care=chosen.care, **login) as answer:
        while True:
            statuses = answer(names)
            if chosen.as_json:
                click.echo(json.dumps([_document(status) for status in statuses], indent=2))
            else:
                if chosen.watch_s is not None and sys.stdout.isatty():
                    click.clear()
                _show(statuses, partitions=chosen.partitions)
            if chosen.watch_s is None:
                break
            sys.stdout.flush()
            time.sleep(chosen.watch_s)
    if any(status.error for status in statuses):
        raise SystemExit(6)


@contextmanager
def _answering(
    config: str | None,
    uri: str | None,
    *,
    is_with_care: bool,
    user: str | None,
    token: str | None,
) -> Iterator[Callable[[Sequence[TableName]], list[TableStatus]]]:
    """Ask a server where one is named, else catalogs and brokers."""
    if uri is not None:
        from thermocline.served_standings import standings_of

        with connect_server(config, uri=uri, local=False, user=user, token=token) as client:
            yield partial(standings_of, client)
        return
    if user or token:
        raise click.UsageError("--user and --token are for a --server; name it.")
    # Not from thermocline.serve.assembly: a server's parts would double the time this takes.
    from connectors.iceberg.maintenance_facts import MaintenanceReader
    from connectors.iceberg.store import IcebergStore
    from connectors.kafka.clusters import KafkaClusters
    from connectors.table_care import with_care
    from connectors.table_standings import standings

    settings = load(config).require_catalogs()
    clusters, roots = settings.require_clusters(), catalog_roots(settings)
    with (
        KafkaClusters(clusters) as log,
        closing(IcebergStore(settings.catalogs, roots=roots)) as store,
        closing(MaintenanceReader(settings.catalogs, roots))
        if is_with_care
        else nullcontext() as reader,
    ):

        def answer(names: Sequence[TableName]) -> list[TableStatus]:
            now_ms = time.time_ns() // 1_000_000
            statuses = standings(
                store, log, names or store.tables(), clusters=clusters, now_ms=now_ms
            )
            return statuses if reader is None else with_care(statuses, reader, now_ms)

        yield answer


def _document(status: TableStatus) -> dict[str, Any]:
    """The document's names are promised; ours may change."""
    promised = {"is_bounded_by_size": "is_kept_by_size"}
    return {promised.get(name, name): value for name, value in asdict(status).items()}


def _show(tables: Sequence[TableStatus], *, partitions: bool) -> None:
    from thermocline.output.table import Grid

    if not tables:
        click.echo("no bound tables; make one with `thermocline create`")
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    answering = [table for table in tables if table.error is None]
    in_memory = ["IN MEMORY"] * any(table.tail for table in answering)
    titles = ["TABLE", "TOPIC", "LAG", "BYTES", "OLDEST", "HEADROOM", *in_memory, "NOTES"]
    right = [title not in ("TABLE", "TOPIC", "NOTES") for title in titles]
    cells = [
        [
            table.table,
            table.topic or "",
            f"{table.lag:,}",
            _bytes(table),
            span_text(table.lag_s) if table.lag else "-",
            _headroom(table),
            *([] if table.tail is None else [_in_memory(table.tail)]),
            _notes(table),
        ]
        for table in answering
    ]
    if answering:
        grid = Grid(titles, right, width=width, colour=coloured())
        click.echo("\n".join(grid.lines(cells)))
    if any(table.care for table in answering):
        click.echo("")
        click.echo("\n".join(_care_lines(answering, width)))
    if partitions:
        for table in answering:
            click.echo(f"\n{table.table}  snapshot {table.snapshot_id}")
            click.echo("\n".join(_partition_lines(table, width)))
    for table in tables:
        if table.error is not None:
            name, kind = table.table, str(table.error_class)
            if coloured():
                name, kind = click.style(name, bold=True), click.style(kind, fg="red")
            text = table.error.removeprefix(f"{table.table}: ")
            click.echo(f"{name}  {kind}: {text}")


def _bytes(table: TableStatus) -> str:
    if table.lag_bytes is None:
        return "?"
    return f"{'~' if table.lag else ''}{size_text(table.lag_bytes)}"


def _headroom(table: TableStatus) -> str:
    if table.retention_s is None:
        return "by size" if table.is_bounded_by_size else "for ever"
    if table.lag and table.headroom_s is None:
        return "?"  # how old the oldest record is, was not said
    left_s = table.retention_s if table.headroom_s is None else table.headroom_s
    return f"{span_text(max(0.0, left_s))}{' or by size' if table.is_bounded_by_size else ''}"


def _in_memory(tail: TailReading) -> str:
    if not tail.offsets:
        return "-"
    percent = f"{100 * tail.read_offsets // tail.offsets} %"
    return f"{percent}, {span_text(tail.rest_s)} left" if tail.rest_s else percent


_BAD_RECORDS = {"dead": "dead letters"}


def _notes(table: TableStatus) -> str:
    counts = table.last_publish or {}
    notes = (
        (table.gap_offsets, "offsets lost to accepted gaps"),
        (table.skipped_records, "records skipped by hand"),
        (table.accepted_snapshots, "foreign commits accepted"),
        *(
            (count, f"{_BAD_RECORDS.get(name, f'records {name}')} in the last publish")
            for name, count in counts.items()
            if name not in ("rows", "tombstones")
        ),
    )
    texts = [f"{count:,} {text}" for count, text in notes if count]
    if table.tail is not None and table.tail.error is not None:
        texts.append(f"the server: {table.tail.error}")
    return "; ".join(texts)


def _care_lines(tables: Sequence[TableStatus], width: int | None) -> list[str]:
    from thermocline.output.table import Grid

    titles = [
        "TABLE",
        "TO COMPACT",
        "BYTES",
        "COMPACTED/PUBLISHED",
        "SNAPSHOTS",
        "OLDEST",
        "ORPHANS",
        "LAST RUN",
        "AGED OUT",
    ]
    rows = [
        [
            table.table,
            f"{care.backlog_files:,}",
            size_text(care.backlog_bytes),
            "-" if care.compacted_ratio is None else f"{care.compacted_ratio:.2f}",
            f"{care.snapshots:,}",
            span_text(care.oldest_snapshot_s),
            "-" if care.orphan_bytes is None else size_text(care.orphan_bytes),
            "never" if care.last_run_s is None else f"{span_text(care.last_run_s)} ago",
            _aged_out(care),
        ]
        for table in tables
        if (care := table.care) is not None
    ]
    right = [False, *[True] * 7, False]
    return Grid(titles, right, width=width, colour=coloured()).lines(rows)


def _aged_out(care: CareStanding) -> str:
    if care.expired_before is None or care.expired_s is None:
        return "-"
    column = "" if care.expired_by is None else f"{care.expired_by} "
    return f"{column}before {care.expired_before}, {span_text(care.expired_s)} ago"


def _partition_lines(table: TableStatus, width: int | None) -> list[str]:
    from thermocline.output.table import Grid

    titles = ["partition", "log start", "watermark", "log end", "lag", "to spare"]
    rows = []
    for each in table.partitions:
        offsets = (each.log_start, each.watermark, each.log_end, each.lag, each.headroom)
        rows.append([str(each.partition), *(f"{number:,}" for number in offsets)])
    return Grid(titles, [True] * 6, width=width).lines(rows)
