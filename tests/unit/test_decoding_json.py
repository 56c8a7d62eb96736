"""One record at a time: outcomes, policies, metadata, poison."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from connectors.decoding import policy as policy_module
from connectors.decoding.fields import payload_fields
from connectors.decoding.json import columns, vectorized
from connectors.decoding.json.vectorized import FastPath
from connectors.decoding.registry import decoder_for
from planner.errors import BadBinding, UndecodableRecord, UnsupportedType
from planner.names import METADATA_COLUMNS
from planner.schema import METADATA_TYPES, RAW_SCHEMA, TIMESTAMPTZ, Column, TableSchema
from planner.seam.binding import Binding
from planner.seam.formats import JsonFormat
from planner.seam.watermark import Outcomes
from tests.harness.json_decoder import json_decoder
from tests.harness.oracle import Bad, oracle_decode, oracle_rows, same
from tests.harness.poison import POISON

WRITTEN = datetime(2024, 5, 1, 12, tzinfo=UTC)
POISONED = (
    Column(10, "a", pa.int64()),
    Column(11, "i", pa.int32()),
    Column(12, "d", pa.float64()),
    Column(13, "m", pa.decimal128(38, 10)),
    Column(14, "e", TIMESTAMPTZ, epoch_unit="ms"),
    Column(15, "s", pa.string()),
)


def schema(*payload: Column, metadata: Sequence[str] = METADATA_COLUMNS) -> TableSchema:
    value = (
        Column(index, name, METADATA_TYPES[name])
        for index, name in enumerate(metadata, start=1)
    )
    return TableSchema(0, (*value, *payload))


def column(kind: pa.DataType, name: str = "a", **facts: Any) -> Column:
    return Column(10, name, kind, **facts)


def raw(*values: bytes | str | None) -> pa.RecordBatch:
    records = [
        {
            "kafka_partition": 3,
            "kafka_offset": 100 + 2 * index,
            "kafka_timestamp": WRITTEN,
            "kafka_key": b"k%d" % index,
            "kafka_headers": [{"key": "h", "value": b"v"}, {"key": "h", "value": None}],
            "kafka_value": value.encode() if isinstance(value, str) else value,
        }
        for index, value in enumerate(values)
    ]
    return pa.RecordBatch.from_pylist(records, RAW_SCHEMA)


def binding(on_error: Any = "null", **facts: Any) -> Binding:
    return Binding("t", on_error=on_error, **facts)


@pytest.fixture(params=[False, True], ids=["fast", "exact"])
def exact_only(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_rows_have_the_schema_and_order_of_the_table(exact_only: bool) -> None:
    value = schema(column(pa.int64()), Column(11, "b", pa.string()))
    values = ['{"a": 1}', '{"a": NaN}', None, '{"b": "x"}', '{"a": "x"}', '{"a": 2}']
    decoded = json_decoder("t", value, binding(), exact_only).decode(raw(*values))
    assert decoded.rows.schema.equals(value.arrow, check_metadata=True)
    decoded.rows.validate(full=True)
    assert decoded.rows.column("kafka_offset").to_pylist() == [100, 102, 106, 108, 110]
    assert decoded.rows.column("a").to_pylist() == [1, None, None, None, 2]
    assert decoded.rows.column("b").to_pylist() == [None, None, "x", None, None]
    expected = oracle_rows(value, binding(), raw(*values).to_pylist())
    assert all(map(same, expected, decoded.rows.to_pylist()))


def test_metadata_comes_from_the_log() -> None:
    row = decoder_for("t", schema(), binding()).decode(raw("{}")).rows.to_pylist()[0]
    assert row == {
        "kafka_partition": 3,
        "kafka_offset": 100,
        "kafka_timestamp": WRITTEN,
        "kafka_key": b"k0",
        "kafka_headers": [{"key": "h", "value": b"v"}, {"key": "h", "value": None}],
        "kafka_value": None,
        "kafka_error": None,
    }


def test_field_ids_inside_metadata_columns_are_kept() -> None:
    names = pa.field("key", pa.string(), metadata={"PARQUET:field_id": "7"})
    kind = pa.list_(pa.struct([names, pa.field("value", pa.binary())]))
    value = TableSchema(0, (*schema().columns[:3], Column(6, "kafka_headers", kind)))
    rows = decoder_for("t", value, binding("fail")).decode(raw("{}")).rows
    assert rows.schema.field("kafka_headers").type.equals(kind, check_metadata=True)


def test_policy_fail_names_the_first_bad_record_but_not_what_it_holds(exact_only: bool) -> None:
    decoder = json_decoder(
        "lake.net.flows", schema(column(pa.int32())), binding("fail"), exact_only
    )
    with pytest.raises(UndecodableRecord) as caught:
        decoder.decode(raw("{}", '{"a": "secret"}', "not json"))
    assert str(caught.value) == (
        "lake.net.flows: the record at partition 3, offset 102 does not decode: field a: expected a whole "
        "number for int, found a string; correct its producer, then run `thermocline skip lake.net.flows "
        "--partition 3 --offset 102`, or choose error policy null or skip for the table."
    )
    assert caught.value.facts == {
        "table": "lake.net.flows",
        "partition": 3,
        "offset": 102,
        "field": "a",
        "reason": "field a: expected a whole number for int, found a string",
    }


def undecodable(table: TableSchema, record: str, exact_only: bool, **facts: Any) -> str:
    """What policy ``fail`` says of a record, from its field on."""
    with pytest.raises(UndecodableRecord) as caught:
        json_decoder("t", table, binding("fail", **facts), exact_only).decode(raw(record))
    return str(caught.value).removeprefix(
        "t: the record at partition 3, offset 100 does not decode: "
    )


SKIP = (
    "; where it is a single one, run `thermocline skip t --partition 3 --offset 100`, or choose error policy null or skip "
    "for the table."
)


@pytest.mark.parametrize(
    ("kind", "number", "reason"),
    [
        (pa.int64(), "10.5", "a number with fraction or exponent is no long"),
        (pa.int64(), "9223372036854775808", "the number is beyond long"),
        (pa.int32(), "2147483648", "the number is beyond int"),
        (pa.decimal128(5, 2), "12345", "the number is beyond decimal(5, 2)"),
        (pa.decimal128(5, 2), "1.005", "the number has digits beyond decimal(5, 2)"),
    ],
)
def test_a_number_that_another_type_holds_is_sent_to_a_new_column(
    kind: pa.DataType, number: str, reason: str, exact_only: bool
) -> None:
    assert undecodable(schema(column(kind)), f'{{"a": {number}}}', exact_only) == (
        f"field a: {reason}; give the key to a new column that holds such numbers (docs/ways-out.md, UndecodableRecord)"
        f"{SKIP}"
    )
    # The new column has the key, the one that had it another name.
    grown = schema(column(kind, "was", keys=("was", "a")), Column(11, "a", pa.float64()))
    rows = json_decoder("t", grown, binding("fail"), exact_only).decode(
        raw(f'{{"a": {number}}}')
    )
    assert rows.rows.select(["was", "a"]).to_pylist() == [{"was": None, "a": float(number)}]


def test_a_time_below_a_microsecond_is_sent_to_its_own_floor(exact_only: bool) -> None:
    inner = pa.struct([pa.field("t", pa.timestamp("us"), metadata={"PARQUET:field_id": "12"})])
    table = schema(column(pa.timestamp("us", "UTC")), Column(11, "in", inner))
    for record, units, start, field_id in (
        (
            '{"a": "2024-01-05T10:00:00.1234567Z"}',
            (),
            "field a: a timestamptz holds microsec",
            10,
        ),
        (
            '{"in": {"t": "2024-01-05T10:00:00.1234567"}}',
            (),
            "field in.t: a timestamp holds",
            12,
        ),
        (
            '{"a": 1700000000123456789}',
            ((10, "ns"),),
            "field a: the number of time units is",
            10,
        ),
    ):
        said = undecodable(table, record, exact_only, format=JsonFormat(epoch_units=units))  # type: ignore[arg-type]
        assert said.startswith(start)
        assert said.endswith(
            f"; have such digits cut off by the table property thermocline.fraction.{field_id} = floor{SKIP}"
        )
        floored = binding("fail", format=JsonFormat("strict", units, (field_id,)))  # type: ignore[arg-type]
        decoded = json_decoder("t", table, floored, exact_only).decode(raw(record))
        assert decoded.rows.num_rows == 1


def test_a_date_has_no_floor_to_be_sent_to(exact_only: bool) -> None:
    said = undecodable(
        schema(column(pa.date32())),
        '{"a": 0.5}',
        exact_only,
        format=JsonFormat(epoch_units=((10, "ns"),)),
    )
    assert said.startswith(
        "field a: the number of time units is not a whole number of microseconds; correct its producer, then run "
    )


@pytest.mark.parametrize(
    ("value", "message", "reason"),
    [
        (
            b"\x00\x00\x00\x00\x2a\x02\xff",
            "this looks like Avro with schema id 42; make a table of such records with `thermocline create --format "
            "avro`; where it is a single one, run `",
            "the value is not UTF-8 (byte 6)",
        ),
        (
            b'\x00\x00\x01\x00\x00{"a": 1}',
            "this looks like JSON behind a schema registry, schema id 65536; bind the table to a topic of JSON "
            "records; where it is a single one, run `",
            "the value is not JSON (character 0)",
        ),
        (
            b"\x03\x00" + bytes(17),
            "the value begins with bytes 03 00: the header of AWS Glue, which is not read; bind the table to a topic of "
            "JSON records; where it is a single one, run `",
            "the value is not JSON (character 0)",
        ),
        (
            b"\x01" + bytes(16) + b"\x02\xff",
            "the value begins with byte 01: a GUID in place of a schema id, which is not read; bind the table to a topic of "
            "JSON records; where it is a single one, run `",
            "the value is not UTF-8 (byte 18)",
        ),
        (
            bytes(7) + b"\x2a\x02",
            "the schema id is 0, which registries do not give: this looks like the 8 bytes of Apicurio's older serializers, "
            "which are not read; bind the table to a topic of JSON records; where it is a single one, run `",
            "the value is not JSON (character 0)",
        ),
        (
            b"\x00\x00\x00\x00",
            "the value is not JSON (character 0); correct its producer, then run `",
            "the value is not JSON (character 0)",
        ),
        (
            b"",
            "the value is empty (zero bytes, which is no tombstone); correct its producer, then run `",
            "the value is not JSON (character 0)",
        ),
        (
            b'{"a": 1}\n{"a": 2}\n',
            "the value is several JSON values, as in NDJSON, and a record is one; correct its producer, then run `",
            "the value is not JSON (character 9)",
        ),
        (
            b'\xef\xbb\xbf{"a": 1}',
            "the value begins with a byte order mark, which is not JSON; correct its producer, then run `",
            "the value is not JSON (character 0)",
        ),
        (
            b'{"a": NaN}',
            "the value has a bare NaN, which is not JSON; correct its producer, then run `",
            "the value is not JSON",
        ),
    ],
    ids=[
        "Avro",
        "JSON",
        "Glue",
        "GUID",
        "Apicurio",
        "too short",
        "empty",
        "NDJSON",
        "BOM",
        "NaN",
    ],
)
def test_a_well_known_form_is_named_and_rows_keep_their_reason(
    value: bytes, message: str, reason: str, exact_only: bool
) -> None:
    table = schema(column(pa.int32()))
    with pytest.raises(UndecodableRecord) as caught:
        json_decoder("t", table, binding("fail"), exact_only).decode(raw(value))
    assert str(caught.value).startswith(
        f"t: the record at partition 3, offset 100 does not decode: {message}"
    )
    # Rows of before are read beside those of today: for one record both have one text.
    rows = json_decoder("t", table, binding("null"), exact_only).decode(raw(value)).rows
    assert rows.column("kafka_error").to_pylist() == [reason]


def test_policy_null_makes_a_row_of_a_bad_record(exact_only: bool) -> None:
    decoder = json_decoder("t", schema(column(pa.int32())), binding("null"), exact_only)
    decoded = decoder.decode(raw('{"a": 1}', b"\xff", None))
    assert decoded.outcomes == Outcomes(rows=2, tombstones=1)
    assert decoded.rows.select(["a", "kafka_value", "kafka_error"]).to_pylist() == [
        {"a": 1, "kafka_value": None, "kafka_error": None},
        {"a": None, "kafka_value": b"\xff", "kafka_error": "the value is not UTF-8 (byte 0)"},
    ]


def test_policy_skip_counts_bad_records(exact_only: bool) -> None:
    decoder = json_decoder("t", schema(column(pa.int32())), binding("skip"), exact_only)
    decoded = decoder.decode(raw("[]", None, '{"a": 1}', "x"))
    assert decoded.outcomes == Outcomes(rows=1, skipped=2, tombstones=1)
    assert decoded.rows.column("kafka_offset").to_pylist() == [104]


def test_a_batch_without_a_good_record_is_counted() -> None:
    decoded = decoder_for("t", schema(), binding("skip")).decode(raw(*["x"] * 50))
    assert decoded.outcomes == Outcomes(skipped=50)


def test_a_long_batch_is_decoded_in_portions_as_if_it_were_one(
    monkeypatch: pytest.MonkeyPatch, exact_only: bool
) -> None:
    decoder = json_decoder("t", schema(column(pa.uuid()), *POISONED[1:]), binding(), exact_only)
    batch = raw(*POISON.values(), None, *POISON.values())
    whole = decoder.decode(batch)
    monkeypatch.setattr(policy_module, "PORTION_RECORDS", 7)
    assert decoder.decode(batch) == whole


@pytest.mark.parametrize("policy", ["skip", "null"])
def test_records_on_both_sides_of_a_portions_end_are_decoded_alike(
    monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    """Doubts, tombstones and records that no type fits, wherever the fast path's next objects begin."""
    value = schema(*POISONED, Column(40, "text", pa.string()))
    records = [*POISON.values(), None, '{"a": 1, "text": "x"}', *POISON.values(), '{"a": 2}']
    whole = json_decoder("t", value, binding(policy)).decode(raw(*records))
    exact = json_decoder("t", value, binding(policy), exact_only=True).decode(raw(*records))
    assert all(map(same, exact.rows.to_pylist(), whole.rows.to_pylist()))
    for size in (1, 2, 3, 7, len(records)):
        monkeypatch.setattr(vectorized, "_AT_ONCE", size)
        assert json_decoder("t", value, binding(policy)).decode(raw(*records)) == whole


