"""Live tables over a real Iceberg table and a log in memory, and what was written to both."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.table import StaticTable

from connectors.iceberg.live.files import LiveFiles
from planner.names import KAFKA_OFFSET, KAFKA_PARTITION, KAFKA_TIMESTAMP
from planner.offsets import OffsetVector
from planner.repairs import accept_gap, lost_ranges
from planner.seam.binding import LIVE_CUT, Binding
from planner.seam.boundary import RetentionBoundary
from planner.seam.time_travel import parse_cut
from planner.seam.watermark import Watermark, format_watermark
from proxy.live.tables import LiveTables
from proxy.session import Deadline
from tests.doubles.log import MemoryLog, MemoryRecord
from tests.fixtures.cold import IcebergCold
from tests.harness.builders import FLOWS
from tests.harness.published import age, publish
from tests.harness.serving import SESSION, forget, serve

BINDING = Binding("flows")
TTL_S = 100.0
PARTITIONS = 3

Place = tuple[int, int]


@dataclass
class Sea:
    """A real Iceberg table, a log in memory, live tables over both, and what was written."""

    cold: IcebergCold
    folder: Path
    log: MemoryLog = field(default_factory=MemoryLog)
    ledger: dict[Place, str] = field(default_factory=dict)
    now_s: float = 0.0
    #: What the table's snapshots hold, by id.
    covered: dict[int, list[int]] = field(default_factory=dict)
    #: When records were written, in milliseconds since 1970, and how far rows aged out of snapshots.
    times_ms: dict[Place, int] = field(default_factory=dict)
    boundaries: dict[int, RetentionBoundary] = field(default_factory=dict)
    written: int = 0

    def __post_init__(self) -> None:
        self.topic_id = self.log.create_topic("flows", PARTITIONS)
        self.cold.create(first=self.mark([0] * PARTITIONS), binding=BINDING)
        self.covered[self.head] = [0] * PARTITIONS
        self.start()

    def mark(self, offsets: list[int], **changes: Any) -> Watermark:
        return Watermark(
            cluster_id="memory",
            topic="flows",
            topic_id=self.topic_id,
            next=OffsetVector.of(enumerate(offsets)),
            shape=BINDING.shape,
            run="sea",
            **changes,
        )

    @property
    def head(self) -> int:
        head = self.cold.table().metadata.current_snapshot_id
        assert head is not None
        return head

    def line(self) -> list[int]:
        """The head and its ancestors, the newest first."""
        metadata, line = self.cold.table().metadata, []
        at: int | None = self.head
        while at is not None and (snapshot := metadata.snapshot_by_id(at)) is not None:
            line.append(at)
            at = snapshot.parent_snapshot_id
        return line

    def start(self, **limits: int) -> None:
        """A new replica: it knows no pin, no tail and no file."""
        self.pins, self.tails, self.statements = serve(self.cold.store, self.log)
        self.files = LiveFiles(self.cold.store, {"lake": str(self.folder)}, ttl_s=TTL_S)
        self.live = LiveTables(
            self.statements,
            self.files,
            ttl_s=TTL_S,
            clock=lambda: self.now_s,
            **limits,
        )

    def stop(self) -> None:
        self.live.stop()
        forget(self.pins, self.tails)

    def produce(self, partition: int, host: str | None, late: int = 0) -> None:
        """Write a record whose time is that of ``late`` records ago."""
        value = None if host is None else json.dumps({"host": host, "bytes": 1}).encode()
        self.written += 1
        at_ms = max(0, self.written - late)
        offset = self.log.append("flows", partition, MemoryRecord(value, timestamp_ms=at_ms))
        if host is not None:
            self.ledger[partition, offset] = host
            self.times_ms[partition, offset] = at_ms

    def abort(self, partition: int) -> None:
        transaction = self.log.begin()
        transaction.append("flows", partition, MemoryRecord(b'{"host": "aborted"}'))
        transaction.abort()

    def ends(self) -> list[int]:
        bounds = self.log.measure(["flows"])["flows"]
        return [part.log_end for part in bounds.partitions]

    def tier(self, offsets: list[int]) -> None:
        before = self.covered[self.head]
        table = self.cold.table()
        names = table.schema().as_arrow()
        boundary = self.boundaries.get(self.head)
        rows = [
            {
                KAFKA_PARTITION: partition,
                KAFKA_OFFSET: offset,
                KAFKA_TIMESTAMP: self.times_ms[partition, offset] * 1000,
                names.names[3]: host,
                "bytes": 1,
            }
            for (partition, offset), host in sorted(self.ledger.items())
            if before[partition] <= offset < offsets[partition]
            and not self.is_old((partition, offset), boundary)
        ]
        mark = self.mark(offsets, prev_snapshot_id=self.head, boundary=boundary)
        publish(table, pa.Table.from_pylist(rows, names), format_watermark(mark))
        self._stands(offsets, boundary)

    def _stands(self, offsets: list[int], boundary: RetentionBoundary | None) -> None:
        """Note what the newest snapshot holds."""
        self.covered[self.head] = offsets
        if boundary is not None:
            self.boundaries[self.head] = boundary

    def age(self, before_ms: int) -> None:
        """Have rows age out, unless they did by a later time."""
        head, boundary = self.head, RetentionBoundary(3, before_ms * 1000)
        if boundary.is_after(self.boundaries.get(head)):
            age(self.cold.table(), self.cold.store.pin(FLOWS), boundary.before_us, "age")
            self._stands(self.covered[head], boundary)

    def is_old(self, at: Place, boundary: RetentionBoundary | None) -> bool:
        return boundary is not None and self.times_ms[at] * 1000 < boundary.before_us

    def compact(self) -> None:
        head = self.head
        if list(self.cold.table().scan().plan_files()):
            self.cold.compact()
            self._stands(self.covered[head], self.boundaries.get(head))

    def lose(self, partition: int, before: int) -> None:
        """Retention takes the log's records below ``before``."""
        self.log.delete_records("flows", partition, before)

    def gap(self) -> list[Place]:
        """What is in neither side any more."""
        covered = self.covered[self.head]
        bounds = self.log.measure(["flows"])["flows"]
        return [
            (part.partition, offset)
            for part in bounds.partitions
            for offset in range(covered[part.partition], part.log_start)
        ]

    def accept(self) -> None:
        """A person gives up what retention took before it was tiered."""
        pin, bounds = self.cold.store.pin(FLOWS), self.log.measure(["flows"])["flows"]
        assert pin.watermark is not None
        mark = accept_gap(pin, bounds, lost_ranges(pin.watermark, bounds), run="sea")
        for place in self.gap():
            self.ledger.pop(place, None)
        self.cold.tier_text(format_watermark(mark))
        self._stands([mark.offset(number) for number in range(PARTITIONS)], mark.boundary)

    def expire(self) -> None:
        """Somebody's expiry: of all snapshots that no ref names."""
        metadata = self.cold.table().metadata
        named = {ref.snapshot_id for ref in metadata.refs.values()}
        old = {snapshot.snapshot_id for snapshot in metadata.snapshots} - named
        if old:
            self.cold.expire(*old)

    def load(self, **session: Any) -> tuple[dict[str, Any], StaticTable]:
        loaded = self.live.load(SESSION, FLOWS, Deadline(60))
        document = json.loads(loaded.metadata)
        return document, StaticTable.from_metadata(loaded.location)


def rows_of(table: StaticTable) -> dict[Place, str]:
    rows = table.scan().to_arrow()
    host = next(name for name in rows.column_names if name.startswith("host"))
    by_location: dict[Place, str] = {}
    for row in rows.to_pylist():
        place = row[KAFKA_PARTITION], row[KAFKA_OFFSET]
        assert place not in by_location, f"{place} is there twice"
        by_location[place] = row[host]
    return by_location


def expected(sea: Sea, document: dict[str, Any]) -> dict[Place, str]:
    (entry,) = parse_cut(document["properties"][LIVE_CUT]).tables
    assert entry.end is not None
    ends, boundary = entry.end.as_dict(), sea.boundaries.get(entry.snapshot_id or 0)
    return {
        place: host
        for place, host in sea.ledger.items()
        if place[1] < ends.get(place[0], 0) and not sea.is_old(place, boundary)
    }
