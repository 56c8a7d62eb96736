"""``thermocline explain``: what a statement would read of each side of its tables, and why."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import click

from thermocline.connect import connect_server, contract_options, server_options
from thermocline.output.units import coloured, size_text, span_text

#: Places of the picture of one table.
_BAR = 48

EXAMPLES = """\b
Examples:
  thermocline explain "SELECT count(*) FROM lake.net.flows"
  thermocline explain "SELECT * FROM lake.net.flows WHERE dst_port = 22" --ranges
  thermocline explain "FROM lake.net.flows" --json | jq '.[].offsets'
"""


@click.command(epilog=EXAMPLES)
@click.argument("statement")
@click.option("--ranges", is_flag=True, help="The offsets of every partition, too.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document, ranges included.")
@contract_options
@server_options
@click.pass_obj
def command(
    config: str | None, /, statement: str, ranges: bool, as_json: bool, **server: Any
) -> None:
    """Show the cut STATEMENT would be answered from: what of each table comes from Iceberg, what from Kafka, why.

    Nothing is executed. Any SQL client gets the same as rows from EXPLAIN and the statement.
    """
    bare = statement.strip().rstrip(";").rstrip()
    with connect_server(config, **server) as client:
        rows = list(client.rows(f"EXPLAIN {bare}"))
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    if not rows:
        click.echo("the statement reads no table")
    tables: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        tables.setdefault(row["table"], []).append(row)
    for number, (table, sides) in enumerate(tables.items()):
        if number:
            click.echo()
        click.echo("\n".join(_picture(table, sides, ranges=ranges)))
    sys.stdout.flush()


def _picture(table: str, sides: list[dict[str, Any]], *, ranges: bool) -> list[str]:
    """Draw one table: a bar of its two sides, then a line for each."""
    name = click.style(table, bold=True) if coloured() else table
    lines = [f"{name}  {_bar(sides)}".rstrip()]
    for side in sides:
        lines.append(f"  {side['side']:<5} {side['why']}")
        if facts := ", ".join(_facts(side)):
            lines.append(f"        {facts}")
        if ranges:
            lines.extend(_range_lines(side))
    return lines


def _bar(sides: list[dict[str, Any]]) -> str:
    """Draw cold and tail by their share of records; a side that is read has at least one place."""
    by_side = {side["side"]: side for side in sides}
    if set(by_side) != {"cold", "tail"}:
        return ""
    cold = (by_side["cold"]["records"] or 0) if by_side["cold"]["partitions"] else 0
    tail = by_side["tail"]["offsets"] or 0
    if not cold + tail:
        return ""
    width = round(_BAR * tail / (cold + tail))
    width = min(max(width, 1 if tail else 0), _BAR - (1 if cold else 0))
    return f"{'▓' * (_BAR - width)}│{'░' * width}"


def _facts(side: dict[str, Any]) -> Iterator[str]:
    if side["contract"] not in (None, "live"):
        yield side["contract"]
    if side["log_age_s"]:
        yield f"measured {span_text(side['log_age_s'])} ago"
    if side["snapshot_id"] is not None:
        yield f"snapshot {side['snapshot_id']}, schema {side['schema_id']}"
    if side["metadata_age_s"] is not None:
        yield f"confirmed {span_text(side['metadata_age_s'])} ago"
    if side["records"] is not None:
        yield f"holds {side['records']:,} records"
    if side["files"] is not None:
        size = "" if side["bytes"] is None else f" of {size_text(side['bytes'])}"
        yield f"in {side['files']:,} file{'' if side['files'] == 1 else 's'}{size}"
    if side["files_to_read"] is not None and side["files"]:
        yield f"{side['files_to_read']:,} to read"
    if side["topic"] is not None:
        plural = "" if side["partitions"] == 1 else "s"
        offsets = f"{side['offsets']:,} offsets of {side['partitions']} partition{plural}"
        yield f"topic {side['topic']}: {offsets}"


def _range_lines(side: dict[str, Any]) -> list[str]:
    from thermocline.output.table import Grid

    if not side["ranges"]:
        return []
    titles = {"partition": "partition"}
    if side["side"] == "tail":
        titles["log_start"] = "log start"
    titles |= {"start": "from", "stop": "to (exclusive)"}
    rows = [
        ["?" if span[key] is None else f"{span[key]:,}" for key in titles]
        for span in side["ranges"]
    ]
    lines = Grid(list(titles.values()), [True] * len(titles)).lines(rows)
    return [f"        {line}" for line in lines]
