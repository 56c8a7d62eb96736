"""What stands in front of Avro records, what of them becomes rows, and what hostile bytes cost."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
import tracemalloc
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from connectors.decoding.avro.cursor import least_bytes
from connectors.decoding.avro.lanes import Batch
from connectors.decoding.registry import decoder_for
from connectors.decoding.writers import FIXED_ID, Writers
from planner.errors import UndecodableRecord
from planner.evolution.avro import parse_schema
from planner.evolution.ledger import SchemaLedger
from planner.schema import METADATA_TYPES, TIMESTAMPTZ, Column, TableSchema
from planner.seam.binding import Binding
from planner.seam.formats import AvroFormat
from planner.seam.watermark import Outcomes
from tests.harness.avro_decoder import PATHS, avro_decoder, framed, raw_batch
from tests.harness.builders import schema

FLOW = '{"type": "record", "name": "Flow", "namespace": "net", "fields": [{"name": "a", "type": "int"}]}'
OTHER = '{"type": "record", "name": "Other", "namespace": "net", "fields": [{"name": "a", "type": "int"}]}'
A = Column(10, "a", pa.int32())
ERROR = Column(11, "kafka_error", METADATA_TYPES["kafka_error"])
VALUE = Column(12, "kafka_value", METADATA_TYPES["kafka_value"])


def writers(**texts: str) -> Writers:
    """Add schemas by ids: ``_7="…"``."""
    filled = Writers()
    for name, text in texts.items():
        filled.add(int(name[1:]), text)
    return filled


def column_of(
    text: str, column: Column, *bodies: bytes, fast_from: int | None = 0, **options: Any
) -> list[Any]:
    decoder = avro_decoder(schema(column), writers(_7=text), fast_from=fast_from, **options)
    rows = decoder.decode(raw_batch(*(framed(7, body) for body in bodies))).rows
    rows.validate(full=True)
    return rows.column(column.name).to_pylist()


def reason_of(raw: bytes, *others: Column, fast_from: int | None = 0, **options: Any) -> str:
    """Return the ``kafka_error`` of one bad record among many good ones."""
    registry = writers(_7=FLOW, _8="[]", _9="nonsense")
    registry.add_unknown(10)
    table = schema(A, ERROR, VALUE, *others)
    decoder = avro_decoder(table, registry, fast_from=fast_from, on_error="null", **options)
    good = [framed(7, b"\2")] * 30
    rows = decoder.decode(raw_batch(*good, raw, *good)).rows.to_pylist()
    assert [row["kafka_offset"] for row in rows] == list(range(61))
    assert [row["a"] for row in rows] == [1] * 30 + [None] + [1] * 30
    assert rows[30]["kafka_value"] == raw
    (reason,) = (row["kafka_error"] for row in rows if row["kafka_error"])
    return str(reason)


@pytest.mark.parametrize("fast_from", PATHS)
@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "the value has 0 bytes, fewer than a schema id takes"),
        (b"\0\0\0\7", "the value has 4 bytes, fewer than a schema id takes"),
        (
            b"\1" + bytes(20),
            "the value begins with byte 01: a GUID in place of a schema id, which is not read",
        ),
        (
            b"\3\0" + bytes(20),
            "the value begins with bytes 03 00: the header of AWS Glue, which is not read",
        ),
        (
            b'{"a": 1}',
            "the value begins with byte 7b, not with 00 and a schema id; one in a header is not read",
        ),
        (
            b"\0\x80\0\0\0\2",
            "the schema id is 2147483648, beyond those that registries give",
        ),
        (
            b"\0" + (7).to_bytes(8) + b"\2",
            "the schema id is 0, which registries do not give: this looks like the 8 bytes of Apicurio's older serializers, "
            "which are not read",
        ),
        (
            framed(8, b"\2"),
            "schema id 8 cannot be read: a union is empty, has another one inside, or one type twice",
        ),
        (framed(9, b"\2"), "schema id 9 cannot be read: it is not JSON"),
        (framed(10, b"\2"), "schema id 10 is not in the registry"),
        (framed(7, b""), "the value ends before the record does"),
        (framed(7, b"\x80"), "the value ends before the record does"),
        (framed(7, b"\2\2\2"), "2 of its bytes follow the end of the record"),
        (framed(7, b"\x80\x80\x80\x80\x10"), "field a: the writer's int is beyond 32 bits"),
        (framed(7, b"\xff" * 9 + b"\3"), "a number has more than 64 bits"),
    ],
)
def test_what_is_no_record_is_named(raw: bytes, reason: str, fast_from: int | None) -> None:
    assert reason_of(raw, fast_from=fast_from) == reason


@pytest.mark.parametrize("fast_from", PATHS)
def test_ids_that_are_not_there_are_asked_for_and_nothing_else_counts(
    fast_from: int | None,
) -> None:
    registry = writers(_7=FLOW)
    table = schema(A, Column(11, "u", pa.uuid()))
    decoder = avro_decoder(table, registry, fast_from=fast_from, on_error="skip")
    values = [
        *[framed(7, b"\2")] * 30,
        framed(5, b"\2"),
        *[framed(2**31 - 1, b"\2")] * 30,
        b"bad",
    ]
    decoded = decoder.decode(raw_batch(*values))
    assert decoded.needs == {5, 2**31 - 1}
    assert (len(decoded.rows), decoded.outcomes) == (0, Outcomes())
    registry.add(5, FLOW)
    registry.add_unknown(2**31 - 1)
    decoded = decoder.decode(raw_batch(*values))
    assert not decoded.needs
    assert decoded.outcomes == Outcomes(rows=31, skipped=31)
    # A deleted schema that comes back has its old id.
    registry.add(2**31 - 1, FLOW)
    assert decoder.decode(raw_batch(*values)).outcomes == Outcomes(rows=61, skipped=1)
    registry.add_unknown(2**31 - 1)
    assert decoder.decode(raw_batch(*values)).outcomes == Outcomes(rows=61, skipped=1)


@pytest.mark.parametrize(
    ("options", "cure"),
    [
        (
            {"evolution": "additive"},
            "schema id 7 is new to the table, so wait for its tierer, or run `thermocline schemas evolve`; if the record does "
            "not decode then, correct its producer and run",
        ),
        ({"evolution": "none"}, "correct its producer, then run"),
        (
            {"evolution": "additive", "ledger": SchemaLedger({7: "x"})},
            "correct its producer, then run",
        ),
    ],
)
def test_a_value_that_waits_for_a_wider_column_is_no_record_to_skip(
    options: dict[str, Any], cure: str
) -> None:
    binding = Binding("flows", AvroFormat(**options))
    decoder = decoder_for("t", schema(A), binding, writers(_7=FLOW.replace("int", "long")))
    with pytest.raises(UndecodableRecord) as raised:
        decoder.decode(raw_batch(framed(7, b"\x80\x80\x80\x80\x10")))
    assert str(raised.value).startswith(
        f"t: the record at partition 0, offset 0 does not decode: field a: the number is beyond int; {cure} "
        f"`thermocline skip t --partition 0 --offset 0`, or choose"
    )


def test_a_decoder_without_writers_needs_all() -> None:
    decoder = decoder_for("t", schema(A), Binding("t", AvroFormat()))
    assert decoder.decode(raw_batch(framed(7, b"\2"), None)).needs == {7}
    fixed = decoder_for("t", schema(A), Binding("t", AvroFormat(fixed=("flows", 3))))
    assert fixed.decode(raw_batch(b"\2")).needs == {FIXED_ID}


@pytest.mark.parametrize("fast_from", PATHS)
def test_records_of_a_fixed_schema_have_nothing_in_front(fast_from: int | None) -> None:
    registry = writers()
    registry.add(FIXED_ID, FLOW)
    format_ = AvroFormat(fixed=("flows", 3))
    decoder = avro_decoder(
        schema(A), registry, fast_from=fast_from, format=format_, on_error="skip"
    )
    decoded = decoder.decode(raw_batch(*[b"\2", b"\4", None, b"", b"\2\2"] * 10))
    assert decoded.rows.column("a").to_pylist() == [1, 2] * 10
    assert decoded.outcomes == Outcomes(rows=20, skipped=20, tombstones=10)


@pytest.mark.parametrize("fast_from", PATHS)
def test_a_null_value_is_a_tombstone_and_a_null_in_the_frame_a_row(
    fast_from: int | None,
) -> None:
    registry = writers(_7=f'["null", {FLOW}]')
    values = raw_batch(*[None, framed(7, b"\0"), framed(7, b"\2\2")] * 20)
    decoded = avro_decoder(schema(A), registry, fast_from=fast_from).decode(values)
    assert decoded.rows.column("a").to_pylist() == [None, 1] * 20
    assert decoded.outcomes == Outcomes(rows=40, tombstones=20)
    required = Column(10, "a", pa.int32(), required=True)
    with pytest.raises(
        UndecodableRecord, match=r"offset 1 .* field a: it is required, but null"
    ):
        avro_decoder(schema(required), registry, fast_from=fast_from).decode(values)


@pytest.mark.parametrize("fast_from", PATHS)
def test_bytes_at_the_top_are_the_rest_of_the_record(fast_from: int | None) -> None:
    """Confluent's serializers leave Avro's length out."""
    value = Column(10, "value", pa.binary())
    bodies = [b"", b"\4ab", bytes(100)]
    for text in ('"bytes"', '{"type": "bytes"}', "bytes"):
        assert column_of(text, value, *bodies * 10, fast_from=fast_from) == bodies * 10
    fixed = Column(10, "value", pa.binary(3))
    assert column_of('"bytes"', fixed, b"\4ab", fast_from=fast_from) == [b"\4ab"]
    with pytest.raises(UndecodableRecord, match="expected 3 bytes, found 0"):
        column_of('"bytes"', fixed, b"", fast_from=fast_from)
    # As Avro has it, where there is more than bytes.
    assert column_of('["null", "bytes"]', value, b"\2\4ab", fast_from=fast_from) == [b"ab"]


@pytest.mark.parametrize("fast_from", PATHS)
@pytest.mark.parametrize(
    "text", ['"null"', '{"type": "record", "name": "r", "fields": []}', '"bytes"']
)
def test_an_empty_body_is_a_value_where_the_schema_takes_no_bytes(
    text: str, fast_from: int | None
) -> None:
    assert column_of(text, A, *[b""] * 20, fast_from=fast_from) == [None] * 20


@pytest.mark.parametrize("fast_from", PATHS)
def test_the_scale_of_each_record_counts(fast_from: int | None) -> None:
    """A topic of Debezium has bytes of another scale from one record to the next once the source's column was altered."""
    money = (
        '{{"type": "record", "name": "R", "fields": [{{"name": "a", "type": {{"type": "bytes", "logicalType": "decimal", '
        '"precision": 12, "scale": {}}}}}]}}'
    )
    registry = writers(_7=money.format(2), _8=money.format(4))
    table = schema(Column(10, "a", pa.decimal128(12, 4)))
    values = [framed(number, b"\x04\x30\x39") for number in (7, 8) for _ in range(20)]
    decoder = avro_decoder(table, registry, fast_from=fast_from)
    rows = decoder.decode(raw_batch(*values)).rows.column("a").to_pylist()
    assert rows == [Decimal("123.45")] * 20 + [Decimal("1.2345")] * 20


