"""What is true of a topic and of a table's snapshots, noted apart from the product and decoded by the oracle.

It is given what producers and other writers did, never what the product read or planned. The machine over the
doubles keeps a ``Version`` of each snapshot; one story on real parts keeps a ``Ledger``.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from connectors.table_facts import TableFacts
from planner.names import LEADING_COLUMNS
from planner.schema import METADATA_TYPES, TIMESTAMPTZ, Column, TableSchema
from planner.seam.binding import Binding
from planner.seam.watermark import Outcomes
from tests.doubles.log import MemoryRecord
from tests.harness.oracle import AnyReason, Bad, oracle_decode

#: (partition, offset)
Place = tuple[int, int]
#: Values by the column's name.
Row = dict[str, Any]


@dataclass(eq=False)
class Slot:
    """One offset. ``record`` is None for a marker; ``rows`` are the oracle's, by table, schema id and accepted names."""

    record: MemoryRecord | None
    state: str = "committed"
    compacted: bool = False
    rows: dict[tuple[object, ...], dict[int, Any] | Bad | None] = field(default_factory=dict)


@dataclass(eq=False)
class Topic:
    """One incarnation of a topic. ``truncations`` are (partition, end) in order."""

    name: str
    topic_id: str
    partitions: list[list[Slot]]
    starts: list[int]
    truncations: list[Place] = field(default_factory=list)

    def end(self, partition: int) -> int:
        """The last stable offset."""
        slots = self.partitions[partition]
        opened = (offset for offset, slot in enumerate(slots) if slot.state == "open")
        return next(opened, len(slots))

    def ends(self) -> list[int]:
        return [self.end(partition) for partition in range(len(self.partitions))]

    def compact(self, partition: int) -> None:
        """Note what ``MemoryLog.compact`` may remove: all but the newest readable record of each key."""
        slots = self.partitions[partition][: self.end(partition)]
        newest = {
            slot.record.key: slot for slot in slots if slot.record and slot.state == "committed"
        }
        for offset, slot in enumerate(slots):
            is_last = offset == len(self.partitions[partition]) - 1
            if (
                slot.record is not None
                and newest.get(slot.record.key) is not slot
                and not is_last
            ):
                slot.compacted = True


@dataclass(frozen=True)
class Version:
    """What a snapshot holds, by what was done to the table.

    Per partition, offsets below ``covered`` are cold. ``schemas`` says with which schema each of them was
    tiered. ``gone`` were deleted by others, or compacted in the log before they were tiered. ``foreign`` says
    that another writer appended on this line, ``swapped`` that it stands on a hidden swap
    (``seam_machine``).
    """

    topic: Topic
    covered: Mapping[int, int]
    schemas: Mapping[Place, TableSchema] = field(default_factory=dict)
    gone: frozenset[Place] = frozenset()
    updated: Mapping[Place, Mapping[int, Any]] = field(default_factory=dict)
    is_ours: bool = False
    foreign: bool = False
    swapped: bool = False


def chain_is_whole(facts: TableFacts, versions: Mapping[int, Version]) -> bool:
    """Whether the head's ancestry is retained down to a snapshot of a tierer's."""
    snapshot = facts.history.snapshots.get(facts.head or 0)
    while snapshot is not None:
        if versions[snapshot.snapshot_id].is_ours:
            return True
        snapshot = facts.history.snapshots.get(snapshot.parent_id or 0)
    return False


def hidden_swap(facts: TableFacts, versions: Mapping[int, Version]) -> bool:
    """The one lie that is not caught, as in ``seam_machine``: see there and docs/limits.md."""
    assert facts.head is not None
    version = versions[facts.head]
    if chain_is_whole(facts, versions):
        return version.swapped
    tagged = versions.get(facts.history.tagged_id or 0)
    return tagged is None or version.foreign or tagged.swapped or version.gone != tagged.gone


