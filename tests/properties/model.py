"""A whole world in sets: one log, one table, many tierers. The planner decides, this carries out.

What the world *knows* (``truth``, ``lost``, ``tainted``) is tracked apart from what the planner is told
(bounds, summaries), so an answer is judged by facts the planner never saw.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from connectors.table_facts import earlier_line, with_statistics
from planner.covering import PartitionRows, RowsOfHead, cover
from planner.errors import FederationError, OffsetsExpired
from planner.maintenance.retention import aged
from planner.offsets import OffsetRange, OffsetVector
from planner.repairs import (
    AddedRows,
    accept_foreign,
    accept_gap,
    lost_ranges,
    skip_record,
)
from planner.seam.binding import MIRROR, check_mode
from planner.seam.boundary import RetentionBoundary
from planner.seam.cut import LogBounds, PartitionBounds, Pin, plan_cut
from planner.seam.resolver import base_snapshot, foreign_commits, resolve
from planner.seam.snapshots import History, Snapshot
from planner.seam.watermark import (
    SUMMARY_KEY,
    LastPublish,
    Outcomes,
    Skip,
    Watermark,
    format_watermark,
    parse_watermark,
)
from planner.tiering.plan import TieringBudget, TieringPlan, plan_tiering
from planner.tiering.publish import advance, check_publish
from tests.harness.builders import BINDING, FLOWS, schema

Row = tuple[int, int]
#: The column that retention goes by.
BOUNDARY_FIELD = 3
DATA, TOMBSTONE, BAD, MARKER, HOLE, OLD = "data", "tombstone", "bad", "marker", "hole", "old"


@dataclass
class Entry:
    """One offset. Those of open and aborted transactions are invisible. ``time`` is what retention goes by."""

    kind: str
    state: str = "committed"
    time: int | None = None


@dataclass
class Partition:
    """``opened`` are the offsets of the open transaction, lowest first."""

    entries: list[Entry] = field(default_factory=list)
    start: int = 0
    opened: list[int] = field(default_factory=list)

    @property
    def end(self) -> int:
        """The last stable offset."""
        return self.opened[0] if self.opened else len(self.entries)


class Log:
    """A topic. Retention and recreation are the only ways it loses anything."""

    def __init__(self, partitions: int, incarnation: int) -> None:
        self.partitions = [Partition() for _ in range(partitions)]
        self.incarnation = incarnation

    def bounds(self) -> LogBounds:
        return LogBounds(
            "cluster-1",
            "flows",
            f"topic-{self.incarnation}",
            tuple(
                PartitionBounds(index, value.start, value.end)
                for index, value in enumerate(self.partitions)
            ),
        )

    def is_old(self, row: Row, boundary: RetentionBoundary | None) -> bool:
        time = self.time(row)
        return boundary is not None and time is not None and time < boundary.before_us

    def time(self, row: Row) -> int | None:
        """Return the time of a row; other writers' may be of no record."""
        partition, offset = row
        if partition >= len(self.partitions) or offset >= len(
            self.partitions[partition].entries
        ):
            return None
        return self.partitions[partition].entries[offset].time

    def read(
        self,
        ranges: tuple[OffsetRange, ...],
        skipped: Collection[Row] = (),
        boundary: RetentionBoundary | None = None,
    ) -> tuple[list[Row], Outcomes]:
        rows: list[Row] = []
        count: Counter[str] = Counter()
        for item in ranges:
            value = self.partitions[item.partition]
            if item.start < value.start:
                raise OffsetsExpired("the log no longer holds the range")
            for offset in range(item.start, item.stop):
                entry = value.entries[offset]
                if (item.partition, offset) in skipped:
                    count[BAD] += entry.state == "committed"
                elif entry.state == "committed":
                    if entry.kind == DATA and self.is_old((item.partition, offset), boundary):
                        count[OLD] += 1
                        continue
                    count[entry.kind] += 1
                    if entry.kind == DATA:
                        rows.append((item.partition, offset))
        return rows, Outcomes(
            rows=count[DATA],
            skipped=count[BAD],
            tombstones=count[TOMBSTONE],
            expired=count[OLD],
        )


