"""Live tables over a real Iceberg table and a log in memory, and what was written to both."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.table import StaticTable

from connectors.iceberg.live.files import LiveFiles
from planner.names import KAFKA_OFFSET, KAFKA_PARTITION
from planner.offsets import OffsetVector
from planner.repairs import accept_gap, lost_ranges
from planner.seam.binding import LIVE_CUT, Binding
from planner.seam.time_travel import parse_cut
from planner.seam.watermark import Watermark, format_watermark
from proxy.live.tables import LiveTables
from proxy.session import Deadline
from tests.doubles.log import MemoryLog, MemoryRecord
from tests.fixtures.cold import IcebergCold
from tests.harness.builders import FLOWS
from tests.harness.published import publish
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

    def produce(self, partition: int, host: str | None) -> None:
        value = None if host is None else json.dumps({"host": host, "bytes": 1}).encode()
        offset = self.log.append("flows", partition, MemoryRecord(value))
        if host is not None:
            self.ledger[partition, offset] = host

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
        rows = [
            {KAFKA_PARTITION: partition, KAFKA_OFFSET: offset, names.names[3]: host, "bytes": 1}
            for (partition, offset), host in sorted(self.ledger.items())
            if before[partition] <= offset < offsets[partition]
        ]
        mark = self.mark(offsets, prev_snapshot_id=self.head)
        publish(table, pa.Table.from_pylist(rows, names), format_watermark(mark))
        self.covered[self.head] = offsets

    def compact(self) -> None:
        before = self.covered[self.head]
        if list(self.cold.table().scan().plan_files()):
            self.covered[self.cold.compact()] = before

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
        self.covered[self.head] = [mark.offset(number) for number in range(PARTITIONS)]

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
    ends = entry.end.as_dict()
    return {
        place: host for place, host in sea.ledger.items() if place[1] < ends.get(place[0], 0)
    }
