"""Reading ahead, and what two processes say to each other, without the processes."""

from __future__ import annotations

import pickle
import random
import socket
import struct
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import pyarrow as pa
import pytest

from connectors.decoding.writers import FIXED_ID
from planner.errors import FederationError, InternalError, LogUnavailable, UndecodableRecord
from planner.evolution.writer_types import WriterIds
from planner.offsets import OffsetRange
from planner.ports import Decoded, LogBatch
from planner.seam.watermark import Outcomes
from proxy.tail.pacing import Pacing
from proxy.tail.reader import ipc as wire
from proxy.tail.reader.ipc import (
    Channel,
    Ended,
    receive_batch,
    receive_confirmed,
    send_batch,
    send_confirmed,
    send_error,
)
from proxy.tail.reader.prefetch import Prefetcher, read_ahead
from proxy.tail.reader.source import DecodedBatch, joined

SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False)])
WAIT_S = 60.0


def batch(
    start: int, stop: int, partition: int = 0, *, bad: int = 0, writer_ids: WriterIds = None
) -> DecodedBatch:
    rows = pa.RecordBatch.from_pylist([{"n": at} for at in range(start, stop)], SCHEMA)
    outcomes = Outcomes(rows=stop - start, skipped=bad)
    decoded = Decoded(rows, outcomes, writer_ids=writer_ids)
    return DecodedBatch(decoded, (OffsetRange(partition, start, stop),))


def numbers(batch: DecodedBatch | None) -> list[int]:
    return [] if batch is None else batch.decoded.rows.column("n").to_pylist()