@dataclass
class Version:
    """A snapshot with what it really holds. What follows ``covered`` is for judging, never told.

    ``deleted`` are committed rows a foreign DELETE removed from this line, ``abandoned`` those a person gave up
    on it; ``foreign`` says that another writer appended on it, ``foreign_rows`` that it appended rows (they may
    be deleted again by now), unless a person accepted that. ``extra`` are another writer's rows it holds,
    ``appended`` those of this very snapshot.
    """

    snapshot: Snapshot
    rows: tuple[Row, ...]
    covered: OffsetVector
    deleted: frozenset[Row] = frozenset()
    foreign: bool = False
    foreign_rows: bool = False
    abandoned: frozenset[Row] = frozenset()
    extra: tuple[Row, ...] = ()
    appended: tuple[Row, ...] = ()
    #: Built on a state that Seam.hidden_swap describes.
    swapped: bool = False
    #: Committed by a tierer (or at creation), so its own watermark is the truth.
    is_ours: bool = False
    #: Deleted rows that its data files still hold, and how many files delete them.
    dead: int = 0
    delete_files: int = 0
    #: How far rows aged out of this line.
    boundary: RetentionBoundary | None = None


class Table:
    """An Iceberg table as its metadata shows it: retained versions, head, tag, mirror."""

    binding = BINDING
    schema = schema()

    def __init__(self, first: Watermark) -> None:
        self.versions: dict[int, Version] = {}
        self.head = 0
        self.sequence = 0
        self.tagged_id: int | None = None
        self.mirror: str | None = None
        #: What the planner said of each snapshot since the table last changed: it is pure.
        self._pins: dict[int, Pin | FederationError] = {}
        #: Snapshots that older metadata files tell of, and those of all snapshots that are a tierer's.
        self.older: dict[int, Snapshot] = {}
        self.ours: set[int] = set()
        #: Snapshots of others with a watermark that they copied.
        self.copies: set[int] = set()
        self._add("append", (), first.next, mark=first)

    def history(self) -> History:
        return History(
            {key: version.snapshot for key, version in self.versions.items()},
            self.tagged_id,
            self.mirror,
        )

    def looked_up(self, head: int) -> History:
        """What a reader knows of the table before it resolves."""
        return with_statistics(self.history(), head, self)

    # What a reader looks up (connectors.table_facts.Evidence).

    def added_next(self, snapshot_id: int) -> OffsetVector:
        return _reach(self.versions[snapshot_id].rows)

    def live_rows(self, snapshot_id: int) -> int:
        return len(self.versions[snapshot_id].rows)

    def single_keys(self, snapshot_id: int, key: tuple[int, ...]) -> bool:
        raise AssertionError(f"a row for each record has no key {key}")

    def reach(self, snapshot_id: int, below: OffsetVector) -> OffsetVector:
        del below
        return _reach(self.versions[snapshot_id].rows)

    def earlier(self, snapshot_id: int) -> Mapping[int, Snapshot]:
        return earlier_line(snapshot_id, [self.older])

    def pin(self, snapshot_id: int) -> Pin:
        """What a reader pins: the watermark is resolved from this snapshot's own ancestry."""
        if snapshot_id not in self._pins:
            try:
                self._pins[snapshot_id] = self._pin(snapshot_id)
            except FederationError as error:
                self._pins[snapshot_id] = error
        value = self._pins[snapshot_id]
        if isinstance(value, FederationError):
            raise value
        return value

    def _pin(self, snapshot_id: int) -> Pin:
        watermark = resolve(self.looked_up(snapshot_id), snapshot_id, table=str(FLOWS))
        check_mode(str(FLOWS), self.binding, watermark.mode)
        return Pin(
            FLOWS,
            "table-1",
            f"file:///w/{snapshot_id}.metadata.json",
            snapshot_id,
            self.schema,
            self.binding.under(watermark),
            watermark,
        )

    def publish(self, plan: TieringPlan, rows: list[Row], outcomes: Outcomes, run: str) -> None:
        check_publish(plan, self.looked_up(self.head), self.head)
        mark = advance(plan, outcomes, run=run, head=self.head)
        self._add("append", (*self.current.rows, *rows), mark.next, mark=mark)

    def decide(self, mark: Watermark, *, abandoned: frozenset[Row] = frozenset()) -> None:
        """A person's decision: a commit without rows. Foreign rows of before it are accepted by it, or none."""
        before = self.current
        self._add("append", before.rows, mark.next, mark=mark)
        self.current.abandoned = before.abandoned | abandoned
        self.current.foreign = self.current.foreign_rows = False

    def age(self, mark: Watermark, old: frozenset[Row], *, operation: str) -> None:
        """Delete rows that are too old, and move the boundary, in one commit of maintenance."""
        before = self.current
        self._add(
            operation,
            tuple(row for row in before.rows if row not in old),
            before.covered,
            mark=mark,
            extra=tuple(row for row in before.extra if row not in old),
            rewritten=operation == "overwrite",
        )
        self.current.boundary = mark.boundary

    def refused(self) -> tuple[int, ...]:
        """The foreign snapshots for which the head is refused."""
        return foreign_commits(self.looked_up(self.head), self.head, table=str(FLOWS))

    def added(self, snapshot_id: int) -> AddedRows | None:
        version = self.versions.get(snapshot_id)
        if version is None:
            return None
        is_append = version.snapshot.operation == "append"
        rows = version.appended if is_append else version.rows
        return AddedRows(len(rows), _reach(rows), 0)

    @property
    def current(self) -> Version:
        return self.versions[self.head]

    def append_foreign(self, rows: tuple[Row, ...], *, text: str | None = None) -> None:
        """``text``: a watermark of another commit, which the writer copied."""
        self._add(
            "append",
            (*self.current.rows, *rows),
            self.current.covered,
            foreign=rows,
            text=text,
        )
        if text is not None:
            self.copies.add(self.head)

    def stands_on_copy(self, snapshot_id: int) -> bool:
        """Whether another writer's copy is believed: one that adds no fewer rows than the text says, on the very snapshot that
        the original was built on, where that was rolled back and is expired (docs/limits.md).
        """
        if not self.copies:
            return False
        base = base_snapshot(self.looked_up(snapshot_id), snapshot_id)
        if base is None or base.snapshot_id not in self.copies:
            return False
        mark = parse_watermark(base.watermark_text or "")
        originals = (self.versions.get(key) for key in self.ours)
        return (
            base.snapshot_id != self.tagged_id
            and mark.prev_snapshot_id == base.parent_id
            and mark.outcomes.rows <= (base.count("added-records") or 0)
            and not any(
                original.snapshot.watermark_text == base.watermark_text
                for original in originals
                if original is not None
            )
        )

    def texts(self) -> list[str]:
        """Return all watermarks that a writer can read in the table."""
        items = (version.snapshot.watermark_text for version in self.versions.values())
        return sorted({text for text in items if text is not None})

    def delete(self, rows: frozenset[Row], *, operation: str) -> None:
        """A foreign DELETE, merge-on-read (``delete``) or copy-on-write (``overwrite``)."""
        items = tuple(row for row in self.current.rows if row not in rows)
        gone = frozenset(
            (partition, offset)
            for partition, offset in rows
            if offset < (self.current.covered.get(partition) or 0)
        )
        self._add(
            operation,
            items,
            self.current.covered,
            deleted=self.current.deleted | gone,
            extra=tuple(row for row in self.current.extra if row not in rows),
            rewritten=operation == "overwrite",
        )

    def overwrite_with(
        self,
        rows: tuple[Row, ...],
        gone: frozenset[Row] = frozenset(),
        *,
        by_vectors: bool = False,
    ) -> None:
        """A foreign MERGE that inserts ``rows`` and deletes fewer, ``gone``.

        Copy-on-write of everything, or ``by_vectors``: deletion vectors that take the place of those of before.
        """
        before = self.current
        self._add(
            "overwrite",
            (*(row for row in before.rows if row not in gone), *rows),
            before.covered,
            deleted=before.deleted
            | {row for row in gone if row[1] < (before.covered.get(row[0]) or 0)},
            extra=(*(row for row in before.extra if row not in gone), *rows),
            foreign=rows,
            rewritten=not by_vectors,
            by_vectors=by_vectors,
        )

    def compact(self, *, copies_summary: bool) -> None:
        text = None
        if copies_summary and self.mirror is not None:
            text = self.mirror
        self._add("replace", self.current.rows, self.current.covered, text=text, rewritten=True)

    def edit_mirror(self, text: str | None) -> None:
        """Set the property that mirrors the watermark, or remove it, as anybody may with ALTER TABLE."""
        self.mirror = text

    def rollback(self, snapshot_id: int) -> None:
        self.head = snapshot_id

    def expire(self, keep: int, *, orphans: bool) -> None:
        """Drop all but the newest ``keep`` ancestors of the head, and what the tag holds.

        ``orphans``: as pyiceberg does it, which also takes the parent id of what it leaves without a parent.
        """
        items: set[int] = set()
        current: int | None = self.head
        while current in self.versions and len(items) < keep:
            items.add(current)
            current = self.versions[current].snapshot.parent_id
        items.add(self.tagged_id if self.tagged_id is not None else self.head)
        for key, value in self.versions.items():
            # A snapshot that lost its parent id before is in a still older file, with it.
            self.older.setdefault(key, value.snapshot)
        self.versions = {key: value for key, value in self.versions.items() if key in items}
        if orphans:
            for version in self.versions.values():
                if version.snapshot.parent_id not in self.versions:
                    version.snapshot = replace(version.snapshot, parent_id=None)
        self._pins.clear()

    def lose_older(self) -> None:
        """Remove the older metadata files, as a short metadata log does."""
        self.older.clear()
        self._pins.clear()

    def _add(
        self,
        operation: str,
        rows: tuple[Row, ...],
        covered: OffsetVector,
        *,
        mark: Watermark | None = None,
        text: str | None = None,
        deleted: frozenset[Row] | None = None,
        extra: tuple[Row, ...] | None = None,
        foreign: tuple[Row, ...] | None = None,
        rewritten: bool = False,
        by_vectors: bool = False,
        fold: tuple[int, int] | None = None,
    ) -> None:
        """``fold``: how many rows a keyed publish appended, and how many of before it deleted."""
        before = self.versions.get(self.head)
        old = before.rows if before is not None else ()
        dead = before.dead if before is not None else 0
        delete_files = before.delete_files if before is not None else 0
        summary: dict[str, int] = {}
        if rewritten:
            # What a rewritten file held counts, rows that were deleted from it before too.
            summary |= {"added-records": len(rows), "deleted-records": len(old) + dead}
            dead = 0
        elif fold is not None:
            added, hit = fold
            summary["added-records"] = added
            if hit:
                summary |= {"added-position-deletes": hit, "added-delete-files": 1}
                dead, delete_files = dead + hit, delete_files + 1
        elif operation == "append":
            summary["added-records"] = len(rows) - len(old)
        elif by_vectors:
            inserted = len(foreign or ())
            removed = len(old) + inserted - len(rows)
            summary |= {
                "added-records": inserted,
                "added-position-deletes": dead + removed,
                "removed-position-deletes": dead,
                "added-delete-files": 1,
                "removed-delete-files": delete_files,
            }
            dead, delete_files = dead + removed, 1
        else:
            removed = len(old) - len(rows)
            summary |= {"added-position-deletes": removed, "added-delete-files": 1}
            dead, delete_files = dead + removed, delete_files + 1
        summary |= {
            "total-records": len(rows) + dead,
            "total-position-deletes": dead,
            "total-delete-files": delete_files,
        }
        texts = {key: str(count) for key, count in summary.items()}
        if mark is not None:
            text = format_watermark(mark)
        if text is not None:
            texts[SUMMARY_KEY] = text
        self.sequence += 1
        if mark is not None:
            self.ours.add(self.sequence)
        self._pins.clear()
        inherited = before.deleted if before is not None else frozenset()
        inherited_extra = before.extra if before is not None else ()
        was_foreign = before is not None and before.foreign
        had_rows = before is not None and before.foreign_rows
        self.versions[self.sequence] = Version(
            Snapshot(
                self.sequence,
                self.head if before is not None else None,
                self.sequence,
                operation,
                texts,
            ),
            rows,
            covered,
            inherited if deleted is None else deleted,
            was_foreign or foreign is not None,
            had_rows or bool(foreign),
            frozenset() if before is None else before.abandoned,
            (*inherited_extra, *(foreign or ())) if extra is None else extra,
            foreign or (),
            before is not None and before.swapped,
            mark is not None,
            dead,
            delete_files,
            None if before is None else before.boundary,
        )
        self.head = self.sequence
        if mark is not None:
            self.tagged_id = self.sequence
            self.mirror = text


