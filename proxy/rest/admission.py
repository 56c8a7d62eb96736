"""Who is let in over HTTP and when: threads for logins, slots for loads, of both a share for each user."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor

from planner.errors import Overloaded
from proxy.access.fairness import Queue, Slots
from proxy.session import Deadline

#: Loads at work, of all users: the other threads are for what takes a moment. Those at work or waiting.
_LOADS_AT_WORK, _MAX_LOADS = 24, 1_024
#: Threads of each kind. Argon2 checks two at a time, with threads of its own (``proxy.access.authentication.hashes``).
_LOGIN_THREADS = 2
#: Logins at work or waiting, of all users. New ones: two seconds' worth. The others wait for no check.
_MAX_NEW, _MAX_PROVED = 64, 1_024


class Loads:
    """Slots for loads of tables, on one event loop."""

    def __init__(self) -> None:
        self._present = Slots(_MAX_LOADS, "loads")
        self._at_work = Queue(_LOADS_AT_WORK)

    @contextlib.asynccontextmanager
    async def slot(self, owner: str | None, deadline: Deadline) -> AsyncIterator[None]:
        """Have a slot during the block, and wait for it.

        Raises:
            Overloaded: too many are there already, or of this owner; or none was free by the deadline.
            Cancelled: it was given up.
        """
        woken = asyncio.Event()
        with self._present.slot(owner):
            waiter = self._at_work.enter(owner, None, woken.set)
            try:
                with deadline.cancellation.interrupting(woken.set):
                    while not waiter.has_slot:
                        woken.clear()
                        await _until(woken, deadline)
                        deadline.cancellation.check()
                yield
            finally:
                self._at_work.leave(waiter)


async def _until(woken: asyncio.Event, deadline: Deadline) -> None:
    try:
        await asyncio.wait_for(woken.wait(), deadline.left_s)
    except TimeoutError as error:
        raise Overloaded(
            f"other loads took longer than the {deadline.limit_s:g} s this one may wait; try again."
        ) from error


class Logins:
    """Threads that check passwords, and nothing else: to check one takes long on purpose, and a stranger may ask for it.

    Passwords that were right before have threads of their own: who tries others keeps out neither them nor requests
    without a password. Thread-safe; the caller closes it.
    """

    def __init__(self) -> None:
        self._new = Slots(_MAX_NEW, "logins"), _login_threads("new")
        self._proved = Slots(_MAX_PROVED, "logins"), _login_threads("proved")

    def close(self) -> None:
        """End the threads, without waiting for their work."""
        for _, threads in (self._new, self._proved):
            threads.shutdown(wait=False, cancel_futures=True)

    @contextlib.contextmanager
    def slot(self, user: str, *, is_proved: bool) -> Iterator[ThreadPoolExecutor]:
        """Lend the threads for one login. ``is_proved``: the password was right before.

        Raises:
            Overloaded: too many are there already, or of this user.
        """
        slots, threads = self._proved if is_proved else self._new
        with slots.slot(user):
            yield threads


def _login_threads(kind: str) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_LOGIN_THREADS, thread_name_prefix=f"iceberg-rest-{kind}-logins")
