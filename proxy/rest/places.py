"""Bounds the loads at work at once: each user has a share of the places, and waits for one when it is used up."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from planner.errors import Overloaded
from proxy.access.shares import Shares, has_share
from proxy.deadline import Deadline


class LoadPlaces:
    """Places for one event loop. ``places``: loads at work. ``total``: those and the ones that wait."""

    def __init__(self, places: int, total: int) -> None:
        self._places = places
        self._present = Shares(total, "loads")
        self._at_work: Counter[str | None] = Counter()
        self._waiting: list[asyncio.Future[None]] = []

    @asynccontextmanager
    async def one(self, owner: str | None, deadline: Deadline) -> AsyncIterator[None]:
        """Hold a place during the block. Waits for one: first come, first served among owners below their share.

        Raises:
            Overloaded: too many are there already, or of this owner; or none was free by the deadline.
            Cancelled: it was given up meanwhile.
        """
        with self._present.one(owner):
            while not has_share(self._at_work[owner], self._at_work.total(), self._places):
                turn = asyncio.get_running_loop().create_future()
                self._waiting.append(turn)
                try:
                    await asyncio.wait_for(turn, deadline.left_s)
                except TimeoutError as error:
                    raise Overloaded(
                        f"other loads took longer than the {deadline.limit_s:g} s this one may wait; try again."
                    ) from error
                deadline.cancellation.check()
            self._at_work[owner] += 1
            try:
                yield
            finally:
                self._at_work[owner] -= 1
                if not self._at_work[owner]:
                    del self._at_work[owner]
                self.wake()

    def wake(self) -> None:
        """Have all that wait look again for a place, or whether they are given up."""
        waiting, self._waiting = self._waiting, []
        for turn in waiting:
            if not turn.done():
                turn.set_result(None)
