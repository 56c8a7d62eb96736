"""What producers of the lake's two topics write: every value follows from a record's number."""

from __future__ import annotations

import json

import pyarrow as pa

from planner.schema import HEADERS_TYPE, TIMESTAMPTZ, Column, TableSchema
from tests.doubles.log import MemoryRecord

GOOD, BAD, TOMBSTONE = "good", "bad", "tombstone"

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
