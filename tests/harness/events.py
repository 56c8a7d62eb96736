"""Events of every type that is served."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from planner.schema import TIMESTAMPTZ, Column

UUIDS = ("00000000-0000-0000-0000-000000000000", "ffffffff-ffff-4fff-8fff-ffffffffffff")
POINT = pa.struct([pa.field("x", pa.float64()), pa.field("when", TIMESTAMPTZ)])
#: Every Iceberg type that is served: what arrives over Flight, and extremes as a record carries them.
TYPES: dict[str, tuple[pa.DataType, pa.DataType, list[Any]]] = {
    "flag": (pa.bool_(), pa.bool_(), [True, False]),
    "small": (pa.int32(), pa.int32(), [-(2**31), 2**31 - 1, 0]),
    "large": (pa.int64(), pa.int64(), [-(2**63), 2**63 - 1]),
    "single": (
        pa.float32(),
        pa.float32(),
        [3.4028234663852886e38, 1e-45, -0.0, "NaN", "-Infinity"],
    ),
    "double": (
        pa.float64(),
        pa.float64(),
        [1.7976931348623157e308, 5e-324, -0.0, "NaN", "Infinity"],
    ),
    "money": (pa.decimal128(4, 2), pa.decimal128(4, 2), ["99.99", "-99.99", 0]),
    "digits": (
        pa.decimal128(38, 10),
        pa.decimal128(38, 10),
        ["9999999999999999999999999999.9999999999", "-0.0000000001"],
    ),
    "whole": (pa.decimal128(38, 0), pa.decimal128(38, 0), ["-" + "9" * 38]),
    "day": (pa.date32(), pa.date32(), ["0001-01-01", "9999-12-31", "1969-12-31"]),
    "local": (
        pa.timestamp("us"),
        pa.timestamp("us"),
        ["0001-01-01T00:00:00", "9999-12-31T23:59:59.999999", "1969-12-31T23:59:59.999999"],
    ),
    "instant": (
        TIMESTAMPTZ,
        TIMESTAMPTZ,
        [
            "0001-01-01T00:00:00Z",
            "9999-12-31T23:59:59.999999Z",
            "1582-10-10T00:00:00+02:00",
        ],
    ),
    "text": (pa.string(), pa.string(), ["", "grüße 🌊", "a\u0000b", "x" * 100_000]),
    "bytes": (pa.binary(), pa.binary(), ["", "00ff"]),
    "fixed": (pa.binary(3), pa.binary(), ["000102", "ffffff"]),
    "id": (pa.uuid(), pa.string(), list(UUIDS)),
    "numbers": (pa.list_(pa.int32()), pa.list_(pa.int32()), [[], [1, None, -3], [None]]),
    "points": (
        pa.list_(POINT),
        pa.list_(POINT),
        [[], [None, {"x": 1.0, "when": None}], [{"x": None, "when": "2026-01-01T00:00:00Z"}]],
    ),
    "counts": (
        pa.map_(pa.string(), pa.int64()),
        pa.map_(pa.string(), pa.int64()),
        [{}, {"": 1, "b": None}],
    ),
    "keyed": (
        pa.map_(pa.int32(), pa.list_(pa.binary(2))),
        pa.map_(pa.int32(), pa.list_(pa.binary())),
        [{"keys": [1, 2], "values": [["00ff", None], None]}, {"keys": [], "values": []}],
    ),
    "nested": (
        pa.struct([pa.field("d", pa.date32()), pa.field("p", pa.list_(POINT))]),
        pa.struct([pa.field("d", pa.date32()), pa.field("p", pa.list_(POINT))]),
        [{}, {"d": "2024-02-29", "p": [{"x": "NaN", "when": None}]}, {"d": None, "p": []}],
    ),
}


def events(start: int, stop: int) -> list[bytes]:
    return [json.dumps({"id": n, "name": f"row {n}"}).encode() for n in range(start, stop)]


EVENT = (Column(0, "id", pa.int64()), Column(0, "name", pa.string()))