def rows(
    version: Version,
    schema: TableSchema,
    key: str,
    binding: Binding,
    ends: Sequence[int],
) -> Iterator[tuple[Place, bool, Row]]:
    """Yield every committed row below the ends: its place, whether the log may have lost it, its values.

    ``key`` names the table that is read. Values stand under the names of ``schema``; what a row was tiered
    without is NULL.
    """
    for partition, slots in enumerate(version.topic.partitions):
        covered = version.covered.get(partition, 0)
        for offset, slot in enumerate(slots[: max(ends[partition], covered)]):
            place = (partition, offset)
            if place in version.gone:
                continue
            cold = offset < covered
            row = decoded(slot, place, key, version.schemas[place] if cold else schema, binding)
            if not isinstance(row, dict):
                continue
            if cold:
                row = {**row, **version.updated.get(place, {})}
            named = {column.name: row.get(column.field_id) for column in schema.columns}
            yield place, slot.compacted and not cold, named


def plain(row: Row) -> Row:
    """The row for an engine: any reason in ``kafka_error`` becomes one text."""
    return {
        name: "some reason" if isinstance(value, AnyReason) else value
        for name, value in row.items()
    }


def decoded(
    slot: Slot, place: Place, key: str, schema: TableSchema, binding: Binding
) -> dict[int, Any] | Bad | None:
    """Values by the column's number, which outlives its name; None: a tombstone or no committed record."""
    if slot.record is None or slot.state != "committed":
        return None
    cached = (key, schema.schema_id, tuple(column.keys for column in schema.columns))
    if cached not in slot.rows:
        row = oracle_decode(schema, binding, _raw(slot.record, place))
        slot.rows[cached] = (
            {column.field_id: row[column.name] for column in schema.columns}
            if isinstance(row, dict)
            else row
        )
    return slot.rows[cached]


def _raw(record: MemoryRecord, place: Place) -> dict[str, Any]:
    stamp, headers = record.timestamp_ms, record.headers
    return {
        "kafka_partition": place[0],
        "kafka_offset": place[1],
        "kafka_timestamp": None
        if stamp is None
        else pa.scalar(stamp * 1000, TIMESTAMPTZ).as_py(),
        "kafka_key": record.key,
        "kafka_headers": None
        if headers is None
        else [{"key": name, "value": value} for name, value in headers],
        "kafka_value": record.value,
    }


