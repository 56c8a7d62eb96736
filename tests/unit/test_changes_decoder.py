"""Which change a record is, by envelope, key and format; and what is none (docs/change-data.md)."""

from __future__ import annotations

import base64
import json
import uuid
from typing import Any

import pyarrow as pa
import pytest

from connectors.decoding.changes import ChangeDecoder
from connectors.decoding.registry import decoder_for
from connectors.decoding.writers import Writers
from planner.errors import BadBinding, UndecodableRecord, ValueUnavailable
from planner.names import KAFKA_KEY
from planner.ports import TopicSource
from planner.schema import TIMESTAMPTZ, Column
from planner.seam.binding import decoded_schema
from planner.seam.formats import AvroFormat, JsonFormat, StringFormat
from planner.seam.keys import KeySchema, RecordKey
from planner.seam.watermark import Outcomes
from tests.harness.changes import (
    Record,
    changes,
    decoded,
    event,
    framed,
    keyed_binding,
    keyed_schema,
    raw,
)

ID = Column(4, "id", pa.int64(), required=True)
NAME, N = Column(5, "name", pa.string()), Column(6, "n", pa.int32())
SCHEMA = keyed_schema(ID, NAME, N)
KEY = {"id": 1}
ROW = {"id": 1, "name": "a", "n": 7}
EVENTS = keyed_binding(SCHEMA, "debezium")
FLAT = keyed_binding(SCHEMA, "debezium-flat")
PLAIN = keyed_binding(SCHEMA)
FROM_VALUE = keyed_binding(SCHEMA, key_from="value", key=None)


def refused(binding: Any, *records: Any, schema: Any = SCHEMA, **options: Any) -> str:
    """Return the reason for which the first bad record is one."""
    with pytest.raises(UndecodableRecord) as error:
        changes(schema, binding, *records, **options)
    return str(error.value.facts["reason"])


NUMBER = "00112233-4455-6677-8899-aabbccddee"


# --- operations ---


def test_creates_reads_and_updates_are_rows_and_deletes_have_the_key_alone() -> None:
    records: list[Record] = [(KEY, event(op, {**ROW, "n": n})) for n, op in enumerate("cru")]
    records += [(KEY, event("d", None)), (KEY, None)]
    assert changes(SCHEMA, EVENTS, *records) == [
        (0, "u", 1, "a", 0),
        (1, "u", 1, "a", 1),
        (2, "u", 1, "a", 2),
        (3, "d", 1, None, None),
        (4, "d", 1, None, None),
    ]


def test_before_is_no_part_of_a_change() -> None:
    whole = {"id": 1, "name": "old", "n": 1}
    records = [
        (KEY, event("u", {"id": 1, "name": None}, before=whole)),
        (KEY, event("d", None, before=whole)),
        (KEY, event("c", {"id": 1}, before={"id": 8, "name": 5, "n": "no number"})),
    ]
    assert changes(SCHEMA, EVENTS, *records) == [
        (0, "u", 1, None, None),
        (1, "d", 1, None, None),
        (2, "u", 1, None, None),
    ]


@pytest.mark.parametrize("envelope", ["none", "debezium", "debezium-flat"])
def test_a_null_value_is_a_delete_in_every_envelope(envelope: str) -> None:
    assert changes(SCHEMA, keyed_binding(SCHEMA, envelope), (KEY, None)) == [
        (0, "d", 1, None, None)
    ]


@pytest.mark.parametrize(
    "text",
    [
        b"null",
        b'{"schema":null,"payload":null}',
        b'{"schema":{"type":"struct"},"payload":null}',
    ],
)
def test_the_converters_null_is_a_delete_of_change_data_alone(text: bytes) -> None:
    for binding in (EVENTS, FLAT):
        assert changes(SCHEMA, binding, (KEY, text), ({"id": 2}, None), (KEY, text)) == [
            (0, "d", 1, None, None),
            (1, "d", 2, None, None),
            (2, "d", 1, None, None),
        ]
    assert "null" in refused(PLAIN, (KEY, b"null"))
    assert "no change event" in refused(EVENTS, (KEY, b'{"schema":1,"op":null,"payload":null}'))