class Scripted:
    """A subscription to what a test puts in, an error included, and its decoder."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._steps: list[DecodedBatch | BaseException] = []
        self.steps_out = self.confirm_at = self.confirmed = 0
        self.refused: FederationError | None = None
        self.closed = threading.Event()

    def put(self, *steps: DecodedBatch | BaseException) -> None:
        with self._changed:
            self._steps += steps
            self._changed.notify_all()

    def begin_confirm(self) -> Callable[[], None]:
        self.confirm_at = self.steps_out

        def confirm() -> None:
            if self.refused is not None:
                raise self.refused
            self.confirmed = self.confirm_at

        return confirm

    reads: frozenset[str] = frozenset()

    def decode(self, batch: Decoded) -> Decoded:
        return batch

    def take(self, timeout_s: float) -> LogBatch | None:
        with self._changed:
            if not self._changed.wait_for(lambda: self._steps, min(timeout_s, 0.01)):
                return None
            step = self._steps.pop(0)
            self.steps_out += 1
            self._changed.notify_all()
        if isinstance(step, BaseException):
            raise step
        return LogBatch(step.decoded, step.ranges)  # decoded by ``decode``

    def wait_steps(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.steps_out >= count, WAIT_S)

    def close(self) -> None:
        self.closed.set()


@contextmanager
def fed(**pacing: Any) -> Iterator[tuple[Scripted, Prefetcher]]:
    inner = Scripted()
    with closing(
        Prefetcher(lambda: inner, inner, "test", pacing=Pacing(**{"gather_s": 0.0, **pacing}))
    ) as subscription:
        yield inner, subscription
    assert inner.closed.wait(WAIT_S)


def test_what_came_meanwhile_is_taken_at_once_in_its_order() -> None:
    with fed() as (inner, subscription):
        inner.put(batch(0, 3), batch(3, 3), batch(3, 5, bad=1), batch(0, 2, partition=1))
        inner.wait_steps(4)
        items: list[Any] = []
        while len(items) < 7:
            step = subscription.take(WAIT_S)
            items += numbers(step)
        assert items == [0, 1, 2, 3, 4, 0, 1]
        assert subscription.take(0) is None


def test_steps_are_joined_to_one_whose_ranges_are_whole() -> None:
    step = joined([batch(0, 3), batch(5, 7, partition=1), batch(3, 9, bad=2)])
    assert step.ranges == (OffsetRange(0, 0, 9), OffsetRange(1, 5, 7))
    assert step.decoded.outcomes == Outcomes(rows=11, skipped=2)
    assert numbers(step) == [0, 1, 2, 5, 6, 3, 4, 5, 6, 7, 8]


def test_steps_that_are_joined_have_the_ids_of_all_if_all_are_known() -> None:
    first, second = (batch(0, 1, writer_ids=frozenset({at})) for at in (7, 9))
    assert joined([first, second]).decoded.writer_ids == frozenset({7, 9})
    assert joined([first, batch(1, 2), second]).decoded.writer_ids is None


def test_an_error_comes_behind_the_rows_before_it_and_again() -> None:
    with fed() as (inner, subscription):
        inner.put(batch(0, 2), LogUnavailable("no answer"))
        inner.wait_steps(2)
        assert inner.closed.wait(WAIT_S)
        assert numbers(subscription.take(WAIT_S)) == [0, 1]
        for _ in range(2):
            with pytest.raises(LogUnavailable, match="no answer"):
                subscription.take(WAIT_S)


def test_a_bug_is_not_taken_for_silence() -> None:
    with fed() as (inner, subscription):
        inner.put(ZeroDivisionError())
        with pytest.raises(InternalError):
            subscription.take(WAIT_S)


def test_a_feed_that_cannot_be_opened_says_so_when_it_is_taken_from() -> None:
    def refused() -> Any:
        raise LogUnavailable("no broker")

    with (
        closing(Prefetcher(refused, Scripted(), "test", pacing=Pacing())) as subscription,
        pytest.raises(LogUnavailable, match="no broker"),
    ):
        subscription.take(WAIT_S)


def test_it_reads_so_far_ahead_and_no_further() -> None:
    with fed(max_ready_rows=4) as (inner, subscription):
        inner.put(*(batch(at, at + 2) for at in range(0, 20, 2)))
        inner.wait_steps(2)
        items: list[int] = []
        while len(items) < 20:
            step = numbers(subscription.take(WAIT_S))
            # What is ready, and the step that had begun before it was full.
            assert 0 < len(step) <= 6
            items += step
        assert items == list(range(20))


def test_what_nobody_takes_gathers_longer_unless_somebody_waits() -> None:
    with fed(idle_share=1e6) as (inner, subscription):
        inner.put(batch(0, 1))
        inner.wait_steps(1)
        inner.put(batch(1, 2))
        threading.Event().wait(0.1)
        assert inner.steps_out == 1
        assert numbers(subscription.take(WAIT_S)) == [0]
        assert numbers(subscription.take(WAIT_S)) == [1]


def test_records_gather_unless_somebody_waits() -> None:
    """They would for an hour."""
    with fed(gather_s=3600) as (inner, subscription):
        for at in range(5):
            inner.put(batch(at, at + 1))
            assert numbers(subscription.take(WAIT_S)) == [at]
        assert inner.steps_out == 5


def test_what_is_wanted_is_worth_a_moment() -> None:
    with fed(demand_gather_s=WAIT_S) as (inner, subscription), ThreadPoolExecutor(1) as pool:
        inner.put(batch(0, 2))
        inner.wait_steps(1)
        expected = [OffsetRange(0, 0, 3), OffsetRange(1, 0, 1)]
        taking = pool.submit(subscription.take, WAIT_S, expected)
        inner.put(batch(2, 5))
        inner.wait_steps(2)
        assert not taking.done()
        inner.put(batch(0, 1, partition=1))
        assert numbers(taking.result(WAIT_S)) == [0, 1, 2, 3, 4, 0]


def test_what_is_wanted_and_does_not_come_is_not_waited_for() -> None:
    with fed() as (inner, subscription):
        inner.put(batch(0, 2))
        assert numbers(subscription.take(WAIT_S, [OffsetRange(0, 0, 3)])) == [0, 1]


def test_all_steps_taken_at_once_are_confirmed_by_one_question() -> None:
    with fed() as (inner, subscription):
        inner.put(*(batch(at, at + 1) for at in range(5)))
        inner.wait_steps(5)
        while inner.confirmed < 5:
            step = subscription.take(WAIT_S)
            assert step is not None
            assert inner.confirm_at > inner.confirmed
            step.confirm()
        inner.refused = LogUnavailable("no answer")
        inner.put(batch(5, 6))
        step = subscription.take(WAIT_S)
        assert step is not None
        with pytest.raises(LogUnavailable, match="no answer"):
            step.confirm()


def test_a_fetch_is_read_ahead_and_ends_with_its_error() -> None:
    went_on = threading.Event()

    def pieces() -> Generator[Decoded, None, None]:
        yield batch(0, 1).decoded
        yield batch(1, 2).decoded
        went_on.set()
        raise LogUnavailable("gone")

    ahead = read_ahead(pieces())
    assert next(ahead).rows.num_rows == 1
    assert went_on.wait(WAIT_S)
    assert next(ahead).rows.num_rows == 1
    with pytest.raises(LogUnavailable):
        next(ahead)


def test_a_fetch_that_is_given_up_is_closed() -> None:
    closed = threading.Event()

    def pieces() -> Generator[Decoded, None, None]:
        try:
            while True:
                yield batch(0, 1).decoded
        finally:
            closed.set()

    ahead = read_ahead(pieces())
    next(ahead)
    ahead.close()
    assert closed.wait(WAIT_S)


# --- the wire ---


@contextmanager
def channels() -> Iterator[tuple[Channel, Channel]]:
    one, other = socket.socketpair()
    with closing(Channel(one)) as ours, closing(Channel(other)) as theirs:
        yield ours, theirs


@pytest.mark.parametrize(
    "sent",
    [
        batch(0, 5),
        batch(7, 7),
        batch(0, 200_000, partition=3),
        batch(1, 3, bad=2),
        batch(0, 2, writer_ids=frozenset({FIXED_ID, 7, 2**32 - 1})),
    ],
    ids=["rows", "none", "many", "bad ones", "of writers"],
)
def test_a_step_comes_across_whole(sent: DecodedBatch) -> None:
    with channels() as (ours, theirs):
        sender = threading.Thread(target=send_batch, args=(theirs, sent))
        sender.start()
        result = receive_batch(ours, SCHEMA, WAIT_S)
        sender.join()
    assert result is not None
    assert result.ranges == sent.ranges
    assert result.decoded.outcomes == sent.decoded.outcomes
    assert result.decoded.writer_ids == sent.decoded.writer_ids
    assert result.decoded.rows.equals(sent.decoded.rows)


def test_frames_of_any_size_come_across_one_by_one() -> None:
    chance, most = random.Random(1), 3 * wire._AHEAD_BYTES
    edges = [0, 1, wire._AHEAD_BYTES - 1, wire._AHEAD_BYTES, wire._AHEAD_BYTES + 1, most]
    sizes = [*edges, *(chance.randrange(200) for _ in range(500)), *edges[::-1]]
    sizes += [chance.randrange(most) for _ in range(100)]
    frames = [(["x" * chance.randrange(100)], chance.randbytes(size)) for size in sizes]

    def send(channel: Channel) -> None:
        for frame in frames:
            channel.send(*frame)

    with channels() as (ours, theirs):
        sender = threading.Thread(target=send, args=(theirs,))
        sender.start()
        for header, body in frames:
            result, value = ours.receive(WAIT_S)
            assert (result, value.to_pybytes()) == (header, body)
        sender.join()


def test_a_step_is_confirmed_or_an_error_says_why_not() -> None:
    with channels() as (ours, theirs):
        send_confirmed(theirs)
        receive_confirmed(ours, WAIT_S)
        send_error(theirs, LogUnavailable("no answer"))
        with pytest.raises(LogUnavailable, match="no answer"):
            receive_confirmed(ours, WAIT_S)
        send_batch(theirs, batch(0, 1))
        with pytest.raises(Ended):
            receive_confirmed(ours, WAIT_S)


def test_nothing_comes_across_as_nothing() -> None:
    with channels() as (ours, theirs):
        send_batch(theirs, None)
        assert receive_batch(ours, SCHEMA, WAIT_S) is None


def test_an_error_comes_across_with_its_facts() -> None:
    with channels() as (ours, theirs):
        send_error(theirs, UndecodableRecord("bad", partition=1, offset=2, odd=object()))
        with pytest.raises(UndecodableRecord, match="bad") as caught:
            receive_batch(ours, SCHEMA, WAIT_S)
    assert caught.value.facts == {"partition": 1, "offset": 2}


def says(theirs: Channel, body: bytes | None = None, **header: object) -> None:
    """Send a step that is right, but for its body and what its header says."""
    right = {
        "ranges": [[0, 0, 1]],
        "outcomes": [1, 0, 0, 0],
        "writer_ids": [7],
        "epochs": [],
        "peak_bytes": 1,
    }
    rows = batch(0, 1).decoded.rows.serialize()
    theirs.send({**right, **header}, rows if body is None else body)


def test_what_the_lies_start_from_is_right() -> None:
    with channels() as (ours, theirs):
        says(theirs)
        assert receive_batch(ours, SCHEMA, WAIT_S) is not None


@pytest.mark.parametrize(
    ("column", "true", "false"),
    [
        # What is in a text; and where the second of two begins.
        (pa.array(["hello"]), b"hello", b"\xff" * 5),
        (
            pa.array([b"hello", b"you"]),
            struct.pack("<3i", 0, 5, 8),
            struct.pack("<3i", 0, 4096, 8),
        ),
    ],
    ids=["text", "offsets"],
)
def test_rows_that_lie_end_the_channel(column: pa.Array, true: bytes, false: bytes) -> None:
    """What the engine takes as it comes."""
    rows = pa.record_batch([column], names=["it"])
    body = rows.serialize().to_pybytes()
    assert body.count(true) == 1
    with channels() as (ours, theirs):
        says(theirs, body.replace(true, false), outcomes=[len(column), 0, 0, 0])
        with pytest.raises(Ended):
            receive_batch(ours, rows.schema, WAIT_S)


@pytest.mark.parametrize(
    "said",
    [
        lambda theirs: theirs.close(),
        lambda theirs: theirs._socket.sendall(b"\xff" * 12),
        lambda theirs: theirs._socket.sendall(wire._LENGTHS.pack(3, 0) + b"{{{"),
        lambda theirs: (theirs._socket.sendall(wire._LENGTHS.pack(20, 5)), theirs.close()),
        lambda theirs: says(theirs, b"no batch"),
        lambda theirs: theirs.send({"ranges": [[1]]}, batch(0, 1).decoded.rows.serialize()),
        lambda theirs: theirs.send({"odd": 1}),
        lambda theirs: theirs.send([1, 2]),
        lambda theirs: says(theirs, outcomes=["1", "2", "3", "4"]),
        lambda theirs: says(theirs, outcomes=[1.5, 0, 0, 0]),
        lambda theirs: says(theirs, ranges=[[0, 0.0, 1.0]]),
        lambda theirs: says(theirs, ranges=[[0, 0, 1 << 70]]),
        lambda theirs: says(theirs, epochs=[[0, "1"]]),
        lambda theirs: says(theirs, writer_ids=["7"]),
        lambda theirs: says(theirs, writer_ids=7),
        lambda theirs: theirs.send({"error": ["UndecodableRecord", ["bad"], {}]}),
        lambda theirs: theirs._socket.sendall(wire._LENGTHS.pack(5_000, 0) + b"[" * 5_000),
    ],
)
def test_what_is_no_answer_ends_the_channel(said: Callable[[Channel], object]) -> None:
    with channels() as (ours, theirs):
        said(theirs)
        with pytest.raises(Ended):
            receive_batch(ours, SCHEMA, WAIT_S)


def test_an_error_of_no_kind_of_ours_is_a_bug_of_ours() -> None:
    with channels() as (ours, theirs):
        theirs.send({"error": ["annotations", "odd", {}]})
        with pytest.raises(InternalError):
            receive_batch(ours, SCHEMA, WAIT_S)


def test_silence_is_told_from_an_end() -> None:
    with channels() as (ours, _), pytest.raises(TimeoutError):
        ours.receive(0.01)


def test_nothing_a_worker_says_is_unpickled() -> None:
    with channels() as (ours, theirs):
        says(theirs, pickle.dumps(print), ranges=[])
        with pytest.raises(Ended):
            receive_batch(ours, SCHEMA, WAIT_S)
