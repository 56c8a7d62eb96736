"""``thermocline skip``: give up a record that does not decode."""

from __future__ import annotations

import json
from contextlib import closing

import click

from connectors.decoding.registry import decoder_for
from connectors.iceberg.repair_commit import IcebergRepairCommitter
from connectors.kafka.clusters import KafkaClusters
from connectors.repairs import Repairs
from planner.names import TableName
from planner.seam.watermark import Skip
from thermocline.catalog_access import catalog_roots
from thermocline.config.settings import load

EXAMPLES = """\b
Examples:
  thermocline skip lake.net.flows --partition 3 --offset 102 --reason 'test message'
  thermocline skip lake.net.flows --partition 0 --offset 7 --offset 8
"""


@click.command(epilog=EXAMPLES)
@click.argument("table", metavar="CATALOG.NAMESPACE.TABLE")
@click.option("--partition", required=True, type=click.IntRange(min=0))
@click.option(
    "--offset",
    "offsets",
    required=True,
    multiple=True,
    type=click.IntRange(min=0),
    help="The record's offset; may be given several times.",
)
@click.option("--reason", default="", help="Kept with the decision, at most 200 characters.")
@click.option("--force", is_flag=True, help="Also where the record decodes.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.pass_obj
def command(
    config: str | None,
    table: str,
    partition: int,
    offsets: tuple[int, ...],
    reason: str,
    force: bool,
    as_json: bool,
) -> None:
    """Give up a record, for a table that answers UndecodableRecord under error policy fail.

    Its outcome is `skipped`: neither queries nor tiering look at it from now on. It is recorded in the watermark
    and shown by `status`, `verify` and "table$seam". It cannot be taken back.
    """
    settings = load(config).require_catalogs()
    name = TableName.parse(table)
    skips = [Skip(partition, offset, reason) for offset in dict.fromkeys(offsets)]
    with (
        closing(
            IcebergRepairCommitter(settings.catalogs, catalog_roots(settings))
        ) as committer,
        KafkaClusters(settings.require_clusters()) as log,
    ):
        mark = Repairs(committer, log).skip(name, skips, decoder_for, force=force)
    if as_json:
        rows = [{"partition": skip.partition, "offset": skip.offset} for skip in skips]
        click.echo(json.dumps({"table": str(name), "skipped": rows, "run": mark.run}, indent=2))
        return
    for skip in skips:
        click.echo(f"{name}: skipped partition {skip.partition}, offset {skip.offset}")
