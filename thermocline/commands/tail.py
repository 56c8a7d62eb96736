"""``thermocline tail``: the new rows of a statement, as they are committed."""

from __future__ import annotations

import functools
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import click

from planner.errors import BadConfig, FederationError
from thermocline.connect import connect_server, server_options
from thermocline.options import option, options, takes

if TYPE_CHECKING:
    import pyarrow as pa


_SPAN = re.compile(r"(\d+)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}

EXAMPLES = """\b
Examples:
  thermocline tail "FROM lake.net.flows"
  thermocline tail "SELECT host, bytes FROM lake.net.flows WHERE dst_port = 22" --since 10m
  thermocline tail "FROM lake.net.flows" --from beginning --format jsonl | consumer
  thermocline tail "FROM lake.net.flows" --position flows.pos --once >> flows.jsonl
"""


@options
class TailOptions:
    start: Literal["now", "beginning"] | None = option(
        "--from",
        help="What is new at first: what is committed from now on, or everything.  [default: now]",
    )
    since: str | None = option(
        metavar="SPAN", help="Everything with a kafka_timestamp of the last 10m, 2h, 1d first."
    )
    position: Path | None = option(
        metavar="FILE",
        type=Path,
        help="Go on from the position in FILE, if there is one; keep it there after each round.",
    )
    once: bool = option(help="One round: what is new up to now, then stop.")
    interval_s: float = option(
        "--interval",
        type=click.FloatRange(min=0.05),
        default=0.5,
        show_default=True,
        help="Seconds between rounds.",
    )
    form: Literal["table", "csv", "jsonl"] | None = option(
        "--format", help="How rows are written.  [default: table on a terminal, else jsonl]"
    )

    def after(self) -> str:
        """Return where the first round starts, as the server reads it."""
        if self.start is not None and self.since is not None:
            raise click.UsageError(
                "--from and --since contradict each other; give one of them."
            )
        if self.position is not None:
            try:
                return self.position.read_text(encoding="ascii").strip()
            except FileNotFoundError:
                pass
            except (OSError, UnicodeDecodeError) as error:
                raise BadConfig(f"{self.position}: no position can be read from it.") from error
        if self.since is None:
            return self.start or "now"
        span = _SPAN.fullmatch(self.since)
        if span is None:
            raise click.UsageError(
                f"{self.since!r} is not a span of time; write 30s, 10m, 2h or 1d."
            )
        past_s = int(span[1]) * _SECONDS[span[2]]
        return f"since:{max(0, int((time.time() - past_s) * 1_000_000))}"


@click.command(epilog=EXAMPLES)
@click.argument("statement")
@takes(TailOptions)
@server_options
@click.pass_obj
def command(config: str | None, chosen: TailOptions, /, statement: str, **server: Any) -> None:
    """Follow STATEMENT: each record committed from the start on is read by it exactly once.

    Works in rounds: each runs the statement over the records that are new since the round before, from Kafka or,
    where they were tiered since, from Iceberg. A server may be started again in between. An aggregate, a
    LIMIT or a join of two followed tables is over one round's records; add ORDER BY for an order. Tables without
    a topic are read whole in each round.
    """
    from thermocline import follower
    from thermocline.output.formats import opened

    after = chosen.after()
    with opened(None) as sink:
        write = _writer(sink, chosen.form or ("table" if sink.isatty() else "jsonl"))

        def take(increment: follower.FollowedRows) -> None:
            write(increment.schema, increment.batches)
            sink.flush()
            if chosen.position is not None:
                _keep(chosen.position, increment.position)

        connect = functools.partial(connect_server, config, **server)
        if chosen.once:
            with connect() as client, follower.follow_round(client, statement, after) as rows:
                take(rows)
            return
        for rows in follower.rounds(
            *(connect, statement, after),
            wait=time.sleep,
            interval_s=chosen.interval_s,
            report=_tell,
        ):
            take(rows)


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
