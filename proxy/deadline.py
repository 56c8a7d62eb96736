"""Until when a call is answered, and whether its client still waits for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

from planner.errors import Cancelled, DeadlineExceeded, FederationError

#: What a statement out of time is told, with its limit.
RAN_LONGER = "the statement ran longer than {:g} s; narrow it, or raise its limit."
WAITED_FOR_TAIL = (
    "the statement waited longer than {:g} s for its tail; try again, or raise its limit."
)


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
            for interrupt in self._interrupts:
                interrupt()

    def check(self) -> None:
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


class Deadline:
    """The time that one call has for its statement, and its cancellation. Thread-safe.

    Made once, where the call arrives, and handed down to all that works for it.
    """

    def __init__(
        self,
        limit_s: float,
        cancellation: Cancellation | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limit_s = limit_s
        self.cancellation = cancellation or Cancellation()
        self._clock = clock
        #: By ``clock``.
        self.end_s = clock() + limit_s

    @property
    def left_s(self) -> float:
        return max(0.0, self.end_s - self._clock())

    @property
    def is_over(self) -> bool:
        return self._clock() >= self.end_s

    def patience_s(self) -> float:
        """Return ``left_s`` for a wait that ends with it. Raises the cancellation's reason once the call was given up."""
        self.cancellation.check()
        return self.left_s

    def check(self, words: str = RAN_LONGER) -> None:
        """Raise if the call was given up, or its time is over: in ``words``, with its limit.

        Raises:
            FederationError: the cancellation's reason, or DeadlineExceeded.
        """
        self.cancellation.check()
        if self.is_over:
            raise self.exceeded(words)

    def exceeded(self, words: str = RAN_LONGER) -> DeadlineExceeded:
        return DeadlineExceeded(words.format(self.limit_s), timeout_s=self.limit_s)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the clock in this block, which waits for the client or for its turn."""
        began_s = self._clock()
        try:
            yield
        finally:
            self.end_s += self._clock() - began_s