class Ledger:
    """The truth of one bound table whose writers take turns: the topic, and what the table's head holds of it.

    A row that was tiered keeps the values it had by the columns of that moment; everything above the watermark
    is decoded by the columns of now. ``head`` is a value: keep it to know what a rollback brings back.
    """

    def __init__(self, binding: Binding, columns: list[Column], partitions: int) -> None:
        self.binding = binding
        topic = Topic(binding.topic, "", [[] for _ in range(partitions)], [0] * partitions)
        self.head = Version(topic, {})
        #: First offset that committed readers may not see, per partition, as the broker last said.
        self.stable_ends: dict[int, int] = {}
        #: Places above the watermark that the cleaner emptied after the tail had read them; see ``observe``.
        self.outlived: frozenset[Place] = frozenset()
        self._numbers = itertools.count(1)
        added = list(LEADING_COLUMNS)
        if binding.on_error == "null":
            added += ["kafka_value", "kafka_error"]
        leading = [Column(0, name, METADATA_TYPES[name]) for name in added]
        numbered = (
            replace(column, field_id=next(self._numbers)) for column in (*leading, *columns)
        )
        self.schema = TableSchema(0, tuple(numbered))

    # --- the table's columns ---

    def add_column(self, name: str, kind: pa.DataType) -> None:
        self._evolve([*self.schema.columns, Column(next(self._numbers), name, kind)])

    def drop_column(self, name: str) -> None:
        self._evolve([column for column in self.schema.columns if column.name != name])

    def rename_column(self, name: str, to: str) -> None:
        """Records may go on using the former name."""
        self._evolve(
            [
                replace(column, name=to, keys=(to, *(column.keys or (name,))))
                if column.name == name
                else column
                for column in self.schema.columns
            ]
        )

    def widen_column(self, name: str, kind: pa.DataType) -> None:
        self._evolve(
            [
                replace(column, type=kind) if column.name == name else column
                for column in self.schema.columns
            ]
        )

    def _evolve(self, columns: list[Column]) -> None:
        self.schema = TableSchema(self.schema.schema_id + 1, tuple(columns))

    # --- the log ---

    def commit(self, records: Mapping[Place, MemoryRecord]) -> None:
        for (partition, offset), record in records.items():
            slots = self._slots(partition)
            slots.extend(Slot(None) for _ in range(offset + 1 - len(slots)))
            slots[offset] = Slot(record)

    def compacted_away(self, places: Iterable[Place]) -> None:
        for partition, offset in places:
            self._slots(partition)[offset].compacted = True

    def is_compacted(self, place: Place) -> bool:
        partition, offset = place
        slots = self._slots(partition)
        return offset < len(slots) and slots[offset].compacted

    def observe(self, places: Iterable[Place]) -> None:
        """Take from an answer which records it has of those that the cleaner removed.

        Whether the tail read them before is the broker's and the clock's affair (docs/limits.md, compacted
        topics). No other place is excused, and what this answer has the next ones must have.
        """
        self.outlived = frozenset(place for place in places if self.is_compacted(place))

    def _slots(self, partition: int) -> list[Slot]:
        partitions = self.head.topic.partitions
        partitions.extend([] for _ in range(partition + 1 - len(partitions)))
        return partitions[partition]

    # --- the cold side ---

    def tier(self) -> Outcomes:
        """Move everything readable; what each record came to."""
        counts: Counter[str] = Counter()
        schemas, gone = dict(self.head.schemas), set(self.head.gone)
        for partition, end in self.stable_ends.items():
            start = self.head.covered.get(partition, 0)
            slots = self._slots(partition)
            # Markers and aborted records behind the last committed one.
            slots.extend(Slot(None) for _ in range(end - len(slots)))
            for offset, slot in enumerate(slots[start:end], start):
                place = (partition, offset)
                schemas[place] = self.schema
                if slot.compacted:
                    gone.add(place)
                elif slot.record is not None:
                    row = decoded(slot, place, "", self.schema, self.binding)
                    counts[type(row).__name__] += 1
        self.head = replace(
            self.head, covered=dict(self.stable_ends), schemas=schemas, gone=frozenset(gone)
        )
        return Outcomes(
            rows=counts["dict"], skipped=counts["Bad"], tombstones=counts["NoneType"]
        )

    def delete(self, places: Iterable[Place]) -> None:
        self.head = replace(self.head, gone=self.head.gone | frozenset(places))

    # --- what a statement must see ---

    def rows(self) -> list[Row]:
        """All rows, by partition and offset."""
        return [row for _, row in self._rows()]

    def cold_rows(self) -> list[Row]:
        return [row for is_cold, row in self._rows() if is_cold]

    def tail_rows(self) -> list[Row]:
        return [row for is_cold, row in self._rows() if not is_cold]

    def places(self) -> list[Place]:
        return [(row["kafka_partition"], row["kafka_offset"]) for row in self.rows()]

    def cold_places(self) -> list[Place]:
        return [(row["kafka_partition"], row["kafka_offset"]) for row in self.cold_rows()]

    def table(self) -> pa.Table:
        """All rows, for an engine."""
        return pa.Table.from_pylist(list(map(plain, self.rows())), self.schema.arrow)

    def _rows(self) -> Iterator[tuple[bool, Row]]:
        partitions = range(len(self.head.topic.partitions))
        ends = [self.stable_ends.get(partition, 0) for partition in partitions]
        for place, is_lost, row in rows(self.head, self.schema, "", self.binding, ends):
            if not is_lost or place in self.outlived:
                yield place[1] < self.head.covered.get(place[0], 0), row
