"""Fetches ranges of topics for one statement, or has it wait for the follower: while records arrive and it has time."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from planner.errors import DeadlineExceeded, SchemasNeeded
from planner.evolution.writer_types import WriterIds
from planner.offsets import OffsetRange
from planner.ports import all_ids
from planner.schema import size_of
from planner.seam.watermark import Outcomes
from proxy.tail import generations
from proxy.tail.budget import OutcomeTally
from proxy.tail.followed_table import FollowedTable, raise_undecodable, unreached
from proxy.tail.follower import MakeRoom
from proxy.tail.generations import Generation
from proxy.tail.reader.source import TopicReader

Batches = Generator[pa.RecordBatch, None, None]
#: Raises when the statement was cancelled or has run out of time.
Check = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Fetch:
    """How a table's ranges are fetched."""

    reader: TopicReader
    tally: OutcomeTally
    timeout_s: float
    make_room: MakeRoom
    check: Check

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
        while True:
            try:
                met = _MetIds()
                with contextlib.closing(self._counted(missing, below, met)) as batches:
                    add(missing, batches, epochs=at_end, writer_ids=met.since_last)
            except SchemasNeeded as needed:
                self.reader.learn(needed)
            else:
                return

    def _counted(
        self, missing: tuple[OffsetRange, ...], below: Mapping[int, int], met: _MetIds
    ) -> Batches:
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
                met.note(piece.writer_ids)
                yield piece.rows
                outcomes += piece.outcomes
        self.tally.count(outcomes)


class _MetIds:
    """Ids of the schemas that pieces of a fetch were written with."""

    def __init__(self) -> None:
        self._ids: WriterIds = frozenset()

    def note(self, ids: WriterIds) -> None:
        self._ids = all_ids(self._ids, ids)

    def since_last(self) -> WriterIds:
        """Return those noted since the last call."""
        ids, self._ids = self._ids, frozenset()
        return ids


@dataclass(slots=True)
class Wait:
    """One statement's wait for ``ranges``."""

    ranges: Sequence[OffsetRange]
    check: Check
    clock: Callable[[], float]
    _missing_at_first: int | None = None
    _began_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._began_s = self.clock()

    def once(self, entry: FollowedTable) -> bool:
        """Wait until the follower has added something; False if it will not, and the statement must fetch.

        Raises:
            LogUnavailable: nothing at all arrived for ``fetch_timeout_s``.
            UndecodableRecord: the follower met one within the ranges.
            DeadlineExceeded: the statement's time is over; it says how far the follower is, which goes on.
        """
        follower, generation = entry.follower, entry.generation
        missing = generation.missing(self.ranges)
        if not missing:
            return True  # added by now: waiting would be for nothing
        if follower is None or not generation.continues(missing):
            return False
        if entry.reader.fetches_sooner(missing):
            return False
        if self._missing_at_first is None:
            self._missing_at_first = _offsets(missing)
        deadline = self.clock() + entry.limits.fetch_timeout_s
        follower.request(missing)
        with generation.changed:
            while generation.missing(missing) == missing and not generation.is_retired:
                if follower.error is not None:
                    raise_undecodable(follower.error, self.ranges)
                    return False
                if self.clock() > deadline:
                    raise unreached(entry, missing)
                generation.changed.wait(follower.pacing.check_s)
                self._look(entry)
                follower.request(missing)
        self._look(entry)
        return True

    def _look(self, entry: FollowedTable) -> None:
        try:
            self.check()
        except DeadlineExceeded as error:
            missing = _offsets(entry.generation.missing(self.ranges))
            arrived = (self._missing_at_first or 0) - missing
            if arrived <= 0:
                raise
            rate = arrived / max(self.clock() - self._began_s, 1e-3)
            offsets, rest_s = _offsets(self.ranges), math.ceil(missing / rate)
            raise DeadlineExceeded(
                f"{entry.table}: the statement's time was over when {offsets - missing:,} of the {offsets:,} offsets of "
                f"its tail were read. Reading goes on, the rest takes about {rest_s} s: try again then.",
                **error.facts,
                table=str(entry.table),
                read=offsets - missing,
                offsets=offsets,
                rest_s=rest_s,
            ) from error


def _offsets(ranges: Sequence[OffsetRange]) -> int:
    return sum(map(len, ranges))
