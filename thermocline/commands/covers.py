"""``thermocline covers``: say what a table covers, where no watermark can be proven any more."""

from __future__ import annotations

import json
import tempfile
from contextlib import closing
from pathlib import Path

import click

from connectors.iceberg.repair_commit import IcebergRepairCommitter
from connectors.repairs import RowsOfHead, covering
from planner.errors import BadParameter
from planner.names import TableName
from planner.seam.watermark import Watermark
from thermocline.catalog_access import catalog_roots
from thermocline.cold_rows import EngineColdRows, cold_engine
from thermocline.config.settings import Settings, load

EXAMPLES = """\b
Examples:
  thermocline covers lake.net.flows
  thermocline covers lake.net.flows --next 0=1204 --next 1=8120
  thermocline covers lake.net.flows --next 0=1204 --next 1=8120 --yes --json
"""


@click.command(epilog=EXAMPLES)
@click.argument("table", metavar="CATALOG.NAMESPACE.TABLE")
@click.option(
    "--next",
    "named",
    multiple=True,
    metavar="PARTITION=OFFSET",
    help="The first offset of a partition that the table does not cover: of all partitions, or of none.",
)
@click.option(
    "--yes", is_flag=True, help="Do not show what the table has and ask; needs --next."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document; needs --yes.")
@click.pass_obj
def command(
    config: str | None, table: str, named: tuple[str, ...], yes: bool, as_json: bool
) -> None:
    """Say what a table covers, for one that answers WatermarkMissing because its history was expired.

    Shows which rows it has, and the watermark that is written when you say yes: that of the tag and the mirror
    property, or lower offsets that you name. Offsets below it come from the table alone, those from it on from
    Kafka: offsets below it that have no row were deleted, as far as every answer says from then on. Refused where a
    row lies at or above it. Needs no Kafka.
    """
    settings = load(config).require_catalogs()
    if as_json and not yes:
        raise BadParameter("--json asks nobody; say --yes too.")
    if yes and not named:
        raise BadParameter(
            "--yes shows nobody what the table has; name the first offset that it does not cover, of each partition: "
            "--next 0=OFFSET."
        )
    name = TableName.parse(table)
    offsets = dict(map(_named, named))
    rows = _rows(settings, name)
    with closing(
        IcebergRepairCommitter(settings.catalogs, catalog_roots(settings))
    ) as committer:
        decide = covering(name, rows, offsets)
        after = committer.look(name, decide)
        if not yes:
            _show(name, rows, after)
            click.confirm("Is that what it covers?", abort=True, err=True)
        mark = committer.amend(name, decide)
    if as_json:
        document = {
            "table": str(name),
            "next": {str(partition): offset for partition, offset in mark.next},
            "rows": sum(item.rows for item in rows.partitions),
            "run": mark.run,
        }
        click.echo(json.dumps(document, indent=2))
        return
    listed = ", ".join(f"partition {key} below {value}" for key, value in mark.next)
    click.echo(f"{name}: covers {listed}")


def _named(text: str) -> tuple[int, int]:
    partition, sign, offset = text.partition("=")
    if not (sign and partition.isdecimal() and offset.isdecimal()):
        raise BadParameter(f"--next {text!r} is not PARTITION=OFFSET, for instance 0=1204.")
    return int(partition), int(offset)


def _rows(settings: Settings, name: TableName) -> RowsOfHead:
    """Read partition and offset of all rows, with the engine that serves them."""
    with (
        tempfile.TemporaryDirectory(prefix="thermocline-cold-") as spill,
        cold_engine(settings, Path(spill)) as (store, auditor, engine),
    ):
        audit = auditor.audit(name)
        partitions, without = EngineColdRows(engine, store, audit).partitions()
        return RowsOfHead(audit.facts.head, partitions, without)


def _show(table: TableName, rows: RowsOfHead, after: Watermark) -> None:
    by_partition = {item.partition: item for item in rows.partitions}
    for partition in sorted({*by_partition, *after.next.as_dict()}):
        item = by_partition.get(partition)
        what = (
            "no rows"
            if item is None
            else f"{item.rows:,} rows, offsets {item.lowest} to {item.highest}, "
            f"{item.holes:,} offsets between without a row"
        )
        click.echo(f"{table}: partition {partition}: {what}", err=True)
        if item is not None and item.doubled:
            click.echo(
                f"  {item.doubled:,} rows are there twice, and will be in answers", err=True
            )
        above = after.offset(partition) - (0 if item is None else item.highest + 1)
        click.echo(
            f"  would be covered below {after.offset(partition)}: {above:,} offsets up to there have no row",
            err=True,
        )
    for skip in after.skips:
        click.echo(
            f"{table}: partition {skip.partition}, offset {skip.offset}: somebody gave this record up "
            f"({skip.reason or 'no reason given'}), so no answer has it",
            err=True,
        )
    if rows.without_offset:
        click.echo(
            f"{table}: {rows.without_offset:,} rows without kafka_partition or kafka_offset: `verify` cannot check them",
            err=True,
        )
