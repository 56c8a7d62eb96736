"""The engine's calls before a statement runs: to parse, print, bind, and work out constants.

They end by the statement's deadline like its execution: the watch interrupts them, and what does not heed that is
the watchdog's. The deadline belongs to the thread, since what asks is several layers above and asks several times.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import TypeVar

import duckdb

from proxy.engine.running import EngineCall, Watch

T = TypeVar("T")

#: Monotonic; None: nobody waits.
_deadline: ContextVar[float | None] = ContextVar("planning_deadline", default=None)

#: Expects a block to be over within so many seconds (``proxy.process.watchdog.Watchdog.expecting``).
Expecting = Callable[[float], contextlib.AbstractContextManager[None]]


@contextlib.contextmanager
def planning_until(deadline: float) -> Iterator[None]:
    """Have what this thread asks of the engine in this block end by ``deadline``, which is monotonic."""
    before = _deadline.set(deadline)
    try:
        yield
    finally:
        _deadline.reset(before)


class Planning:
    """Makes such calls. Thread-safe."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        #: Nobody watches until the server has a watchdog.
        self.expecting: Expecting = lambda _: contextlib.nullcontext()

    @contextlib.contextmanager
    def watched(self) -> Iterator[float | None]:
        """Expect what is done in this block to be over by the deadline; yields the seconds left, None: no deadline."""
        deadline = _deadline.get()
        if deadline is None:
            yield None
            return
        left_s = max(0.001, deadline - time.monotonic())
        with self.expecting(left_s):
            yield left_s

    def call(
        self,
        cursor: duckdb.DuckDBPyConnection,
        function: Callable[[duckdb.DuckDBPyConnection], T],
    ) -> T:
        """Return what ``function`` does with ``cursor``, and interrupt it at the deadline.

        Raises:
            FederationError: what the engine said; DeadlineExceeded where the time is up.
        """
        with self.watched() as left_s:
            return EngineCall(cursor, self._watch, left_s, None).call(function)
