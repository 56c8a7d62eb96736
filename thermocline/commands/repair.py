"""The ways out of stored states that stop a table: ``gap``, ``skip``, ``accept``, ``shape`` and ``covers``.

Each works out its repair, shows what changes and asks, then commits a watermark that records the decision.
"""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from connectors.iceberg.repair_commit import IcebergRepairCommitter
from connectors.iceberg.store import IcebergStore
from connectors.kafka.clusters import KafkaClusters
from connectors.registry.decoders import Decoders
from connectors.registry.registries import SchemaRegistries
from connectors.repairs import Repairs, accepting, covering, moving_shape
from planner.covering import RowsOfHead
from planner.errors import BadParameter
from planner.names import TableName
from planner.offsets import OffsetRange
from planner.repairs import AddedRows
from planner.seam.cut import Pin
from planner.seam.watermark import Skip, Watermark
from planner.shape_changes import shape_changes
from planner.verification.findings import span_text
from thermocline.catalog_access import catalog_roots
from thermocline.config.settings import Settings, load
from thermocline.options import option, options, takes

_HELP = {"help_option_names": ["-h", "--help"]}
_table = click.argument("table", metavar="CATALOG.NAMESPACE.TABLE")


@dataclass(frozen=True, slots=True)
class Repair:
    """A repair of one table, as it was asked for on the command line."""

    table: TableName
    yes: bool
    as_json: bool

    def carry_out(
        self, question: str, changes: Iterable[str], commit: Callable[[], Watermark]
    ) -> Watermark:
        """Show what changes and ask, unless ``yes`` or without a ``question``; then commit."""
        if question and not self.yes:
            for line in changes:
                click.echo(line, err=True)
            click.confirm(question, abort=True, err=True)
        return commit()

    def report(self, mark: Watermark, facts: Mapping[str, Any], lines: Iterable[str]) -> None:
        """Print what was done: ``facts`` as JSON, or else ``lines``."""
        if self.as_json:
            document = {"table": str(self.table), **facts, "run": mark.run}
            click.echo(json.dumps(document, indent=2))
            return
        for line in lines:
            click.echo(f"{self.table}: {line}")


