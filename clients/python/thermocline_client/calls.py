"""Calls that block where no signal reaches them, on a thread of their own: Ctrl-C ends them, also on the server."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")

#: A signal that another thread took is seen between two waits of this length.
TICK_S = 0.1
#: A cancelled call ends at once; one that does not is left behind.
_CANCEL_S = 2.0


def apart(
    call: Callable[[], T],
    cancel: Callable[[], None] | None = None,
    tick: Callable[[], None] | None = None,
) -> T:
    """Run a call of the driver's; raise what it raises. ``cancel`` is called where an exception ends the wait.

    On the main thread the driver would take SIGINT for itself, cancel what runs, and raise nothing (ADBC 1.13).
    ``tick`` is called on the waiting thread, about every ``TICK_S``.
    """
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised again by the waiting thread
            result.set_exception(error)

    thread = threading.Thread(target=run, name="driver", daemon=True)
    thread.start()
    try:
        thread.join(TICK_S)
        while thread.is_alive():
            if tick is not None:
                tick()
            thread.join(TICK_S)
    except BaseException:
        if cancel is not None:
            # What the driver says to that is of no use: the wait is over.
            with contextlib.suppress(Exception):
                cancel()
            thread.join(_CANCEL_S)
        raise
    return result.result()
