"""Keys beside values: fast path == exact path, each record alone == in a batch, and each by a few lines of plain Python."""

from __future__ import annotations

import json
import os
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.decoding.json.decoder import JsonRecords
from connectors.decoding.policy import TableDecoder
from connectors.decoding.registry import decoder_for
from planner.schema import METADATA_TYPES, RAW_SCHEMA, TIMESTAMPTZ, Column, TableSchema
from planner.seam.binding import Binding, OnError
from planner.seam.formats import JsonFormat, StringFormat
from planner.seam.keys import RecordKey
from planner.seam.watermark import Outcomes

EXAMPLES = int(os.environ.get("THERMOCLINE_DECODING_EXAMPLES", "100"))
LEAD = tuple(
    Column(at, name, METADATA_TYPES[name])
    for at, name in enumerate(("kafka_partition", "kafka_offset", "kafka_timestamp"), 1)
)
BAD = tuple(
    Column(at, name, METADATA_TYPES[name])
    for at, name in enumerate(("kafka_key", "kafka_value", "kafka_error"), 20)
)
TYPES = (
    pa.bool_(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.decimal128(5, 2),
    pa.date32(),
    TIMESTAMPTZ,
    pa.string(),
    pa.binary(),
    pa.uuid(),
    pa.list_(pa.int64()),
    pa.map_(pa.string(), pa.int32()),
    pa.struct([pa.field("a", pa.int64()), pa.field("b", pa.string())]),
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**64), 2**64),
    st.floats(),
    st.text(max_size=4),
    st.sampled_from(("2026-01-05", "2026-01-05T10:00:00Z", "00ff", "NaN", "1.50")),
)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=4,
).map(lambda value: json.dumps(value).encode())
NASTY = st.sampled_from(
    (
        b"",
        b" 7 ",
        b"-0",
        b"1.0",
        b'1,"value":2',
        b'{"a":1},"a":2',
        b'{"a":1}{',
        b"nul",
        b'"\xff"',
        b"1e400",
    )
)
TEXTS = st.none() | st.sampled_from((b"", b"a", "é".encode(), b"\xff", b"\xe2\x82"))


def batch(records: list[tuple[bytes | None, bytes | None]]) -> pa.RecordBatch:
    rows = [
        {"kafka_partition": 0, "kafka_offset": at, "kafka_key": key, "kafka_value": value}
        for at, (key, value) in enumerate(records)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=RAW_SCHEMA)


@settings(max_examples=EXAMPLES, deadline=None, derandomize=True)
@given(st.sampled_from(TYPES), st.lists(JSON | NASTY | st.none(), min_size=1, max_size=12))
def test_a_json_value_alone_is_the_same_on_both_paths(
    kind: pa.DataType, values: list[bytes | None]
) -> None:
    """And the same as it is as a field of an object, where it is JSON."""
    schema = TableSchema(0, (*LEAD, Column(10, "value", kind), *BAD))
    binding = Binding("t", JsonFormat(), on_error="null")
    raw = batch([(None, value) for value in values])
    fast, exact = (
        TableDecoder("t", schema, binding, JsonRecords("t", schema, binding, **options)).decode(
            raw
        )
        for options in (
            dict[str, Any](is_value=True),
            dict[str, Any](is_value=True, exact_only=True),
        )
    )
    fast.rows.validate(full=True)
    assert fast.outcomes == exact.outcomes
    assert str(fast.rows.to_pylist()) == str(exact.rows.to_pylist())
    whole = [value for value in values if value is not None and is_json(value)]
    around = batch([(None, b'{"value": %b}' % value) for value in whole])
    inside = decoder_for("t", schema, binding).decode(around).rows["value"]
    offsets = [at for at, value in enumerate(values) if value in whole]
    alone = [row["value"] for row in fast.rows.to_pylist() if row["kafka_offset"] in offsets]
    assert str(inside.to_pylist()) == str(alone)


def is_json(value: bytes) -> bool:
    try:
        json.loads(value)
    except ValueError:
        return False
    return b"\xff" not in value


@settings(max_examples=EXAMPLES, deadline=None, derandomize=True)
@given(
    st.sampled_from(("skip", "null")),
    st.lists(st.tuples(TEXTS, TEXTS), max_size=12),
    st.integers(0, 12),
)
def test_keys_and_values_are_rows_by_the_policy(
    policy: OnError, records: list[tuple[bytes | None, bytes | None]], cut: int
) -> None:
    columns = (Column(10, "value", pa.string()), *BAD, Column(11, "key", pa.string()))
    schema = TableSchema(0, (*LEAD, *columns))
    binding = Binding("t", StringFormat(), on_error=policy, key=RecordKey("string", 11))
    decoder = decoder_for("t", schema, binding)
    raw = batch(records)
    decoded = decoder.decode(raw)
    rows = [row for at, record in enumerate(records) for row in row_of(at, record, policy)]
    names = "kafka_offset", "key", "value", "is_bad"
    read = [
        (row["kafka_offset"], row["key"], row["value"], row["kafka_error"] is not None)
        for row in decoded.rows.to_pylist()
    ]
    assert [dict(zip(names, row, strict=True)) for row in read] == rows
    # Wherever the watermark falls.
    halves = [decoder.decode(raw.slice(0, cut)), decoder.decode(raw.slice(cut))]
    assert pa.Table.from_batches([each.rows for each in halves]).equals(
        pa.Table.from_batches([decoded.rows])
    )
    assert sum((each.outcomes for each in halves), Outcomes()) == decoded.outcomes


def row_of(
    at: int, record: tuple[bytes | None, bytes | None], policy: OnError
) -> list[dict[str, Any]]:
    texts = []
    for each in record:
        try:
            texts.append(None if each is None else each.decode())
        except UnicodeDecodeError:
            texts.append("bad")
    key, value = texts
    is_bad = "bad" in texts
    if value is None or (is_bad and policy == "skip"):
        return []
    own = [None if each == "bad" else each for each in (key, value)]
    return [{"kafka_offset": at, "key": own[0], "value": own[1], "is_bad": is_bad}]
