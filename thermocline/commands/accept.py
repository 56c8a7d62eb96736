"""``thermocline accept``: let rows that another writer appended stay."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing

import click

from connectors.iceberg.repair_commit import IcebergRepairCommitter
from connectors.repairs import accepting
from planner.errors import BadParameter
from planner.names import TableName
from planner.repairs import AddedRows
from thermocline.catalog_access import catalog_roots
from thermocline.config.settings import load

EXAMPLES = """\b
Examples:
  thermocline accept lake.net.flows --snapshot 8071234567890123456
  thermocline accept lake.net.flows --snapshot 8071234567890123456 --yes --json
"""


@click.command(epilog=EXAMPLES)
@click.argument("table", metavar="CATALOG.NAMESPACE.TABLE")
@click.option(
    "--snapshot",
    "snapshot_ids",
    required=True,
    multiple=True,
    type=int,
    metavar="ID",
    help="A snapshot of another writer; all that are refused must be named.",
)
@click.option("--yes", is_flag=True, help="Do not show what was added and ask.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document; needs --yes.")
@click.pass_obj
def command(
    config: str | None, table: str, snapshot_ids: tuple[int, ...], yes: bool, as_json: bool
) -> None:
    """Let the rows of another writer's snapshot stay, for a table that answers ForeignCommit.

    They are in every answer from now on, below the watermark, from any topic and record. The
    acceptance is recorded in the watermark and shown by `status`, `verify` and "table$seam". Refused where a row
    has an offset at or above the watermark: the tail has that record too. Needs no Kafka.
    """
    settings = load(config).require_catalogs()
    if as_json and not yes:
        raise BadParameter("--json asks nobody; say --yes too.")
    name = TableName.parse(table)
    unique_ids = tuple(dict.fromkeys(snapshot_ids))
    added: dict[int, AddedRows] = {}
    decide = accepting(name, unique_ids, added)
    with closing(
        IcebergRepairCommitter(settings.catalogs, catalog_roots(settings))
    ) as committer:
        committer.look(name, decide)
        if not yes:
            _show(name, added)
            click.confirm("Let them stay?", abort=True, err=True)
        mark = committer.amend(name, decide)
    if as_json:
        rows = {str(key): count.rows for key, count in added.items()}
        click.echo(
            json.dumps({"table": str(name), "accepted": rows, "run": mark.run}, indent=2)
        )
        return
    for snapshot_id, count in added.items():
        click.echo(f"{name}: accepted snapshot {snapshot_id} with {count.rows:,} rows")


def _show(table: TableName, added: Mapping[int, AddedRows]) -> None:
    for snapshot_id, count in added.items():
        click.echo(f"{table}: snapshot {snapshot_id} added {count.rows:,} rows", err=True)
        if count.without_offset:
            click.echo(
                f"  {count.without_offset:,} without kafka_partition or kafka_offset: `verify` cannot check them",
                err=True,
            )
        for partition, following in count.next:
            click.echo(
                f"  partition {partition}: offsets up to {following - 1}, below the watermark; rows of records "
                f"that cold has already are doubled, `verify` finds them",
                err=True,
            )
