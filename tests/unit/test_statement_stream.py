"""The stream of one execution: read on other threads, charged for its own time only, freed when it rests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from planner.errors import Cancelled, DeadlineExceeded, Overloaded
from proxy.engine.result import StatementStream
from proxy.engine.thread_pool import ThreadPool
from proxy.session import Deadline
from tests.harness.clock import Clock

#: No test waits so long unless it fails.
SOON_S = 60.0
LARGE = 1 << 20


@dataclass(frozen=True)
class Batch:
    """As much of one as a stream looks at."""

    number: int
    nbytes: int = LARGE

    def to_struct_array(self) -> Batch:
        return self


class FakeResult:
    """These batches; each but the first waits for ``gate``. Counts how often it was read."""

    schema = pa.schema([("n", pa.int64())])

    def __init__(self, *batches: Batch) -> None:
        self.gate = threading.Event()
        self.closed = threading.Event()
        self.closed_while_busy = False
        self.busy = False
        self.reads = 0
        self._batches = iter(batches)

    def __iter__(self) -> FakeResult:
        return self

    def __next__(self) -> Batch:
        self.reads += 1
        self.busy = True
        if self.reads > 1:
            self.gate.wait(SOON_S)
        self.busy = False
        return next(self._batches)

    def close(self) -> None:
        self.closed_while_busy |= self.busy
        self.closed.set()


@contextmanager
def streaming(
    result: FakeResult, deadline: Deadline | None = None
) -> Iterator[StatementStream]:
    pool, resources, deadline = ThreadPool(), ExitStack(), deadline or Deadline(SOON_S)
    resources.callback(result.close)

    def on_thread(work: Callable[[], None]) -> None:
        pool.run(work, deadline)

    source: Any = result
    yield StatementStream(source, {"k": "v"}, deadline, on_thread, resources)
    result.gate.set()
    pool.close()


@pytest.mark.parametrize("count", [0, 1, 2, 5])
@pytest.mark.parametrize("nbytes", [10, LARGE])
def test_every_batch_comes_once_and_in_order_small_or_not(count: int, nbytes: int) -> None:
    expected = [Batch(number, nbytes) for number in range(count)]
    result = FakeResult(*expected)
    result.gate.set()
    with streaming(result) as stream:
        assert list(stream) == expected
        stream.close()
        assert result.closed.is_set()
        assert stream.schema.metadata == {b"k": b"v"}


def test_a_small_answer_is_whole_after_one_read() -> None:
    result = FakeResult(Batch(1, 10))
    result.gate.set()
    with streaming(result) as stream:
        stream.read()
        assert result.reads == 2
        assert list(stream) == [Batch(1, 10)]
        assert result.reads == 2


def test_a_stream_that_is_late_in_the_middle_is_closed_once_it_rests() -> None:
    result = FakeResult(Batch(1), Batch(2))
    with streaming(result, Deadline(0.3)) as stream:
        batches = iter(stream)
        assert next(batches) == Batch(1)
        with pytest.raises(DeadlineExceeded, match="in a part that cannot be interrupted"):
            next(batches)
        stream.close()
        assert not result.closed.is_set()
        result.gate.set()
        assert result.closed.wait(SOON_S)
        assert not result.closed_while_busy


def test_an_error_on_the_way_is_raised_where_the_stream_is_read() -> None:
    class Failing(FakeResult):
        def __next__(self) -> Batch:
            raise Overloaded("no")

    with streaming(Failing()) as stream, pytest.raises(Overloaded):
        list(stream)


def test_a_slow_reader_is_not_charged_for_its_own_time() -> None:
    result = FakeResult(*(Batch(number) for number in range(4)))
    result.gate.set()
    clock = Clock()
    deadline = Deadline(2, clock=clock)
    with streaming(result, deadline) as stream:
        for _ in stream:
            clock.now += 0.5
        assert deadline.left_s == 2


def test_a_stream_that_was_given_up_does_not_end_as_if_it_were_whole() -> None:
    result = FakeResult(Batch(1, 10))
    result.gate.set()
    deadline = Deadline(SOON_S)
    with streaming(result, deadline) as stream:
        stream.read()
        deadline.cancellation.request()
        with pytest.raises(Cancelled):
            list(stream)