@pytest.mark.parametrize("values", [(), (None, None)], ids=["no records", "tombstones only"])
def test_a_batch_without_values_is_no_rows(values: tuple[None, ...], exact_only: bool) -> None:
    kind = pa.struct([pa.field("x", pa.list_(pa.uuid()))])
    value = schema(column(kind), Column(11, "b", pa.decimal128(5, 2)))
    decoded = json_decoder("t", value, binding(), exact_only).decode(raw(*values))
    assert decoded.rows.num_rows == 0
    assert decoded.rows.schema == value.arrow
    assert decoded.outcomes == Outcomes(tombstones=len(values))


def test_a_slice_of_a_batch_decodes_as_itself(exact_only: bool) -> None:
    decoder = json_decoder("t", schema(column(pa.string())), binding(), exact_only)
    whole = raw(*[f'{{"a": "{index}"}}' for index in range(10)], "x", None, '{"a": "é"}')
    sliced = decoder.decode(whole.slice(5, 8))
    assert sliced.rows.column("a").to_pylist() == ["5", "6", "7", "8", "9", None, "é"]
    assert sliced.rows.column("kafka_offset").to_pylist() == [110, 112, 114, 116, 118, 120, 124]


def test_a_record_is_read_under_every_name_its_column_had(exact_only: bool) -> None:
    renamed = column(pa.int64(), "now", keys=("now", "before", "once"))
    decoder = json_decoder("t", schema(renamed), binding(), exact_only)
    values = (
        '{"now": 1, "before": "x"}',
        '{"before": 2}',
        '{"once": 3, "before": 4}',
        '{"now": null, "before": 5}',
        "{}",
        '{"Now": 6}',
    )
    rows = decoder.decode(raw(*values)).rows
    assert rows.column("now").to_pylist() == [1, 2, 4, None, None, None]
    assert rows.column("kafka_error").null_count == len(values)


