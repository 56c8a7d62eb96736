"""Reading and decoding in this process, or by the one for it where that is worth the way."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from connectors.registry.decoders import Answers, Decoders
from planner.errors import SchemasNeeded
from planner.offsets import NO_EPOCHS
from planner.ports import Decoder, DecoderFactory, Log, TopicSource
from proxy.tail.pacing import Pacing
from proxy.tail.reader.child import Ingestion
from proxy.tail.reader.ipc import ReadRequest
from proxy.tail.reader.prefetch import Prefetcher, read_ahead
from proxy.tail.reader.source import (
    ByPartition,
    Pieces,
    Ranges,
    Subscription,
    TailSource,
    TopicReader,
    TopicReaders,
)

#: Fetch up to this many offsets without a second thread: it would cost more than it gains.
MUCH_OFFSETS = 20_000


def local_readers(
    log: Log,
    decoder_for: DecoderFactory,
    *,
    pacing: Pacing,
    give_back: Callable[[], None] = lambda: None,
) -> TopicReaders:
    """Read ``log`` in threads of this process. ``give_back`` is called when much was read: its memory is free then."""
    return lambda source: LocalReader(
        log, source, decoder_for(source.table, source.schema, source.binding), pacing, give_back
    )


@dataclass(frozen=True, slots=True)
class LocalReader:
    log: Log
    source: TailSource
    decoder: Decoder
    pacing: Pacing
    give_back: Callable[[], None] = lambda: None

    @property
    def topic_source(self) -> TopicSource:
        return TopicSource.of(self.decoder, self.source.topic, self.source.topic_id)

    def follow(self, starts: ByPartition, epochs: ByPartition = NO_EPOCHS) -> Subscription:
        return Prefetcher(
            lambda: self.log.follow(self.topic_source, starts, epochs),
            self.decoder,
            f"tail {self.source.table}",
            pacing=self.pacing,
            give_back=self.give_back,
        )

    def fetch(
        self, ranges: Ranges, timeout_s: float, epochs: ByPartition = NO_EPOCHS
    ) -> Pieces:
        pieces = self._pieces(ranges, timeout_s, epochs)
        return read_ahead(pieces) if _are_much(ranges) else pieces

    def learn(self, needed: SchemasNeeded) -> None:
        """See ``TopicReader.learn``: the decoder asks by itself."""
        raise needed

    def fetches_sooner(self, ranges: Ranges) -> bool:
        """See ``TopicReader.fetches_sooner``: both are threads of this process."""
        del ranges
        return False

    def check_history(self, offsets: ByPartition, epochs: ByPartition) -> None:
        self.log.check_history(self.topic_source, offsets, epochs)

    def _pieces(self, ranges: Ranges, timeout_s: float, epochs: ByPartition) -> Pieces:
        batches = self.log.fetch(self.topic_source, ranges, timeout_s=timeout_s, epochs=epochs)
        with contextlib.closing(batches):
            for batch in batches:
                yield self.decoder.decode(batch)
        if _are_much(ranges):
            self.give_back()


def remote_readers(
    ingestion: Ingestion, local: TopicReaders, decoders: Decoders
) -> TopicReaders:
    """Follow and make large fetches by ``ingestion``; make small fetches by ``local``."""
    return lambda source: _RemoteReader(ingestion, source, local(source), decoders)


@dataclass(frozen=True, slots=True)
class _RemoteReader:
    ingestion: Ingestion
    source: TailSource
    local: TopicReader
    decoders: Decoders

    def follow(self, starts: ByPartition, epochs: ByPartition = NO_EPOCHS) -> Subscription:
        request = ReadRequest(
            self.source, starts=dict(starts), epochs=dict(epochs), answers=self._answers
        )
        return self.ingestion.begin_job(request)

    def fetch(
        self, ranges: Ranges, timeout_s: float, epochs: ByPartition = NO_EPOCHS
    ) -> Pieces:
        if not _are_much(ranges):
            return self.local.fetch(ranges, timeout_s, epochs)
        request = ReadRequest(
            self.source, None, tuple(ranges), timeout_s, dict(epochs), self._answers
        )
        return _fetched(self.ingestion, request)

    def learn(self, needed: SchemasNeeded) -> None:
        """See ``TopicReader.learn``."""
        ids = [int(number) for number in str(needed.facts["ids"]).split()]
        self.decoders.ask(self.source.table, self.source.binding, ids)

    @property
    def _answers(self) -> Answers:
        return self.decoders.answers(self.source.table, self.source.binding)

    def fetches_sooner(self, ranges: Ranges) -> bool:
        return not (_are_much(ranges) or self.ingestion.is_ready)

    def check_history(self, offsets: ByPartition, epochs: ByPartition) -> None:
        self.local.check_history(offsets, epochs)


def _are_much(ranges: Ranges) -> bool:
    """Whether another thread, or the worker, fetches them."""
    return sum(map(len, ranges)) > MUCH_OFFSETS


def _fetched(ingestion: Ingestion, request: ReadRequest) -> Pieces:
    with contextlib.closing(ingestion.begin_job(request)) as work:
        work.ask(request.timeout_s)
        while (piece := work.answer(request.timeout_s)) is not None:
            work.ask(request.timeout_s)  # sent while the caller adds this one
            yield piece.decoded
