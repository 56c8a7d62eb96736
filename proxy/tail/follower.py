"""Adds to one generation as its topic grows, and tells how fast."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass

import pyarrow as pa

from planner.errors import FederationError, InternalError, SchemasNeeded
from planner.offsets import OffsetRange
from planner.schema import size_of
from proxy.tail.budget import OutcomeTally
from proxy.tail.generations import Generation
from proxy.tail.pacing import Pace, Pacing
from proxy.tail.reader.source import Subscription, TopicReader

#: Whether statements of any table are being served.
IsServing = Callable[[], bool]
#: Takes how many rows and bytes will be added in all, and how many bytes next. Raises TailTooLarge.
MakeRoom = Callable[[int, int, int], None]
_log = logging.getLogger(__name__)
_STOP_S = 5.0
#: Older steps say nothing of now.
_WINDOW_S = 30.0
_STEPS = 64


@dataclass(eq=False)
class Follower:
    """One thread, asleep while the topic is silent.

    ``make_room`` gets what will be added, and raises when it must not be.
    """

    reader: TopicReader
    generation: Generation
    tally: OutcomeTally
    make_room: MakeRoom
    is_serving: IsServing
    _: KW_ONLY
    pacing: Pacing
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self.error: FederationError | None = None
        self._subscription: Subscription | None = None
        self._version = -1
        self.rate = ReadingRate()
        self._pace = Pace(self.pacing, caught_up_at_s=self.clock())
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"tail {self.generation.table}", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop following; returns at once, ``join`` waits."""
        self._stopped.set()
        self._wake.set()

    def join(self) -> None:
        self._thread.join(_STOP_S)

    def request(self, ranges: Sequence[OffsetRange]) -> None:
        """Stop gathering until the generation covers these ranges: a statement needs them."""
        self._pace.require(ranges, self.clock())
        # For what is there by now a step would gain nothing, and a waiting statement asks again whenever it wakes.
        if self._required():
            self._wake.set()

    def tried(self, timeout_s: float) -> int | None:
        """As ``step``, but note what goes wrong in ``error``, for statements that wait."""
        try:
            rows = self.step(timeout_s)
        except FederationError as error:
            self._fail(error)
            return None
        except Exception:  # noqa: BLE001
            # A bug of ours must not look like a topic without records.
            _log.exception("following the tail of %s failed", self.generation.table)
            self._fail(InternalError(f"{self.generation.table}: its tail cannot be followed."))
            return None
        self.error = None
        return rows

    def step(self, timeout_s: float) -> int | None:
        """Add the next records; return how many rows, or None if nothing came within ``timeout_s``.

        Raises:
            FederationError: of the log, the decoder, the limits or the engine. Nothing was added.
        """
        generation = self.generation
        self.make_room(0, 0, 0)
        try:
            batch = self._reopened().take(timeout_s, self._required())
        except SchemasNeeded as needed:
            self._close()
            self.reader.learn(needed)
            return 0
        self._pace.note_step(0 if batch is None else len(batch.decoded.rows), self.clock())
        if batch is None:
            return None
        decoded = batch.decoded
        with generation.writing:
            if generation.version != self._version or not generation.continues(batch.ranges):
                self._close()  # a statement fetched, or all was dropped: go on from there
                return 0
            size = size_of(decoded.rows)
            self.make_room(len(decoded.rows), size, size)
            rows = self._gently(decoded.rows)
            ids = decoded.writer_ids
            generation.add(batch.ranges, rows, batch.confirm, batch.epochs, lambda: ids)
        self.rate.note(sum(map(len, batch.ranges)), self.clock())
        self.tally.count(decoded.outcomes)
        return len(decoded.rows)

    def _gently(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Split a burst into pieces, with a pause before each, while statements of other tables are served."""
        start, pace = 0, self._pace
        while start < len(rows):
            if pace.pause_debt_s and self._yields():
                self._wake.wait(pace.pause_debt_s)
            yielding = self._yields()
            piece = rows.slice(start, self.pacing.piece_rows) if yielding else rows.slice(start)
            began = self.clock()
            yield piece
            pace.note_piece(self.clock() - began, yielding=yielding)
            start += len(piece)

    def _yields(self) -> bool:
        return self._pace.yields(self.clock(), is_serving=self.is_serving())

    def _reopened(self) -> Subscription:
        if self._subscription is not None and self._version == self.generation.version:
            return self._subscription
        self._close()
        with self.generation.changed:
            self._version = self.generation.version
            starts, epochs = self.generation.position()
        self._subscription = self.reader.follow(starts, epochs)
        return self._subscription

    def _close(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.close()

    def _run(self) -> None:
        failures = 0
        try:
            while not self._stopped.is_set():
                rows = self.tried(self.pacing.take_s)
                if self.error is None:
                    failures = 0
                    self._linger(rows)
                    continue
                failures += 1
                self._stopped.wait(self.pacing.retry_s(failures))
        finally:
            self._close()

    def _linger(self, rows: int | None) -> None:
        """Let records gather.

        The last step may have added what a statement needs by now. One more addition would gain nothing and take
        time from the statement that reads.
        """
        self._wake.clear()
        if self._stopped.is_set():
            return
        linger_s = self._pace.linger_s(rows, self.clock(), is_needed=bool(self._required()))
        if linger_s:
            self._wake.wait(linger_s)

    def _required(self) -> tuple[OffsetRange, ...]:
        """Return the ranges that a statement waits for and that are not added yet."""
        return self.generation.missing(self._pace.required(self.clock()))

    def _fail(self, error: FederationError) -> None:
        """Log the error once, and show it to statements that wait."""
        if self.error is None or self.error.message != error.message:
            _log.warning(
                "the tail of %s is not followed: %s", self.generation.table, error.message
            )
        self._close()
        with self.generation.changed:
            self.error = error
            self.generation.changed.notify_all()


class ReadingRate:
    """The last steps of one follower. One thread notes them, any may ask. Times are of one monotonic clock."""

    def __init__(self) -> None:
        self._steps: deque[tuple[float, int]] = deque(maxlen=_STEPS)

    def note(self, offsets: int, now_s: float) -> None:
        """Note that ``offsets`` were added just now."""
        self._steps.append((now_s, offsets))

    def per_s(self, now_s: float) -> float | None:
        """Return the offsets added in a second, lately; None where fewer than two steps were taken."""
        steps = [step for step in self._steps.copy() if now_s - step[0] <= _WINDOW_S]
        took_s = steps[-1][0] - steps[0][0] if steps else 0.0
        # What the first one added was read before it.
        return sum(offsets for _, offsets in steps[1:]) / took_s if took_s > 0 else None
