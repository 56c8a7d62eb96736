"""Changes: the product == a plain reading of each record, for every envelope, in JSON and Avro; fast path == exact path."""

from __future__ import annotations

import io
import json
import os
import struct
from collections.abc import Iterable
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors.decoding.json.decoder import JsonRecords
from connectors.decoding.registry import decoder_for
from connectors.decoding.writers import Writers
from planner.errors import UndecodableRecord
from planner.names import Envelope
from planner.schema import Column, TableSchema
from planner.seam.binding import Binding
from planner.seam.formats import AvroFormat
from tests.harness.changes import keyed_binding, keyed_schema, raw

QUICK = settings(
    max_examples=120,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
LONG = settings(
    QUICK,
    max_examples=int(os.environ.get("THERMOCLINE_DECODING_EXAMPLES", "2000")),
    derandomize=False,
)

SCHEMA = keyed_schema(
    Column(4, "id", pa.int64(), required=True),
    Column(5, "part", pa.string(), required=True),
    Column(6, "n", pa.int32(), required=True),
    Column(7, "note", pa.string()),
    Column(8, "tags", pa.list_(pa.field("element", pa.string()))),
    key=("id", "part"),
)
ENVELOPES: list[Envelope] = ["none", "debezium", "debezium-flat"]
MISSING = object()
Change = tuple[int, str, Any, Any, Any, Any, Any]


class Bad(Exception):
    """The record is no change."""


# --- a plain reading: one record, one value at a time ---


def read(envelope: str, key_from: str, record: tuple[Any, Any], offset: int) -> Change:
    key, value = record
    columns = row(envelope, value)
    own = None if columns is None else (columns.get("id"), columns.get("part"))
    of_key = None if key is None else key_of(key)
    if key_from == "key" and of_key is None:
        raise Bad("no key")
    if own is not None and of_key is not None:
        for mine, other in zip(own, of_key, strict=True):
            if mine is not None and mine != other:
                raise Bad("two keys")
    is_delete = columns is None or columns.pop("is_delete", False)
    chosen = of_key
    if key_from == "value":
        filled = own or (None, None)
        if is_delete:
            others = of_key or (None, None)
            filled = tuple(
                other if mine is None else mine
                for mine, other in zip(filled, others, strict=True)
            )
        if None in filled:
            raise Bad("no key")
        chosen = filled
    assert chosen is not None
    if is_delete:
        return (offset, "d", *chosen, None, None, None)
    assert columns is not None
    if columns["n"] is None:
        raise Bad("n")
    return (offset, "u", *chosen, columns["n"], columns["note"], columns["tags"])


def key_of(key: Any) -> tuple[Any, Any]:
    if not isinstance(key, dict):
        raise Bad("key")
    values = column("id", key), column("part", key)
    if None in values:
        raise Bad("key")
    return values


def row(envelope: str, value: Any) -> dict[str, Any] | None:
    """What a value says: its columns, or None of a delete."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise Bad("no object")
    if envelope == "debezium":
        after, op = value.get("after"), value.get("op")
        if op is not None and not isinstance(op, str):
            raise Bad("op")
        if after is not None and not isinstance(after, dict):
            raise Bad("after")
        columns = None if after is None else columns_of(after)
        if op == "d":
            return None
        if op not in ("c", "r", "u") or columns is None:
            raise Bad("op")
        if columns["note"] == "__debezium_unavailable_value":
            raise Bad("left out")
        return columns
    columns = columns_of(value)
    if all(each is None for each in columns.values()) and {"op", "after"} <= set(value):
        raise Bad("an event")
    if envelope == "debezium-flat":
        mark = value.get("__deleted")
        if mark not in ("true", "false", None):
            raise Bad("mark")
        columns["is_delete"] = mark == "true"
        if columns["note"] == "__debezium_unavailable_value" and not columns["is_delete"]:
            raise Bad("left out")
    return columns


def columns_of(value: dict[str, Any]) -> dict[str, Any]:
    return {name: column(name, value) for name in ("id", "part", "n", "note", "tags")}


def column(name: str, value: dict[str, Any]) -> Any:
    columns = value.get(name)
    if columns is None:
        return None
    if name in ("id", "n"):
        bits = 63 if name == "id" else 31
        if type(columns) is not int or not -(2**bits) <= columns < 2**bits:
            raise Bad(name)
    elif name == "tags":
        if not isinstance(columns, list) or any(
            type(each) not in (str, type(None)) for each in columns
        ):
            raise Bad(name)
    elif type(columns) is not str:
        raise Bad(name)
    return columns


# --- records ---


def fields(**choices: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    made = st.fixed_dictionaries(
        {name: st.one_of(each, st.just(MISSING)) for name, each in choices.items()}
    )
    return made.map(
        lambda items: {name: each for name, each in items.items() if each is not MISSING}
    )


IDS = st.sampled_from([1, 1, 2, 2, None])
PARTS = st.sampled_from(["a", "a", "b", ""])
ODD = st.sampled_from(["x", 1.5, True, [1], {"a": 1}, 2**70, ""])
NOTES = st.sampled_from([None, "é", "", "__debezium_unavailable_value", '{"a": 1}'])
TAGS = st.sampled_from([None, [], ["a", None], ["__debezium_unavailable_value", "a"]])
GOOD_KEYS = st.fixed_dictionaries({"part": PARTS, "id": st.sampled_from([1, 1, 2])})
KEYS = st.one_of(
    GOOD_KEYS, GOOD_KEYS, GOOD_KEYS, fields(id=st.one_of(IDS, ODD), part=PARTS), st.none(), ODD
)
ROWS = fields(
    id=IDS,
    part=PARTS,
    n=st.sampled_from([0, 7, -1, None, 2**31]),
    note=st.one_of(NOTES, ODD),
    tags=TAGS,
    other=ODD,
)
FLAT = st.tuples(
    ROWS, fields(__deleted=st.sampled_from(["true", "true", "false", None, True, "TRUE"]))
).map(lambda both: both[0] | both[1])
EVENTS = fields(
    before=st.one_of(ROWS, st.none()),
    after=st.one_of(ROWS, ROWS, st.none(), ODD),
    op=st.sampled_from(["c", "r", "u", "d", "d", "t", "m", "", None, 5]),
    source=st.just({"lsn": 1}),
)
VALUES = {
    "none": st.one_of(ROWS, ROWS, ROWS, EVENTS, st.none(), ODD),
    "debezium": st.one_of(EVENTS, EVENTS, EVENTS, ROWS, st.none(), ODD),
    "debezium-flat": st.one_of(FLAT, FLAT, FLAT, EVENTS, st.none(), ODD),
}


def expect(
    envelope: str, key_from: str, records: Iterable[tuple[Any, Any]]
) -> tuple[list[Change], list[int]]:
    """The changes, and the offsets of the bad records."""
    good, bad = [], []
    for offset, record in enumerate(records):
        try:
            good.append(read(envelope, key_from, record, offset))
        except Bad:
            bad.append(offset)
    return good, bad


def check(
    schema: TableSchema,
    binding: Binding,
    batch: pa.RecordBatch,
    expected: Any,
    writers: Writers | None = None,
) -> None:
    good, bad = expected
    decoded = decoder_for("t", schema, binding, writers).decode(batch)
    decoded.rows.validate(full=True)
    names = ("kafka_offset", "kafka_op", "id", "part", "n", "note", "tags")
    columns = [tuple(each[name] for name in names) for each in decoded.rows.to_pylist()]
    assert columns == good
    deletes = sum(each[1] == "d" for each in good)
    assert decoded.outcomes.deletes == deletes
    assert decoded.outcomes.rows == len(good) - deletes
    assert decoded.outcomes.skipped == len(bad)
    stopping = Binding(**{**_facts(binding), "on_error": "fail"})
    strict = decoder_for("t", schema, stopping, writers)
    if not bad:
        assert strict.decode(batch).rows.equals(decoded.rows)
        return
    with pytest.raises(UndecodableRecord) as error:
        strict.decode(batch)
    assert error.value.facts["offset"] == bad[0]


def _facts(binding: Binding) -> dict[str, Any]:
    return {name: getattr(binding, name) for name in ("topic", "format", "key", "upsert")}


_init = JsonRecords.__init__


def _exact(self: JsonRecords, *of: Any, **options: Any) -> None:
    _init(self, *of, **{**options, "exact_only": True})


def _json(data: st.DataObject) -> None:
    envelope = data.draw(st.sampled_from(ENVELOPES))
    key_from = data.draw(st.sampled_from(["key", "key", "value"]))
    records = data.draw(st.lists(st.tuples(KEYS, VALUES[envelope]), max_size=12))
    binding = keyed_binding(SCHEMA, envelope, key_from=key_from, on_error="skip")
    expected, batch = expect(envelope, key_from, records), raw(*records)
    check(SCHEMA, binding, batch, expected)
    JsonRecords.__init__ = _exact  # type: ignore[method-assign]
    try:
        check(SCHEMA, binding, batch, expected)
    finally:
        JsonRecords.__init__ = _init  # type: ignore[method-assign]


@QUICK
@given(st.data())
def test_records_of_json_are_the_changes_that_a_plain_reading_finds(
    data: st.DataObject,
) -> None:
    _json(data)


@pytest.mark.soak
@LONG
@given(st.data())
def test_many_records_of_json_are_the_changes_that_a_plain_reading_finds(
    data: st.DataObject,
) -> None:
    _json(data)


# --- Avro: what a schema allows ---

AVRO_ROW = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "part", "type": ["null", "string"]},
        {"name": "id", "type": ["null", "long"]},
        {"name": "n", "type": ["null", "int"]},
        {"name": "note", "type": ["null", "string"]},
        {"name": "tags", "type": ["null", {"type": "array", "items": ["null", "string"]}]},
        {"name": "__deleted", "type": ["null", "string"]},
    ],
}
AVRO_EVENT = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", AVRO_ROW]},
        {"name": "after", "type": ["null", "Value"]},
        {"name": "op", "type": "string"},
    ],
}
AVRO_ROWS = st.fixed_dictionaries(
    {
        "id": IDS,
        "part": PARTS,
        "n": st.sampled_from([0, 7, -1, None]),
        "note": NOTES,
        "tags": TAGS,
        "__deleted": st.sampled_from(["true", "false", None, "yes"]),
    }
)
AVRO_EVENTS = st.fixed_dictionaries(
    {
        "before": st.one_of(AVRO_ROWS, st.none()),
        "after": st.one_of(AVRO_ROWS, AVRO_ROWS, st.none()),
        "op": st.sampled_from(["c", "r", "u", "d", "t", ""]),
    }
)


def _avro(data: st.DataObject) -> None:
    envelope = data.draw(st.sampled_from(ENVELOPES))
    key_from = data.draw(st.sampled_from(["key", "value"]))
    is_event = envelope == "debezium"
    values = st.one_of(*[AVRO_EVENTS if is_event else AVRO_ROWS] * 4, st.none())
    records = data.draw(st.lists(st.tuples(KEYS, values), max_size=12))
    # As many as the fast path wants, sometimes.
    records *= data.draw(st.sampled_from([1, 1, 40]))
    text = AVRO_EVENT if is_event else AVRO_ROW
    parsed, writers = fastavro.parse_schema(text), Writers()
    writers.add(7, json.dumps(text))
    batch = raw(
        *((key, None if value is None else _written(parsed, value)) for key, value in records)
    )
    binding = keyed_binding(
        SCHEMA, envelope, key_from=key_from, format=AvroFormat(), on_error="skip"
    )
    check(SCHEMA, binding, batch, expect(envelope, key_from, records), writers)


def _written(schema: Any, value: Any) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, schema, value)
    return b"\0" + struct.pack(">I", 7) + body.getvalue()


@QUICK
@given(st.data())
def test_records_of_avro_are_the_changes_that_a_plain_reading_finds(
    data: st.DataObject,
) -> None:
    _avro(data)


@pytest.mark.soak
@LONG
@given(st.data())
def test_many_records_of_avro_are_the_changes_that_a_plain_reading_finds(
    data: st.DataObject,
) -> None:
    _avro(data)
