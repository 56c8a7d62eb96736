"""Until when a statement is answered, and whether anybody still waits for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

from planner.errors import Cancelled, FederationError


class Cancellation:
    """Whether the client call that something runs for is still wanted. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._reason: FederationError | None = None
        self._interrupts: list[Callable[[], None]] = []

    @property
    def reason(self) -> FederationError | None:
        """Why the call was given up; None while it is wanted."""
        return self._reason

    def request(self, reason: FederationError | None = None) -> None:
        """Give the call up: run the interrupts registered now. Only the first request counts."""
        with self._lock:
            if self._reason is not None:
                return
            self._reason = reason or Cancelled("The statement was cancelled.")
            interrupts = tuple(self._interrupts)
            for interrupt in interrupts:
                interrupt()

    def check(self) -> None:
        """Raise the reason if the call was given up."""
        if self._reason is not None:
            raise self._reason

    @contextmanager
    def interrupting(self, interrupt: Callable[[], None]) -> Iterator[None]:
        """Have ``interrupt`` called, from another thread, if the call is given up inside this block.

        It runs at most once, never after the block has ended, must not block and must not raise
        (``duckdb.DuckDBPyConnection.interrupt`` fits). Raises the reason if the call was given up before.
        """
        with self._lock:
            self.check()
            self._interrupts.append(interrupt)
        try:
            yield
        finally:
            with self._lock:
                self._interrupts.remove(interrupt)