def test_a_column_that_becomes_null_is_null() -> None:
    records = [(KEY, event("c", ROW)), (KEY, event("u", {"id": 1, "n": None, "name": None}))]
    assert changes(SCHEMA, EVENTS, *records)[1] == (1, "u", 1, None, None)


def test_flat_records_are_rows_and_those_marked_as_deleted_are_deletes() -> None:
    required = keyed_schema(ID, Column(5, "name", pa.string(), required=True), N)
    records = [
        (KEY, ROW),
        (KEY, {**ROW, "__deleted": "false"}),
        # What ExtractNewRecordState makes of ``before``: NULL, or zero where the source requires a value.
        (KEY, {"id": 1, "name": "", "n": None, "__deleted": "true"}),
        (KEY, {"id": 1, "name": None, "__deleted": "true"}),
        (KEY, {**ROW, "__deleted": None}),
    ]
    assert changes(required, keyed_binding(required, "debezium-flat"), *records) == [
        (0, "u", 1, "a", 7),
        (1, "u", 1, "a", 7),
        (2, "d", 1, None, None),
        (3, "d", 1, None, None),
        (4, "u", 1, "a", 7),
    ]


@pytest.mark.parametrize("mark", ["TRUE", "yes", "", " true"])
def test_a_mark_that_says_nothing_makes_a_bad_record(mark: str) -> None:
    reason = "field __deleted: it is neither true nor false"
    assert refused(FLAT, (KEY, {**ROW, "__deleted": mark})) == reason
    # Plain rows have no such field.
    assert changes(SCHEMA, PLAIN, (KEY, {**ROW, "__deleted": mark})) == [(0, "u", 1, "a", 7)]


@pytest.mark.parametrize(("kind", "yes"), [(pa.string(), "true"), (pa.bool_(), True)])
def test_a_column_may_have_the_mark_of_deleted_records(kind: pa.DataType, yes: Any) -> None:
    schema = keyed_schema(ID, Column(5, "__deleted", kind))
    records = [(KEY, {"id": 1, "__deleted": yes}), (KEY, {"id": 1})]
    assert changes(schema, keyed_binding(schema, "debezium-flat"), *records) == [
        (0, "d", 1, None),
        (1, "u", 1, None),
    ]


@pytest.mark.parametrize(
    ("op", "reason"),
    [
        (
            "t",
            "operation 't' is a truncate, which names no key: the table keeps its rows until it is made anew",
        ),
        ("m", "operation 'm' is a message of its source, and no change of a row"),
        ("x", "operation 'x' is none of Debezium's operations on a row"),
        ("C", "operation 'C' is none of Debezium's operations on a row"),
    ],
)
def test_other_operations_are_no_changes(op: str, reason: str) -> None:
    assert refused(EVENTS, (None, event(op, None))) == reason
    assert refused(EVENTS, (KEY, event(op, ROW))) == reason


def test_an_event_without_the_row_it_says_is_none() -> None:
    for op in "cru":
        reason = f"field after: it is null, and the operation {op} says a row"
        assert refused(EVENTS, (KEY, event(op, None))) == reason


def test_a_row_has_what_its_table_requires() -> None:
    schema = keyed_schema(ID, Column(5, "name", pa.string(), required=True))
    reason = "field name: it is required, but null or missing"
    for envelope, record in (("debezium", event("u", {"id": 1})), ("none", {"id": 1})):
        assert refused(keyed_binding(schema, envelope), (KEY, record), schema=schema) == reason


# --- another envelope than the table's ---


def test_rows_in_a_table_of_events_are_named() -> None:
    reason = "the record is no change event of Debezium: it has no field op"
    assert refused(EVENTS, (KEY, ROW)) == reason
    assert refused(EVENTS, (KEY, {"op": None, "after": ROW})) == reason


@pytest.mark.parametrize("binding", [PLAIN, FLAT, FROM_VALUE], ids=["none", "flat", "value"])
def test_events_in_a_table_of_rows_are_named(binding: Any) -> None:
    reason = "the record is a change event of Debezium, with the row in its field after"
    assert refused(binding, (KEY, event("c", ROW))) == reason
    assert refused(binding, (KEY, event("d", None))) == reason


def test_a_schema_beside_plain_rows_is_named() -> None:
    reason = "the record has its schema beside it, as Kafka Connect's converter writes"
    assert refused(PLAIN, (KEY, {"schema": None, "payload": ROW})) == reason


