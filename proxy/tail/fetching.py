"""What a statement fetches itself: ranges that nobody follows, decoded as they stream in."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass

import pyarrow as pa

from planner.offsets import OffsetRange
from planner.ports import Decoded, Log
from proxy.tail import generations
from proxy.tail.decoding import Decoding
from proxy.tail.follower import MakeRoom, Source
from proxy.tail.generations import Generation

Batches = Generator[pa.RecordBatch, None, None]
Pieces = Generator[Decoded, None, None]

#: Batches that may be fetched and decoded ahead of the engine.
_READ_AHEAD_BATCHES = 4
#: A few records are the common case: for them a second thread costs more than it brings.
_READ_AHEAD_ABOVE_OFFSETS = 20_000


@dataclass(frozen=True, slots=True)
class Fetch:
    """How a table's ranges are fetched. ``check`` raises when the statement is no longer wanted."""

    log: Log
    source: Source
    decoding: Decoding
    timeout_s: float
    make_room: MakeRoom
    check: Callable[[], None]

    def into(self, generation: Generation, missing: tuple[OffsetRange, ...]) -> None:
        """Add ``missing`` to a generation that ends where they begin; the caller holds its ``writing``.

        Raises:
            FederationError: as ``Tails.read``; nothing was added.
        """
        is_much = sum(map(len, missing)) > generations.SEGMENT_ROWS
        add = generation.add_much if is_much else generation.add
        with contextlib.closing(self._counted(missing)) as batches:
            add(missing, batches)

    def _counted(self, missing: tuple[OffsetRange, ...]) -> Batches:
        """Yield the rows of ``missing`` for which there is room; count what they came to once all are held."""
        pieces = self._decoded(missing)
        if sum(map(len, missing)) > _READ_AHEAD_ABOVE_OFFSETS:
            pieces = _read_ahead(pieces)
        rows = size = 0
        decoded = []
        with contextlib.closing(pieces):
            for piece in pieces:
                self.check()
                rows += piece.rows.num_rows
                size += piece.rows.nbytes
                self.make_room(rows, size, piece.rows.nbytes)
                yield piece.rows
                decoded.append((piece.outcomes, piece.errors))
        for outcomes, errors in decoded:
            self.decoding.count(outcomes, errors)

    def _decoded(self, missing: tuple[OffsetRange, ...]) -> Pieces:
        batches = self.log.fetch(
            self.source.topic,
            missing,
            topic_id=self.source.topic_id,
            timeout_s=self.timeout_s,
            with_key=self.source.with_key,
            with_headers=self.source.with_headers,
        )
        with contextlib.closing(batches):
            for batch in batches:
                yield self.decoding.decode(batch)


def _read_ahead(pieces: Pieces) -> Pieces:
    """Run an iterator on a thread of its own, a few items ahead; closing this closes it.

    The engine takes about as long to hold rows as fetching and decoding them do together, each mostly outside the
    interpreter lock.
    """
    items: queue.Queue[Decoded | BaseException | None] = queue.Queue(_READ_AHEAD_BATCHES)
    closed = threading.Event()

    def put(item: Decoded | BaseException | None) -> bool:
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
            yield item
    finally:
        closed.set()
        thread.join()
