"""One statement's cursor, and the thread that stops statements.

DuckDB drops an interrupt that comes before a call is executing, so it is repeated until the call has returned.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import TypeAlias, TypeVar

import duckdb

from planner.errors import Cancelled, FederationError, LimitExceeded, Overloaded
from proxy.engine.errors import translate
from proxy.session import Deadline

T = TypeVar("T")

#: A call that takes longer has its thread give way to shorter ones: fewer of the processor's turns.
_GIVE_WAY_S = 0.1
_GIVE_WAY_NICE = 10
#: ``long`` reports users whose calls take longer than this.
_LONG_S = 1.0
#: A user who runs this many times another's statements, or one this many times as long, holds the memory that it lacks.
_MOST = 4
#: A statement that ran longer than this before memory ran out took the memory itself.
_BRIEF_S = 1.0
#: Pause between two looks at running calls: each wants Python's lock, in the middle of a small statement.
_LOOK_S = 0.05
#: Between two interrupts of one.
_INTERRUPT_S = 0.01


#: Expects a block, done for a user, to end within this many seconds (``proxy.process.watchdog``).
Expecting = Callable[[float, str | None], contextlib.AbstractContextManager[None]]
#: Pauses between the tries of a statement whose memory others have: four seconds in all.
_MEMORY_PAUSES_S = (0.05, 0.1, 0.2, 0.4, 0.8, 0.8, 0.8, 0.8)
_Caller: TypeAlias = tuple[Deadline | None, str | None]
#: Deadline and user that this thread works for. Thread-local, since the caller is several layers above and calls
#: several times.
_caller: ContextVar[_Caller] = ContextVar("caller", default=(None, None))
#: Whether this thread ends once work of it took long (``proxy.engine.thread_pool``). Others live on: none may raise its priority again.
ends_when_slow: ContextVar[bool] = ContextVar("ends_when_slow", default=False)


def with_memory(work: Callable[[], T], deadline: Deadline) -> T:
    """Do ``work`` that has had no effect where it fails; again, for a while, where others held the memory it needed.

    A statement of theirs was stopped, or is about to end or to fail itself: its memory is free in a moment.

    Raises:
        Overloaded: they hold it still.
    """
    for pause_s in _MEMORY_PAUSES_S:
        try:
            return work()
        except Overloaded as error:
            if not error.facts.get("memory"):
                raise
        time.sleep(min(pause_s, deadline.left_s))
        deadline.check()
    return work()


@contextlib.contextmanager
def working_for(deadline: Deadline, user: str | None) -> Iterator[None]:
    """Have what this thread asks of the engine in this block end by ``deadline``, and blame ``user`` for it."""
    before = _caller.set((deadline, user))
    try:
        yield
    finally:
        _caller.reset(before)


def working_user() -> str | None:
    """Return the user this thread works for; None: one without a name."""
    return _caller.get()[1]


def give_way(thread: int = 0) -> None:
    """Have a thread of this process, by default this one, run after others; those that it starts will, too."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, thread, _GIVE_WAY_NICE)