@pytest.mark.parametrize(("levels", "is_row"), [(499, True), (501, False)])
def test_a_schema_beside_a_row_is_as_deep_as_records_may_be(levels: int, is_row: bool) -> None:
    schema = b'{"type":"struct","fields":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"
    record = (KEY, b'{"schema":' + schema + b',"payload":{"name":"a"}}')
    if is_row:
        assert changes(SCHEMA, FLAT, record) == [(0, "u", 1, "a", None)]
    else:
        assert refused(FLAT, record) == "the JSON is nested more than 500 levels deep"


def test_a_row_of_nulls_is_a_row() -> None:
    assert changes(SCHEMA, PLAIN, (KEY, {}), (KEY, {"other": 1})) == [
        (0, "u", 1, None, None),
        (1, "u", 1, None, None),
    ]


def test_events_of_avro_in_a_table_of_rows_are_named() -> None:
    writers = avro_writers(EVENT_TEXT)
    binding = keyed_binding(SCHEMA, format=AvroFormat())
    reason = "the record is a change event of Debezium, with the row in its field after"
    value = framed(7, b"\0\2\2\2a\x0e\2c")
    assert refused(binding, (KEY, value), writers=writers) == reason


# --- keys ---


@pytest.mark.parametrize("binding", [PLAIN, EVENTS, FLAT], ids=["none", "debezium", "flat"])
def test_a_record_without_a_key_is_never_a_change(binding: Any) -> None:
    value = event("c", ROW) if binding is EVENTS else ROW
    assert refused(binding, (None, value)) == "the record has no key"
    assert refused(binding, (None, None)) == "the record has no key"


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ({"other": 1}, "key: field id: it is required, but null or missing"),
        ({"id": None}, "key: field id: it is required, but null or missing"),
        ({"id": "1"}, "key: field id: expected a whole number for long, found a string"),
        (b"null", "key: field id: it is required, but null or missing"),
        ("1", "key: field id: expected a whole number for long, found a string"),
        (b"{", "key: the value is not JSON (character 1)"),
        (b"\xff", "key: the value is not UTF-8 (byte 0)"),
    ],
)
@pytest.mark.parametrize("value", [ROW, None], ids=["row", "delete"])
def test_a_key_that_does_not_decode_makes_a_bad_record(
    key: Any, reason: str, value: Any
) -> None:
    assert refused(PLAIN, (key, value)) == reason


@pytest.mark.parametrize("key", [{"id": 1}, 1, {"more": [2], "id": 1}, b' {"id": 1}', b" 1 "])
@pytest.mark.parametrize("envelope", ["none", "debezium-flat"])
def test_a_key_of_json_is_an_object_or_the_one_value(key: Any, envelope: str) -> None:
    records = [(key, ROW), ({"id": 5}, None), (6, None)]
    assert [
        each[:3] for each in changes(SCHEMA, keyed_binding(SCHEMA, envelope), *records)
    ] == [
        (0, "u", 1),
        (1, "d", 5),
        (2, "d", 6),
    ]


def test_keys_with_their_schema_beside_them_are_an_object_or_the_one_value() -> None:
    of_struct = {"type": "struct", "fields": [{"type": "int64", "field": "id"}]}
    records: list[Record] = [
        ({"schema": of_struct, "payload": {"id": 1}}, None),
        ({"schema": {"type": "int64"}, "payload": 2}, None),
        ({"schema": None, "payload": {"id": 3}}, None),
    ]
    for some in (records, records[::-1], records[1:]):
        ids = {each[2] for each in changes(SCHEMA, EVENTS, *some)}
        assert ids == {
            each[0]["payload"] if each[0]["payload"] == 2 else each[0]["payload"]["id"]
            for each in some
        }


def test_several_columns_of_a_key_go_by_their_names() -> None:
    schema = keyed_schema(
        Column(4, "a", pa.int64(), True), N, Column(5, "b", pa.string(), True), key=("a", "b")
    )
    binding = keyed_binding(schema)
    assert changes(
        schema, binding, ({"b": "x", "a": 1}, {"n": 2}), ({"a": 2, "b": ""}, None)
    ) == [
        (0, "u", 1, 2, "x"),
        (1, "d", 2, None, ""),
    ]
    # The source's primary key lost a column, or got another.
    reason = "key: field b: it is required, but null or missing"
    assert refused(binding, ({"a": 1, "c": 2}, {"n": 1}), schema=schema) == reason
    assert (
        refused(binding, (5, {"n": 1}), schema=schema)
        == "key: the JSON is a number, not an object"
    )