def repair_command(
    help_of_yes: str, refusal: str = "--json asks nobody; say --yes too."
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the settings and a ``Repair``, from TABLE, --yes and --json; ``refusal`` is of --json alone."""

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        @_table
        @click.option("--yes", is_flag=True, help=help_of_yes)
        @click.option("--json", "as_json", is_flag=True, help="One JSON document; needs --yes.")
        @click.pass_obj
        @functools.wraps(command)
        def call(
            config: str | None, /, table: str, yes: bool, as_json: bool, **own: Any
        ) -> None:
            settings = load(config).require_catalogs()
            if as_json and not yes:
                raise BadParameter(refusal)
            command(settings, Repair(TableName.parse(table), yes, as_json), **own)

        return call

    return decorated


def committer_of(settings: Settings) -> AbstractContextManager[IcebergRepairCommitter]:
    return closing(IcebergRepairCommitter(settings.catalogs, catalog_roots(settings)))


def _store(settings: Settings) -> AbstractContextManager[IcebergStore]:
    return closing(IcebergStore(settings.catalogs, roots=catalog_roots(settings)))


_GAP_EXAMPLES = """\b
Examples:
  thermocline gap accept lake.net.flows
  thermocline gap accept lake.net.flows --yes --json
"""


@click.group(epilog=_GAP_EXAMPLES, context_settings=_HELP)
def gap() -> None:
    """What to do about records that were lost before they were tiered."""


@gap.command(
    "accept",
    short_help="Give up the offsets between watermark and log start.",
    epilog=_GAP_EXAMPLES,
)
@repair_command("Do not show the lost offsets and ask.")
def _accept_gap(settings: Settings, repair: Repair) -> None:
    """Give up the offsets between watermark and log start, for a table that answers TailGap.

    The watermark moves to the log start; the lost ranges are recorded in it and shown by `status`, `verify` and
    "table$seam". Those records are in no answer, now or later: Kafka has removed them.
    """
    name = repair.table
    with (
        _store(settings) as store,
        committer_of(settings) as committer,
        KafkaClusters(settings.require_clusters()) as log,
    ):
        repairs = Repairs(committer, log)
        lost = repairs.gap(store.pin(name))
        question = "Give them up?" if lost else ""
        mark = repair.carry_out(
            question, _lost(name, lost), lambda: repairs.accept_gap(name, lost)
        )
    ranges = [{"partition": i.partition, "start": i.start, "stop": i.stop} for i in lost]
    lines = [f"gave up {span_text(item)}; the watermark is {item.stop} now" for item in lost]
    repair.report(mark, {"lost": ranges}, lines)


def _lost(table: TableName, lost: tuple[OffsetRange, ...]) -> Iterator[str]:
    total = sum(map(len, lost))
    yield f"{table}: Kafka removed {total:,} offsets before they were tiered:"
    for item in lost:
        yield f"  {span_text(item)} ({len(item):,})"


_SKIP_EXAMPLES = """\b
Examples:
  thermocline skip lake.net.flows --partition 3 --offset 102 --reason 'test message'
  thermocline skip lake.net.flows --partition 0 --offset 7 --offset 8
"""


@options
class SkipOptions:
    partition: int = option(required=True, type=click.IntRange(min=0))
    offsets: tuple[int, ...] = option(
        "--offset",
        required=True,
        type=click.IntRange(min=0),
        help="The record's offset; may be given several times.",
    )
    reason: str = option(default="", help="Kept with the decision, at most 200 characters.")
    force: bool = option(help="Also where the record decodes.")
    as_json: bool = option("--json", help="One JSON document.")


@click.command(epilog=_SKIP_EXAMPLES)
@_table
@takes(SkipOptions)
@click.pass_obj
def skip(config: str | None, chosen: SkipOptions, /, table: str) -> None:
    """Give up a record, for a table that answers UndecodableRecord under error policy fail.

    Its outcome is `skipped`: neither queries nor tiering look at it from now on. It is recorded in the watermark
    and shown by `status`, `verify` and "table$seam". It cannot be taken back.
    """
    settings = load(config).require_catalogs()
    name = TableName.parse(table)
    offsets = dict.fromkeys(chosen.offsets)
    skips = [Skip(chosen.partition, offset, chosen.reason) for offset in offsets]
    with (
        committer_of(settings) as committer,
        KafkaClusters(settings.require_clusters()) as log,
        SchemaRegistries(settings.registries) as registries,
    ):
        decoders = Decoders(registries.of)
        mark = Repairs(committer, log).skip(name, skips, decoders, force=chosen.force)
    rows = [{"partition": item.partition, "offset": item.offset} for item in skips]
    lines = [f"skipped partition {item.partition}, offset {item.offset}" for item in skips]
    Repair(name, True, chosen.as_json).report(mark, {"skipped": rows}, lines)


@click.command(
    epilog="""\b
Examples:
  thermocline accept lake.net.flows --snapshot 8071234567890123456
  thermocline accept lake.net.flows --snapshot 8071234567890123456 --yes --json
"""
)
@click.option(
    "--snapshot",
    "snapshot_ids",
    required=True,
    multiple=True,
    type=int,
    metavar="ID",
    help="A snapshot of another writer; all that are refused must be named.",
)
@repair_command("Do not show what was added and ask.")
def accept(settings: Settings, repair: Repair, snapshot_ids: tuple[int, ...]) -> None:
    """Let the rows of another writer's snapshot stay, for a table that answers ForeignCommit.

    They are in every answer from now on, below the watermark, from any topic and record. The
    acceptance is recorded in the watermark and shown by `status`, `verify` and "table$seam". Refused where a row
    has an offset at or above the watermark: the tail has that record too. Needs no Kafka.
    """
    name = repair.table
    added: dict[int, AddedRows] = {}
    decide = accepting(name, tuple(dict.fromkeys(snapshot_ids)), added)
    with committer_of(settings) as committer:
        committer.look(name, decide)
        changes = _added(name, added)
        mark = repair.carry_out(
            "Let them stay?", changes, lambda: committer.amend(name, decide)
        )
    rows = {str(key): count.rows for key, count in added.items()}
    lines = [
        f"accepted snapshot {key} with {count.rows:,} rows" for key, count in added.items()
    ]
    repair.report(mark, {"accepted": rows}, lines)


def _added(table: TableName, added: Mapping[int, AddedRows]) -> Iterator[str]:
    for snapshot_id, count in added.items():
        yield f"{table}: snapshot {snapshot_id} added {count.rows:,} rows"
        if count.without_offset:
            yield f"  {count.without_offset:,} without kafka_partition or kafka_offset: `verify` cannot check them"
        for partition, following in count.next:
            yield (
                f"  partition {partition}: offsets up to {following - 1}, below the watermark; rows of records "
                f"that cold has already are doubled, `verify` finds them"
            )


_SHAPE_EXAMPLES = """\b
Examples:
  thermocline shape accept lake.net.flows
  thermocline shape accept lake.net.flows --yes --json
"""


@click.group(epilog=_SHAPE_EXAMPLES, context_settings=_HELP)
def shape() -> None:
    """What to do about rows that were tiered under another way to decode."""


@shape.command("accept", short_help="Go on with another way to decode.", epilog=_SHAPE_EXAMPLES)
@repair_command("Do not show what changes and ask.", "--json does not ask; say --yes too.")
def _accept_shape(settings: Settings, repair: Repair) -> None:
    """Go on with the table's properties of now, for a table whose tiering stops with ShapeMismatch.

    Rows below the watermark stay as they were decoded; records from the watermark on are decoded by today's error
    policy, JSON mode, epoch units and floors, and by this program's decoder. No row is written. `verify` compares the
    older rows by their offsets only. Needs no Kafka.
    """
    name = repair.table
    with _store(settings) as store, committer_of(settings) as committer:
        pin = store.pin(name)
        decide = moving_shape(pin)
        committer.look(name, decide)
        mark = repair.carry_out(
            "Go on with it?", _moved(pin), lambda: committer.amend(name, decide)
        )
    line = f"records from the watermark on are decoded with shape {mark.shape}"
    repair.report(mark, {"shape": mark.shape}, [line])


def _moved(pin: Pin) -> Iterator[str]:
    if pin.binding is None or pin.watermark is None:
        return
    yield f"{pin.table}: records from the watermark on are decoded otherwise than the rows below it:"
    changes = shape_changes(pin.binding, pin.schema, pin.watermark.shape)
    if not changes:
        yield "  what it was cannot be told from the shape; now:"
        properties = sorted(pin.binding.properties().items())
        changes = tuple(f"  {key} = {text}" for key, text in properties)
    for line in changes:
        yield f"  {line}"


@click.command(
    epilog="""\b
Examples:
  thermocline covers lake.net.flows
  thermocline covers lake.net.flows --next 0=1204 --next 1=8120
  thermocline covers lake.net.flows --next 0=1204 --next 1=8120 --yes --json
"""
)
@click.option(
    "--next",
    "named",
    multiple=True,
    metavar="PARTITION=OFFSET",
    help="The first offset of a partition that the table does not cover: of all partitions, or of none.",
)
@repair_command("Do not show what the table has and ask; needs --next.")
def covers(settings: Settings, repair: Repair, named: tuple[str, ...]) -> None:
    """Say what a table covers, for one that answers WatermarkMissing because its history was expired.

    Shows which rows it has, and the watermark that is written when you say yes: that of the tag and the mirror
    property, or lower offsets that you name. Offsets below it come from the table alone, those from it on from
    Kafka: offsets below it that have no row were deleted, as far as every answer says from then on. Refused where a
    row lies at or above it. Needs no Kafka.
    """
    if repair.yes and not named:
        raise BadParameter(
            "--yes shows nobody what the table has; name the first offset that it does not cover, of each partition: "
            "--next 0=OFFSET."
        )
    name = repair.table
    offsets = dict(map(_named, named))
    rows = _rows(settings, name)
    decide = covering(name, rows, offsets)
    with committer_of(settings) as committer:
        changes = _covered(name, rows, committer.look(name, decide))
        mark = repair.carry_out(
            "Is that what it covers?", changes, lambda: committer.amend(name, decide)
        )
    facts = {
        "next": {str(partition): offset for partition, offset in mark.next},
        "rows": sum(item.rows for item in rows.partitions),
    }
    listed = ", ".join(f"partition {key} below {value}" for key, value in mark.next)
    repair.report(mark, facts, [f"covers {listed}"])


def _named(text: str) -> tuple[int, int]:
    partition, sign, offset = text.partition("=")
    if not (sign and partition.isdecimal() and offset.isdecimal()):
        raise BadParameter(f"--next {text!r} is not PARTITION=OFFSET, for instance 0=1204.")
    return int(partition), int(offset)


def _rows(settings: Settings, name: TableName) -> RowsOfHead:
    """Read what is to be said of all rows, with the engine that serves them."""
    # The other repairs run no engine, and need not load one.
    from thermocline.cold_rows import EngineColdRows, cold_engine

    with (
        tempfile.TemporaryDirectory(prefix="thermocline-cold-") as spill,
        cold_engine(settings, Path(spill)) as (store, auditor, engine),
    ):
        audit = auditor.audit(name)
        return EngineColdRows(engine, store, audit).all()


def _covered(table: TableName, rows: RowsOfHead, after: Watermark) -> Iterator[str]:
    by_partition = {item.partition: item for item in rows.partitions}
    for partition in sorted({*by_partition, *after.next.as_dict()}):
        item = by_partition.get(partition)
        what = "no rows"
        if item is not None:
            what = f"{item.rows:,} rows, offsets {item.lowest} to {item.highest}"
            what += f", {item.holes:,} offsets between without a row"
        yield f"{table}: partition {partition}: {what}"
        if item is not None and item.doubled:
            yield f"  {item.doubled:,} rows are there twice, and will be in answers"
        above = after.offset(partition) - (0 if item is None else item.highest + 1)
        yield f"  would be covered below {after.offset(partition)}: {above:,} offsets up to there have no row"
    for gone in after.skips:
        yield (
            f"{table}: partition {gone.partition}, offset {gone.offset}: somebody gave this record up "
            f"({gone.reason or 'no reason given'}), so no answer has it"
        )
    if after.boundary is not None:
        yield f"{table}: rows before {after.boundary.text} aged out: no answer has such a record of Kafka"
    if rows.without_offset:
        yield f"{table}: {rows.without_offset:,} rows without kafka_partition or kafka_offset: `verify` cannot check them"
