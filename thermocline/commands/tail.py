"""``thermocline tail``: the new rows of a statement, as they are committed."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from planner.errors import BadConfig, FederationError
from thermocline.connect import connect_server, server_options

if TYPE_CHECKING:
    import pyarrow as pa

    from thermocline.client import Client

_SPAN = re.compile(r"(\d+)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}

EXAMPLES = """\b
Examples:
  thermocline tail "FROM lake.net.flows"
  thermocline tail "SELECT host, bytes FROM lake.net.flows WHERE dst_port = 22" --since 10m
  thermocline tail "FROM lake.net.flows" --from beginning --format jsonl | consumer
  thermocline tail "FROM lake.net.flows" --position flows.pos --once >> flows.jsonl
"""


@click.command(epilog=EXAMPLES)
@click.argument("statement")
@click.option(
    "--from",
    "start",
    type=click.Choice(["now", "beginning"]),
    help="What is new at first: what is committed from now on, or everything.  [default: now]",
)
@click.option(
    "--since",
    metavar="SPAN",
    help="Everything with a kafka_timestamp of the last 10m, 2h, 1d first.",
)
@click.option(
    "--position",
    metavar="FILE",
    help="Go on from the position in FILE, if there is one; keep it there after each round.",
)
@click.option("--once", is_flag=True, help="One round: what is new up to now, then stop.")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=0.05),
    default=0.5,
    show_default=True,
    help="Seconds between rounds.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "csv", "jsonl"]),
    help="How rows are written.  [default: table on a terminal, else jsonl]",
)
@server_options
@click.pass_obj
def command(
    config: str | None,
    /,
    statement: str,
    start: str | None,
    since: str | None,
    position: str | None,
    once: bool,
    interval_s: float,
    form: str | None,
    **server: Any,
) -> None:
    """Follow STATEMENT: each record committed from the start on is read by it exactly once.

    Works in rounds: each runs the statement over the records that are new since the round before, from Kafka or,
    where they were tiered since, from Iceberg. A server may be started again in between. An aggregate, a
    LIMIT or a join of two followed tables is over one round's records; add ORDER BY for an order. Tables without
    a topic are read whole in each round.
    """
    from thermocline import follower
    from thermocline.output.formats import opened

    file = None if position is None else Path(position)
    after = _after(start, since, file)
    with opened(None) as sink:
        write = _writer(sink, form or ("table" if sink.isatty() else "jsonl"))

        def take(increment: follower.FollowedRows) -> None:
            write(increment.schema, increment.batches)
            sink.flush()
            if file is not None:
                _keep(file, increment.position)

        def connect() -> contextlib.AbstractContextManager[Client]:
            return connect_server(config, **server)

        if once:
            with (
                connect() as client,
                follower.follow_round(client, statement, after) as followed,
            ):
                take(followed)
            return
        for followed in follower.rounds(
            connect,
            statement,
            after,
            wait=time.sleep,
            interval_s=interval_s,
            report=_tell,
        ):
            take(followed)


def _after(start: str | None, since: str | None, file: Path | None) -> str:
    """Return where the first round starts, as the server reads it."""
    if start is not None and since is not None:
        raise click.UsageError("--from and --since contradict each other; give one of them.")
    if file is not None:
        try:
            return file.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            pass
        except (OSError, UnicodeDecodeError) as error:
            raise BadConfig(f"{file}: no position can be read from it.") from error
    if since is None:
        return start or "now"
    span = _SPAN.fullmatch(since)
    if span is None:
        raise click.UsageError(f"{since!r} is not a span of time; write 30s, 10m, 2h or 1d.")
    past_s = int(span[1]) * _SECONDS[span[2]]
    return f"since:{max(0, int((time.time() - past_s) * 1_000_000))}"


def _writer(sink: BinaryIO, form: str) -> Callable[[pa.Schema, Iterable[pa.RecordBatch]], None]:
    from thermocline.output.formats import csv_rows, write_jsonl
    from thermocline.output.table import Grid, rows_of
    from thermocline.output.units import coloured

    if form == "jsonl":
        return lambda schema, batches: write_jsonl(sink, schema, batches)
    if form == "csv":
        return csv_rows(sink)
    on_terminal = sink.isatty()
    width = shutil.get_terminal_size().columns if on_terminal else None
    grid: Grid | None = None

    def write_lines(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        nonlocal grid
        grid = grid or Grid.of(schema, width=width, colour=on_terminal and coloured())
        for batch in batches:
            if batch.num_rows:
                lines = grid.lines(list(rows_of(batch)))
                sink.write("".join(f"{line}\n" for line in lines).encode())

    return write_lines


def _keep(file: Path, position: str) -> None:
    """Replace the position in one step: a reader of the file never sees half of one."""
    partial = file.with_name(f".{file.name}.new")
    try:
        with partial.open("w", encoding="ascii") as written:
            written.write(f"{position}\n")
            written.flush()
            os.fsync(written.fileno())
        partial.replace(file)
    except OSError as error:
        raise BadConfig(
            f"{file}: the position cannot be written ({error.strerror})."
        ) from error


def _tell(error: FederationError) -> None:
    click.echo(f"thermocline: {error.message} Waiting for it.", err=True)
    sys.stderr.flush()