def test_another_key_in_the_value_is_named() -> None:
    reason = "field id: the value differs from that of the record's key"
    assert refused(PLAIN, ({"id": 2}, ROW)) == reason
    assert refused(EVENTS, ({"id": 2}, event("u", ROW))) == reason
    both = keyed_binding(SCHEMA, key_from="value")
    assert refused(both, ({"id": 2}, ROW)) == reason
    # Where only one of them says it, there is nothing to compare.
    assert changes(SCHEMA, PLAIN, (KEY, {"n": 1}), (KEY, {"id": None})) == [
        (0, "u", 1, None, 1),
        (1, "u", 1, None, None),
    ]


@pytest.mark.parametrize(
    ("kind", "value", "same", "other"),
    [
        (pa.uuid(), f"{NUMBER}FF", f"{NUMBER}ff", f"{NUMBER}fe"),
        (pa.decimal128(5, 2), 1.5, "1.50", "1.51"),
        (pa.date32(), "2026-01-01", "2026-01-01", "2026-01-02"),
        (TIMESTAMPTZ, "2026-01-01T01:00:00+01:00", "2026-01-01T00:00Z", "2026-01-01T01:00:00Z"),
        (pa.binary(), "00ff", "00FF", "00fe"),
    ],
)
def test_keys_are_equal_by_their_values(
    kind: pa.DataType, value: Any, same: Any, other: Any
) -> None:
    schema = keyed_schema(Column(4, "id", kind, True), N)
    binding = keyed_binding(schema)
    [row] = changes(schema, binding, ({"id": value}, {"id": same, "n": 1}))
    assert row[1] == "u"
    assert "differs" in refused(binding, ({"id": value}, {"id": other}), schema=schema)


def test_keys_of_values_need_none_of_the_record() -> None:
    assert changes(SCHEMA, FROM_VALUE, (None, ROW), (b"\xff", {**ROW, "id": 2})) == [
        (0, "u", 1, "a", 7),
        (1, "u", 2, "a", 7),
    ]
    assert (
        refused(FROM_VALUE, (KEY, {"name": "a"}))
        == "field id: it is required, but null or missing"
    )
    assert refused(FROM_VALUE, (KEY, None)) == "a delete without a key"
    flat = keyed_binding(SCHEMA, "debezium-flat", key_from="value", key=None)
    assert changes(SCHEMA, flat, (None, {"id": 3, "__deleted": "true"})) == [
        (0, "d", 3, None, None)
    ]
    assert refused(flat, (None, {"__deleted": "true"})) == "a delete without a key"
    events = keyed_binding(SCHEMA, "debezium", key_from="value", key=None)
    assert refused(events, (None, event("d", None))) == "a delete without a key"


def test_keys_of_values_may_have_deletes_by_the_records_key() -> None:
    both = keyed_binding(SCHEMA, "debezium", key_from="value")
    assert changes(
        SCHEMA, both, (None, event("c", ROW)), (KEY, event("d", None)), (KEY, None)
    ) == [
        (0, "u", 1, "a", 7),
        (1, "d", 1, None, None),
        (2, "d", 1, None, None),
    ]
    assert refused(both, (None, None)) == "a delete without a key"
    assert refused(both, (b"x", event("c", ROW))).startswith("key: ")


@pytest.mark.parametrize(
    ("form", "kind", "key", "value"),
    [("string", pa.string(), "é".encode(), "é"), ("raw", pa.binary(), b"\0\xff", b"\0\xff")],
)
def test_keys_that_are_text_or_bytes_fill_the_one_column(
    form: Any, kind: pa.DataType, key: bytes, value: Any
) -> None:
    schema = keyed_schema(Column(4, "id", kind, True), N)
    binding = keyed_binding(schema, key=RecordKey(form))
    assert changes(schema, binding, (key, {"n": 1}), (key, None)) == [
        (0, "u", value, 1),
        (1, "d", value, None),
    ]
    two = keyed_schema(Column(4, "id", kind, True), Column(7, "b", kind, True), key=("id", "b"))
    with pytest.raises(BadBinding) as refusal:
        decoder_for("lake.net.t", two, keyed_binding(two, key=RecordKey(form)))
    assert refusal.value.message == (
        f"lake.net.t: keys of the format {form} are one value, and the table's key has 2 columns (id, b); use --key-format json "
        f"or avro, or make a table with one key column."
    )


