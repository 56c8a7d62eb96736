"""Reading and decoding in this process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from planner.offsets import NO_EPOCHS, OffsetRange
from planner.ports import Decoder, DecoderFactory, Log, TopicSource
from proxy.tail.pacing import Pacing
from proxy.tail.reader.prefetch import Prefetcher, read_ahead
from proxy.tail.reader.source import Pieces, Subscription, TailSource, TopicReaders

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
        log,
        source,
        decoder_for(source.table, source.schema, source.binding),
        pacing,
        give_back,
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

    def follow(
        self, starts: Mapping[int, int], epochs: Mapping[int, int] = NO_EPOCHS
    ) -> Subscription:
        return Prefetcher(
            lambda: self.log.follow(self.topic_source, starts, epochs),
            self.decoder,
            f"tail {self.source.table}",
            pacing=self.pacing,
            give_back=self.give_back,
        )

    def fetch(
        self,
        ranges: Sequence[OffsetRange],
        timeout_s: float,
        epochs: Mapping[int, int] = NO_EPOCHS,
    ) -> Pieces:
        pieces = self._pieces(ranges, timeout_s, epochs)
        return read_ahead(pieces) if sum(map(len, ranges)) > MUCH_OFFSETS else pieces

    def fetches_sooner(self, ranges: Sequence[OffsetRange]) -> bool:
        """See ``TopicReader.fetches_sooner``: both are threads of this process."""
        del ranges
        return False

    def check_history(self, offsets: Mapping[int, int], epochs: Mapping[int, int]) -> None:
        self.log.check_history(self.topic_source, offsets, epochs)

    def _pieces(
        self, ranges: Sequence[OffsetRange], timeout_s: float, epochs: Mapping[int, int]
    ) -> Pieces:
        batches = self.log.fetch(self.topic_source, ranges, timeout_s=timeout_s, epochs=epochs)
        with contextlib.closing(batches):
            for batch in batches:
                yield self.decoder.decode(batch)
        if sum(map(len, ranges)) > MUCH_OFFSETS:
            self.give_back()
