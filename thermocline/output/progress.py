"""Rows and seconds of a long answer, on a terminal's standard error; silent elsewhere."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterable, Iterator

import pyarrow as pa

#: Short statements show nothing.
_PATIENCE_S = 0.7
_TICK_S = 0.2


class ConsoleProgress:
    """One line that is written over itself, and wiped at the end."""

    def __init__(self, *, enabled: bool) -> None:
        self.rows = 0
        self.seconds = 0.0
        self._enabled = enabled
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
    bar = ConsoleProgress(enabled=enabled and sys.stderr.isatty())
    thread = threading.Thread(target=bar._run, name="progress", daemon=True)
    if bar._enabled:
        thread.start()
    try:
        yield bar
    finally:
        bar.seconds = time.monotonic() - bar._began_s
        bar._ended.set()
        if bar._enabled:
            thread.join()
