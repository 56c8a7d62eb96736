"""Adds to one generation as its topic grows."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from planner.errors import FederationError, InternalError
from planner.offsets import OffsetRange
from proxy.tail.generations import Generation
from proxy.tail.reader.source import BACKLOG_ROWS, Subscription, TopicReader
from proxy.tail.tally import OutcomeTally

#: Whether statements, of whatever tables, are being served.
IsServing = Callable[[], bool]
#: Told how many rows and bytes are about to be added in all, and how many bytes next. Raises TailTooLarge.
MakeRoom = Callable[[int, int, int], None]

_log = logging.getLogger(__name__)

#: Longest wait for a record before looking whether to stop.
_TAKE_S = 0.5
#: Records that arrive within this time are added together, unless a statement waits for them. Each addition takes time
#: from statements: at 20 ms those beside 5,000 records a second took 21 ms, at 80 ms 15 [ran, decisions/0018].
_LINGER_S = 0.08
#: The same where no statement has waited for this table within the last second: the next one adds more, once.
_UNASKED_LINGER_S = 0.5
#: While others are served, a burst is added in pieces of so many rows, each followed by so many times as long a pause
#: (decisions/0024).
_PIECE_ROWS = 4_096
_YIELDED = 12.0
#: What lasts longer is no burst: a tail that falls behind for good helps nobody.
_BURST_S = 60.0
#: A statement that waits says so twenty times a second; what others wished for is forgotten after this time.
_WISH_S = 1.0
#: Pause after a failure, doubled up to the second; whatever is wrong, asking costs little then.
_FIRST_PAUSE_S = 0.25
_LONGEST_PAUSE_S = 5.0
_STOP_S = 5.0


@dataclass(frozen=True, slots=True)
class _Wish:
    """What the statement needs that came last; ``until`` is monotonic."""

    ranges: Sequence[OffsetRange] = ()
    until: float = 0.0


class Follower:
    """One thread, asleep while the topic is silent; or none, then somebody calls ``step``."""

    def __init__(
        self,
        intake: TopicReader,
        generation: Generation,
        tally: OutcomeTally,
        make_room: MakeRoom,
        is_serving: IsServing,
    ) -> None:
        """``make_room`` is told what is about to be added and raises when it must not be."""
        self.error: FederationError | None = None
        self._intake = intake
        self._generation = generation
        self._tally = tally
        self._make_room = make_room
        self._is_serving = is_serving
        self._feed: Subscription | None = None
        self._version = -1
        self._wish = _Wish()
        #: What is left to statements before more is added.
        self._owed_s = 0.0
        #: When less than a backlog was found last.
        self._caught_up_at = time.monotonic()
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Follow on a thread of its own."""
        name = f"tail {self._generation.table}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def is_threaded(self) -> bool:
        return self._thread is not None

    def stop(self) -> None:
        """Stop following; returns at once, ``join`` waits."""
        self._stopped.set()
        self._wake.set()
        if self._thread is None:
            self._close()

    def join(self) -> None:
        if self._thread is not None:
            self._thread.join(_STOP_S)

    def hurry(self, ranges: Sequence[OffsetRange]) -> None:
        """Let nothing gather until the generation covers these ranges: a statement needs them."""
        self._wish = _Wish(ranges, time.monotonic() + _WISH_S)
        self._wake.set()

    def tried(self, timeout_s: float) -> int | None:
        """As ``step``, but what goes wrong is noted in ``error``, which statements that wait look at."""
        try:
            rows = self.step(timeout_s)
        except FederationError as error:
            self._fail(error)
            return None
        except Exception:  # noqa: BLE001
            # A bug of ours must not look like a topic without records.
            _log.exception("following the tail of %s failed", self._generation.table)
            self._fail(InternalError(f"{self._generation.table}: its tail cannot be followed."))
            return None
        self.error = None
        return rows

    def step(self, timeout_s: float) -> int | None:
        """Add what is next, waiting for it at most ``timeout_s``; return how many rows, None if nothing came.

        Raises:
            FederationError: of the log, the decoder, the limits or the engine. Nothing was added.
        """
        generation = self._generation
        self._make_room(0, 0, 0)
        arrived = self._reopened().take(timeout_s, self._wished())
        if arrived is None or len(arrived.decoded.rows) < BACKLOG_ROWS:
            self._caught_up_at = time.monotonic()
        if arrived is None:
            return None
        decoded = arrived.decoded
        with generation.writing:
            if generation.version != self._version or not generation.continues(arrived.ranges):
                self._close()  # a statement fetched, or all was dropped: go on from there
                return 0
            self._make_room(len(decoded.rows), decoded.rows.nbytes, decoded.rows.nbytes)
            generation.add(arrived.ranges, self._gently(decoded.rows), arrived.confirm)
        self._tally.count(decoded.outcomes, decoded.errors)
        return len(decoded.rows)

    def _gently(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Give much in pieces, with pauses before them, while statements are served that ask for none of it."""
        start = 0
        while start < len(rows):
            if self._owed_s and self._yields():
                self._wake.wait(self._owed_s)
            yields = self._yields()
            piece = rows.slice(start, _PIECE_ROWS) if yields else rows.slice(start)
            began = time.monotonic()
            yield piece
            self._owed_s = _YIELDED * (time.monotonic() - began) if yields else 0.0
            start += len(piece)

    def _yields(self) -> bool:
        """Whether others come first."""
        is_burst = time.monotonic() - self._caught_up_at < _BURST_S
        return is_burst and not self._has_readers and self._is_serving()

    @property
    def _has_readers(self) -> bool:
        """Whether statements wait for this table now and then: what comes is wanted soon."""
        return time.monotonic() <= self._wish.until

    def _reopened(self) -> Subscription:
        if self._feed is not None and self._version == self._generation.version:
            return self._feed
        self._close()
        with self._generation.changed:
            self._version, starts = self._generation.version, self._generation.stops()
        self._feed = self._intake.follow(starts)
        return self._feed

    def _close(self) -> None:
        feed, self._feed = self._feed, None
        if feed is not None:
            feed.close()

    def _run(self) -> None:
        pause_s = _FIRST_PAUSE_S
        try:
            while not self._stopped.is_set():
                rows = self.tried(_TAKE_S)
                if self.error is None:
                    pause_s = _FIRST_PAUSE_S
                    self._paced(rows)
                    continue
                self._stopped.wait(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        finally:
            self._close()

    def _paced(self, rows: int | None) -> None:
        """Let records gather.

        What was wished for while they were added may have been among them: one more addition, for nothing, would
        take its time from the statement that reads them.
        """
        self._wake.clear()
        if rows is None or rows >= BACKLOG_ROWS or self._stopped.is_set():
            return
        if not self._wished():
            self._wake.wait(_LINGER_S if self._has_readers else _UNASKED_LINGER_S)

    def _wished(self) -> tuple[OffsetRange, ...]:
        """What a statement waits for."""
        wish = self._wish
        if time.monotonic() > wish.until:
            return ()
        return self._generation.missing(wish.ranges)

    def _fail(self, error: FederationError) -> None:
        """Say so once, and let statements that wait look at it."""
        if self.error is None or self.error.message != error.message:
            _log.warning(
                "the tail of %s is not followed: %s", self._generation.table, error.message
            )
        self._close()
        with self._generation.changed:
            self.error = error
            self._generation.changed.notify_all()