@pytest.mark.parametrize("fast_from", PATHS)
def test_a_time_is_what_its_writer_made_of_it(
    fast_from: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fastavro takes one without a zone as of its machine's zone, and for a local one the reading of the clock."""
    noon = datetime(2026, 7, 1, 12)
    abroad = noon.replace(tzinfo=timezone(timedelta(hours=9)))
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        bodies = [
            (kind, _datum("long", kind, value))
            for kind, value in (("timestamp-micros", noon), ("local-timestamp-micros", abroad))
        ]
    finally:
        monkeypatch.undo()
        time.tzset()
    values = []
    for kind, body in bodies:
        text = json.dumps(
            {
                "type": "record",
                "name": "R",
                "fields": [{"name": "a", "type": {"type": "long", "logicalType": kind}}],
            }
        )
        zone = None if kind.startswith("local") else "UTC"
        column = Column(10, "a", pa.timestamp("us", zone))
        values.append(column_of(text, column, *[body] * 20, fast_from=fast_from))
    utc = datetime(2026, 7, 1, 6, 30, tzinfo=UTC)
    assert values == [[utc] * 20, [noon] * 20]


def _datum(kind: str, logical: str, value: datetime) -> bytes:
    buffer = io.BytesIO()
    parsed = fastavro.parse_schema({"type": kind, "logicalType": logical})
    fastavro.schemaless_writer(buffer, parsed, value)
    return buffer.getvalue()


ZONED = (
    '{"type": "record", "name": "R", "fields": [{"name": "at", "type": ["null", {"type": "string", '
    '"connect.name": "io.debezium.time.ZonedTimestamp"}]}]}'
)


@pytest.mark.parametrize("fast_from", PATHS)
def test_a_time_that_is_written_as_text_is_read_or_named(fast_from: int | None) -> None:
    noon = datetime(2026, 7, 1, 12, tzinfo=UTC)
    form = "YYYY-MM-DDTHH:MM[:SS[.ffffff]](Z|+HH:MM|-HH:MM)"
    texts: list[tuple[bytes, datetime | None, str | None]] = [
        (b"2026-07-01T12:00:00Z", noon, None),
        (b"2026-07-01T17:30:00.000001+05:30", noon + timedelta(microseconds=1), None),
        (b"infinity", None, f"the string is no timestamptz {form}"),
        (
            b"2026-07-01T12:00:00",
            None,
            f"the string has no offset from UTC; a timestamptz is {form}",
        ),
        (
            b"0001-01-01T00:00:00+01:00",
            None,
            "the time is outside the years 0001 to 9999 of timestamptz",
        ),
        (b"\xff", None, "the string is not UTF-8 (byte 0)"),
    ]
    bodies = [b"\0", *(b"\2" + bytes([2 * len(text)]) + text for text, _, _ in texts)]
    decoder = avro_decoder(
        schema(Column(10, "at", TIMESTAMPTZ), ERROR, VALUE),
        writers(_7=ZONED),
        fast_from=fast_from,
        on_error="null",
    )
    rows = decoder.decode(
        raw_batch(*(framed(7, body) for body in bodies * 50))
    ).rows.to_pylist()
    reasons = [why and f"field at: {why}" for _, _, why in texts]
    assert [row["at"] for row in rows] == [None, *(at for _, at, _ in texts)] * 50
    assert [row["kafka_error"] for row in rows] == [None, *reasons] * 50


def test_times_that_are_written_as_text_are_read_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One by one, each would be copied out of its batch."""
    copies: list[int] = []
    monkeypatch.setattr(Batch, "raw", lambda _, row: copies.append(row))
    body = b"\2" + bytes([2 * 20]) + b"2026-07-01T12:00:00Z"
    assert len(column_of(ZONED, Column(10, "at", TIMESTAMPTZ), *[body, b"\0"] * 20)) == 40
    assert copies == []


@pytest.mark.parametrize("fast_from", PATHS)
def test_records_of_another_name_are_skipped_and_counted(fast_from: int | None) -> None:
    registry = writers(_1=FLOW, _2=OTHER, _3=f'["null", {OTHER}, {FLOW}]', _4='"int"')
    values = [
        framed(1, b"\2"),
        framed(2, b"\4"),
        framed(3, b"\4\6"),
        framed(3, b"\2\6"),
        framed(3, b"\0"),
        framed(4, b"\2"),
        None,
    ]
    for name, rows in (("net.Flow", [1, 3] * 20), ("Flow", [])):
        decoder = avro_decoder(
            schema(A), registry, fast_from=fast_from, format=AvroFormat(record=name)
        )
        decoded = decoder.decode(raw_batch(*values * 20))
        assert decoded.rows.column("a").to_pylist() == rows
        assert decoded.outcomes == Outcomes(
            rows=len(rows), skipped=120 - len(rows), tombstones=20
        )
    # What is neither is bad.
    decoder = avro_decoder(schema(A), registry, format=AvroFormat(record="net.Flow"))
    with pytest.raises(UndecodableRecord, match="index 3 is none of the schema's 3 choices"):
        decoder.decode(raw_batch(framed(3, b"\6\6")))


@pytest.mark.parametrize("fast_from", PATHS)
def test_fields_go_by_name_now_or_once(fast_from: int | None) -> None:
    text = '{"type": "record", "name": "R", "fields": [{"name": "old", "type": "int"}, {"name": "B", "type": "int"}]}'
    columns = Column(10, "new", pa.int32(), keys=("new", "old")), Column(11, "b", pa.int32())
    decoder = avro_decoder(schema(*columns), writers(_7=text), fast_from=fast_from)
    rows = decoder.decode(raw_batch(*[framed(7, b"\2\4")] * 20)).rows
    assert rows.column("new").to_pylist() == [1] * 20
    assert rows.column("b").to_pylist() == [None] * 20


@pytest.mark.parametrize("fast_from", PATHS)
def test_branches_of_one_meaning_keep_their_names(fast_from: int | None) -> None:
    """A date beside a moment is what real unions have: no value goes into the other's member."""
    text = '[{"type": "int", "logicalType": "date"}, {"type": "long", "logicalType": "timestamp-millis"}, "double"]'
    kind = pa.struct([("int", pa.date32()), ("long", TIMESTAMPTZ), ("double", pa.float64())])
    bodies = [b"\0\2", b"\2\2", b"\4" + bytes(8)]
    values = column_of(text, Column(10, "value", kind), *bodies * 10, fast_from=fast_from)
    assert [[name for name in each if each[name] is not None] for each in values[:3]] == [
        ["int"],
        ["long"],
        ["double"],
    ]


def test_a_type_that_does_not_fit_names_field_writer_and_column() -> None:
    text = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "string", "logicalType": "uuid"}}]}'
    with pytest.raises(UndecodableRecord) as caught:
        column_of(text, A, b"\2a")
    assert str(caught.value).startswith(
        "t: the record at partition 0, offset 0 does not decode: field a: the writer's string (uuid) does not fit int; "
        "correct its producer, then run `thermocline skip t"
    )


