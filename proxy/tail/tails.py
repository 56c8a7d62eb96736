"""Tails of all tables in use: the interface for statements."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial

from planner.errors import DeadlineExceeded, LogTruncated, LogUnavailable, TombstonesExpired
from planner.offsets import OffsetRange
from planner.seam.binding import Binding
from planner.seam.cut import HotSlice, Pin, TableCut
from planner.seam.range_check import check_deletes
from planner.seam.schemas_table import NO_RANGES, RangesOfIds
from planner.seam.seam_table import TailFacts
from planner.seam.watermark import Watermark
from proxy.engine.segments import Segments
from proxy.tail.budget import OutcomeTally, Packing, Spilling, TailLimits, TailSpace, TailState
from proxy.tail.fetching import Check, Fetch, Wait
from proxy.tail.followed_table import (
    FollowedTable,
    FollowSettings,
    PinsInUse,
    ancestor_of,
    epochs_below,
    facts_of,
    generation_of,
    is_small_fetch,
    is_too_much,
    key_of,
    late_fetch,
    leased,
    needed,
    older,
    state_of,
    surely_fits,
)
from proxy.tail.follower import Follower, IsServing
from proxy.tail.generations import Generation
from proxy.tail.heritage import Heritages, inherit
from proxy.tail.pacing import IN_PROCESS, Pacing
from proxy.tail.reader.source import TailSource, TopicReaders
from proxy.tail.segment import LeasedTail
from proxy.tail.tail_ranges import LogEnd

_log = logging.getLogger(__name__)

#: Most generations; the least recently used goes first. One per table in use, more while schemas change.
MAX_GENERATIONS = 256


@dataclass(eq=False)
class Tails:
    """Tails of all tables in use. Thread-safe. The caller closes it.

    ``check_schemas`` raises where a schema of the table's records is not what it was when others were tiered, and says
    whether bad records may be rows by now. ``heritages`` returns what rows under one schema of a table say of those under
    another. What is not followed, each statement fetches. ``space`` bounds all tails together. While ``is_serving``,
    followers that no statement waits for make pauses. ``delete_retention`` returns how many seconds a topic keeps deletes, the
    shortest since a time (``planner.seam.range_check.check_deletes``). ``clock`` is monotonic, ``now_s`` since 1970.
    """

    readers: TopicReaders
    segments: Segments
    limits: TailLimits
    _: KW_ONLY
    following: FollowSettings
    space: TailSpace | None = None
    is_serving: IsServing = lambda: False
    check_schemas: Callable[[str, Binding], bool] = lambda *_: False
    heritages: Heritages = lambda *_: None
    delete_retention: Callable[[str, float], float | None] = lambda *_: math.inf
    pacing: Pacing = IN_PROCESS
    clock: Callable[[], float] = time.monotonic
    now_s: Callable[[], float] = time.time
    make_follower: Callable[..., Follower] = Follower

    def __post_init__(self) -> None:
        self._spilling = None if self.space is None else Spilling(self.segments, self.space)
        self._packing = Packing(
            self.clock, 0 if self.space is None else self.space.max_memory_bytes
        )
        self._lock = threading.Lock()
        self._entries: OrderedDict[tuple[object, ...], FollowedTable] = OrderedDict()
        #: When the log of a keyed table, by its name, last had nothing above a watermark, in seconds since 1970.
        self._silent: dict[str, tuple[Watermark, float]] = {}

    def close(self) -> None:
        """Stop following and free every generation. Statements under way keep what they read."""
        self._packing.stop()
        with self._lock:
            entries = list(self._entries.values())
            self._entries.clear()
        followers = [entry.follower for entry in entries if entry.follower is not None]
        for follower in followers:
            follower.stop()
        for follower in followers:
            follower.join()
        for entry in entries:
            entry.clear()

    def read(
        self,
        cut: TableCut,
        check: Check,
        names: Sequence[str] | None = None,
        only: Sequence[OffsetRange] | None = None,
        any_rows: int | None = None,
    ) -> LeasedTail:
        """Return the rows of the cut's hot ranges, or of ``only`` of these, in no particular order. The caller closes them.

        ``names`` are the columns they have; None: all. ``any_rows``: any so many of them do.

        Waits for the follower where there is one. Calls ``check`` while it waits, and between batches of a fetch; it raises
        when the statement was cancelled.

        Raises:
            TailTooLarge: more rows or bytes than the limits, or than the table's own properties allow.
            OffsetsExpired, LogTruncated, TopicRecreated, LogUnavailable, UndecodableRecord: as the log and
                the decoder.
            TombstonesExpired: the table is keyed, and the log may have lost deletes before they were read.
        """
        if cut.hot is None or cut.watermark is None:
            raise ValueError(f"{cut.table} has no tail")
        if only is not None and not only:
            # Nor is it followed yet: where its partitions begin is for a statement to say that reads some.
            return LeasedTail(())
        entry = self._entry(cut, cut.hot)
        hot = cut.hot if only is None else replace(cut.hot, ranges=tuple(only))
        if entry.ancestor is not None:
            fetch = self._fetcher(entry, entry.generation, check)
            inherit(entry, cut.hot, cut.watermark, fetch, self.heritages)
        wait = Wait(hot.ranges, check, self.clock)
        self._check_history(entry, cut.hot)
        while (tail := leased(entry.generation, hot.ranges, names, any_rows)) is None:
            if entry.generation.begins_after(hot.ranges):
                return self._alone(entry, hot, cut.watermark, check, names)
            if is_small_fetch(entry.generation, hot.ranges, cut.hot.ranges):
                self._begin_following(entry, cut.hot, cut.watermark)
                return self._alone(entry, hot, cut.watermark, check, names)
            if not wait.once(entry):
                self._fetch(entry, hot, cut.watermark, check)
            if entry.generation.is_retired:
                entry = self._entry(cut, cut.hot)
        self._note(entry, cut.watermark)
        self._forget(entry)
        self._follow(entry)
        try:
            self._check_deletes(entry.generation, cut.watermark, entry.began_s)
        except BaseException:
            tail.close()
            raise
        return tail

    def expect(self, cut: TableCut) -> None:
        """Announce a cut that will be read soon: its follower adds what has arrived. Does not wait."""
        entry = self._entry_of(cut)
        if entry is not None and entry.follower is not None and cut.hot is not None:
            missing = entry.generation.missing(cut.hot.ranges)
            if missing:
                entry.follower.request(missing)

    def note_end(self, cut: TableCut, age_s: float = 0.0) -> None:
        """Note that the log ended so many seconds ago where a cut does: a keyed table's tail that has all of it is whole till then.

        The log was measured for the cut.
        """
        hot, mark = cut.hot, cut.watermark
        if hot is None or mark is None or mark.mode != "upsert":
            return
        at_s = self.now_s() - age_s
        if not hot.ranges:
            # Nothing of it is read, so there may be no tail to note it of.
            self._silent[str(cut.table)] = (mark, at_s)
            return
        entry = self._entry_of(cut)
        if entry is None:
            return
        with suppress(TombstonesExpired):
            self._check_deletes(entry.generation, mark, entry.began_s)
        stops = {item.partition: item.stop for item in hot.ranges}
        entry.generation.aim_at(LogEnd(mark.next, stops, at_s))

    def facts(self, cut: TableCut) -> TailFacts:
        """Return what is read of a cut's tail just now."""
        return facts_of(self._entry_of(cut), self.clock())

    def ranges_of_ids(self, cut: TableCut) -> RangesOfIds:
        """Return where a cut's tail, as far as it is read just now, has rows of each schema's id."""
        entry = self._entry_of(cut)
        return NO_RANGES if entry is None else entry.generation.ranges_of_ids()

    def states(self) -> tuple[TailState, ...]:
        """Return the state of every tail, sorted by table."""
        states = [state_of(entry, self.clock()) for entry in self._every()]
        return tuple(sorted(states, key=lambda state: state.table))

    def pack(self) -> None:
        """Pack the tails that few rows were added to since the last call. One thread at a time."""
        self._packing.work([entry.generation for entry in self._every()])

    # --- how a cut gets covered ---

    def _check_history(self, entry: FollowedTable, hot: HotSlice) -> None:
        """Drop what the log has lost since it was read: an unclean election may have put other records in its place."""
        offsets, epochs = entry.generation.unproven(hot.epochs)
        if not offsets:
            return
        try:
            entry.reader.check_history(offsets, epochs)
        except LogTruncated as error:
            _log.warning("the tail of %s is read anew: %s", entry.table, error.message)
            entry.clear()
        else:
            entry.generation.prove(offsets, hot.epochs)

    def _check_deletes(
        self, generation: Generation, watermark: Watermark, began_s: float
    ) -> None:
        """Check that no delete was gone when a keyed table's tail was read, which began at ``began_s``.

        Where each offset had a record, none was.
        """
        if generation.newest is None:
            return
        if generation.has_holes:
            # A table that was never published has no row to delete.
            published_s = began_s if watermark.published_s is None else watermark.published_s
            mark, silent_s = self._silent.get(generation.table, (watermark, 0.0))
            if not mark.same_position(watermark):
                silent_s = 0.0
            since_s = max(published_s, silent_s, generation.whole_s(watermark.next))
            check_deletes(
                generation.table,
                watermark.address,
                age_s=self.now_s() - since_s,
                retention_s=self.delete_retention(watermark.address, since_s),
            )
        generation.reach_end(watermark.next)

    def _fetch(
        self, entry: FollowedTable, hot: HotSlice, watermark: Watermark, check: Check
    ) -> None:
        """Add what the cut lacks, or have it followed, one statement of a table at a time."""
        generation, limits, ranges = entry.generation, entry.limits, hot.ranges
        if entry.follower is not None:
            entry.follower.request(ranges)  # it may be gathering
        if not generation.writing.acquire(timeout=limits.fetch_timeout_s):
            raise LogUnavailable(
                f"{entry.table}: another statement has been fetching the tail for "
                f"{limits.fetch_timeout_s:g} s; try again.",
                table=str(entry.table),
            )
        try:
            if generation.is_retired or generation.begins_after(ranges):
                return
            if generation.ends_before(ranges):
                generation.clear()
            missing = generation.missing(needed(ranges, watermark))
            self._note(entry, watermark)
            generation.forget(entry.pins)
            if missing:
                if not surely_fits(generation, missing, limits):
                    generation.trim(watermark)
                below = epochs_below(missing, generation, watermark)
                if entry.follower is None and is_too_much(missing):
                    entry.begin(missing, watermark)
                    if self._follow(entry):
                        return
                has_more = bool(generation.stops())
                try:
                    fetch = self._fetcher(entry, generation, check)
                    fetch.into(generation, missing, older(below, hot), hot.epochs.as_dict())
                except (LogUnavailable, DeadlineExceeded) as error:
                    # Where brokers are slow it is followed from here on: the next statement finds more.
                    entry.begin(missing, watermark)
                    if self._follow(entry) and isinstance(error, DeadlineExceeded):
                        raise late_fetch(entry, missing, error) from error
                    raise
                except LogTruncated:
                    # Of what was read before: the log may have other records there, above the watermark.
                    generation.clear()
                    if has_more:
                        return
                    raise
            generation.begin(watermark.next, watermark.epochs)
        finally:
            generation.writing.release()

    def _alone(
        self,
        entry: FollowedTable,
        hot: HotSlice,
        watermark: Watermark,
        check: Check,
        names: Sequence[str] | None,
    ) -> LeasedTail:
        """Read a cut older than the generation by itself, so that newer statements keep theirs."""
        alone, began_s = generation_of(entry.source, self.segments), self.now_s()
        ranges, below = hot.ranges, epochs_below(hot.ranges, alone, watermark)
        try:
            self._fetcher(entry, alone, check).into(alone, ranges, older(below, hot), {})
            self._check_deletes(alone, watermark, began_s)
            tail = alone.acquire(ranges, names)
        finally:
            alone.clear()
        if tail is None:
            raise AssertionError(f"{entry.table}: a fetch did not cover its ranges")
        return tail

    def _fetcher(self, entry: FollowedTable, generation: Generation, check: Check) -> Fetch:
        make_room = partial(self._make_room, generation, entry.limits)
        timeout_s = entry.limits.fetch_timeout_s
        return Fetch(entry.reader, entry.tally, timeout_s, make_room, check)

    def _make_room(
        self, generation: Generation, limits: TailLimits, rows: int, size: int, more: int
    ) -> None:
        """Refuse what is beyond the table's limits; keep all tables within theirs."""
        size += generation.size + generation.keys_size
        limits.check(generation.table, generation.rows + rows, size)
        if self._spilling is not None and more:
            tails = {entry.generation for entry in self._every()}
            self._spilling.make_room(generation, more, tails | {generation})

    # --- which generations there are ---

    def _every(self) -> list[FollowedTable]:
        with self._lock:
            return list(self._entries.values())

    def _entry_of(self, cut: TableCut) -> FollowedTable | None:
        """Return the tail of a cut; None: it has none, or no statement has read it."""
        key = key_of(cut)
        with self._lock:
            return None if key is None else self._entries.get(key)

    def _entry(self, cut: TableCut, hot: HotSlice) -> FollowedTable:
        key, now = key_of(cut), self.clock()
        if key is None or cut.binding is None:
            raise ValueError(f"{cut.table} has no tail")
        if self.check_schemas(str(cut.table), cut.binding):
            for each in self._every():
                if each.table == cut.table:
                    each.clear()
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                entry = self._new(cut, cut.binding, hot, now)
                entry.ancestor = ancestor_of(key, self._entries)
                self._entries[key] = entry
            entry.used_at = now
            for item in hot.ranges:
                # A cut of the past ends earlier.
                entry.ends[item.partition] = max(item.stop, entry.ends.get(item.partition, 0))
            self._entries.move_to_end(key)
            if len(self._entries) > MAX_GENERATIONS:
                self._retire(next(iter(self._entries)))
            return entry

    def _new(self, cut: TableCut, binding: Binding, hot: HotSlice, now: float) -> FollowedTable:
        schema = cut.cold.schema
        source = TailSource(str(cut.table), schema, binding, hot.topic, hot.topic_id)
        generation = generation_of(source, self.segments)
        limits, pins = self.limits.of(binding), PinsInUse(self.following.keep_s)
        reader, tally = self.readers(source), OutcomeTally()
        facts = (generation, tally, limits, pins, now, self.now_s())
        return FollowedTable(cut.table, source, reader, *facts)

    def _retire(self, key: tuple[object, ...]) -> None:
        """Free a generation, unless a statement is at work in it. The caller holds the lock."""
        entry = self._entries[key]
        with entry.generation.idle() as is_idle:
            if is_idle:
                if entry.follower is not None:
                    entry.follower.stop()
                entry.generation.is_retired = True
                entry.generation.clear()
                del self._entries[key]

    def _note(self, entry: FollowedTable, watermark: Watermark) -> None:
        with self._lock:
            entry.pins.note(watermark, self.clock())

    def _forget(self, entry: FollowedTable) -> None:
        """Drop what no pin in use needs, unless rows are being added: the next round does it then."""
        with entry.generation.idle() as is_idle:
            if is_idle:
                entry.generation.forget(entry.pins)

    def _before_step(self, entry: FollowedTable, rows: int, size: int, more: int) -> None:
        """``make_room`` of ``Follower``: it trims too, since it may be adding whenever others would."""
        if not more:
            self._forget(entry)
        self._make_room(entry.generation, entry.limits, rows, size, more)

    # --- following ---

    def _follow(self, entry: FollowedTable) -> bool:
        """Follow a table from where its generation ends, if there is a place; say whether it is followed."""
        if entry.follower is not None:
            return True
        with self._lock:
            every = self._entries.values()
            followed = sum(each.follower is not None for each in every)
            is_ours = any(each is entry for each in every)
            if entry.follower is None and is_ours and followed < self.following.max_tables:
                make_room = partial(self._before_step, entry)
                entry.follower = self.make_follower(
                    *(entry.reader, entry.generation, entry.tally, make_room, self.is_serving),
                    pacing=self.pacing,
                )
                entry.follower.start()
            return entry.follower is not None

    def _begin_following(
        self, entry: FollowedTable, hot: HotSlice, watermark: Watermark
    ) -> None:
        """Have a tail followed from where it begins, unless a statement is at work in it."""
        generation = entry.generation
        if entry.follower is not None:
            return
        with generation.idle() as is_idle:
            if is_idle and not generation.is_retired and not generation.ends_before(hot.ranges):
                missing = generation.missing(needed(hot.ranges, watermark))
                self._note(entry, watermark)
                entry.begin(missing, watermark)
                self._follow(entry)

    def note_pin(self, pin: Pin) -> None:
        """Note that statements use this pin from now on: rows that it took over need not stay."""
        if pin.watermark is None:
            return
        for entry in self._every():
            source = (entry.table, entry.source.topic_id)
            if source == (pin.table, pin.watermark.topic_id):
                self._note(entry, pin.watermark)
                self._forget(entry)

    def tend(self) -> None:
        """Drop generations that are idle, or superseded by one of another schema, shape or topic."""
        now, following = self.clock(), self.following
        with self._lock:
            newest = {entry.table: key for key, entry in self._entries.items()}
            for key, entry in list(self._entries.items()):
                unused_s = now - entry.used_at
                is_superseded = newest[entry.table] != key and unused_s > following.keep_s
                is_pinned = entry.table in following.tables
                if is_superseded or (unused_s > following.idle_s and not is_pinned):
                    self._retire(key)
