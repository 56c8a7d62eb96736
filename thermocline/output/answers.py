"""One statement's answer, written in the format asked for; progress of a long one, on a terminal's standard error."""

from __future__ import annotations

import contextlib
import shutil
import sys
import threading
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import BinaryIO, Protocol

import pyarrow as pa

from thermocline.output.formats import WRITERS
from thermocline.output.table import Grid, RenderedTable, show
from thermocline.output.units import coloured


class StatementRows(Protocol):
    """The rows of one statement, read once."""

    @property
    def schema(self) -> pa.Schema: ...

    def batches(self) -> Generator[pa.RecordBatch, None, None]: ...


class Asks(Protocol):
    """Runs statements: a client of a server, or a Spark."""

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
            width = shutil.get_terminal_size().columns if on_terminal else None
            grid = Grid.of(answer.schema, width=width, colour=on_terminal and coloured())
            rendered = show(grid, batches, max_rows=max_rows, records=records)
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
    more = "; there are more: --max-rows 0 shows all"
    return f"the first {rows}{more}" if rendered.has_more else rows


#: Short statements show nothing.
_PATIENCE_S, _TICK_S = 0.7, 0.2


class ConsoleProgress:
    """One line that is written over itself, and wiped at the end."""

    def __init__(self) -> None:
        self.rows = 0
        self.seconds = 0.0
        self._began_s = time.monotonic()
        self._ended = threading.Event()

    def counting(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass batches through, counted."""
        for batch in batches:
            self.rows += batch.num_rows
            yield batch

    def _run(self) -> None:
        if self._ended.wait(_PATIENCE_S):
            return
        while True:
            elapsed_s = time.monotonic() - self._began_s
            sys.stderr.write(f"\r{self.rows:,} rows  {elapsed_s:.0f} s\033[K")
            sys.stderr.flush()
            if self._ended.wait(_TICK_S):
                break
        sys.stderr.write("\r\033[K")
        sys.stderr.flush()


@contextlib.contextmanager
def progress(*, enabled: bool) -> Iterator[ConsoleProgress]:
    """Show progress inside the block. ``seconds`` is how long it took, once it is over."""
    bar = ConsoleProgress()
    thread = threading.Thread(target=bar._run, name="progress", daemon=True)
    is_visible = enabled and sys.stderr.isatty()
    if is_visible:
        thread.start()
    try:
        yield bar
    finally:
        bar.seconds = time.monotonic() - bar._began_s
        bar._ended.set()
        if is_visible:
            thread.join()