@pytest.mark.parametrize(
    ("text", "body"),
    [
        (
            '{"type": "record", "name": "Key", "fields": [{"name": "x", "type": "int"}, {"name": "id", "type": "long"}]}',
            b"\4\2",
        ),
        ('"long"', b"\2"),
    ],
)
def test_keys_of_avro_are_a_record_or_the_one_value(text: str, body: bytes) -> None:
    pinned = KeySchema(9, "t-key", 1, text)
    binding = keyed_binding(SCHEMA, "debezium", key=RecordKey("avro", schema=pinned))
    assert changes(
        SCHEMA, binding, (framed(9, body), event("c", ROW)), (framed(9, body), None)
    ) == [
        (0, "u", 1, "a", 7),
        (1, "d", 1, None, None),
    ]
    assert refused(binding, (framed(8, body), None)) == (
        "key: schema id 8 is not that of the table's keys, 9 (t-key:1)"
    )


def test_a_key_of_avro_that_is_one_value_fills_one_column() -> None:
    two = keyed_schema(ID, Column(5, "b", pa.string(), True), key=("id", "b"))
    key = RecordKey("avro", schema=KeySchema(9, "t-key", 1, '"long"'))
    with pytest.raises(BadBinding) as refusal:
        decoder_for("lake.net.t", two, keyed_binding(two, key=key))
    assert refusal.value.message == (
        "lake.net.t: keys are t-key:1, which is no record, and the table's key has 2 columns; make a table with one key column."
    )


# --- policies, skips, outcomes ---


def test_bad_records_are_counted_and_hide_nothing_under_policy_skip() -> None:
    binding = keyed_binding(SCHEMA, "debezium", on_error="skip")
    records = [
        (KEY, event("c", ROW)),
        (None, event("t", None)),
        (KEY, b"{"),
        ({"id": "x"}, event("u", ROW)),
        ({"id": 2}, event("u", ROW)),
        (KEY, event("u", {**ROW, "n": "x"})),
        (KEY, event("d", None)),
        (None, None),
    ]
    result = decoded(SCHEMA, binding, *records)
    assert [row["kafka_offset"] for row in result.rows.to_pylist()] == [0, 6]
    assert result.outcomes == Outcomes(rows=1, deletes=1, skipped=6)
    assert result.outcomes.records == len(records)


def test_policy_fail_names_the_first_bad_record_whatever_is_bad_about_it() -> None:
    bad = [
        (KEY, b"{"),
        (None, event("c", ROW)),
        ({"id": 2}, event("u", ROW)),
        (KEY, event("t", None)),
    ]
    good = (KEY, event("c", ROW))
    for first in bad:
        for second in bad:
            with pytest.raises(UndecodableRecord) as error:
                changes(SCHEMA, EVENTS, good, good, first, second)
            assert error.value.facts["offset"] == 2


def test_a_bad_record_says_the_way_out() -> None:
    with pytest.raises(UndecodableRecord) as error:
        changes(SCHEMA, EVENTS, (KEY, event("u", {**ROW, "n": "seven"})))
    assert error.value.message == (
        "lake.net.t: the record at partition 0, offset 0 does not decode: field n: expected a whole number for int, found a "
        "string; where a column of its source has another type from this record on, make a table anew, or give the field a new "
        "column; where it is a single one, run `thermocline skip lake.net.t --partition 0 --offset 0`."
    )


def test_records_that_a_person_has_given_up_are_no_changes() -> None:
    binding = keyed_binding(SCHEMA, "debezium", skips=((0, 1),))
    result = decoded(SCHEMA, binding, (KEY, event("c", ROW)), (None, b"x"), (KEY, None))
    assert [row["kafka_op"] for row in result.rows.to_pylist()] == ["u", "d"]
    assert result.outcomes == Outcomes(rows=1, deletes=1, skipped=1)


