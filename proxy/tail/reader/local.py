"""Reading and decoding in this process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence

from planner.binding import Binding
from planner.offsets import OffsetRange
from planner.ports import Decoder, Log
from planner.schema import TableSchema
from proxy.tail.pacing import Pacing
from proxy.tail.reader.prefetch import Prefetcher, read_ahead
from proxy.tail.reader.source import Pieces, Subscription, TailSource, TopicReaders

DecoderFactory = Callable[[str, TableSchema, Binding], Decoder]

#: Fetch up to this many offsets without a second thread: it would cost more than it gains.
MUCH_OFFSETS = 20_000


def local_readers(log: Log, decoder_for: DecoderFactory, *, pacing: Pacing) -> TopicReaders:
    """Read ``log`` in threads of this process."""
    return lambda subject: LocalReader(
        log, subject, decoder_for(subject.table, subject.schema, subject.binding), pacing
    )


class LocalReader:
    def __init__(self, log: Log, subject: TailSource, decoder: Decoder, pacing: Pacing) -> None:
        self._log = log
        self._subject = subject
        self._decoder = decoder
        self._pacing = pacing

    def follow(self, starts: Mapping[int, int]) -> Subscription:
        return Prefetcher(
            lambda: self._log.follow(self._subject.source, starts),
            self._decoder,
            f"tail {self._subject.table}",
            pacing=self._pacing,
        )

    def fetch(self, ranges: Sequence[OffsetRange], timeout_s: float) -> Pieces:
        pieces = self._pieces(ranges, timeout_s)
        return read_ahead(pieces) if sum(map(len, ranges)) > MUCH_OFFSETS else pieces

    def _pieces(self, ranges: Sequence[OffsetRange], timeout_s: float) -> Pieces:
        batches = self._log.fetch(self._subject.source, ranges, timeout_s=timeout_s)
        with contextlib.closing(batches):
            for batch in batches:
                yield self._decoder.decode(batch)