NODE = (
    '{"type": "record", "name": "N", "fields": [{"name": "x", "type": %s}, '
    '{"name": "next", "type": ["null", "N"]}]}'
)
NEXT = Column(10, "next", pa.string())
CONNECT_MONEY = '{"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 2}'


def sized(number: int) -> bytes:
    """Write a decimal of fewer than 64 bytes."""
    octets = number.to_bytes(number.bit_length() // 8 + 1, signed=True)
    return bytes([2 * len(octets)]) + octets


@pytest.mark.parametrize("fast_from", PATHS)
@pytest.mark.parametrize(
    ("kind", "octets", "text"),
    [
        ('"int"', b"\2", "1"),
        ('"bytes"', b"\4\0\xff", '"00ff"'),
        ('"string"', b"\4\xc3\xa9", '"é"'),
        ('"double"', b"\0\0\0\0\0\0\xf8\x7f", '"NaN"'),
        ('"float"', b"\0\0\xc0\x3f", "1.5"),
        ('["null", "int", "string"]', b"\2\2", '{"int":1}'),
        ('["null", "int", "string"]', b"\0", "null"),
        ('{"type": "map", "values": "boolean"}', b"\4\2b\1\2a\0\0", '{"b":true,"a":false}'),
        ('{"type": "array", "items": "N"}', b"\2\0\0\0", '[{"x":[],"next":null}]'),
        (
            '{"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}',
            b"\2\x0a",
            "0.10",
        ),
        (CONNECT_MONEY, sized(10**38 - 1), f"{'9' * 36}.99"),
        (
            '{"type": "long", "logicalType": "timestamp-nanos"}',
            b"\1",
            '"1969-12-31T23:59:59.999999999Z"',
        ),
        ('{"type": "int", "logicalType": "date"}', b"\1", '"1969-12-31"'),
    ],
)
def test_a_record_inside_itself_is_json(
    kind: str, octets: bytes, text: str, fast_from: int | None
) -> None:
    bodies = [octets + b"\2" + octets + b"\0", octets + b"\0"] * 10
    values = column_of(NODE % kind, NEXT, *bodies, fast_from=fast_from)
    assert values == [f'{{"x":{text},"next":null}}', None] * 10


@pytest.mark.parametrize("fast_from", PATHS)
def test_a_number_of_more_digits_than_a_column_has_is_bad_by_name(
    fast_from: int | None,
) -> None:
    """Kafka Connect's decimals have 64 digits where its source does not say how many."""
    most = 10**38 - 1
    numbers = [5, most, -most, most + 1, -most - 1, 10**63, *range(20)]
    fields = f'[{{"name": "m", "type": {CONNECT_MONEY}}}]'
    decoder = avro_decoder(
        schema(Column(10, "m", pa.decimal128(38, 2)), ERROR, VALUE),
        writers(_7=f'{{"type": "record", "name": "R", "fields": {fields}}}'),
        fast_from=fast_from,
        on_error="null",
    )
    rows = decoder.decode(raw_batch(*(framed(7, sized(each)) for each in numbers))).rows
    assert [(row["m"], row["kafka_error"]) for row in rows.to_pylist()] == [
        (Decimal(f"{number}e-2"), None)
        if abs(number) <= most
        else (None, "field m: the number is beyond decimal(38, 2)")
        for number in numbers
    ]


@pytest.mark.parametrize("fast_from", PATHS)
def test_json_text_has_no_number_that_a_column_has_not(fast_from: int | None) -> None:
    body = sized(1) + b"\2" + sized(10**38) + b"\0"
    with pytest.raises(UndecodableRecord, match=r"the number is beyond decimal\(38, 2\)"):
        column_of(NODE % CONNECT_MONEY, NEXT, body, fast_from=fast_from)


def test_records_that_need_each_other_are_looked_at_once() -> None:
    names = ["A", "B", "C", "D", "E"]
    fields = [{"name": name.lower(), "type": name} for name in names]
    records = {
        name: json.dumps({"type": "record", "name": name, "fields": fields}) for name in names
    }
    each = parse_schema('{"type": "array", "items": "A"}', records)
    assert least_bytes(each.root.items[0], each) == 0


def test_recursion_is_bounded() -> None:
    levels = lambda count: b"\2\2" * count + b"\2\0"  # noqa: E731
    (text,) = column_of(NODE % '"int"', NEXT, levels(500))
    assert text.count("{") == 500
    with pytest.raises(UndecodableRecord, match="nested more than 500 levels deep"):
        column_of(NODE % '"int"', NEXT, levels(501))
    with pytest.raises(UndecodableRecord, match="nested more than 500 levels deep"):
        column_of(NODE % '"int"', A, levels(100_000))


@pytest.mark.parametrize("fast_from", PATHS)
@pytest.mark.parametrize(
    "items",
    [
        '"null"',
        '"int"',
        '{"type": "record", "name": "e", "fields": []}',
        '{"type": "array", "items": "null"}',
    ],
)
def test_a_count_allocates_no_more_than_there_are_bytes(
    items: str, fast_from: int | None
) -> None:
    text = f'{{"type": "record", "name": "R", "fields": [{{"name": "a", "type": {{"type": "array", "items": {items}}}}}]}}'
    decoder = avro_decoder(schema(A), writers(_7=text), fast_from=fast_from, on_error="skip")
    # 2^31 - 1 elements, and as many inside of each.
    batch = raw_batch(*[framed(7, b"\xfe\xff\xff\xff\x0f" * 2)] * 40)
    decoder.decode(batch)
    tracemalloc.start()
    assert decoder.decode(batch).outcomes == Outcomes(skipped=40)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ('{"type": "array", "items": %s}', pa.list_(pa.decimal128(9, 4))),
        ('{"type": "map", "values": %s}', pa.map_(pa.string(), pa.decimal128(9, 4))),
    ],
)
def test_elements_that_are_read_one_by_one_copy_their_record_once(
    kind: str, column: pa.DataType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a record of many takes the square of its size."""
    copies: list[int] = []
    raw = Batch.raw

    def counted(batch: Batch, row: int) -> bytes:
        copies.append(row)
        return raw(batch, row)

    monkeypatch.setattr(Batch, "raw", counted)
    money = '{"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}'
    element = b"\2\5"
    if "map" in kind:
        items = b"".join(b"\2" + bytes([at]) + element for at in range(65, 85))
    else:
        items = element * 20
    text = f'{{"type": "record", "name": "R", "fields": [{{"name": "a", "type": {kind % money}}}]}}'
    rows = column_of(text, Column(10, "a", column), *[bytes([40]) + items + b"\0"] * 30)
    values = [[each[1] for each in row] if "map" in kind else row for row in rows]
    assert values == [[Decimal("0.0500")] * 20] * 30
    assert copies == list(range(30))


def test_tables_of_json_load_no_numpy() -> None:
    """It takes 59 MB, and executors of such tables have none. Arrow loads it by itself where it is installed."""
    code = (
        "import sys; sys.modules['numpy'] = None\n"
        "import pyarrow as pa\n"
        "from connectors.decoding.registry import decoder_for\n"
        "from planner.schema import Column, TableSchema, RAW_SCHEMA\n"
        "from planner.seam.binding import Binding\n"
        "schema = TableSchema(0, (Column(1, 'kafka_offset', pa.int64()), Column(2, 'a', pa.int32())))\n"
        "record = {'kafka_partition': 0, 'kafka_offset': 0, 'kafka_value': b'{\"a\": 1}'}\n"
        "batch = pa.RecordBatch.from_pylist([record], RAW_SCHEMA)\n"
        "print(decoder_for('t', schema, Binding('t')).decode(batch).rows['a'])\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert "1" in run.stdout


def test_records_of_many_schemas_keep_their_order() -> None:
    """Versions share a beginning, differ in the middle, at the end, or throughout."""
    fields = [
        '{"name": "a", "type": "int"}',
        '{"name": "s", "type": "string"}',
        '{"name": "x", "type": "long"}',
        '{"name": "b", "type": "double"}',
    ]
    choices = [(0, 1), (0, 1, 2), (0, 1, 3), (1, 0), (2, 0, 1), (0,), (3, 2, 1, 0)]
    registry = Writers()
    for number, chosen in enumerate(choices, 1):
        inner = ", ".join(fields[at] for at in chosen)
        registry.add(number, f'{{"type": "record", "name": "R", "fields": [{inner}]}}')
    octets = [b"\2", b"\2s", b"\4", bytes(8)]
    table = TableSchema(
        0,
        (
            *schema().columns,
            A,
            Column(11, "s", pa.string()),
            Column(12, "x", pa.int64()),
            Column(13, "b", pa.float64()),
        ),
    )
    values, expected = [], []
    for at in range(700):
        number = at * at * 31 % 7
        chosen = choices[number]
        values.append(framed(number + 1, b"".join(octets[each] for each in chosen)))
        row = [1, "s", 2, 0.0]
        expected.append([row[each] if each in chosen else None for each in range(4)])
    decoder = avro_decoder(table, registry)
    rows = decoder.decode(raw_batch(*values)).rows
    assert rows.column("kafka_offset").to_pylist() == list(range(700))
    assert [
        list(row)
        for row in zip(*(rows.column(name).to_pylist() for name in "asxb"), strict=True)
    ] == expected


@pytest.mark.parametrize("fast_from", PATHS)
def test_a_batch_says_by_which_schemas_it_was_read(fast_from: int | None) -> None:
    registry = writers(_7=FLOW, _8=FLOW, _9=OTHER)
    decoder = avro_decoder(
        schema(A),
        registry,
        fast_from=fast_from,
        on_error="skip",
        format=AvroFormat(record="net.Flow"),
    )
    values = [framed(7, b"\2")] * 9_000 + [framed(8, b"\2"), framed(9, b"\2"), b"no id", None]
    assert decoder.decode(raw_batch(*values)).writer_ids == frozenset({7, 8, 9})
    assert decoder.decode(raw_batch(b"no id", None)).writer_ids == frozenset()
    # Such an id may come to mean something.
    registry.add_unknown(10)
    assert decoder.decode(raw_batch(*values, framed(10, b"\2"))).writer_ids is None
