"""How large tails may become, one table's and all together, when they are packed, and their state for status and health."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

from planner.errors import FederationError, TailTooLarge
from planner.names import TableName
from planner.offsets import OffsetRange
from planner.seam.binding import Binding
from planner.seam.watermark import Outcomes
from proxy.engine.segments import Segments
from proxy.tail.generations import Generation

_log = logging.getLogger(__name__)
#: Bytes that may be added between two measurements of the engine's memory.
_MEASURE_BYTES = 16 * 1024 * 1024
#: Rows/s. A tail that grows faster is packed afterwards: a fifth of what a follower reaches on one core.
_LITTLE_ROWS_PER_S = 20_000
#: Arrow bytes of each tail that stay unpacked while memory is not short: most statements are about the newest rows,
#: and DuckDB 1.5.5 unpacks all texts of a packed row group for one of them (decision 22).
_NEWEST_BYTES = 32 * 1024 * 1024
#: And of all tails together at most this part of their memory.
_NEWEST_SHARE = 8
#: Pause after memory ran out.
_PAUSE_S = 30.0


@dataclass(frozen=True, slots=True)
class TailLimits:
    """``max_rows`` and ``max_bytes`` bound one table's tail.

    ``fetch_timeout_s`` bounds a fetch, and how long a statement waits for a follower that adds nothing.
    """

    max_rows: int
    max_bytes: int
    fetch_timeout_s: float

    def of(self, binding: Binding) -> TailLimits:
        """A table's own budget can only lower the server's."""
        return replace(
            self,
            max_rows=min(self.max_rows, binding.max_tail_rows or self.max_rows),
            max_bytes=min(self.max_bytes, binding.max_tail_bytes or self.max_bytes),
        )

    def check(self, table: str, rows: int, size: int) -> None:
        """Refuse a tail of ``rows`` and ``size`` bytes.

        Raises:
            TailTooLarge: it is beyond one of the limits.
        """
        for name, value, limit in (
            ("max_tail_rows", rows, self.max_rows),
            ("max_tail_bytes", size, self.max_bytes),
        ):
            if value > limit:
                raise TailTooLarge(
                    f"{table}: the untiered tail holds more than {limit} ({name}); tier the table, or raise "
                    f"the limit.",
                    table=table,
                    limit=name,
                    value=limit,
                )


@dataclass(frozen=True, slots=True)
class TailSpace:
    """What all tails together may take: in the engine's memory, and beyond that on disk."""

    max_memory_bytes: int
    max_disk_bytes: int


