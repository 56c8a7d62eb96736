"""Reads and decodes a log step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from planner.offsets import OffsetRange
from planner.ports import Decoder, LogSubscription
from proxy.tail.reader.source import DecodedBatch


class DecodedFollowing:
    """``planner.ports.LogSubscription``, decoded. Steps do not confirm themselves: call ``begin_confirm``."""

    def __init__(self, following: LogSubscription, decoder: Decoder) -> None:
        """Take over ``following``: closing this closes it."""
        self._following = following
        self._decoder = decoder

    def take(self, timeout_s: float) -> DecodedBatch | None:
        """Raises as ``Subscription.take``."""
        followed = self._following.take(timeout_s)
        if followed is None:
            return None
        return DecodedBatch(self._decoder.decode(followed.batch), followed.ranges)

    def begin_confirm(self) -> Callable[[], None]:
        """See ``planner.ports.LogSubscription.begin_confirm``."""
        return self._following.begin_confirm()

    def close(self) -> None:
        self._following.close()


class SteppedFeed:
    """A ``proxy.tail.reader.source.Subscription`` that reads a step when it is taken."""

    def __init__(self, following: DecodedFollowing) -> None:
        self._following = following

    def take(self, timeout_s: float, ranges: Sequence[OffsetRange] = ()) -> DecodedBatch | None:
        """See ``Subscription.take``."""
        del ranges
        arrived = self._following.take(timeout_s)
        if arrived is None:
            return None
        return replace(arrived, confirm=self._following.begin_confirm())

    def close(self) -> None:
        """See ``Subscription.close``."""
        self._following.close()
