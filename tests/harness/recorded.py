"""Records of Debezium as they were (``tests/data/debezium-3.6.1.json``), and the rows that their source had in the end.

Of those with their schema beside them the two schemas, of keys and of values, are kept once: all records have the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa

from planner.names import Envelope
from planner.schema import TIMESTAMPTZ, Column

_DATA = json.loads((Path(__file__).parents[1] / "data" / "debezium-3.6.1.json").read_text())

#: The envelope that a table of each has.
FORMS: dict[str, Envelope] = {
    "events": "debezium",
    "events_with_schema": "debezium",
    "flat": "debezium-flat",
    "flat_by_default": "debezium-flat",
}

COLUMNS = (
    Column(4, "id", pa.int32(), required=True),
    Column(5, "name", pa.string(), required=True),
    Column(6, "balance", pa.decimal128(10, 2)),
    Column(7, "born", pa.date32()),
    Column(8, "seen", TIMESTAMPTZ),
    Column(9, "at", pa.timestamp("us"), epoch_unit="us"),
    Column(10, "active", pa.bool_()),
    Column(11, "visits", pa.int64()),
    Column(12, "data", pa.binary()),
    Column(13, "uid", pa.uuid()),
    Column(14, "tags", pa.list_(pa.field("element", pa.string()))),
)


def records(form: str) -> list[tuple[bytes, bytes | None]]:
    """Return keys and values, in the order of their topic."""
    schemas = _DATA["schemas"] if form == "events_with_schema" else (None, None)
    return [
        (_text(key, schemas[0]) or b"", _text(value, schemas[1])) for key, value in _DATA[form]
    ]


def left_out() -> tuple[bytes, bytes]:
    """Return the event of an update that leaves out a large value."""
    key, value = _DATA["left_out"]
    return key.encode(), value.encode()


def _text(value: str | None, schema: str | None) -> bytes | None:
    if value is None or schema is None:
        return None if value is None else value.encode()
    return f'{{"schema":{schema},"payload":{value}}}'.encode()


def row_of(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row as ``FINAL`` has it."""
    return {column.name: row[column.name] for column in COLUMNS}


def _read(row: dict[str, Any]) -> dict[str, Any]:
    """Read what PostgreSQL wrote as JSON."""
    reads: dict[str, Callable[[Any], Any]] = {
        "balance": Decimal,
        "born": date.fromisoformat,
        "seen": lambda text: datetime.fromisoformat(f"{text}+00:00"),
        "at": datetime.fromisoformat,
        "data": bytes.fromhex,
        "uid": UUID,
    }
    return {
        column.name: row[column.name]
        if row[column.name] is None
        else reads.get(column.name, lambda value: value)(row[column.name])
        for column in COLUMNS
    }


#: The rows of the source in the end, by their key.
FINAL: list[dict[str, Any]] = [_read(row) for row in _DATA["final"]]