class Spilling:
    """Keeps all tails together within their space. Thread-safe.

    The engine's memory is measured after every few megabytes. Beyond the limit segments are packed, which costs no
    more than writing them to disk. If that is not enough, the oldest segments of the largest tail go to disk. A tail
    that another thread writes to is passed over.
    """

    def __init__(self, segments: Segments, space: TailSpace) -> None:
        self._segments = segments
        self._space = space
        self._lock = threading.Lock()
        self._since = _MEASURE_BYTES

    def make_room(
        self, growing: Generation, size: int, all_tails: Iterable[Generation]
    ) -> None:
        """Make room for ``size`` bytes more of ``growing``, whose ``writing`` the caller holds.

        Raises:
            TailTooLarge: the disk's share is full, too.
        """
        with self._lock:
            self._since += size
            if self._since < min(_MEASURE_BYTES, self._space.max_memory_bytes // 64):
                return
            self._since = 0
            tails, is_packable = list(all_tails), True
            while self._memory_bytes(tails) + size > self._space.max_memory_bytes:
                is_packable = is_packable and _packed(tails)
                if is_packable:
                    continue
                self._check_disk(growing)
                candidates = sorted(tails, key=lambda tail: tail.memory_size, reverse=True)
                if not any(_spilled(tail, is_ours=tail is growing) for tail in candidates):
                    # Nothing of any size is left to move: statements read what is in memory, and it goes after them.
                    return

    def _memory_bytes(self, tails: Iterable[Generation]) -> int:
        return self._segments.memory_bytes() + sum(tail.keys_size for tail in tails)

    def _check_disk(self, growing: Generation) -> None:
        limit = self._space.max_disk_bytes
        if not self._segments.has_disk or self._segments.disk_bytes() >= limit:
            raise TailTooLarge(
                f"{growing.table}: the untiered tails of all tables take more than "
                f"{self._space.max_memory_bytes} bytes of memory (max_memory_bytes) and {limit} of disk "
                f"(max_disk_bytes); tier the tables, or raise a limit.",
                table=growing.table,
                limit="max_disk_bytes",
                value=limit,
            )


def _packed(tails: Iterable[Generation]) -> bool:
    """Pack a part of the tail with most to pack; False if there is nothing, or no memory for it."""
    by_size = sorted(tails, key=lambda tail: tail.memory_size - tail.packed_size, reverse=True)
    try:
        return any(tail.pack() for tail in by_size)
    except FederationError:
        return False


def _spilled(tail: Generation, *, is_ours: bool) -> bool:
    if is_ours:
        return tail.spill()
    with tail.idle() as is_idle:
        return is_idle and tail.spill()


class Packing:
    """Packs the full segments of tails, but the newest. One thread calls ``work``, any may call ``stop``."""

    def __init__(self, clock: Callable[[], float], max_memory_bytes: int) -> None:
        """``max_memory_bytes``: what all tails together may take."""
        self._clock = clock
        self._max_newest_bytes = max_memory_bytes // _NEWEST_SHARE
        self._stopped = threading.Event()
        #: Where each tail ended at the last look, and when that was.
        self._last_ends: WeakKeyDictionary[Generation, tuple[int, float]] = WeakKeyDictionary()

    def work(self, tails: Iterable[Generation]) -> None:
        """Pack all that is full and not among the newest, but no tail that is growing: it waits for a later call."""
        tails = list(tails)
        newest_bytes = min(_NEWEST_BYTES, self._max_newest_bytes // max(len(tails), 1))
        for generation in tails:
            while not self._stopped.is_set() and self._is_calm(generation):
                with generation.idle() as is_idle:
                    if is_idle:
                        generation.close_last()
                if not self._packed(generation, newest_bytes):
                    break

    def stop(self) -> None:
        """Pack nothing more after the segment under way."""
        self._stopped.set()

    def _is_calm(self, generation: Generation) -> bool:
        """Whether few rows were added since the last look; False at the first."""
        now, end = self._clock(), sum(generation.stops().values())
        before, at = self._last_ends.get(generation, (None, now))
        if now < at:
            return False  # it is paused
        self._last_ends[generation] = (end, now)
        if before is None or generation.writing.locked():
            return False
        return end - before <= _LITTLE_ROWS_PER_S * max(now - at, 1.0)

    def _packed(self, generation: Generation, newest_bytes: int) -> bool:
        try:
            return generation.pack(newest_bytes)
        except FederationError as error:
            _log.info(
                "the tail of %s is not packed for now: %s", generation.table, error.message
            )
            self._last_ends[generation] = (0, self._clock() + _PAUSE_S)
            return False


@dataclass(frozen=True, slots=True)
class TailState:
    """One table's tail under one schema, shape and topic.

    ``ranges`` are sorted by partition. ``lag`` is the number of offsets between them and the newest log end that a
    statement of this table measured: 0 if up to date; ``rest_s`` is about how long reading them takes, None where nothing was
    read lately. ``size`` is the rows' Arrow size in bytes; ``packed`` of it are
    compressed in memory, ``on_disk`` are in the scratch database. ``error`` stopped the follower, and is None once it
    goes on. ``outcomes`` counts what was decoded into this tail.
    """

    table: TableName
    topic: str
    schema_id: int
    is_followed: bool
    ranges: tuple[OffsetRange, ...]
    lag: int
    rest_s: float | None
    rows: int
    size: int
    packed: int
    on_disk: int
    error: FederationError | None
    outcomes: Outcomes


class OutcomeTally:
    """Outcomes of all records. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._outcomes = Outcomes()

    def count(self, outcomes: Outcomes) -> None:
        """Count a batch once its rows are added."""
        with self._lock:
            self._outcomes += outcomes

    @property
    def total(self) -> Outcomes:
        return self._outcomes
