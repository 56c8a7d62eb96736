"""Looks for unreachable cycles in quiet moments, instead of whenever many objects were made.

Python looks at all that lives once it has grown by a quarter. The trees of long statements are millions of objects: 0.3
to 0.7 s in one piece, several times for one statement, and everybody waits. Trees are no cycles, and go without it.
"""

from __future__ import annotations

import contextlib
import gc
import threading
import time
from collections.abc import Iterator

#: How often all is looked at: what a failed statement leaves in a cycle, its frames and their rows, stays as long.
EVERY_S = 30.0
#: How long a quiet moment is waited for: one in which the process computes for less than a quarter of the time.
_MOST_S = 4 * EVERY_S
_MOMENT_S, _BUSY = 0.5, 0.25
#: Passes over the middle generation before Python looks at all by itself: 70 million objects more than before.
_PASSES = 10_000


@contextlib.contextmanager
def collecting_rarely(every_s: float = EVERY_S) -> Iterator[None]:
    """Within the block, look at all objects made since its begin ``every_s`` seconds after the last time, or when the
    process has less to do; after two minutes in any case.

    What lives at its begin stays: looking at it again takes 40 ms each time.
    """
    gc.collect()
    gc.freeze()
    youngest, middle, oldest = gc.get_threshold()
    gc.set_threshold(youngest, middle, _PASSES)
    over = threading.Event()

    def collect() -> None:
        while not over.wait(every_s):
            until = time.monotonic() + _MOST_S
            while time.monotonic() < until and _is_busy(over):
                pass
            if not over.is_set():
                gc.collect()

    thread = threading.Thread(target=collect, name="garbage", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        gc.set_threshold(youngest, middle, oldest)
        gc.unfreeze()


def _is_busy(over: threading.Event) -> bool:
    """Whether the process computes for most of the next moment; no once it is over."""
    began_s = time.process_time()
    return not over.wait(_MOMENT_S) and time.process_time() - began_s > _BUSY * _MOMENT_S