class Watch:
    """Interrupts calls that were cancelled or ran out of time. One thread, asleep while nothing runs."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._calls: set[EngineCall] = set()
        #: Without effect until the server has a watchdog.
        self.expecting: Expecting = lambda _left_s, _user: contextlib.nullcontext()
        self._closed = False
        #: It waits for a call, however long. Else it looks again soon by itself, and waking it is for nothing.
        self._asleep = False
        self._left_at = -math.inf
        self._thread = threading.Thread(target=self._loop, name="engine-watch", daemon=True)
        self._thread.start()

    def expected(
        self, caller: _Caller | None = None
    ) -> contextlib.AbstractContextManager[None]:
        """Expect what is done in this block to be over by the deadline of ``caller``, by default of this thread's."""
        deadline, user = caller or _caller.get()
        if deadline is None:
            return contextlib.nullcontext()
        return self.expecting(deadline.left_s, user)

    def enter(self, running: EngineCall) -> None:
        with self._changed:
            if self._closed:
                raise Cancelled("the server is shutting down.")
            self._calls.add(running)
            if self._asleep:
                self._asleep = False
                self._changed.notify()

    def leave(self, running: EngineCall) -> None:
        """Forget a call. When this returns, no interrupt of it is under way."""
        with self._changed:
            self._calls.discard(running)
            self._left_at = time.monotonic()

    @property
    def idle_s(self) -> float:
        """Seconds since the last call ended; 0 while one runs, without end before the first."""
        with self._changed:
            return 0.0 if self._calls else time.monotonic() - self._left_at

    def cancel_newest_statement(self) -> bool:
        """Stop a statement for memory: of the owner with most of those that run, the one that began last.

        False: none runs.
        """
        with self._changed:
            return self._stop(1)

    def cancel_largest_owner(self) -> bool:
        """Stop all that runs of the owner with most of it; False: nothing runs."""
        with self._changed:
            return self._stop(None)

    def cancel_for(self, owner: str | None) -> bool:
        """Stop one statement as ``cancel_newest_statement`` does, if a user runs ``_MOST`` times as many as ``owner``.

        Else return False.
        """
        with self._changed:
            own = sum(call.owner == owner for call in self._calls)
            return self._stop(1, least=_MOST * max(own, 1))

    def blamed(
        self, error: FederationError, owner: str | None, ran_s: float = math.inf
    ) -> FederationError:
        """Blame others where they hold the memory that ``owner`` did not get after ``ran_s`` seconds.

        One statement of theirs is stopped where they run many. One that only runs longer is not: a user who asks for too
        much in an instant, again and again, would have the statements of others stopped.
        """
        if not isinstance(error, LimitExceeded):
            return error
        if self.cancel_for(owner):
            what = "; one of them was stopped"
        elif ran_s < _BRIEF_S and self._runs_longer(owner, ran_s):
            what = ""
        else:
            return error
        return Overloaded(
            f"Statements of others held the memory this one needed{what}. Retry at once.",
            retry_after_s=1,
            memory=True,
        )

    def _runs_longer(self, owner: str | None, ran_s: float) -> bool:
        """Whether a statement of another user runs several times as long as ``ran_s``."""
        until_s = time.monotonic() - _MOST * ran_s
        with self._changed:
            return any(
                call.owner != owner and call.began_s < until_s and call.stopped() is None
                for call in self._calls
            )

    def long(self) -> dict[str | None, float]:
        """Users whose statements have been in the engine for long, and how many seconds in all."""
        now_s = time.monotonic()
        seconds: dict[str | None, float] = defaultdict(float)
        with self._changed:
            for call in self._calls:
                if now_s - call.entered_s > _LONG_S:
                    seconds[call.owner] += now_s - call.entered_s
        return dict(seconds)

    def _stop(self, newest: int | None, least: int = 1) -> bool:
        """Stop the newest calls, all for None, of the owner with most if that are ``least``."""
        running = sorted(self._largest(), key=lambda call: -call.began_s)
        if len(running) < least:
            return False
        for call in running[:newest]:
            call.is_too_large = True
        return True

    def _largest(self) -> list[EngineCall]:
        """What runs of the owner with most of it; of equals, the one whose statements run longest."""
        running: dict[str | None, list[EngineCall]] = defaultdict(list)
        for call in self._calls:
            if call.stopped() is None:
                running[call.owner].append(call)
        return max(
            running.values(),
            key=lambda calls: (len(calls), -sum(call.began_s for call in calls)),
            default=[],
        )

    def close(self) -> None:
        """Stop every running call, wait until they have returned, and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _loop(self) -> None:
        with self._changed:
            while self._calls or not self._closed:
                pause_s = _LOOK_S
                for running in self._calls:
                    if self._closed or running.stopped() is not None:
                        running.interrupt()
                        pause_s = _INTERRUPT_S
                    running.give_way()
                self._asleep = not self._calls
                self._changed.wait(None if self._asleep else pause_s)


class EngineCall:
    """A cursor and who uses it, until when. One call at a time."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection, watch: Watch) -> None:
        """It runs for the user that this thread works for, by the same deadline."""
        self._cursor = cursor
        self._watch = watch
        self._deadline, self.owner = _caller.get()
        self.began_s = self.entered_s = time.monotonic()
        self._thread = 0
        self._may_give_way = False
        #: Set where memory ran short and it is to go (``Watch.cancel_newest_statement``).
        self.is_too_large = False

    def call(self, function: Callable[[duckdb.DuckDBPyConnection], T]) -> T:
        """Call into the engine; what it raises comes out as a planner error.

        Raises:
            Cancelled, DeadlineExceeded: stopped by the client or by the clock, before it or during it.
        """
        self.entered_s = time.monotonic()
        self._thread, self._may_give_way = threading.get_native_id(), ends_when_slow.get()
        stopped = self.stopped()
        if stopped is not None:
            raise stopped
        with self._watch.expected((self._deadline, self.owner)):
            self._watch.enter(self)
            try:
                return function(self._cursor)
            except (duckdb.Error, OSError, ValueError, RuntimeError) as error:
                # Arrow raises the errors of a stream as OSError, ValueError (ArrowInvalid) or RuntimeError.
                ran_s = time.monotonic() - self.began_s
                raise self.stopped() or self._watch.blamed(
                    translate(error), self.owner, ran_s
                ) from error
            finally:
                self._watch.leave(self)

    def give_way(self) -> None:
        """Have the call's thread run after others once it takes long, if it ends by that. It stays so until then."""
        if self._may_give_way and time.monotonic() - self.entered_s > _GIVE_WAY_S:
            self._may_give_way = False
            give_way(self._thread)

    def stopped(self) -> FederationError | None:
        """Return why this statement must not go on, if so."""
        deadline = self._deadline
        if deadline is not None and deadline.cancellation.reason is not None:
            return deadline.cancellation.reason
        if self.is_too_large:
            return LimitExceeded(
                "the server ran short of memory, and of the statements of who runs most this one began last; try again, "
                "or narrow it."
            )
        return deadline.exceeded() if deadline is not None and deadline.is_over else None

    def interrupt(self) -> None:
        self._cursor.interrupt()

    def close(self) -> None:
        """Free the cursor, with the rows it streams. May be called twice."""
        self._cursor.close()
