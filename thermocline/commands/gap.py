"""``thermocline gap accept``: go on without records that retention took before they were tiered."""

from __future__ import annotations

import json
from contextlib import closing

import click

from connectors.iceberg.repair_commit import IcebergRepairCommitter
from connectors.iceberg.store import IcebergStore
from connectors.kafka.clusters import KafkaClusters
from connectors.repairs import Repairs
from planner.errors import BadParameter
from planner.names import TableName
from planner.offsets import OffsetRange
from planner.verification.findings import place
from thermocline.catalog_access import catalog_roots
from thermocline.config.settings import load

EXAMPLES = """\b
Examples:
  thermocline gap accept lake.net.flows
  thermocline gap accept lake.net.flows --yes --json
"""


@click.group(epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """What to do about records that were lost before they were tiered."""


@command.command(
    "accept",
    short_help="Give up the offsets between watermark and log start.",
    epilog=EXAMPLES,
)
@click.argument("table", metavar="CATALOG.NAMESPACE.TABLE")
@click.option("--yes", is_flag=True, help="Do not show the lost offsets and ask.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document; needs --yes.")
@click.pass_obj
def accept(config: str | None, table: str, yes: bool, as_json: bool) -> None:
    """Give up the offsets between watermark and log start, for a table that answers TailGap.

    The watermark moves to the log start; the lost ranges are recorded in it and shown by `status`, `verify` and
    "table$seam". Those records are in no answer, now or later: Kafka has removed them.
    """
    settings = load(config).require_catalogs()
    if as_json and not yes:
        raise BadParameter("--json asks nobody; say --yes too.")
    name = TableName.parse(table)
    with (
        closing(IcebergStore(settings.catalogs, roots=catalog_roots(settings))) as store,
        closing(
            IcebergRepairCommitter(settings.catalogs, catalog_roots(settings))
        ) as committer,
        KafkaClusters(settings.require_clusters()) as log,
    ):
        repairs = Repairs(committer, log)
        lost = repairs.gap(store.pin(name))
        if lost and not yes:
            _show(name, lost)
            click.confirm("Give them up?", abort=True, err=True)
        mark = repairs.accept_gap(name, lost)
    if as_json:
        ranges = [{"partition": i.partition, "start": i.start, "stop": i.stop} for i in lost]
        click.echo(json.dumps({"table": str(name), "lost": ranges, "run": mark.run}, indent=2))
        return
    for item in lost:
        click.echo(f"{name}: gave up {place(item)}; the watermark is {item.stop} now")


def _show(table: TableName, lost: tuple[OffsetRange, ...]) -> None:
    total = sum(map(len, lost))
    click.echo(f"{table}: Kafka removed {total:,} offsets before they were tiered:", err=True)
    for item in lost:
        click.echo(f"  {place(item)} ({len(item):,})", err=True)
