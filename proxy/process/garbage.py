"""Looks for unreachable cycles now and then, instead of whenever many objects were made.

Python looks at all that lives once it has grown by a quarter. The tree of a statement of 15,000 columns is a million
objects: 300 ms in one piece, several times for one statement, and everybody waits. Trees are no cycles, and go without it.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

#: How often all is looked at: what a failed statement leaves in a cycle, its frames and their rows, stays as long.
EVERY_S = 30.0
#: Passes over the middle generation before Python looks at all by itself: 70 million objects more than before.
_PASSES = 10_000


@contextlib.contextmanager
def collecting_rarely(every_s: float = EVERY_S) -> Iterator[None]:
    """Within the block, look at all objects made since its begin every ``every_s`` seconds.

    What lives at its begin stays: looking at it again takes 40 ms each time.
    """
    gc.collect()
    gc.freeze()
    youngest, middle, oldest = gc.get_threshold()
    gc.set_threshold(youngest, middle, _PASSES)
    over = threading.Event()

    def collect() -> None:
        while not over.wait(every_s):
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