def test_a_required_column_is_required_under_all_its_names(exact_only: bool) -> None:
    value = schema(column(pa.int64(), required=True, keys=("a", "b")))
    decoded = json_decoder("t", value, binding("skip"), exact_only).decode(
        raw('{"a": 1}', '{"b": 2}', '{"a": null, "b": 3}', "{}")
    )
    assert decoded.rows.column("a").to_pylist() == [1, 2]
    assert decoded.outcomes == Outcomes(rows=2, skipped=2)


def test_a_name_of_now_belongs_to_the_column_of_that_name(exact_only: bool) -> None:
    value = schema(
        column(pa.int64(), "b", keys=("b", "a")), Column(11, "a", pa.int64(), keys=("a",))
    )
    rows = json_decoder("t", value, binding(), exact_only).decode(raw('{"a": 1}')).rows
    assert rows.select(["a", "b"]).to_pylist() == [{"a": 1, "b": None}]


def test_two_columns_cannot_share_a_former_name() -> None:
    value = schema(
        column(pa.int64(), "b", keys=("b", "a")), Column(11, "c", pa.int64(), keys=("c", "a"))
    )
    with pytest.raises(BadBinding, match="columns b and c both list 'a' as a former name"):
        decoder_for("t", value, binding())


def test_epoch_units_of_the_binding_reach_nested_fields(exact_only: bool) -> None:
    when = pa.field("at", pa.timestamp("us"), metadata={"PARQUET:field_id": "12"})
    value = schema(column(pa.list_(pa.field("element", pa.struct([when])))))
    bound = binding(format=JsonFormat(epoch_units=((12, "s"),)))
    rows = (
        json_decoder("t", value, bound, exact_only).decode(raw('{"a": [{"at": 86400}]}')).rows
    )
    assert rows.column("a").to_pylist() == [[{"at": datetime(1970, 1, 2)}]]


