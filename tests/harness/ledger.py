"""What is true of a topic and of a table's snapshots, noted apart from the product and decoded by the oracle.

The ledger is told what producers and other writers did, never what the product read or planned.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from connectors.table_facts import TableFacts
from planner.binding import Binding
from planner.schema import HEADERS_TYPE, TIMESTAMPTZ, Column, TableSchema
from tests.doubles.log import MemoryRecord
from tests.harness.oracle import AnyReason, oracle_decode

#: (partition, offset)
Place = tuple[int, int]
GOOD, BAD, TOMBSTONE = "good", "bad", "tombstone"
#: What ``kafka_error`` says is not specified; statements only ask whether it is null.
SOME_REASON = "some reason"

TEXTS = ("a", "", "ü\u0000\U0001f30a", None, "NaN")
PRICES = ("1.5", '"-0.001"', "99999999.999", "null", "7e2")
RATIOS = ("0.1", "-0", '"NaN"', "1e-300", "null", '"-Infinity"')
STAMPS = ("2026-02-28T23:59:60Z", "1969-12-31T23:59:59.999999Z", "2026-07-01T12:00:00+02:00")
IDS = ("00000000-0000-0000-0000-000000000000", "F81D4FAE-7dec-11d0-a765-00a0c91e6bf6")

FLOWS_COLUMNS = (
    Column(0, "n", pa.int32()),
    Column(0, "host", pa.string()),
    Column(0, "price", pa.decimal128(11, 3)),
    Column(0, "ratio", pa.float64()),
    Column(0, "seen", TIMESTAMPTZ),
    Column(0, "tags", pa.list_(pa.string())),
    Column(0, "at", pa.struct([pa.field("x", pa.int64()), pa.field("day", pa.date32())])),
)
HOSTS_COLUMNS = (
    Column(0, "kafka_key", pa.binary()),
    Column(0, "kafka_headers", HEADERS_TYPE),
    Column(0, "kafka_value", pa.binary()),
    Column(0, "kafka_error", pa.string()),
    Column(0, "n", pa.int32()),
    Column(0, "host", pa.string()),
    Column(0, "id", pa.uuid()),
)


def record(number: int, kind: str, schema: TableSchema) -> MemoryRecord:
    """The record with this number in all of the run: every value follows from it."""
    key = b"again" if number % 4 == 0 else f"key-{number}".encode()
    headers = [("h", str(number).encode()), ("h", None)] if number % 3 == 0 else None
    stamp = None if number % 7 == 0 else 1_700_000_000_000 + number
    return MemoryRecord(_value(number, kind, schema), key, headers, stamp)


def _value(number: int, kind: str, schema: TableSchema) -> bytes | None:
    if kind == TOMBSTONE:
        return None
    if kind == BAD:
        return (b"{", b'{"n": "1"}', b'{"host": 7}', b"\xff", b"[]")[number % 5]
    host = TEXTS[number % 5]
    members = {"n": str(number % 10 - 2), "extra": "1", "N": "17"}
    members |= {"price": PRICES[number % 5], "ratio": RATIOS[number % 6]}
    members |= {"id": f'"{IDS[number % 2]}"', "tags": ("[]", '["x", null]', "null")[number % 3]}
    if number % 3:
        members["seen"] = f'"{STAMPS[number % 3].replace(":60Z", ":59Z")}"'
        members["at"] = f'{{"x": {2**62 + number}, "day": "0001-01-01"}}'
    for column in schema.columns:
        if column.name.startswith("host"):
            # Producers learn of a rename one by one.
            members[column.keys[number % len(column.keys)]] = json.dumps(host)
        elif column.name.startswith("added_"):
            members[column.name] = f"{number}" if column.type == pa.int64() else f'"{number}"'
    return (
        "{" + ", ".join(f'"{name}": {text}' for name, text in members.items()) + "}"
    ).encode()


@dataclass(eq=False)
class Slot:
    """One offset. ``record`` is None for a marker; ``rows`` are the oracle's, by table, schema id and accepted names."""

    record: MemoryRecord | None
    state: str = "committed"
    compacted: bool = False
    rows: dict[tuple[object, ...], dict[int, Any] | None] = field(default_factory=dict)


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
    (``test_seam_machine``).
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
    """The one lie that is not caught, as in ``test_seam_machine``: see there and docs/limits.md."""
    assert facts.head is not None
    version = versions[facts.head]
    if chain_is_whole(facts, versions):
        return version.swapped
    tagged = versions.get(facts.history.tagged_id or 0)
    return tagged is None or version.foreign or tagged.swapped or version.gone != tagged.gone


def rows(
    version: Version, facts: TableFacts, binding: Binding, ends: list[int]
) -> Iterator[tuple[Place, bool, dict[str, Any]]]:
    """Yield every committed row below the ends: its place, whether the log may have lost it, its values."""
    key = facts.table_uuid
    for partition, slots in enumerate(version.topic.partitions):
        covered = version.covered.get(partition, 0)
        for offset in range(max(ends[partition], covered)):
            slot, place = slots[offset], (partition, offset)
            if slot.state != "committed" or slot.record is None or place in version.gone:
                continue
            cold = offset < covered
            schema = version.schemas[place] if cold else facts.schema
            held = _decoded(slot, place, key, schema, binding)
            if held is None:
                continue
            held = {**held, **version.updated.get(place, {})} if cold else held
            row = {column.name: held.get(column.field_id) for column in facts.schema.columns}
            yield place, slot.compacted and not cold, row


def _decoded(
    slot: Slot, place: Place, key: str, schema: TableSchema, binding: Binding
) -> dict[int, Any] | None:
    known = (key, schema.schema_id, tuple(column.keys for column in schema.columns))
    if known not in slot.rows:
        assert slot.record is not None
        headers = slot.record.headers
        stamp = slot.record.timestamp_ms
        raw = {
            "kafka_partition": place[0],
            "kafka_offset": place[1],
            "kafka_timestamp": None
            if stamp is None
            else pa.scalar(stamp * 1000, TIMESTAMPTZ).as_py(),
            "kafka_key": slot.record.key,
            "kafka_headers": None
            if headers is None
            else [{"key": name, "value": value} for name, value in headers],
            "kafka_value": slot.record.value,
        }
        row = oracle_decode(schema, binding, raw)
        slot.rows[known] = (
            {
                column.field_id: SOME_REASON
                if isinstance(row[column.name], AnyReason)
                else row[column.name]
                for column in schema.columns
            }
            if isinstance(row, dict)
            else None
        )
    return slot.rows[known]
