"""Fetches ranges without a follower, for one statement, and decodes them as they stream in."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from planner.offsets import OffsetRange
from planner.schema import size_of
from planner.seam.watermark import Outcomes
from proxy.tail import generations
from proxy.tail.follower import MakeRoom
from proxy.tail.generations import Generation
from proxy.tail.reader.source import TopicReader
from proxy.tail.states import OutcomeTally

Batches = Generator[pa.RecordBatch, None, None]


@dataclass(frozen=True, slots=True)
class Fetch:
    """How a table's ranges are fetched. ``check`` raises when the statement is no longer wanted."""

    reader: TopicReader
    tally: OutcomeTally
    timeout_s: float
    make_room: MakeRoom
    check: Callable[[], None]

    def into(
        self,
        generation: Generation,
        missing: tuple[OffsetRange, ...],
        below: Mapping[int, int],
        at_end: Mapping[int, int],
    ) -> None:
        """Add ``missing`` to a generation that ends where they begin; the caller holds its ``writing``.

        ``below`` are leader epochs under which the log had what lies below ``missing``, ``at_end`` those under which their
        stops were measured.

        Raises:
            FederationError: as ``Tails.read``; nothing was added.
        """
        is_much = sum(map(len, missing)) > generations.SEGMENT_ROWS
        add = generation.add_much if is_much else generation.add
        with contextlib.closing(self._counted(missing, below)) as batches:
            add(missing, batches, epochs=at_end)

    def _counted(self, missing: tuple[OffsetRange, ...], below: Mapping[int, int]) -> Batches:
        """Yield the rows of ``missing`` while there is room; count their outcomes once all are added."""
        pieces = self.reader.fetch(missing, self.timeout_s, below)
        rows = size = 0
        outcomes = Outcomes()
        with contextlib.closing(pieces):
            for piece in pieces:
                self.check()
                rows += piece.rows.num_rows
                piece_size = size_of(piece.rows)
                size += piece_size
                self.make_room(rows, size, piece_size)
                yield piece.rows
                outcomes += piece.outcomes
        self.tally.count(outcomes)
