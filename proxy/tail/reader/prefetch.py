"""Reads and decodes ahead of the follower, on a thread of its own."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from planner.errors import FederationError, InternalError
from planner.offsets import OffsetRange
from planner.ports import Decoder, LogSubscription
from planner.schema import size_of
from proxy.tail.pacing import Pacing
from proxy.tail.reader.source import DecodedBatch, Pieces, joined

_log = logging.getLogger(__name__)

_STOP_S = 5.0
#: Pieces of a fetch that may be ready before the caller wants them.
_PIECES_AHEAD = 4


@dataclass(eq=False)
class Prefetcher:
    """A subscription with the next step ready. One thread may call ``take``, any may call ``close``.

    ``subscribe`` is called once, by the thread that reads.
    """

    subscribe: Callable[[], LogSubscription]
    decoder: Decoder
    name: str
    pacing: Pacing
    #: Called when a backlog was read: gives what it needed back to the system.
    give_back: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._ready: list[DecodedBatch] = []
        self._rows = self._bytes = 0
        self._subscription: LogSubscription | None = None
        self._error: FederationError | None = None
        self._is_waited_for = False
        self._is_closed = False
        self._last_take_at = time.monotonic()
        self._thread = threading.Thread(
            target=self._run, name=f"{self.name}, ahead", daemon=True
        )
        self._thread.start()

    def take(self, timeout_s: float, ranges: Sequence[OffsetRange] = ()) -> DecodedBatch | None:
        """See ``Subscription.take``. Returns all that is ready."""
        with self._changed:
            self._wait(lambda: bool(self._ready), timeout_s)
            if ranges and self._ready:
                self._wait(
                    lambda: self._is_full or self._has(ranges), self.pacing.demand_gather_s
                )
            ready, self._ready = self._ready, []
            self._rows = self._bytes = 0
            self._last_take_at = time.monotonic()
            self._changed.notify_all()
            if not ready and self._error is not None:
                raise self._error
        if not ready or self._subscription is None:
            return None
        # One request confirms them all. It travels while the caller adds them.
        return replace(joined(ready), confirm=self._subscription.begin_confirm())

    def _wait(self, holds: Callable[[], bool], timeout_s: float) -> None:
        """Wait until ``holds``, without letting records gather. The caller holds the lock."""
        if holds():
            return
        self._is_waited_for = True
        self._changed.notify_all()
        self._changed.wait_for(lambda: holds() or self._error is not None, timeout_s)
        self._is_waited_for = False

    def _has(self, ranges: Sequence[OffsetRange]) -> bool:
        stops = {item.partition: item.stop for step in self._ready for item in step.ranges}
        return all(stops.get(item.partition, 0) >= item.stop for item in ranges)

    def close(self) -> None:
        """See ``Subscription.close``. Waits for a step under way, within a bound."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join(_STOP_S)

    def _run(self) -> None:
        try:
            with contextlib.closing(self.subscribe()) as subscription:
                self._subscription = subscription
                has_caught_up = True
                while not self._is_closed:
                    batch = subscription.take(self.pacing.take_s)
                    if batch is not None:
                        decoded = self.decoder.decode(batch.batch)
                        self._put(DecodedBatch(decoded, batch.ranges, epochs=batch.epochs))
                        if decoded.rows.num_rows >= self.pacing.backlog_rows:
                            has_caught_up = False
                            continue
                    if not has_caught_up:
                        has_caught_up = True
                        self.give_back()
        except FederationError as error:
            self._fail(error)
        except Exception:  # noqa: BLE001
            # A bug of ours must not look like a topic without records.
            _log.exception("reading a topic failed")
            self._fail(InternalError("A topic cannot be followed."))

    def _put(self, batch: DecodedBatch) -> None:
        rows = batch.decoded.rows
        with self._changed:
            self._ready.append(batch)
            self._rows += rows.num_rows
            self._bytes += size_of(rows)
            self._changed.notify_all()
            gather_s = self.pacing.reader_gather_s(
                rows.num_rows, time.monotonic() - self._last_take_at
            )
            if gather_s:
                self._changed.wait_for(lambda: self._is_waited_for or self._is_closed, gather_s)
            self._changed.wait_for(lambda: not self._is_full or self._is_closed)

    @property
    def _is_full(self) -> bool:
        return self.pacing.is_full(self._rows, self._bytes)

    def _fail(self, error: FederationError) -> None:
        with self._changed:
            self._error = error
            self._changed.notify_all()


def read_ahead(pieces: Pieces) -> Pieces:
    """Run an iterator a few items ahead, on a thread of its own; closing this closes it."""
    items: queue.Queue[object] = queue.Queue(_PIECES_AHEAD)
    closed = threading.Event()

    def put(item: object) -> bool:
        while not closed.is_set():
            try:
                items.put(item, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def run() -> None:
        try:
            for piece in pieces:
                if not put(piece):
                    break
            put(None)
        except BaseException as error:  # noqa: BLE001 - raised again by the reading thread
            put(error)
        finally:
            pieces.close()

    thread = threading.Thread(target=run, name="tail-fetch", daemon=True)
    thread.start()
    try:
        while (item := items.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item  # type: ignore[misc]
    finally:
        closed.set()
        thread.join()