def test_a_column_name_no_parser_generator_likes_is_read(exact_only: bool) -> None:
    name = 'a "quoted"\n\\name'
    decoder = json_decoder("t", schema(column(pa.int64(), name)), binding(), exact_only)
    rows = decoder.decode(raw('{"a \\"quoted\\"\\n\\\\name": 1}', "{}")).rows
    assert rows.column(name).to_pylist() == [1, None]


@pytest.mark.parametrize("name", ["__init__", "class", "f0", "", "é", "a.b", "self", "🦆"])
def test_any_key_can_be_a_column(name: str, exact_only: bool) -> None:
    value = schema(column(pa.int64(), name), Column(11, "other", pa.string()))
    rows = json_decoder("t", value, binding(), exact_only).decode(raw(f'{{"{name}": 1}}')).rows
    assert rows.column(name).to_pylist() == [1]


@pytest.mark.parametrize(
    ("value", "bound", "message"),
    [
        (
            schema(metadata=METADATA_COLUMNS[:3]),
            binding("null"),
            "t: error policy null needs the column kafka_value (binary); add it, or choose policy fail or "
            "skip.",
        ),
        (
            schema(column(pa.int64(), required=True)),
            binding("null"),
            "t: error policy null writes NULL for a record that does not decode, but column a is required; "
            "make it optional, or choose policy fail or skip.",
        ),
        (
            schema(column(pa.string())),
            binding(format=JsonFormat(epoch_units=((10, "ms"),))),
            "t: an epoch unit is declared for a, which is string; only date, timestamp and timestamptz can "
            "have one: remove the property thermocline.epoch_unit.<field id>, or, while the table has no rows, make "
            "it anew: `thermocline create t --topic t --replace --infer --epoch a=ms`.",
        ),
        (
            TableSchema(0, (Column(1, "kafka_key", pa.binary(), required=True),)),
            binding("fail"),
            "t: metadata column kafka_key is required, but not every record has it; make it optional.",
        ),
    ],
    ids=["no kafka_value", "required", "epoch unit", "required metadata"],
)
def test_a_schema_that_cannot_hold_the_outcome_is_refused(
    value: TableSchema, bound: Binding, message: str
) -> None:
    with pytest.raises(BadBinding) as caught:
        decoder_for("t", value, bound)
    assert str(caught.value) == message


