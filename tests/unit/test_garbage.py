"""Full collections come by the clock: cycles go, and what grows quickly costs none."""

from __future__ import annotations

import gc
import threading
import time
import weakref

from proxy.process.garbage import collecting_rarely

SOON_S = 30.0


class Node:
    """One that may be in a cycle."""

    def __init__(self) -> None:
        self.itself = self


def test_a_cycle_goes_by_the_clock_and_all_is_as_before_afterwards() -> None:
    before = gc.get_threshold(), gc.get_freeze_count()
    with collecting_rarely(0.01):
        node = Node()
        gone = threading.Event()
        weakref.finalize(node, gone.set)
        del node
        assert gone.wait(SOON_S)
    assert (gc.get_threshold(), gc.get_freeze_count()) == before
    assert not [thread for thread in threading.enumerate() if thread.name == "garbage"]


def test_a_large_tree_is_not_looked_at_as_a_whole() -> None:
    full = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            full.append(time.monotonic())

    with collecting_rarely():
        gc.callbacks.append(note)
        try:
            tree: list[list[list[int]]] = [[[]] for _ in range(1_000_000)]
        finally:
            gc.callbacks.remove(note)
    assert len(tree) == 1_000_000
    assert not full
