"""``thermocline status``: where each bound table stands."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click

from planner.names import TableName
from planner.offsets import OffsetRange
from thermocline.config import Settings, load

if TYPE_CHECKING:
    from connectors.kafka.samples import Retention, Sample
    from planner.ports import ColdStore, Log
    from thermocline.standing import TableStanding

#: What is beyond offsets may be missing; it does not hold up the rest.
_LOOK_TIMEOUT_S = 1.5

EXAMPLES = """\b
Examples:
  thermocline status
  thermocline status lake.net.flows --partitions
  thermocline status --json | jq '.[] | select(.lag_s > 3600) | .table'
  thermocline status --watch 5
"""


@dataclass(frozen=True, slots=True)
class _KafkaLooks:
    settings: Mapping[str, str]

    def sample(
        self, wanted: Mapping[str, tuple[OffsetRange, ...]]
    ) -> Mapping[tuple[str, int], Sample]:
        from connectors.kafka.samples import sample

        return sample(self.settings, wanted, timeout_s=_LOOK_TIMEOUT_S)

    def retentions(self, topics: list[str]) -> Mapping[str, Retention]:
        from connectors.kafka.samples import retentions

        return retentions(self.settings, topics, timeout_s=_LOOK_TIMEOUT_S)


@click.command(epilog=EXAMPLES)
@click.argument("tables", nargs=-1, metavar="[CATALOG.NAMESPACE.TABLE]...")
@click.option("--partitions", is_flag=True, help="Offsets of every partition, too.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document, partitions included.")
@click.option(
    "--watch",
    "watch_s",
    type=click.FloatRange(min=0.2),
    metavar="SECONDS",
    help="Again every so often, until Ctrl-C.",
)
@click.pass_obj
def command(
    config: str | None,
    tables: tuple[str, ...],
    partitions: bool,
    as_json: bool,
    watch_s: float | None,
) -> None:
    """Show watermark, log and lag of every bound table, as broker and catalog say now.

    LAG counts offsets that are not tiered yet: an upper bound of records. BYTES is estimated from the first of
    them. OLDEST is the age of the oldest, and HEADROOM how long retention still keeps it: at zero, records are
    lost before they are tiered. Exit code 6 when a table does not answer.
    """
    settings = load(config)
    settings.require_catalogs()
    names = [TableName.parse(text) for text in tables]
    with _opened(settings) as (store, log):
        while True:
            found = _standings(settings, store, log, names)
            if as_json:
                click.echo(json.dumps([asdict(held) for held in found], indent=2))
            else:
                if watch_s is not None and sys.stdout.isatty():
                    click.clear()
                _show(found, partitions=partitions)
            if watch_s is None:
                break
            sys.stdout.flush()
            time.sleep(watch_s)
    if any(held.error for held in found):
        raise SystemExit(6)


@contextlib.contextmanager
def _opened(settings: Settings) -> Iterator[tuple[ColdStore, Log]]:
    # Not from thermocline.assembly: a server's parts would double the time this takes.
    from connectors.iceberg.store import IcebergStore
    from connectors.kafka.log import KafkaLog

    with KafkaLog(settings.kafka) as log:
        store = IcebergStore(settings.catalogs)
        try:
            yield store, log
        finally:
            store.close()


def _standings(
    settings: Settings, store: ColdStore, log: Log, names: Sequence[TableName]
) -> list[TableStanding]:
    from thermocline.standing import standings

    return standings(
        store,
        log,
        names or store.tables(),
        looks=_KafkaLooks(settings.kafka),
        now_ms=time.time_ns() // 1_000_000,
    )


def _show(found: Sequence[TableStanding], *, partitions: bool) -> None:
    from thermocline.output.colours import coloured
    from thermocline.output.table import grid
    from thermocline.output.units import size_text, span_text

    if not found:
        click.echo("no bound tables; make one with `thermocline create`")
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    answering = [held for held in found if held.error is None]
    titles = ["TABLE", "TOPIC", "LAG", "BYTES", "OLDEST", "HEADROOM", "NOTES"]
    right = [False, False, True, True, True, True, False]
    cells = [
        [
            held.table,
            held.topic or "",
            f"{held.lag:,}",
            "?"
            if held.lag_bytes is None
            else f"{'~' if held.lag else ''}{size_text(held.lag_bytes)}",
            span_text(held.lag_s) if held.lag else "-",
            _headroom(held),
            _notes(held),
        ]
        for held in answering
    ]
    if answering:
        lines = grid(titles, cells, right, width=width, colour=coloured())
        lines = lines or grid(titles, cells, right, width=None, colour=coloured()) or []
        click.echo("\n".join(lines))
    if partitions:
        for held in answering:
            click.echo(f"\n{held.table}  snapshot {held.snapshot_id}")
            click.echo("\n".join(_partition_lines(held, width)))
    for held in found:
        if held.error is not None:
            name = click.style(held.table, bold=True) if coloured() else held.table
            kind = str(held.error_class)
            kind = click.style(kind, fg="red") if coloured() else kind
            text = held.error.removeprefix(f"{held.table}: ")
            click.echo(f"{name}  {kind}: {text}")


def _headroom(held: TableStanding) -> str:
    from thermocline.output.units import span_text

    if held.retention_s is None:
        return "by size" if held.is_kept_by_size else "for ever"
    left_s = held.retention_s if held.headroom_s is None else held.headroom_s
    return f"{span_text(max(0.0, left_s))}{' or by size' if held.is_kept_by_size else ''}"


def _notes(held: TableStanding) -> str:
    counts = held.last_publish or {}
    notes = (
        (held.gap_offsets, "offsets lost to accepted gaps"),
        (held.skipped_records, "records skipped by hand"),
        (held.accepted_snapshots, "foreign commits accepted"),
        (counts.get("dead", 0), "dead letters in the last publish"),
        (counts.get("skipped", 0), "records skipped in the last publish"),
    )
    return "; ".join(f"{count:,} {text}" for count, text in notes if count)


def _partition_lines(held: TableStanding, width: int | None) -> list[str]:
    from thermocline.output.table import grid

    titles = ["partition", "log start", "watermark", "log end", "lag", "to spare"]
    rows = [
        [
            str(part.partition),
            f"{part.log_start:,}",
            f"{part.watermark:,}",
            f"{part.log_end:,}",
            f"{part.lag:,}",
            f"{part.headroom:,}",
        ]
        for part in held.partitions
    ]
    lines = grid(titles, rows, [True] * 6, width=width, colour=False)
    return lines or grid(titles, rows, [True] * 6, width=None, colour=False) or []
