"""Records that are one value, and keys as a column: which row a record becomes, and what tables say of it."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from connectors.decoding.registry import decoder_for
from connectors.registry.table_schemas import needed
from planner.errors import BadBinding, UndecodableRecord
from planner.evolution.avro import parse_schema
from planner.evolution.changes import AddColumn
from planner.ports import TopicSource
from planner.schema import METADATA_TYPES, RAW_SCHEMA, TIMESTAMPTZ, Column, TableSchema
from planner.seam.binding import Binding, decoding_key, parse_binding
from planner.seam.formats import AvroFormat, JsonFormat, RawFormat, RecordFormat, StringFormat
from planner.seam.keys import (
    KEY_COLUMN,
    KEY_FORMAT,
    KEY_SCHEMA,
    KeyFormat,
    KeySchema,
    RecordKey,
)
from planner.seam.watermark import Outcomes
from tests.harness.builders import FLOWS

LEAD = tuple(
    Column(at, name, METADATA_TYPES[name])
    for at, name in enumerate(("kafka_partition", "kafka_offset", "kafka_timestamp"), 1)
)
BAD = tuple(
    Column(at, name, METADATA_TYPES[name])
    for at, name in enumerate(("kafka_key", "kafka_value", "kafka_error"), 20)
)
TEXT = Column(10, "value", pa.string())
KEY = Column(11, "key", pa.string())
POINT = '{"type": "record", "name": "P", "fields": [{"name": "x", "type": "int"}]}'

Record = tuple[bytes | None, bytes | None]


def table(*columns: Column) -> TableSchema:
    return TableSchema(0, (*LEAD, *columns))


def batch(*records: Record) -> pa.RecordBatch:
    rows = [
        {"kafka_partition": 0, "kafka_offset": at, "kafka_key": key, "kafka_value": value}
        for at, (key, value) in enumerate(records)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=RAW_SCHEMA)


def decoded(schema: TableSchema, binding: Binding, *records: Record) -> list[dict[str, Any]]:
    """Rows without partition and time, those of many records as of each alone."""
    decoder = decoder_for("lake.net.t", schema, binding)
    rows = decoder.decode(batch(*records)).rows
    rows.validate(full=True)
    assert rows.schema.equals(schema.arrow, check_metadata=True)
    for at, row in enumerate(rows.to_pylist()):
        offset = row["kafka_offset"]
        one = decoder.decode(batch(*records).slice(offset, 1)).rows
        assert one.equals(rows.slice(at, 1))
    return [
        {
            name: value
            for name, value in row.items()
            if name[6:] not in ("partition", "timestamp")
        }
        for row in rows.to_pylist()
    ]


def values(
    form: RecordFormat, kind: pa.DataType, *raw: bytes | None, **options: Any
) -> list[Any]:
    binding = Binding("t", form, **options)
    schema = table(Column(10, "value", kind))
    return [row["value"] for row in decoded(schema, binding, *((b"k", each) for each in raw))]


def keyed(form: KeyFormat, schema: KeySchema | None = None, **options: Any) -> Binding:
    return Binding("t", StringFormat(), key=RecordKey(form, 11, schema), **options)


def keys(
    form: KeyFormat,
    kind: pa.DataType,
    *raw: bytes | None,
    schema: str | None = None,
    **options: Any,
) -> list[Any]:
    pinned = None if schema is None else KeySchema(7, "t-key", 2, schema)
    columns = table(Column(11, "key", kind), TEXT)
    records = [(each, b"v") for each in raw]
    return [row["key"] for row in decoded(columns, keyed(form, pinned, **options), *records)]


def framed(body: str, schema_id: int = 7) -> bytes:
    return b"\0" + schema_id.to_bytes(4) + bytes.fromhex(body)


def reason(schema: TableSchema, binding: Binding, *records: Record) -> str:
    with pytest.raises(UndecodableRecord) as caught:
        decoder_for("lake.net.t", schema, binding).decode(batch(*records))
    return caught.value.message


def test_raw_values_are_what_they_are() -> None:
    assert values(RawFormat(), pa.binary(), b"", b"\xff\0", None, b'{"a":1}') == [
        b"",
        b"\xff\0",
        b'{"a":1}',
    ]
    assert values(RawFormat(), pa.binary(), None) == []


def test_text_is_utf8_and_anything_else_a_bad_record() -> None:
    good = "é\0", "", "\U0001f600"
    raw = [each.encode() for each in good]
    assert values(StringFormat(), pa.string(), *raw) == [*good]
    # Overlong, half of a surrogate pair, cut off, no character.
    bad = b"\xc0\x80", b"\xed\xa0\x80", b"\xe2\x82", b"\xff"
    for each in bad:
        assert values(StringFormat(), pa.string(), *raw, each, None, on_error="skip") == [*good]
        with pytest.raises(UndecodableRecord) as caught:
            values(StringFormat(), pa.string(), raw[0], b"ab" + each)
        assert caught.value.message == (
            "lake.net.t: the record at partition 0, offset 1 does not decode: the value is not UTF-8 (byte 2); correct its "
            "producer, then run `thermocline skip lake.net.t --partition 0 --offset 1`, or choose error policy null or skip "
            "for the table."
        )


def test_a_bad_text_is_a_row_of_its_bytes_by_policy_null() -> None:
    schema = table(TEXT, *BAD)
    binding = Binding("t", StringFormat(), on_error="null")
    rows = decoded(schema, binding, (b"k", b"a"), (b"k", b"\xff"), (b"k", None))
    assert rows == [
        {
            "kafka_offset": 0,
            "value": "a",
            "kafka_key": b"k",
            "kafka_value": None,
            "kafka_error": None,
        },
        {
            "kafka_offset": 1,
            "value": None,
            "kafka_key": b"k",
            "kafka_value": b"\xff",
            "kafka_error": "the value is not UTF-8 (byte 0)",
        },
    ]


def test_a_value_goes_to_the_column_of_its_name_or_to_the_one_that_had_it() -> None:
    renamed = replace(TEXT, name="body", keys=("body", "value"))
    added = Column(12, "more", pa.int32())
    binding = Binding("t", StringFormat())
    [row] = decoded(table(added, renamed), binding, (b"k", b"a"))
    assert (row["body"], row["more"]) == ("a", None)
    [row] = decoded(table(added), binding, (b"k", b"a"))
    assert row["more"] is None


@pytest.mark.parametrize(
    ("form", "column", "said"),
    [
        (
            RawFormat(),
            TEXT,
            "column value is string, and what it holds is binary, by the format raw; make another column, or a table of "
            "another format.",
        ),
        (
            StringFormat(),
            Column(12, "more", pa.int32(), required=True),
            "column more is required, and nothing fills it: the format string has one value; make another column, or a table "
            "of another format.",
        ),
    ],
)
def test_a_column_that_does_not_fit_is_named(
    form: RecordFormat, column: Column, said: str
) -> None:
    with pytest.raises(BadBinding) as caught:
        decoder_for("lake.net.t", table(column), Binding("t", form))
    assert caught.value.message == f"lake.net.t: {said}"


def test_keys_are_read_as_values_are() -> None:
    assert keys("raw", pa.binary(), b"\xff", None, b"") == [b"\xff", None, b""]
    assert keys("string", pa.string(), b"a", None, "é".encode()) == ["a", None, "é"]
    assert keys("json", pa.int64(), b" 7 ", b"null", None) == [7, None, None]
    assert keys("json", pa.string(), b'"a"', b'"\\u00e9"') == ["a", "é"]
    point = pa.struct([("x", pa.int32()), ("y", pa.string())])
    assert keys("json", point, b'{"x": 1}', None) == [{"x": 1, "y": None}, None]


@pytest.mark.parametrize("times", [1, 300], ids=["exact", "fast"])
def test_avro_keys_are_one_value_of_their_pinned_schema(times: int) -> None:
    point = pa.struct([("x", pa.int32())])
    for kind, schema, body, value in (
        (point, POINT, "02", {"x": 1}),
        (point, f'["null", {POINT}]', "0202", {"x": 1}),
        (point, f'["null", {POINT}]', "00", None),
        (pa.string(), '"string"', "0261", "a"),
        (pa.binary(), '"bytes"', "0261", b"\2a"),
        (pa.list_(pa.int64()), '{"type": "array", "items": "long"}', "020200", [1]),
    ):
        read = keys("avro", kind, None, *[framed(body)] * times, schema=schema)
        assert read == [None] + [value] * times


def test_a_bad_key_is_a_bad_record_by_the_policy() -> None:
    """Of a tombstone it is no matter, and the first bad record of a batch is named, be it by key or by value."""
    schema = table(KEY, TEXT)
    records = ((b"\xff", None), (b"a", b"1"), (b"\xff", b"2"), (b"b", b"\xff"), (None, b"3"))
    said = reason(schema, keyed("string"), *records)
    assert said == (
        "lake.net.t: the record at partition 0, offset 2 does not decode: key: the value is not UTF-8 (byte 0); correct its "
        "producer, or make a table with another --key-format; where it is a single one, run `thermocline skip lake.net.t "
        "--partition 0 --offset 2`, or choose error policy null or skip for the table."
    )
    assert "offset 0 does not decode: the value is" in reason(
        schema, keyed("string"), *records[:1:-1][1:]
    )
    decoder = decoder_for("lake.net.t", schema, keyed("string", on_error="skip"))
    skipped = decoder.decode(batch(*records))
    assert skipped.outcomes == Outcomes(rows=2, skipped=2, tombstones=1)
    assert [(row["key"], row["value"]) for row in skipped.rows.to_pylist()] == [
        ("a", "1"),
        (None, "3"),
    ]
    both = (b"\xff", b"\xff")
    rows = decoded(table(KEY, TEXT, *BAD), keyed("string", on_error="null"), *records, both)
    assert [tuple(row.values()) for row in rows] == [
        (1, "a", "1", b"a", None, None),
        (2, None, "2", b"\xff", b"2", "key: the value is not UTF-8 (byte 0)"),
        (3, "b", None, b"b", b"\xff", "the value is not UTF-8 (byte 0)"),
        (4, None, "3", None, None, None),
        (5, None, None, b"\xff", b"\xff", "the value is not UTF-8 (byte 0)"),
    ]


@pytest.mark.parametrize(
    ("form", "kind", "raw", "said"),
    [
        (
            "json",
            pa.int64(),
            b'"7"',
            "field key: expected a whole number for long, found a string",
        ),
        ("json", pa.int64(), framed("02"), "this looks like Avro with schema id 7"),
        ("json", pa.int64(), b"7 8", "the value is not JSON (character 2)"),
        (
            "avro",
            pa.int32(),
            framed("02", 8),
            "schema id 8 is not that of the table's keys, 7 (t-key:2)",
        ),
        ("avro", pa.int32(), b"7", "the value has 1 bytes, fewer than a schema id takes"),
        ("avro", pa.int32(), framed("0202"), "1 of its bytes follow the end of the record"),
    ],
)
def test_what_is_no_such_key_is_named(
    form: KeyFormat, kind: pa.DataType, raw: bytes, said: str
) -> None:
    pinned = KeySchema(7, "t-key", 2, '"int"') if form == "avro" else None
    schema = table(Column(11, "key", kind), TEXT)
    assert f"does not decode: key: {said}" in reason(schema, keyed(form, pinned), (raw, b"v"))


def test_a_renamed_column_has_the_keys_and_a_dropped_one_needs_none() -> None:
    renamed = table(TEXT, replace(KEY, name="id", keys=("id", "key")))
    assert decoded(renamed, keyed("string"), (b"a", b"v"))[0]["id"] == "a"
    assert TopicSource.of(decoder_for("t", renamed, keyed("string")), "t").with_key
    dropped = table(TEXT)
    assert not TopicSource.of(decoder_for("t", dropped, keyed("string")), "t").with_key
    assert decoded(dropped, keyed("string"), (b"\xff", b"v")) == [
        {"kafka_offset": 0, "value": "v"}
    ]


def test_a_field_of_the_value_never_fills_the_column_of_keys() -> None:
    schema = table(KEY, Column(12, "n", pa.int64()))
    binding = Binding("t", JsonFormat(), key=RecordKey("string", 11))
    assert decoded(schema, binding, (b"a", b'{"key": "no", "n": 1}')) == [
        {"kafka_offset": 0, "key": "a", "n": 1}
    ]
    following = replace(binding, format=AvroFormat(evolution="additive"))
    writer = parse_schema(
        '{"type": "record", "name": "r", "fields": [{"name": "Key", "type": "long"}, {"name": "m", "type": "int"}]}'
    )
    evolution = needed(FLOWS, table(KEY), following, (3, writer))
    assert evolution.changes == (AddColumn(("m",), pa.int32()),)
    [left_out] = evolution.left_out
    assert str(left_out) == "field Key: the column of this name is filled by records' keys"


def test_times_in_keys_have_the_units_of_the_table() -> None:
    schema = table(Column(11, "key", TIMESTAMPTZ, epoch_unit="ms"), Column(12, "n", pa.int64()))
    binding = Binding("t", JsonFormat(epoch_units=((11, "ms"),)), key=RecordKey("json", 11))
    [row] = decoded(schema, binding, (b"1000", b'{"n": 1}'))
    assert row["key"].timestamp() == 1


def test_columns_that_keys_cannot_fill_are_named() -> None:
    for column, said in (
        (
            replace(KEY, required=True),
            "column key is required and filled by keys, which not every record has; make it optional.",
        ),
        (
            replace(KEY, type=pa.int32()),
            "column key is int, and what it holds is string, by the format string; make another column, or a table of "
            "another format.",
        ),
    ):
        with pytest.raises(BadBinding) as caught:
            decoder_for("lake.net.t", table(column, TEXT), keyed("string"))
        assert caught.value.message == f"lake.net.t: {said}"
    # What a bad key was is kept, where a key can be bad.
    without = table(KEY, TEXT, *BAD[1:])
    with pytest.raises(BadBinding, match="error policy null needs the column kafka_key"):
        decoder_for("lake.net.t", without, keyed("string", on_error="null"))
    raw = table(replace(KEY, type=pa.binary()), TEXT, *BAD[1:])
    decoder_for("lake.net.t", raw, keyed("raw", on_error="null"))


PINNED = KeySchema(7, "shop:t-key", 2, POINT, (("shop.Part", '"int"'),))
BOUND = (
    Binding("t", RawFormat()),
    Binding("t", StringFormat(), on_error="skip"),
    Binding("t", key=RecordKey("string", 4)),
    Binding("t", key=RecordKey("raw", 4)),
    Binding("t", key=RecordKey("raw", 5)),
    Binding("t", StringFormat(), key=RecordKey("json", 4)),
    Binding("t", AvroFormat(), key=RecordKey("avro", 4, PINNED)),
    Binding("t", AvroFormat(), key=RecordKey("avro", 4, replace(PINNED, id=8))),
    Binding("t", AvroFormat(), key=RecordKey("avro", 4, replace(PINNED, text='"int"'))),
    Binding("t"),
)


def test_properties_read_back_equal_and_decide_rows() -> None:
    for binding in BOUND:
        assert parse_binding(FLOWS, binding.properties()) == binding
        # As it travels to the process that reads topics, and to Spark's tasks.
        assert pickle.loads(pickle.dumps(binding)) == binding
    schema = table(Column(4, "key", pa.string()), Column(5, "value", pa.string()))
    assert len({each.shape for each in BOUND}) == len(BOUND)
    assert len({decoding_key(schema, each) for each in BOUND}) == len(BOUND)


def test_tables_of_before_keep_their_shape() -> None:
    assert Binding("t").shape == "ae369d189892d514"


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        (
            {KEY_FORMAT: "csv", KEY_COLUMN: "4"},
            f"property {KEY_FORMAT} is 'csv'; allowed are raw, string, json, avro.",
        ),
        (
            {KEY_COLUMN: "4"},
            f"property {KEY_FORMAT} is ''; allowed are raw, string, json, avro.",
        ),
        (
            {KEY_FORMAT: "raw"},
            f"property {KEY_COLUMN} is ''; it must be the id of the column that keys fill.",
        ),
        (
            {KEY_FORMAT: "raw", KEY_COLUMN: "key"},
            f"property {KEY_COLUMN} is 'key'; it must be the id of the column that keys fill.",
        ),
        (
            {KEY_FORMAT: "avro", KEY_COLUMN: "4"},
            f"property {KEY_SCHEMA} goes with {KEY_FORMAT} = avro, and neither without the other; restore it from an earlier "
            f"metadata file.",
        ),
        (
            {KEY_FORMAT: "avro", KEY_COLUMN: "4", KEY_SCHEMA: '{"id": 7}'},
            f"property {KEY_SCHEMA} is not what `thermocline create` writes; restore it from an earlier metadata file.",
        ),
    ],
)
def test_properties_that_do_not_fit_are_named(properties: dict[str, str], said: str) -> None:
    with pytest.raises(BadBinding) as caught:
        parse_binding(FLOWS, Binding("t").properties() | properties)
    assert caught.value.message == f"{FLOWS}: {said}"


def test_a_schema_of_keys_that_does_not_parse_is_named() -> None:
    with pytest.raises(BadBinding) as caught:
        decoder_for("lake.net.t", table(KEY, TEXT), keyed("avro", replace(PINNED, text="[]")))
    assert caught.value.message.startswith(
        "lake.net.t: the schema of keys, shop:t-key:2, cannot be read: "
    )