def _reach(rows: tuple[Row, ...]) -> OffsetVector:
    nexts: dict[int, int] = {}
    for partition, offset in rows:
        nexts[partition] = max(nexts.get(partition, 0), offset + 1)
    return OffsetVector.of(nexts.items())


class World:
    """The log, the table, and what is true."""

    make_log: type[Log] = Log
    make_table: type[Table] = Table

    def __init__(self, partitions: int, incarnation: int = 1) -> None:
        self.log = self.make_log(partitions, incarnation)
        binding = self.make_table.binding
        self.bound_to = incarnation
        first = Watermark(
            cluster_id="cluster-1",
            topic="flows",
            topic_id=f"topic-{incarnation}",
            next=OffsetVector.of((index, 0) for index in range(partitions)),
            shape=binding.shape,
            run="create",
            key=() if binding.upsert is None else binding.upsert.key,
        )
        self.table = self.make_table(first)
        self.truth: set[Row] = set()
        self.runs = 0

    def plan(self, budget: TieringBudget) -> TieringPlan:
        return plan_tiering(self.table.pin(self.table.head), self.log.bounds(), budget)

    def ask(self, snapshot_id: int) -> list[Row]:
        """Answer as the server does: pin, measure, cut, read both sides."""
        pin = self.table.pin(snapshot_id)
        cut = plan_cut(pin, self.log.bounds())
        assert cut.hot is not None
        assert pin.watermark is not None
        mark = pin.watermark
        tail, _ = self.log.read(cut.hot.ranges, mark.skipped, mark.boundary)
        return [*self.table.versions[snapshot_id].rows, *tail]

    def age(self, boundary: RetentionBoundary, *, operation: str) -> bool:
        """Have rows age out; return whether the boundary moved."""
        head = self.table.head
        mark = self.table.pin(head).watermark
        assert mark is not None
        if not boundary.is_after(mark.boundary):
            return False
        last, commit = LastPublish(0, None, Outcomes()), (self.next_run(), head)
        after = aged(mark, boundary, last, schema(), BINDING, commit)
        rows = self.table.current.rows
        old = frozenset(row for row in rows if self.log.is_old(row, boundary))
        self.table.age(after, old, operation=operation)
        return True

    def accept_gap(self) -> None:
        """Give up what retention took, as the owner who was shown it."""
        pin, bounds = self.table.pin(self.table.head), self.log.bounds()
        assert pin.watermark is not None
        lost = lost_ranges(pin.watermark, bounds)
        mark = accept_gap(pin, bounds, lost, run=self.next_run())
        gone = frozenset(
            (item.partition, offset) for item in lost for offset in range(item.start, item.stop)
        )
        self.table.decide(mark, abandoned=gone)

    def skip(self, row: Row) -> None:
        """Give up a record, whatever it is."""
        pin = self.table.pin(self.table.head)
        mark = skip_record(pin, self.log.bounds(), [Skip(*row)], run=self.next_run())
        self.table.decide(mark, abandoned=frozenset([row]))

    def accept_foreign(self, *, all_of_them: bool) -> None:
        """Accept what is refused, or forget to name one."""
        refused = self.table.refused()
        named = refused if all_of_them else refused[:-1]
        mark = accept_foreign(
            FLOWS,
            self.table.looked_up(self.table.head),
            self.table.head,
            named,
            {snapshot_id: self.table.added(snapshot_id) for snapshot_id in named},
            run=self.next_run(),
        )
        self.table.decide(mark)

    def cover(self) -> None:
        """Say what the head covers, as the owner who knows it; its rows stay, whoever wrote them.

        Records that were given up on another line come along: the owner sees them and says yes.
        """
        table = self.table
        places: dict[int, list[int]] = {}
        for partition, offset in table.current.rows:
            places.setdefault(partition, []).append(offset)
        rows = [
            PartitionRows(partition, min(items), max(items), len(items), len(set(items)))
            for partition, items in places.items()
        ]
        mark = cover(
            FLOWS,
            table.looked_up(table.head),
            table.head,
            RowsOfHead(table.head, tuple(rows), 0, self.oldest()),
            {
                partition: table.current.covered.get(partition) or 0
                for partition in range(len(self.log.partitions))
            },
            run=self.next_run(),
        )
        table.decide(
            mark, abandoned=frozenset((skip.partition, skip.offset) for skip in mark.skips)
        )
        table.current.boundary = mark.boundary

    def oldest(self) -> dict[int, int]:
        """The earliest time of the head's rows, by the field id of boundaries."""
        rows = self.table.current.rows
        times = [time for row in rows if (time := self.log.time(row)) is not None]
        return {BOUNDARY_FIELD: min(times)} if times else {}

    def next_run(self) -> str:
        self.runs += 1
        return f"run-{self.runs}"

    def expected(self, snapshot_id: int) -> Counter[Row]:
        """Every committed row below the end, but for those somebody deleted or gave up on this line.

        And another writer's rows that a person accepted.
        """
        version = self.table.versions[snapshot_id]
        ends = [
            max(value.end, version.covered.get(partition) or 0)
            for partition, value in enumerate(self.log.partitions)
        ]
        value = {
            row
            for row in self.truth
            if row[1] < ends[row[0]] and not self.log.is_old(row, version.boundary)
        }
        return Counter(value - version.deleted - version.abandoned) + Counter(version.extra)

    def lost(self, snapshot_id: int) -> bool:
        """Whether the log really lost offsets this version still needs, or is another log."""
        covered = self.table.versions[snapshot_id].covered
        return self.log.incarnation != self.bound_to or any(
            value.start > (covered.get(index) or 0)
            for index, value in enumerate(self.log.partitions)
        )

    def story(self, number: int) -> str:
        """Say what a failed example's table looked like."""
        lines = [f"asked {number}, head {self.table.head}, tag {self.table.tagged_id}"]
        for version in self.table.versions.values():
            snapshot = version.snapshot
            lines.append(
                f"{snapshot.snapshot_id} <- {snapshot.parent_id} {snapshot.operation} rows={len(version.rows)} "
                f"covered={version.covered.items} deleted={sorted(version.deleted)} "
                f"summary={ {key: text for key, text in snapshot.summary.items() if key != SUMMARY_KEY} } "
                f"watermark={snapshot.watermark_text}"
            )
        lines.append(f"mirror {self.table.mirror}")
        return "\n".join(lines)

    def chain_can_be_read(self, snapshot_id: int) -> bool:
        """Whether the snapshots down to a tierer's are retained, or in older metadata files."""
        current: int | None = snapshot_id
        while current is not None:
            if current in self.table.ours:
                return self.is_believed(current)
            snapshot = self.table.older.get(current)
            if snapshot is None and current in self.table.versions:
                snapshot = self.table.versions[current].snapshot
            current = None if snapshot is None else snapshot.parent_id
        return False

    def is_believed(self, snapshot_id: int) -> bool:
        """Whether a tierer's commit shows itself as one: by the tag, as the table's first, or by its parent id."""
        places = (self.table.older.get(snapshot_id), self.table.versions.get(snapshot_id))
        snapshots = [
            place.snapshot if isinstance(place, Version) else place
            for place in places
            if place is not None
        ]
        return bool(snapshots) and (
            snapshot_id in (1, self.table.tagged_id)
            or any(snapshot.parent_id is not None for snapshot in snapshots)
        )

    def chain_is_whole(self, snapshot_id: int) -> bool:
        current: int | None = snapshot_id
        while current is not None:
            version = self.table.versions.get(current)
            if version is None:
                return False
            if version.is_ours:
                return True
            current = version.snapshot.parent_id
        return False


__all__ = [
    "BAD",
    "DATA",
    "HOLE",
    "MARKER",
    "MIRROR",
    "TOMBSTONE",
    "Entry",
    "FederationError",
    "Partition",
    "Row",
    "World",
]