def test_changes_have_the_schema_that_is_agreed_and_metadata_of_their_records() -> None:
    times = keyed_schema(ID, Column(7, "kafka_key", pa.binary()), NAME, N)
    binding = keyed_binding(times)
    decoder = decoder_for("lake.net.t", times, binding)
    assert isinstance(decoder, ChangeDecoder)
    batch = raw((KEY, ROW), (KEY, None))
    rows = decoder.decode(batch).rows
    assert rows.schema.equals(decoded_schema(times, binding), check_metadata=True)
    assert decoder.decode(batch.slice(0, 0)).rows.schema.equals(rows.schema)
    assert rows.column("kafka_key").to_pylist() == [b'{"id": 1}'] * 2
    assert TopicSource.of(decoder, "t").with_key
    without = decoder_for("lake.net.t", SCHEMA, FROM_VALUE)
    assert KAFKA_KEY not in without.reads


def test_a_long_batch_is_decoded_in_portions_as_if_it_were_one() -> None:
    records = [
        ({"id": at}, event("cud"[at % 3], {**ROW, "id": at} if at % 3 != 2 else None))
        for at in range(9_000)
    ]
    result = decoded(SCHEMA, EVENTS, *records)
    assert result.outcomes == Outcomes(rows=6_000, deletes=3_000)
    assert result.rows.column("id").to_pylist() == list(range(9_000))
    assert result.rows.column("kafka_op").to_pylist() == list("uud") * 3_000


# --- large values that an update left out ---

TEXT = "__debezium_unavailable_value"
OF_UUID = str(uuid.uuid3(type("Empty", (), {"bytes": b""})(), TEXT))


def array(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", kind))


PLACEHOLDERS: list[tuple[pa.DataType, Any]] = [
    (pa.string(), TEXT),
    (pa.string(), f'{{"{TEXT}":"{TEXT}"}}'),
    (pa.binary(), base64.b64encode(TEXT.encode()).decode()),
    (array(pa.string()), [TEXT]),
    (array(pa.binary()), [base64.b64encode(TEXT.encode()).decode()]),
    (array(pa.int32()), list(TEXT.encode())),
    (array(pa.int64()), list(TEXT.encode())),
    (array(pa.uuid()), [OF_UUID]),
    (array(pa.string()), [OF_UUID]),
    (pa.map_(pa.string(), pa.string()), {TEXT: TEXT}),
]


@pytest.mark.parametrize(
    ("kind", "value"),
    PLACEHOLDERS,
    ids=["string", "json", "binary", *(f"list {at}" for at in range(6)), "map"],
)
def test_a_value_that_its_source_left_out_is_an_error_of_its_own(kind: Any, value: Any) -> None:
    schema = keyed_schema(ID, Column(5, "big", kind))
    for envelope in ("debezium", "debezium-flat"):
        row = {"id": 1, "big": value}
        record = event("u", row) if envelope == "debezium" else row
        with pytest.raises(ValueUnavailable) as error:
            changes(schema, keyed_binding(schema, envelope), (KEY, record))
        assert error.value.message == (
            "lake.net.t: the record at partition 0, offset 0 does not decode: field big: an update did not touch the value, and "
            "its source left it out; have PostgreSQL send whole rows (`ALTER TABLE … REPLICA IDENTITY FULL`) and touch the row "
            "there; to leave this change out, run `thermocline skip lake.net.t --partition 0 --offset 0`."
        )


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.string(), None),
        (pa.string(), TEXT + " "),
        (array(pa.string()), [TEXT, TEXT]),
        (array(pa.string()), [None]),
        (array(pa.int32()), list(TEXT.encode())[1:]),
        (pa.map_(pa.string(), pa.string()), {TEXT: "x"}),
    ],
    ids=str,
)
def test_what_only_looks_like_it_is_a_value(kind: Any, value: Any) -> None:
    schema = keyed_schema(ID, Column(5, "big", kind))
    [change] = changes(
        schema, keyed_binding(schema, "debezium"), (KEY, event("u", {"id": 1, "big": value}))
    )
    assert change[1] == "u"


def test_the_text_is_a_value_of_plain_rows_and_no_matter_of_a_delete() -> None:
    assert changes(SCHEMA, PLAIN, (KEY, {"name": TEXT})) == [(0, "u", 1, TEXT, None)]
    deleted = {"id": 1, "name": TEXT, "__deleted": "true"}
    assert changes(SCHEMA, FLAT, (KEY, deleted)) == [(0, "d", 1, None, None)]


