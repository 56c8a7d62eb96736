"""Reading and decoding in this process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence

from planner.binding import Binding
from planner.offsets import OffsetRange
from planner.ports import Decoder, Log
from planner.schema import TableSchema
from proxy.tail.pacing import Pacing
from proxy.tail.reader.decoded import DecodedFollowing, SteppedFeed
from proxy.tail.reader.prefetch import EagerFeed, read_ahead
from proxy.tail.reader.source import Intakes, Pieces, Subscription, TopicReader, TopicSource

DecoderFactory = Callable[[str, TableSchema, Binding], Decoder]

#: Fetch up to this many offsets without a second thread: it would cost more than it gains.
MUCH_OFFSETS = 20_000


def local_intakes(
    log: Log, decoder_for: DecoderFactory, *, pacing: Pacing | None = None
) -> Intakes:
    """Read ``log`` in threads of this process.

    With ``pacing`` subscriptions read ahead (``EagerFeed``); without, they read a step when it is taken.
    """

    def intake(subject: TopicSource) -> TopicReader:
        decoder = decoder_for(subject.table, subject.schema, subject.binding)
        return LocalIntake(log, subject, decoder, pacing)

    return intake


class LocalIntake:
    """See ``proxy.tail.reader.source.TopicReader``."""

    def __init__(
        self, log: Log, subject: TopicSource, decoder: Decoder, pacing: Pacing | None
    ) -> None:
        self._log = log
        self._subject = subject
        self._decoder = decoder
        self._pacing = pacing

    def follow(self, starts: Mapping[int, int]) -> Subscription:
        """See ``TopicReader.follow``."""
        if self._pacing is None:
            return SteppedFeed(self._opened(starts))
        name = f"tail {self._subject.table}"
        return EagerFeed(lambda: self._opened(starts), name, pacing=self._pacing)

    def _opened(self, starts: Mapping[int, int]) -> DecodedFollowing:
        subject = self._subject
        following = self._log.follow(
            subject.topic,
            starts,
            topic_id=subject.topic_id,
            with_key=subject.with_key,
            with_headers=subject.with_headers,
        )
        return DecodedFollowing(following, self._decoder)

    def fetch(self, ranges: Sequence[OffsetRange], timeout_s: float) -> Pieces:
        """See ``TopicReader.fetch``."""
        pieces = self._pieces(ranges, timeout_s)
        return read_ahead(pieces) if sum(map(len, ranges)) > MUCH_OFFSETS else pieces

    def _pieces(self, ranges: Sequence[OffsetRange], timeout_s: float) -> Pieces:
        subject = self._subject
        batches = self._log.fetch(
            subject.topic,
            ranges,
            topic_id=subject.topic_id,
            timeout_s=timeout_s,
            with_key=subject.with_key,
            with_headers=subject.with_headers,
        )
        with contextlib.closing(batches):
            for batch in batches:
                yield self._decoder.decode(batch)
