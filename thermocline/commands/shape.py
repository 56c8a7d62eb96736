"""``thermocline shape accept``: go on tiering with another way to decode."""

from __future__ import annotations

import json
from contextlib import closing

import click

from connectors.iceberg.repair_commit import IcebergRepairCommitter
from connectors.iceberg.store import IcebergStore
from connectors.repairs import moving_shape
from planner.errors import BadParameter
from planner.names import TableName
from planner.seam.cut import Pin
from planner.shape_changes import shape_changes
from thermocline.catalog_access import catalog_roots
from thermocline.config.settings import load

EXAMPLES = """\b
Examples:
  thermocline shape accept lake.net.flows
  thermocline shape accept lake.net.flows --yes --json
"""


@click.group(epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """What to do about rows that were tiered under another way to decode."""


@command.command("accept", short_help="Go on with another way to decode.", epilog=EXAMPLES)
@click.argument("table", metavar="CATALOG.NAMESPACE.TABLE")
@click.option("--yes", is_flag=True, help="Do not show what changes and ask.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document; needs --yes.")
@click.pass_obj
def accept(config: str | None, table: str, yes: bool, as_json: bool) -> None:
    """Go on with the table's properties of now, for a table whose tiering stops with ShapeMismatch.

    Rows below the watermark stay as they were decoded; records from the watermark on are decoded by today's error
    policy, JSON mode, epoch units and floors, and by this program's decoder. No row is written. `verify` compares the
    older rows by their offsets only. Needs no Kafka.
    """
    settings = load(config).require_catalogs()
    if as_json and not yes:
        raise BadParameter("--json does not ask; say --yes too.")
    name = TableName.parse(table)
    with (
        closing(IcebergStore(settings.catalogs, roots=catalog_roots(settings))) as store,
        closing(
            IcebergRepairCommitter(settings.catalogs, catalog_roots(settings))
        ) as committer,
    ):
        pin = store.pin(name)
        decide = moving_shape(pin)
        committer.look(name, decide)
        if not yes:
            _show(pin)
            click.confirm("Go on with it?", abort=True, err=True)
        mark = committer.amend(name, decide)
    if as_json:
        document = {"table": str(name), "shape": mark.shape, "run": mark.run}
        click.echo(json.dumps(document, indent=2))
        return
    click.echo(f"{name}: records from the watermark on are decoded with shape {mark.shape}")


def _show(pin: Pin) -> None:
    if pin.binding is None or pin.watermark is None:
        return
    changes = shape_changes(pin.binding, pin.schema, pin.watermark.shape)
    if not changes:
        now = sorted(pin.binding.properties().items())
        changes = (
            "what it was cannot be told from the shape; now:",
            *(f"  {key} = {text}" for key, text in now),
        )
    click.echo(
        f"{pin.table}: records from the watermark on are decoded otherwise than the rows below it:",
        err=True,
    )
    for line in changes:
        click.echo(f"  {line}", err=True)
