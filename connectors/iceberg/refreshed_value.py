"""One value from a catalog that is read again and again in the background, and outlives the catalog's outages."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar, cast

from planner.errors import CatalogUnavailable, FederationError, Inconsistent, RequestError

T = TypeVar("T")

#: Errors that are facts about the value, not about the way to it: they take the value away.
VERDICTS = (Inconsistent, RequestError)
#: Between two looks whether a read is still waited for.
_LOOK_S = 0.05
#: What ends this thread's waits, and a block for the time of each.
_Waits: TypeAlias = tuple[Callable[[], None], Callable[[], AbstractContextManager[None]]]
_waits: ContextVar[_Waits | None] = ContextVar("waits", default=None)


@contextmanager
def waiting_while(
    check: Callable[[], None], waiting: Callable[[], AbstractContextManager[None]]
) -> Iterator[None]:
    """Have this thread wait for catalogs in this block no longer than until ``check`` raises, which comes out.

    Each wait is inside a block of ``waiting``.
    """
    before = _waits.set((check, waiting))
    try:
        yield
    finally:
        _waits.reset(before)


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """What reads have shown: replaced as a whole, so it is read without a lock. Times are the clock's."""

    value: T | None
    error: FederationError | None
    requested_at: float
    confirmed_at: float
    failing_from: float | None = None

    def after(self, error: FederationError, requested_at: float) -> Outcome[T]:
        value = None if isinstance(error, VERDICTS) else self.value
        failing_from = requested_at if self.failing_from is None else self.failing_from
        return Outcome(value, error, requested_at, self.confirmed_at, failing_from)

    def get(self) -> T:
        """Return the value; else raise the verdict."""
        if self.value is None and self.error is not None:
            raise again(self.error) from self.error
        return cast("T", self.value)


def again(error: FederationError) -> FederationError:
    """Return an error as a new one: it is raised in many threads."""
    return type(error)(error.message, **error.facts)


class _Reading:
    """One read under way, in a thread of its own, so that callers may give up waiting."""

    def __init__(self, work: Callable[[_Reading], None]) -> None:
        self.error: Exception | None = None
        self._thread = threading.Thread(
            target=lambda: work(self), name="pins reading", daemon=True
        )
        self._thread.start()

    def ended(self, timeout_s: float) -> bool:
        """Wait for its end; False: it has not come in time. Raises what ``waiting_while`` checks."""
        waits = _waits.get()
        if waits is None:
            self._thread.join(max(0.0, timeout_s))
        elif self._thread.is_alive():
            check, waiting = waits
            until_s = time.monotonic() + timeout_s
            with waiting():
                while self._thread.is_alive() and (left_s := until_s - time.monotonic()) > 0:
                    check()
                    self._thread.join(min(left_s, _LOOK_S))
        return not self._thread.is_alive()


class RefreshedValue(Generic[T]):
    """One value that is read again and again, one reader at a time.

    No caller waits longer than ``patience_s`` for a catalog that hangs, nor longer than ``waiting_while`` has it. The read that
    hangs goes on, alone.
    """

    def __init__(
        self, what: str, read: Callable[[], T], clock: Callable[[], float], patience_s: float
    ) -> None:
        """``what`` is named when it does not come."""
        self.used_at = clock()
        self.outcome: Outcome[T] | None = None
        self._what = what
        self._read = read
        self._clock = clock
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._reading: _Reading | None = None
        self._error: FederationError | None = None

    @property
    def error(self) -> FederationError | None:
        """What the last read that failed met; None: none did."""
        return self._error

    @property
    def has_begun(self) -> bool:
        return self.outcome is not None or self._error is not None

    def begin(self) -> None:
        """Start the first read, unless there was one; ``read`` waits for it."""
        with self._lock:
            if self.outcome is None and self._reading is None:
                self._reading = _Reading(self._work)

    def first(self) -> Outcome[T]:
        """Return the outcome, reading when there is none, or one that holds neither value nor verdict."""
        outcome = self.outcome
        if outcome is None:
            return self.read(since=None)
        if outcome.value is None and not isinstance(outcome.error, VERDICTS):
            return self.read(since=self._clock())
        return outcome

    def read(self, *, since: float | None) -> Outcome[T]:
        """Read, unless a read that began after ``since`` (None: any) has an outcome already.

        Raises what the reader does when it never succeeded before: then there is nothing to hold.
        """
        give_up_at = self._clock() + self._patience_s
        earlier = None if since is None else self._reading
        while True:
            with self._lock:
                outcome = self.outcome
                if outcome is not None and (since is None or outcome.requested_at > since):
                    return outcome
                if self._reading is None:
                    self._reading = _Reading(self._work)
                reading = self._reading
            if not reading.ended(give_up_at - self._clock()):
                return self._unreadable()
            if reading is not earlier:
                return self._result(reading)

    def _work(self, reading: _Reading) -> None:
        requested_at = self._clock()
        outcome: Outcome[T] | None = None
        try:
            outcome = Outcome(self._read(), None, requested_at, requested_at)
        except FederationError as error:
            reading.error = self._error = error
            if self.outcome is not None:
                outcome = self.outcome.after(error, requested_at)
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            reading.error = error
        with self._lock:
            self._reading = None
            if outcome is not None:
                self.outcome = outcome

    def _result(self, reading: _Reading) -> Outcome[T]:
        error = reading.error
        if error is not None and not isinstance(error, FederationError):
            raise error
        if self.outcome is None and error is not None:
            raise again(error) from error
        return cast("Outcome[T]", self.outcome)

    def _unreadable(self) -> Outcome[T]:
        error = CatalogUnavailable(
            f"{self._what}: the catalog has not answered for {self._patience_s:g} s; try again."
        )
        with self._lock:
            if self.outcome is None:
                self._error = error
                raise error
            self.outcome = self.outcome.after(error, self._clock())
            return self.outcome