# --- Avro ---

ROW_TEXT = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": "string"},
        {"name": "n", "type": "int"},
    ],
}
EVENT_TEXT = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", ROW_TEXT]},
        {"name": "after", "type": ["null", "Value"]},
        {"name": "op", "type": "string"},
    ],
}


def avro_writers(text: Any) -> Writers:
    writers = Writers()
    writers.add(7, json.dumps(text))
    return writers


@pytest.mark.parametrize("times", [1, 100], ids=["exact", "fast"])
def test_events_of_avro_are_the_same_changes(times: int) -> None:
    binding = keyed_binding(SCHEMA, "debezium", format=AvroFormat(), on_error="skip")
    row, old = b"\2\2a\x0e", b"\2\x12\2b\2"
    bodies = [
        b"\0\2" + row + b"\2c",
        old + b"\2" + row + b"\2u",
        old + b"\0\2d",
        b"\0\0\2t",
        b"\0\0\2c",
    ]
    records = [(KEY, framed(7, body)) for body in bodies] * times
    result = decoded(SCHEMA, binding, *records, writers=avro_writers(EVENT_TEXT))
    rows = [
        (row["kafka_op"], row["id"], row["name"], row["n"]) for row in result.rows.to_pylist()
    ]
    assert rows == [("u", 1, "a", 7), ("u", 1, "a", 7), ("d", 1, None, None)] * times
    assert result.outcomes == Outcomes(rows=2 * times, deletes=times, skipped=2 * times)


def test_a_null_inside_its_frame_is_a_row_of_nulls_and_no_delete() -> None:
    binding = keyed_binding(SCHEMA, format=AvroFormat())
    writers = avro_writers(["null", ROW_TEXT])
    assert changes(SCHEMA, binding, (KEY, framed(7, b"\0")), (KEY, None), writers=writers) == [
        (0, "u", 1, None, None),
        (1, "d", 1, None, None),
    ]


def test_schemas_that_are_not_there_yet_are_asked_for() -> None:
    binding = keyed_binding(SCHEMA, "debezium", format=AvroFormat())
    result = decoded(SCHEMA, binding, (KEY, framed(7, b"\0\0\2d")), writers=Writers())
    assert result.needs == {7}
    assert result.rows.schema.names[-1] == "kafka_op"


# --- formats of one value ---


def test_texts_are_rows_by_their_keys() -> None:
    schema = keyed_schema(ID, Column(5, "value", pa.string()))
    binding = keyed_binding(schema, format=StringFormat())
    assert changes(schema, binding, (KEY, b"text"), (KEY, b""), (KEY, None)) == [
        (0, "u", 1, "text"),
        (1, "u", 1, ""),
        (2, "d", 1, None),
    ]


def test_an_envelope_is_around_records_with_fields() -> None:
    schema = keyed_schema(ID, Column(5, "value", pa.string()))
    with pytest.raises(BadBinding) as refusal:
        decoder_for(
            "lake.net.t", schema, keyed_binding(schema, "debezium", format=StringFormat())
        )
    assert refusal.value.message == (
        "lake.net.t: envelope debezium is around records of json or avro, and the table's format is string; make a table of "
        "another format, or with --envelope none."
    )


def test_renamed_columns_read_their_former_names_in_events_too() -> None:
    schema = keyed_schema(ID, Column(5, "title", pa.string(), keys=("title", "name")), N)
    records = [(KEY, event("c", ROW)), (KEY, event("u", {"id": 1, "title": None, "name": "x"}))]
    assert changes(schema, keyed_binding(schema, "debezium"), *records) == [
        (0, "u", 1, "a", 7),
        (1, "u", 1, None, None),
    ]


def test_lenient_tables_read_values_of_events_leniently_and_keys_strictly() -> None:
    binding = keyed_binding(SCHEMA, "debezium", format=JsonFormat("lenient"))
    assert changes(SCHEMA, binding, (KEY, event("c", {**ROW, "n": "8"}))) == [
        (0, "u", 1, "a", 8)
    ]
    assert refused(binding, ({"id": "1"}, event("c", ROW))) == (
        "key: field id: expected a whole number for long, found a string"
    )
