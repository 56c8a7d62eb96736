"""Work that is waited for no longer than its deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from planner.errors import Cancelled, DeadlineExceeded, Overloaded
from proxy.engine.thread_pool import ThreadPool
from proxy.session import Cancellation, Deadline

#: No test waits so long unless it fails.
SOON_S = 60.0


@pytest.fixture
def workers() -> Iterator[ThreadPool]:
    pool = ThreadPool(max_abandoned=1, max_abandoned_each=1, grace_s=0)
    yield pool
    pool.close()


def run(
    workers: ThreadPool, work: Callable[[], Any], limit_s: float = SOON_S, **options: Any
) -> Any:
    return workers.run(work, Deadline(limit_s), **options)


def test_what_work_returns_or_raises_is_passed_on(workers: ThreadPool) -> None:
    assert run(workers, lambda: 7) == 7
    with pytest.raises(KeyError, match="nosuch"):
        run(workers, lambda: dict[str, int]()["nosuch"])


def test_one_thread_does_one_callers_work_and_ends_with_the_workers(
    workers: ThreadPool,
) -> None:
    observed = set()
    for _ in range(50):
        observed.add(run(workers, threading.current_thread))
        time.sleep(0.001)
    assert threading.current_thread() not in observed
    assert len(observed) < 10
    workers.close()
    for thread in observed:
        thread.join(SOON_S)
        assert not thread.is_alive()


def test_work_out_of_time_is_left_behind_and_cleaned_up_after(workers: ThreadPool) -> None:
    gate, cleaned = threading.Event(), threading.Event()
    results: list[object] = []

    def clean(result: object) -> None:
        results.append(result)
        cleaned.set()

    with pytest.raises(DeadlineExceeded, match=r"longer than 0\.01 s, in a part that"):
        run(workers, lambda: gate.wait(SOON_S) and 7, 0.01, afterwards=clean)
    with pytest.raises(Overloaded, match="cannot be interrupted"):
        run(workers, lambda: 7)
    gate.set()
    assert cleaned.wait(SOON_S)
    assert results == [7]
    until = time.monotonic() + SOON_S
    while True:
        try:
            assert run(workers, lambda: 7) == 7
            break
        except Overloaded:
            assert time.monotonic() < until


def test_work_that_is_given_up_has_its_grace_and_then_its_reason() -> None:
    workers, cancellation, gate = ThreadPool(grace_s=0.01), Cancellation(), threading.Event()

    def local(while_running: Cancellation) -> None:
        # From inside the work: a timer may fire before the work has begun.
        threading.Thread(target=while_running.request).start()

    def stay() -> None:
        local(cancellation)
        gate.wait(SOON_S)

    with pytest.raises(Cancelled):
        workers.run(stay, Deadline(SOON_S, cancellation))
    gate.set()
    patient, heeding = ThreadPool(grace_s=SOON_S), Cancellation()

    def heed() -> str:
        local(heeding)
        while heeding.reason is None:
            time.sleep(0.001)
        return "heeded"

    assert patient.run(heed, Deadline(SOON_S, heeding)) == "heeded"
    workers.close()
    patient.close()


def test_what_one_user_left_behind_keeps_nobody_else_out() -> None:
    workers, gate = (
        ThreadPool(max_abandoned=3, max_abandoned_each=2, grace_s=0),
        threading.Event(),
    )
    began = threading.Barrier(5)

    def stay() -> None:
        began.wait(SOON_S)
        gate.wait(SOON_S)

    def leave() -> None:
        with pytest.raises(DeadlineExceeded):
            run(workers, stay, 0.05, user="mallory")

    # All of them begin before any is late.
    callers = [threading.Thread(target=leave) for _ in range(4)]
    for caller in callers:
        caller.start()
    began.wait(SOON_S)
    for caller in callers:
        caller.join(SOON_S)
    with pytest.raises(Overloaded, match="4 of your statements"):
        run(workers, lambda: 7, user="mallory")
    assert run(workers, lambda: 7, user="ada") == 7
    gate.set()
    workers.close()
