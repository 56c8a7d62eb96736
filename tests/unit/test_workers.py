"""Work that is waited for no longer than its time, and a backend that answers by it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from planner.errors import Cancelled, DeadlineExceeded, Overloaded
from proxy.engine.thread_pool import Abandoned, ThreadPool
from proxy.flightsql.backend import Cancellation, Session
from proxy.query.punctual import Punctual

#: No test waits so long unless it fails.
SOON_S = 60.0
SESSION = Session("a session")


@pytest.fixture
def workers() -> Iterator[ThreadPool]:
    found = ThreadPool(max_late=1)
    yield found
    found.close()


def run(workers: ThreadPool, work: Callable[[], Any], **given: Any) -> Any:
    settings: dict[str, Any] = {
        "cancellation": Cancellation(),
        "left_s": SOON_S,
        "grace_s": 0.0,
        "afterwards": lambda _result: None,
    } | given
    return workers.run(work, **settings)


def test_what_work_returns_or_raises_is_passed_on(workers: ThreadPool) -> None:
    assert run(workers, lambda: 7) == 7
    with pytest.raises(KeyError, match="nosuch"):
        run(workers, lambda: dict[str, int]()["nosuch"])


def test_one_thread_does_one_callers_work_and_ends_with_the_workers(
    workers: ThreadPool,
) -> None:
    seen = set()
    for _ in range(50):
        seen.add(run(workers, threading.current_thread))
        time.sleep(0.001)
    assert threading.current_thread() not in seen
    assert len(seen) < 10
    workers.close()
    for thread in seen:
        thread.join(SOON_S)
        assert not thread.is_alive()


def test_work_out_of_time_is_left_behind_and_cleaned_up_after(workers: ThreadPool) -> None:
    gate, cleaned = threading.Event(), threading.Event()
    results: list[object] = []

    def clean(result: object) -> None:
        results.append(result)
        cleaned.set()

    with pytest.raises(Abandoned):
        run(workers, lambda: gate.wait(SOON_S) and 7, left_s=0.01, afterwards=clean)
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
    workers, cancellation, gate = ThreadPool(max_late=2), Cancellation(), threading.Event()

    def given_up_by_another(while_running: Cancellation) -> None:
        # From inside the work: a timer may fire before the work has begun.
        threading.Thread(target=while_running.request).start()

    def stay() -> None:
        given_up_by_another(cancellation)
        gate.wait(SOON_S)

    with pytest.raises(Cancelled):
        run(workers, stay, cancellation=cancellation, grace_s=0.01)
    gate.set()
    heeding = Cancellation()

    def heed() -> str:
        given_up_by_another(heeding)
        while heeding.reason is None:
            time.sleep(0.001)
        return "heeded"

    assert run(workers, heed, cancellation=heeding, grace_s=SOON_S) == "heeded"
    workers.close()


@dataclass(frozen=True)
class Batch:
    """As much of one as ``Punctual`` looks at."""

    number: int
    nbytes: int = 1 << 20


class Stubborn:
    """A backend whose calls wait for ``gate``, and a stream of it."""

    def __init__(self, *, is_open: bool = False) -> None:
        self.gate = threading.Event()
        self.closed = threading.Event()
        self.closed_while_busy = False
        self.busy = False
        self.is_open = is_open
        self.schema = None

    def prepare(self, *_: object) -> str:
        self.gate.wait(SOON_S)
        return "prepared"

    plan = prepare

    def plan_at_once(self, *_: object) -> object:
        return None

    open_at_once = plan_at_once

    def open(self, *_: object) -> Stubborn:
        if not self.is_open:
            self.gate.wait(SOON_S)
        return self

    def __iter__(self) -> Iterator[Batch]:
        yield Batch(1)
        self.busy = True
        self.gate.wait(SOON_S)
        self.busy = False
        yield Batch(2)

    def close(self) -> None:
        self.closed_while_busy |= self.busy
        self.closed.set()


@contextmanager
def punctual(inner: Stubborn, limit_s: float) -> Iterator[Punctual]:
    found = Punctual(inner, lambda _session: limit_s)  # type: ignore[arg-type]
    yield found
    inner.gate.set()
    found.close()


def test_calls_are_answered_by_their_limit() -> None:
    with punctual(Stubborn(), 0.01) as backend:
        for ask in (
            lambda: backend.prepare(SESSION, "", Cancellation()),
            lambda: backend.plan(SESSION, "", None, Cancellation()),
        ):
            with pytest.raises(DeadlineExceeded, match=r"longer than 0\.01 s, in a part that"):
                ask()


def test_a_stream_that_opens_too_late_is_closed() -> None:
    inner = Stubborn()
    with punctual(inner, 0.01) as backend:
        with pytest.raises(DeadlineExceeded):
            backend.open(SESSION, b"", Cancellation())
        assert not inner.closed.is_set()
        inner.gate.set()
        assert inner.closed.wait(SOON_S)


def test_a_stream_that_is_left_in_the_middle_is_closed_once_it_rests() -> None:
    inner = Stubborn(is_open=True)
    with punctual(inner, 0.5) as backend:
        stream = backend.open(SESSION, b"", Cancellation())
        batches = iter(stream)
        assert next(batches) == Batch(1)
        with pytest.raises(DeadlineExceeded):
            next(batches)
        stream.close()
        assert not inner.closed.is_set()
        inner.gate.set()
        assert inner.closed.wait(SOON_S)
        assert not inner.closed_while_busy


def test_a_stream_that_is_read_to_its_end_is_closed_at_once() -> None:
    inner = Stubborn(is_open=True)
    inner.gate.set()
    with punctual(inner, SOON_S) as backend:
        stream = backend.open(SESSION, b"", Cancellation())
        assert list(stream) == [Batch(1), Batch(2)]
        stream.close()
        assert inner.closed.is_set()


class Short(Stubborn):
    """An answer of these batches, which waits for nothing; and how often it was asked for the next."""

    def __init__(self, *batches: Batch) -> None:
        super().__init__(is_open=True)
        self.batches = batches
        self.asked = 0

    def __iter__(self) -> Iterator[Batch]:
        for batch in self.batches:
            self.asked += 1
            yield batch
        self.asked += 1


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_every_batch_comes_once_and_in_order_small_or_not(count: int) -> None:
    for nbytes in (10, 1 << 20):
        expected = [Batch(number, nbytes) for number in range(count)]
        with punctual(Short(*expected), SOON_S) as backend:
            stream = backend.open(SESSION, b"", Cancellation())
            assert list(stream) == expected
            stream.close()


def test_a_small_answer_is_whole_once_it_is_opened() -> None:
    inner = Short(Batch(1, 10))
    with punctual(inner, SOON_S) as backend:
        stream = backend.open(SESSION, b"", Cancellation())
        assert inner.asked == 2
        stream.close()


class Knowing(Stubborn):
    """Knows an answer, and never has another."""

    def plan_at_once(self, *_: object) -> object:
        return threading.current_thread()

    open_at_once = plan_at_once


def test_what_is_known_is_answered_by_the_thread_that_asks() -> None:
    with punctual(Knowing(), SOON_S) as backend:
        here: object = threading.current_thread()
        assert backend.plan(SESSION, "", None, Cancellation()) is here
        assert backend.open(SESSION, b"", Cancellation()) is here  # type: ignore[comparison-overlap]


def test_a_call_that_was_given_up_is_not_told_what_is_known() -> None:
    cancellation = Cancellation()
    cancellation.request()
    with punctual(Knowing(), SOON_S) as backend, pytest.raises(Cancelled):
        backend.open(SESSION, b"", cancellation)


def test_a_batch_that_cannot_be_made_closes_what_was_opened() -> None:
    class Failing(Stubborn):
        def __iter__(self) -> Iterator[Batch]:
            raise Overloaded("no")
            yield  # type: ignore[unreachable]

    inner = Failing(is_open=True)
    with punctual(inner, SOON_S) as backend, pytest.raises(Overloaded):
        backend.open(SESSION, b"", Cancellation())
    assert inner.closed.is_set()


def test_what_one_user_left_behind_keeps_nobody_else_out() -> None:
    workers, gate = ThreadPool(max_late=3, max_late_each=2), threading.Event()
    began = threading.Barrier(5)

    def stay() -> None:
        began.wait(SOON_S)
        gate.wait(SOON_S)

    def leave() -> None:
        with pytest.raises(Abandoned):
            run(workers, stay, left_s=0.05, user="mallory")

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
