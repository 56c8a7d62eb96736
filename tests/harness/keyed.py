"""A keyed table in a dictionary: what its log says, at any end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from planner.names import KAFKA_OP
from planner.offsets import OffsetVector
from planner.schema import METADATA_TYPES, Column, TableSchema
from planner.seam.binding import Binding
from planner.seam.formats import JsonFormat
from planner.seam.keys import RecordKey, Upsert, change_schema

UPSERT = Upsert((4, 5))
BINDING = Binding("devices", JsonFormat(), key=RecordKey("json"), upsert=UPSERT)
_LEADING = ("kafka_partition", "kafka_offset", "kafka_timestamp")
SCHEMA = TableSchema(
    0,
    (
        *(
            Column(at + 1, name, METADATA_TYPES[name], required=at < 2)
            for at, name in enumerate(_LEADING)
        ),
        Column(4, "id", pa.int64(), required=True),
        Column(5, "region", pa.string(), required=True),
        Column(6, "status", pa.string()),
        Column(7, "n", pa.int64()),
    ),
    frozenset((4, 5)),
)
#: What changes of it have.
CHANGES = change_schema(SCHEMA, UPSERT)

Key = tuple[int, str]
Row = dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """One offset of a partition: a change of ``key``, a record that does not decode (no key), or none at all (``is_hole``)."""

    key: Key | None = None
    op: str = "u"
    status: str | None = None
    n: int | None = None
    timestamp_us: int = 0
    is_hole: bool = False


Partition = Sequence[Entry]


def partition_of(key: Key, count: int) -> int:
    """Return where all changes of a key are."""
    return (key[0] + len(key[1])) % count


def changes(log: Sequence[Partition], start: OffsetVector, end: OffsetVector) -> Iterator[Row]:
    """Yield the changes from a start to an end, as a decoder gives them."""
    for partition, entries in enumerate(log):
        for offset in range(start.get(partition) or 0, end.get(partition) or 0):
            entry = entries[offset]
            if entry.key is None:
                continue
            is_row = entry.op == "u"
            yield {
                "kafka_partition": partition,
                "kafka_offset": offset,
                "kafka_timestamp": entry.timestamp_us,
                "id": entry.key[0],
                "region": entry.key[1],
                "status": entry.status if is_row else None,
                "n": entry.n if is_row else None,
                KAFKA_OP: entry.op,
            }


def newest(log: Sequence[Partition], end: OffsetVector) -> dict[Key, Row]:
    """Return the rows below an end by key: one entry for each key that is not deleted."""
    rows: dict[Key, Row] = {}
    for change in changes(log, OffsetVector(), end):
        key = change["id"], change["region"]
        if change.pop(KAFKA_OP) == "u":
            rows[key] = change
        else:
            rows.pop(key, None)
    return rows


def table_of(rows: Mapping[Key, Row]) -> pa.Table:
    return pa.Table.from_pylist(list(rows.values()), SCHEMA.arrow)


def superseded(log: Sequence[Partition], start: OffsetVector, end: OffsetVector) -> pa.Table:
    """Return of each change its partition, its offset and that of the following change of its key, if there is one below ``end``."""
    following: dict[Key, int] = {}
    entries = []
    for change in reversed(list(changes(log, start, end))):
        key = change["id"], change["region"]
        if key in following:
            place = {name: change[name] for name in ("kafka_partition", "kafka_offset")}
            entries.append({**place, "next": following[key]})
        following[key] = change["kafka_offset"]
    kinds = {"kafka_partition": pa.int32(), "kafka_offset": pa.int64(), "next": pa.int64()}
    return pa.Table.from_pylist(entries, pa.schema(kinds.items()))
