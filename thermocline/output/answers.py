"""One statement's answer, written in the format asked for."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Generator
from contextlib import AbstractContextManager
from typing import BinaryIO, Protocol

import pyarrow as pa

from thermocline.output.colours import coloured
from thermocline.output.formats import WRITERS
from thermocline.output.progress import progress
from thermocline.output.table import RenderedTable, show


class StatementRows(Protocol):
    """The rows of one statement, read once."""

    @property
    def schema(self) -> pa.Schema: ...

    def batches(self) -> Generator[pa.RecordBatch, None, None]: ...


class Asks(Protocol):
    """Whoever runs statements: a client of a server, or a Spark."""

    def ask(self, sql: str) -> AbstractContextManager[StatementRows]: ...


def deliver(
    client: Asks,
    statement: str,
    sink: BinaryIO,
    *,
    form: str,
    max_rows: int,
    records: bool = False,
) -> None:
    """Run a statement and write its rows to ``sink``, whole or with an error behind what was written.

    Raises:
        FederationError: the server's sentence.
    """
    on_terminal = sink.isatty()
    rendered = None
    with (
        progress(enabled=form == "table" or not on_terminal) as counted,
        client.ask(statement) as answer,
    ):
        rows = answer.batches()
        batches = counted.counting(rows)
        if form == "table":
            rendered = show(
                answer.schema,
                batches,
                max_rows=max_rows,
                width=shutil.get_terminal_size().columns if on_terminal else None,
                colour=on_terminal and coloured(),
                records=records,
            )
            rows.close()
        else:
            WRITERS[form](sink, answer.schema, batches)
    if rendered is not None:
        took = f", {counted.seconds:.2f} s" if on_terminal else ""
        sink.write(f"{rendered.text}\n({_counted(rendered)}{took})\n".encode())
    elif not on_terminal and sys.stderr.isatty():
        sys.stderr.write(f"{counted.rows:,} rows, {counted.seconds:.2f} s\n")


def _counted(rendered: RenderedTable) -> str:
    rows = f"{rendered.rows:,} row{'' if rendered.rows == 1 else 's'}"
    if rendered.has_more:
        return f"the first {rows}; there are more: --max-rows 0 shows all"
    return rows
