"""What a table must hold, from the producers' side alone: every record they sent, and who moved what when.

It never asks the product. Bytes become values by ``tests.harness.oracle``; a row that was tiered keeps the values it
had by the columns of that moment, everything above the watermark is decoded by the columns of now.
"""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from planner.binding import Binding
from planner.names import LEADING_COLUMNS
from planner.schema import METADATA_TYPES, Column, TableSchema
from planner.watermark import Outcomes
from tests.harness.oracle import AnyReason, Bad, oracle_decode

#: (partition, offset)
Position = tuple[int, int]
#: Values by the column's number, which outlives its name.
Row = dict[int, Any]


@dataclass(frozen=True)
class Record:
    """One record as its producer knows it, once the broker acknowledged it."""

    partition: int
    offset: int
    timestamp: Any
    key: bytes | None
    headers: list[dict[str, Any]] | None
    value: bytes | None

    def raw(self) -> dict[str, Any]:
        return {
            "kafka_partition": self.partition,
            "kafka_offset": self.offset,
            "kafka_timestamp": self.timestamp,
            "kafka_key": self.key,
            "kafka_headers": self.headers,
            "kafka_value": self.value,
        }


@dataclass
class Cold:
    """What tiering moved: rows by position, and the first offset of each partition that it did not look at."""

    rows: dict[Position, Row] = field(default_factory=dict)
    watermark: Counter[int] = field(default_factory=Counter)


class Ledger:
    """The truth of one bound table."""

    def __init__(self, binding: Binding, columns: list[Column]) -> None:
        self.binding = binding
        self.cold = Cold()
        self.committed: dict[Position, Record] = {}
        #: First offset that committed readers may not see, per partition, as the broker last told.
        self.stable_ends: dict[int, int] = {}
        self._numbers = itertools.count(1)
        added = list(LEADING_COLUMNS)
        if binding.on_error == "null":
            added += ["kafka_value", "kafka_error"]
        leading = [Column(0, name, METADATA_TYPES[name]) for name in added]
        self.columns = [
            replace(column, field_id=next(self._numbers)) for column in (*leading, *columns)
        ]

    # --- the table's columns ---

    @property
    def schema(self) -> TableSchema:
        return TableSchema(0, tuple(self.columns))

    def add_column(self, name: str, kind: pa.DataType) -> None:
        self.columns.append(Column(next(self._numbers), name, kind))

    def drop_column(self, name: str) -> None:
        self.columns = [column for column in self.columns if column.name != name]

    def rename_column(self, name: str, to: str) -> None:
        """Records may go on using the former name."""
        for index, column in enumerate(self.columns):
            if column.name == name:
                keys = (to, *(column.keys or (name,)))
                self.columns[index] = replace(column, name=to, keys=keys)

    def widen_column(self, name: str, kind: pa.DataType) -> None:
        self.columns = [
            replace(column, type=kind) if column.name == name else column
            for column in self.columns
        ]

    # --- the log ---

    def commit(self, *records: Record) -> None:
        for record in records:
            self.committed[record.partition, record.offset] = record

    def compacted_away(self, *records: Record) -> None:
        for record in records:
            del self.committed[record.partition, record.offset]

    # --- the cold side ---

    def tier(self) -> Outcomes:
        """Move everything readable; what each record came to."""
        counts: Counter[str] = Counter()
        for record in self.tail():
            row = self._decoded(record)
            if isinstance(row, dict):
                self.cold.rows[record.partition, record.offset] = row
            counts[type(row).__name__] += 1
        self.cold.watermark.update(
            {
                partition: end - self.cold.watermark[partition]
                for partition, end in self.stable_ends.items()
            }
        )
        return Outcomes(
            rows=counts["dict"], skipped=counts["Bad"], tombstones=counts["NoneType"]
        )

    def delete(self, *positions: Position) -> None:
        for position in positions:
            del self.cold.rows[position]

    def saved(self) -> Cold:
        """What a rollback to now would bring back."""
        return copy.deepcopy(self.cold)

    # --- what a statement must see ---

    def tail(self) -> Iterator[Record]:
        for (partition, offset), record in sorted(self.committed.items()):
            start, end = self.cold.watermark[partition], self.stable_ends.get(partition, 0)
            if start <= offset < end:
                yield record

    def tail_rows(self) -> list[dict[str, Any]]:
        decoded = map(self._decoded, self.tail())
        return [self._named(row) for row in decoded if isinstance(row, dict)]

    def cold_rows(self) -> list[dict[str, Any]]:
        return [self._named(row) for _, row in sorted(self.cold.rows.items())]

    def rows(self) -> list[dict[str, Any]]:
        """All rows, by partition and offset."""
        rows = self.cold_rows() + self.tail_rows()
        return sorted(rows, key=lambda row: (row["kafka_partition"], row["kafka_offset"]))

    def table(self) -> pa.Table:
        """All rows, for an engine. Any reason in ``kafka_error`` becomes one text."""
        plain = [
            {
                name: "bad" if isinstance(value, AnyReason) else value
                for name, value in row.items()
            }
            for row in self.rows()
        ]
        return pa.Table.from_pylist(plain, self.schema.arrow)

    def _decoded(self, record: Record) -> Row | Bad | None:
        row = oracle_decode(self.schema, self.binding, record.raw())
        if not isinstance(row, dict):
            return row
        return {column.field_id: row[column.name] for column in self.columns}

    def _named(self, row: Row) -> dict[str, Any]:
        """A row under the names of now; what it was tiered without is NULL."""
        return {column.name: row.get(column.field_id) for column in self.columns}