def test_a_type_without_json_form_is_refused() -> None:
    value = schema(column(pa.struct([pa.field("x", pa.time64("us"))])))
    with pytest.raises(UnsupportedType, match=r"column a\.x is time64\[us\]"):
        decoder_for("t", value, binding())


def test_one_doubtful_record_does_not_slow_its_neighbours() -> None:
    value = schema(
        column(TIMESTAMPTZ),
        Column(11, "l", pa.list_(pa.struct([pa.field("u", pa.uuid())]))),
        Column(12, "m", pa.decimal128(5, 2)),
    )
    good = '{"a": "2024-02-29T00:00:00Z", "l": [{}, {"u": "00112233-4455-6677-8899-aabbccddeeff"}], "m": 1.5}'
    values = [
        good,
        good.replace("2024", "2023"),
        good.replace("0011", "00x1"),
        good,
        good.replace("1.5", "1e1"),
        good.replace("1.5", "1.555"),
        good.replace("2024-02-29T00:00:00Z", "0001-01-01T00:00:00+01:00"),
        good.replace("1.5", '"1.5"'),
    ]
    batch = raw(*values)
    path = FastPath(payload_fields("t", value, binding()))
    certain, _, doubtful = path.read(batch.column("kafka_value"), [v.encode() for v in values])
    assert certain == [0, 3, 7]
    assert doubtful == [1, 2, 4, 5, 6]


