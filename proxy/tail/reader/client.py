"""The server's side of the process that reads topics: sends read requests, receives decoded batches."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace

from planner.offsets import NO_EPOCHS, OffsetRange
from proxy.tail.reader.child import Ingestion, gone
from proxy.tail.reader.ipc import (
    Channel,
    Ended,
    ReadRequest,
    receive_batch,
    receive_confirmed,
)
from proxy.tail.reader.local import MUCH_OFFSETS
from proxy.tail.reader.source import (
    DecodedBatch,
    Pieces,
    Subscription,
    TailSource,
    TopicReader,
    TopicReaders,
)

#: Grace beyond a request's timeout before a silent worker counts as hung.
_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class ReadJob:
    """A request that a worker carries out; one to follow is a ``Subscription``. For one thread; its owner closes it."""

    channel: Channel
    request: ReadRequest
    on_loss: Callable[[], None]
    note_peak: Callable[[int], None]

    def ask(self, timeout_s: float, ranges: Sequence[OffsetRange] = ()) -> None:
        """Ask for what is next."""
        request = {"timeout_s": timeout_s, "ranges": [astuple(item) for item in ranges]}
        with contextlib.suppress(Ended):  # its last frame says why: ``answer`` reads it
            self.channel.send(request)

    def answer(self, timeout_s: float) -> DecodedBatch | None:
        """Return the answer to ``ask``.

        Raises:
            FederationError: what the worker met, or ``LogUnavailable``: it is gone.
        """
        with self._reading():
            batch = receive_batch(
                self.channel, self.request.source.schema.arrow, timeout_s + _PATIENCE_S
            )
        if batch is not None:
            self.note_peak(batch.peak_bytes)
        return batch

    def take(self, timeout_s: float, ranges: Sequence[OffsetRange] = ()) -> DecodedBatch | None:
        """See ``Subscription.take``."""
        self.ask(timeout_s, ranges)
        batch = self.answer(timeout_s)
        return None if batch is None else replace(batch, confirm=self.confirm)

    def confirm(self) -> None:
        """Wait until the last answer is confirmed. Raises as ``answer``."""
        with self._reading():
            receive_confirmed(self.channel, _PATIENCE_S)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (Ended, TimeoutError) as error:
            self.on_loss()
            raise gone(self.request.source) from error

    def close(self) -> None:
        self.channel.close()


def remote_readers(ingestion: Ingestion, local: TopicReaders) -> TopicReaders:
    """Follow and make large fetches by ``ingestion``; make small fetches by ``local``."""
    return lambda source: _RemoteReader(ingestion, source, local(source))


@dataclass(frozen=True, slots=True)
class _RemoteReader:
    ingestion: Ingestion
    source: TailSource
    local: TopicReader

    def follow(
        self, starts: Mapping[int, int], epochs: Mapping[int, int] = NO_EPOCHS
    ) -> Subscription:
        request = ReadRequest(self.source, starts=dict(starts), epochs=dict(epochs))
        return self.ingestion.begin_job(request)

    def fetch(
        self,
        ranges: Sequence[OffsetRange],
        timeout_s: float,
        epochs: Mapping[int, int] = NO_EPOCHS,
    ) -> Pieces:
        if _are_much(ranges):
            request = ReadRequest(
                self.source, ranges=tuple(ranges), timeout_s=timeout_s, epochs=dict(epochs)
            )
            return _fetched(self.ingestion, request)
        return self.local.fetch(ranges, timeout_s, epochs)

    def fetches_sooner(self, ranges: Sequence[OffsetRange]) -> bool:
        return not (_are_much(ranges) or self.ingestion.is_ready)

    def check_history(self, offsets: Mapping[int, int], epochs: Mapping[int, int]) -> None:
        self.local.check_history(offsets, epochs)


def _are_much(ranges: Sequence[OffsetRange]) -> bool:
    """Whether the worker fetches them."""
    return sum(map(len, ranges)) > MUCH_OFFSETS


def _fetched(ingestion: Ingestion, request: ReadRequest) -> Pieces:
    with contextlib.closing(ingestion.begin_job(request)) as work:
        work.ask(request.timeout_s)
        while (piece := work.answer(request.timeout_s)) is not None:
            work.ask(request.timeout_s)  # sent while the caller adds this one
            yield piece.decoded
