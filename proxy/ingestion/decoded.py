"""A reader of the log with its decoder, step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from planner.offsets import OffsetRange
from planner.ports import Decoder, Following
from proxy.ingestion.intake import Arrived


class DecodedFollowing:
    """``planner.ports.Following``, decoded. A step has nothing to be confirmed by: see ``begin_confirm``."""

    def __init__(self, following: Following, decoder: Decoder) -> None:
        """Own ``following``, which is closed with this."""
        self._following = following
        self._decoder = decoder

    def take(self, timeout_s: float) -> Arrived | None:
        """Raises as ``Feed.take``."""
        followed = self._following.take(timeout_s)
        if followed is None:
            return None
        return Arrived(self._decoder.decode(followed.batch), followed.ranges)

    def begin_confirm(self) -> Callable[[], None]:
        """See ``planner.ports.Following.begin_confirm``."""
        return self._following.begin_confirm()

    def close(self) -> None:
        self._following.close()


class SteppedFeed:
    """``proxy.ingestion.intake.Feed`` that reads a step when it is taken."""

    def __init__(self, following: DecodedFollowing) -> None:
        self._following = following

    def take(self, timeout_s: float, wanted: Sequence[OffsetRange] = ()) -> Arrived | None:
        """See ``Feed.take``."""
        del wanted
        arrived = self._following.take(timeout_s)
        if arrived is None:
            return None
        return replace(arrived, confirm=self._following.begin_confirm())

    def close(self) -> None:
        """See ``Feed.close``."""
        self._following.close()
