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


class Progress:
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
            held_s = time.monotonic() - self._began_s
            sys.stderr.write(f"\r{self.rows:,} rows  {held_s:.0f} s\033[K")
            sys.stderr.flush()
            if self._ended.wait(_TICK_S):
                break
        sys.stderr.write("\r\033[K")
        sys.stderr.flush()


@contextlib.contextmanager
def progress(*, enabled: bool) -> Iterator[Progress]:
    """Show progress inside the block. ``seconds`` is how long it took, once it is over."""
    shown = Progress(enabled=enabled and sys.stderr.isatty())
    thread = threading.Thread(target=shown._run, name="progress", daemon=True)
    if shown._enabled:
        thread.start()
    try:
        yield shown
    finally:
        shown.seconds = time.monotonic() - shown._began_s
        shown._ended.set()
        if shown._enabled:
            thread.join()
