"""Followers without threads: they go on when they are stepped, or when a statement needs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from planner.offsets import NO_EPOCHS, OffsetRange
from planner.ports import Decoder, DecoderFactory, Log, LogSubscription
from proxy.tail.follower import Follower
from proxy.tail.pacing import Pacing
from proxy.tail.reader.readers import LocalReader
from proxy.tail.reader.source import DecodedBatch, TailSource, TopicReaders


class SteppedFollower(Follower):
    """``Follower`` that the thread of a statement, or of the test, moves on."""

    _is_stepping = _is_stopped = False

    def start(self) -> None:
        """Nothing runs by itself."""

    def stop(self) -> None:
        self._is_stopped = True
        self._close()

    def join(self) -> None:
        """Nothing runs by itself."""

    def request(self, ranges: Sequence[OffsetRange]) -> None:
        super().request(ranges)
        self.go_on()

    def go_on(self) -> None:
        """Add what has arrived, unless this is called while it is added."""
        if self._is_stepping or self._is_stopped:
            return
        self._is_stepping = True
        try:
            self.tried(0)
        finally:
            self._is_stepping = False


@dataclass
class SteppedFollowers:
    """Makes the followers of one ``Tails``."""

    followers: list[SteppedFollower] = field(default_factory=list)

    def __call__(self, *parts: Any, **options: Any) -> SteppedFollower:
        self.followers.append(SteppedFollower(*parts, **options))
        return self.followers[-1]

    def step(self) -> None:
        """Let every follower add what has arrived."""
        for follower in self.followers:
            follower.go_on()


class SteppedSubscription:
    """``proxy.tail.reader.source.Subscription`` that reads a step when it is taken."""

    def __init__(self, subscription: LogSubscription, decoder: Decoder) -> None:
        self._subscription = subscription
        self._decoder = decoder

    def take(self, timeout_s: float, ranges: Sequence[OffsetRange] = ()) -> DecodedBatch | None:
        """See ``Subscription.take``."""
        del ranges
        batch = self._subscription.take(timeout_s)
        if batch is None:
            return None
        decoded = self._decoder.decode(batch.batch)
        confirm = self._subscription.begin_confirm()
        return DecodedBatch(decoded, batch.ranges, confirm, batch.epochs)

    def close(self) -> None:
        """See ``Subscription.close``."""
        self._subscription.close()


class SteppedReader(LocalReader):
    """``LocalReader`` whose subscriptions do not read ahead."""

    def follow(
        self, starts: Mapping[int, int], epochs: Mapping[int, int] = NO_EPOCHS
    ) -> SteppedSubscription:
        """See ``TopicReader.follow``."""
        subscription = self.log.follow(self.topic_source, starts, epochs)
        return SteppedSubscription(subscription, self.decoder)


def stepped_readers(log: Log, decoder_for: DecoderFactory) -> TopicReaders:
    """As ``local_readers``."""

    def reader(source: TailSource) -> SteppedReader:
        decoder = decoder_for(source.table, source.schema, source.binding)
        return SteppedReader(log, source, decoder, Pacing())

    return reader
