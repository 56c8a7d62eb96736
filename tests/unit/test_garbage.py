"""Full collections come by the clock: cycles go, and what grows quickly costs none."""

from __future__ import annotations

import gc
import threading
import time
import weakref

import pytest

from proxy.process import garbage
from proxy.process.garbage import collecting_rarely

SOON_S = 30.0


class Node:
    """One that may be in a cycle."""

    def __init__(self) -> None:
        self.itself = self


def test_a_cycle_goes_by_the_clock_and_all_is_as_before_afterwards() -> None:
    gc.unfreeze()
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


@pytest.mark.parametrize(("most_s", "waits"), [(SOON_S, True), (0.05, False)])
def test_a_busy_process_is_left_alone_for_a_while(
    most_s: float, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, collected = threading.Event(), threading.Event()

    def is_busy(over: threading.Event) -> bool:
        looked.set()
        return not over.wait(0.01)

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            collected.set()

    monkeypatch.setattr(garbage, "_is_busy", is_busy)
    monkeypatch.setattr(garbage, "_MOST_S", most_s)
    with collecting_rarely(0.01):
        gc.callbacks.append(note)
        try:
            assert looked.wait(SOON_S)
            assert collected.wait(0.2 if waits else SOON_S) is not waits
        finally:
            gc.callbacks.remove(note)


def test_a_process_is_busy_that_computes() -> None:
    over = threading.Event()
    ended = threading.Event()

    def compute() -> None:
        while not ended.is_set():
            sum(range(1_000))

    thread = threading.Thread(target=compute)
    thread.start()
    try:
        assert any(garbage._is_busy(over) for _ in range(20))
    finally:
        ended.set()
        thread.join()
    assert not all(garbage._is_busy(over) for _ in range(20))
    over.set()
    assert not garbage._is_busy(over)