@pytest.mark.parametrize("name", POISON)
def test_poison_decodes_as_the_oracle_says(name: str, exact_only: bool) -> None:
    value = schema(*POISONED)
    batch = raw('{"a": 1}', POISON[name], '{"a": 2}')
    decoded = json_decoder("t", value, binding("null"), exact_only).decode(batch)
    expected = oracle_rows(value, binding("null"), batch.to_pylist())
    assert all(map(same, expected, decoded.rows.to_pylist()))
    assert decoded.outcomes == Outcomes(rows=3)


def test_poison_in_one_batch_is_sorted_from_good_records() -> None:
    value = schema(*POISONED)
    batch = raw(*POISON.values(), None)
    decoded = decoder_for("t", value, binding("skip")).decode(batch)
    results = [oracle_decode(value, binding("skip"), record) for record in batch.to_pylist()]
    good = [row for row in results if isinstance(row, dict)]
    bad = sum(isinstance(row, Bad) for row in results)
    assert decoded.outcomes == Outcomes(rows=len(good), skipped=bad, tombstones=1)
    assert all(map(same, good, decoded.rows.to_pylist()))


def test_poison_neither_ends_the_process_nor_eats_its_memory() -> None:
    """In a process of its own: a crash or a runaway allocation must not pass for a failed assertion."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.unit.test_decoding_json"],
        cwd=Path(__file__).parents[2],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert int(run.stdout) < 1_000


def decode_all_poison() -> None:
    for mode in ("strict", "lenient"):
        for exact in (False, True):
            decoder = json_decoder(
                "t", schema(*POISONED), binding(format=JsonFormat(mode)), exact
            )
            for value in POISON.values():
                assert decoder.decode(raw(value)).outcomes == Outcomes(rows=1)
    # Its own peak: that of getrusage has the peak of the process that started it.
    status = Path("/proc/self/status").read_text()
    (peak,) = re.findall(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    print(int(peak) // 1024)  # MiB


if __name__ == "__main__":
    decode_all_poison()


@pytest.mark.parametrize("pattern", sorted(columns._PATTERNS.values()))
def test_python_and_arrow_match_the_same_texts(pattern: str) -> None:
    starts = [
        "2024-02-29",
        "2023-02-29",
        "0000-01-01",
        "1900-02-29",
        "2000-02-29",
        "00ff",
        "0",
        "",
    ]
    ends = [
        "",
        "T00:00:00",
        "T23:59:59.123456Z",
        "T24:00:00Z",
        "T12:00:00.1234567Z",
        "T12:00:00+23:59",
    ]
    texts = [
        before + start + end + after
        for before in ("", " ", "\n")
        for start in (*starts, "123E4567-e89b-12d3-a456-426614174000", "\u0661\u0662")
        for end in ends
        for after in ("", "\n", " ", "\x00", "\u2028", "\nZ")
    ]
    by_arrow = pc.match_substring_regex(pa.array(texts), pattern).to_pylist()
    assert [columns._compiled(pattern)(text) is not None for text in texts] == by_arrow
    assert any(by_arrow)


@pytest.mark.parametrize("count", [1, 300])
def test_few_and_many_times_are_doubted_alike(count: int) -> None:
    """Texts that no pattern matches, and one that is a time before the year 1 in UTC."""
    at = Column(1, "at", TIMESTAMPTZ)
    fields = payload_fields("t", TableSchema(0, (at,)), Binding("t"))
    good, bad = "2024-02-29T12:00:00Z", ["2024-02-30T12:00:00Z", "0001-01-01T00:00:00+01:00"]
    values = [f'{{"at":"{text}"}}'.encode() for text in [*bad, *([good] * count)]]
    path = FastPath.of(fields)
    assert path is not None
    positions, (times,), doubtful = path.read(pa.array(values, pa.binary()), values)
    assert doubtful == [0, 1]
    assert positions == list(range(2, count + 2))
    assert times.to_pylist() == [datetime(2024, 2, 29, 12, tzinfo=UTC)] * count


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"k":', "}")])
def test_lenient_texts_hold_what_is_nested_as_deep_as_a_record_may_be(
    opening: str, closing: str, exact_only: bool
) -> None:
    deep = opening * 490 + '[1.50,"\u00e9",{"x":null,"y":true}]' + closing * 490
    decoder = json_decoder(
        "t",
        schema(column(pa.string())),
        binding("fail", format=JsonFormat("lenient")),
        exact_only,
    )
    assert decoder.decode(raw(f'{{"a": {deep}}}')).rows.column("a").to_pylist() == [deep]
