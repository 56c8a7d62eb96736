"""Fast path == exact path == oracle, for generated schemas and payloads: good, bad and nasty."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.errors import UndecodableRecord
from planner.names import METADATA_COLUMNS
from planner.schema import (
    METADATA_TYPES,
    RAW_SCHEMA,
    TIMESTAMPTZ,
    Column,
    EpochUnit,
    TableSchema,
)
from planner.seam.binding import Binding
from planner.seam.formats import JsonFormat
from planner.seam.watermark import Outcomes
from tests.harness.json_decoder import json_decoder
from tests.harness.oracle import Bad, oracle_decode, same

#: The same examples each time; in a soak more, and others (`--hypothesis-seed` names the run).
EXAMPLES = 120
SOAK_EXAMPLES = int(os.environ.get("THERMOCLINE_DECODING_EXAMPLES", "2000"))
NAMES = ("a", "b", "c", "d", "É", "a.b", "A", "")
LEADING = tuple(
    Column(index, name, METADATA_TYPES[name])
    for index, name in enumerate(METADATA_COLUMNS, start=1)
)

SIMPLE: tuple[pa.DataType, ...] = (
    pa.bool_(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.decimal128(5, 2),
    pa.decimal128(38, 0),
    pa.decimal128(38, 38),
    pa.decimal128(20, 10),
    pa.date32(),
    pa.timestamp("us"),
    TIMESTAMPTZ,
    pa.string(),
    pa.binary(),
    pa.binary(2),
    pa.uuid(),
)


# Schemas.


@st.composite
def types(draw: st.DrawFn, depth: int = 2) -> pa.DataType:
    shape = draw(st.integers(0, 9)) if depth else 0
    if shape < 6:
        return draw(st.sampled_from(SIMPLE))
    if shape == 6:
        return pa.list_(draw(fields("element", depth)))
    if shape == 7:
        key = pa.string() if draw(st.booleans()) else draw(st.sampled_from(SIMPLE))
        return pa.map_(pa.field("key", key, nullable=False), draw(fields("value", depth)))
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True))
    return pa.struct([draw(fields(name, depth)) for name in names])


@st.composite
def fields(draw: st.DrawFn, name: str, depth: int) -> pa.Field:
    kind = draw(types(depth=depth - 1))
    field_id = {"PARQUET:field_id": str(draw(st.integers(100, 103)))}
    return pa.field(name, kind, nullable=draw(st.integers(0, 3)) > 0, metadata=field_id)


def is_time(kind: pa.DataType) -> bool:
    return pa.types.is_date32(kind) or pa.types.is_timestamp(kind)


UNITS: st.SearchStrategy[EpochUnit] = st.sampled_from(["s", "ms", "us", "ns"])


@st.composite
def tables(draw: st.DrawFn) -> tuple[TableSchema, Binding]:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=5, unique=True))
    on_error = draw(st.sampled_from(["null", "skip"]))
    columns = []
    former = [name for name in ("old", "older", *NAMES) if name not in names]
    for index, name in enumerate(names):
        kind = draw(types())
        keys: tuple[str, ...] = ()
        if draw(st.integers(0, 3)) == 0:
            keys = (name, *(former.pop(0) for _ in range(draw(st.integers(0, 2))) if former))
        unit = draw(UNITS) if is_time(kind) and draw(st.booleans()) else None
        required = on_error == "skip" and draw(st.integers(0, 4)) == 0
        columns.append(
            Column(10 + index, name, kind, required=required, keys=keys, epoch_unit=unit)
        )
    nested = tuple(
        (field_id, draw(UNITS))
        for field_id in sorted(_ids(columns, is_time))
        if draw(st.booleans())
    )
    whole = (column.field_id for column in columns if pa.types.is_timestamp(column.type))
    ids = sorted({*whole, *_ids(columns, pa.types.is_timestamp)})
    floors = tuple(field_id for field_id in ids if draw(st.booleans()))
    bound = Binding("t", JsonFormat("strict", nested, floors), on_error=on_error)  # type: ignore[arg-type]
    return TableSchema(0, (*LEADING, *columns)), bound


def _ids(columns: list[Column], is_kind: Callable[[pa.DataType], bool]) -> set[int]:
    """Ids that only such types have: ids are drawn, so one may stand for several nested fields."""
    value: dict[int, list[pa.DataType]] = {}

    def walk(kind: pa.DataType) -> None:
        if pa.types.is_struct(kind):
            inner = list(kind)
        elif pa.types.is_list(kind):
            inner = [kind.value_field]
        elif pa.types.is_map(kind):
            inner = [kind.key_field, kind.item_field]
        else:
            inner = []
        for field in inner:
            if field.metadata:
                value.setdefault(int(field.metadata[b"PARQUET:field_id"]), []).append(
                    field.type
                )
            walk(field.type)

    for column in columns:
        walk(column.type)
    return {field_id for field_id, kinds in value.items() if all(map(is_kind, kinds))}


# Payloads, as text: what matters is how a value is written.

DIGITS = st.text("0123456789", min_size=1, max_size=40)
WHOLE = st.one_of(
    st.integers(-10, 10),
    st.integers(-(2**31) - 2, 2**31 + 1),
    st.integers(-(2**63) - 2, 2**64 + 1),
    st.integers(-62_135_596_801_000_000, 253_402_300_800_000_000),
    st.integers(-(10**39), 10**39),
    st.integers(-40_000, 40_000).map(lambda day: day * 86_400_000),
    st.integers(-40_000, 40_000).map(lambda ms: ms * 86_400_000_000_000),
).map(str)
FRACTION = st.tuples(WHOLE, DIGITS).map(".".join)
NUMBER = st.one_of(
    WHOLE,
    FRACTION,
    st.tuples(WHOLE | FRACTION, st.sampled_from("eE"), st.integers(-45, 45)).map(
        lambda part: f"{part[0]}{part[1]}{part[2]}"
    ),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(-1000, 1000, places=2, allow_nan=False).map(str),
    st.sampled_from(
        [
            "-0",
            "-0.0",
            "0e5",
            "-0e0",
            "0.00",
            "1e400",
            "-1e400",
            "1e-400",
            "3.4028235e38",
            "3.4028234663852886e38",
            "1e2",
            "1E+2",
            "1.0",
            "1.10",
            "1e999999999",
            "1e-999999999",
            "00",
            "01",
            "+1",
            "1.",
            ".5",
            "-",
            "1e",
            "0x1",
            "NaN",
            "Infinity",
            "-Infinity",
            "9" * 400,
            "0." + "0" * 60 + "1",
            "1" + "0" * 60 + "e-60",
            "0e-999999999",
        ]
    ),
)
TWO = st.integers(0, 61).map("{:02}".format)
DATE = st.one_of(
    st.dates().map(str),
    st.tuples(
        st.sampled_from(["0000", "0001", "1900", "2000", "2023", "2024", "9999"]), TWO, TWO
    ).map("-".join),
    st.tuples(
        st.integers(0, 9999).map("{:04}".format), st.sampled_from(["02-28", "02-29", "04-31"])
    ).map("-".join),
)
TIME = st.tuples(
    TWO,
    TWO,
    st.one_of(st.just(""), TWO.map(":{}".format)),
    st.sampled_from(["", ".0", ".5", ".123456", ".1234567", ".123456789", ".1234560", "."]),
).map(lambda part: f"{part[0]}:{part[1]}{part[2]}{part[3]}")
OFFSET = st.one_of(
    st.sampled_from(
        [
            "",
            "Z",
            "z",
            "+00:00",
            "-00:00",
            "+23:59",
            "-23:59",
            "+24:00",
            "+0000",
            "+02",
            "-1130",
            "+2",
        ]
    ),
    st.tuples(st.sampled_from("+-"), TWO, TWO).map(
        lambda part: f"{part[0]}{part[1]}:{part[2]}"
    ),
)
TIMESTAMP = st.one_of(
    st.tuples(DATE, st.sampled_from("TTT  t"), TIME, OFFSET).map("".join),
    st.tuples(st.datetimes().map(lambda at: at.isoformat()), OFFSET).map("".join),
)
HEX = st.one_of(
    st.binary(max_size=4).map(bytes.hex),
    st.binary(min_size=2, max_size=2).map(lambda raw: raw.hex().upper()),
    st.uuids().map(str),
    st.uuids().map(lambda number: str(number).upper()),
    st.uuids().map(lambda number: number.hex),
    st.sampled_from(["0", "0g", " 00", "00 ", "00\n", "\u0660\u0660", "00-00"]),
)
TEXT = st.one_of(
    st.text(max_size=5),
    HEX,
    DATE,
    TIMESTAMP,
    NUMBER,
    st.sampled_from(
        ["NaN", "Infinity", "-Infinity", "nan", " 1", "1_0", "2024-01-01\n", "é\0"]
    ),
)


def written(text: str) -> str:
    return json.dumps(text, ensure_ascii=len(text) % 2 == 0)


NASTY = st.one_of(
    NUMBER,
    TEXT.map(written),
    st.sampled_from(
        [
            "null",
            "true",
            "false",
            "[]",
            "{}",
            "[null]",
            '{"a": null}',
            '"\\ud800"',
            '"\\ud83d\\ude00"',
            '"\\u0000"',
            '"\\x"',
            '"\t"',
            "tru",
            "[1,]",
            '{"a"}',
            '"',
            "",
            "[[[]]]",
            "nul",
            '"\\/\\b\\f"',
            '{"keys": [], "values": []}',
            '{"keys": ["1"], "values": []}',
            '{"keys": [1, 1], "values": [2, 3]}',
        ]
    ),
)
SPACE = st.sampled_from(["", "", "", " ", "\n\t ", "\r\n"])


@st.composite
def values(draw: st.DrawFn, kind: pa.DataType, timed: bool = False) -> str:
    """A value as text: mostly of the type, sometimes anything."""
    luck = draw(st.integers(0, 11))
    if luck == 0:
        return draw(NASTY)
    if luck == 1:
        return "null"
    if pa.types.is_struct(kind):
        return draw(objects([(field.name, field.type) for field in kind], values))
    if pa.types.is_list(kind):
        return f"[{', '.join(draw(st.lists(values(kind.value_type), max_size=3)))}]"
    if pa.types.is_map(kind):
        if kind.key_type == pa.string():
            names = draw(st.lists(st.text(max_size=3), max_size=3))
            return draw(objects([(name, kind.item_type) for name in names], values))
        keys = draw(st.lists(values(kind.key_type), max_size=3))
        items = [draw(values(kind.item_type)) for _ in keys]
        return f'{{"keys": [{", ".join(keys)}], "values": [{", ".join(items)}]}}'
    if timed:
        return draw(NUMBER)
    return draw(scalars(kind))


def scalars(kind: pa.DataType) -> st.SearchStrategy[str]:
    if kind == pa.bool_():
        return st.sampled_from(["true", "false"])
    if pa.types.is_integer(kind):
        return WHOLE
    if pa.types.is_floating(kind):
        return NUMBER
    if pa.types.is_decimal(kind):
        return NUMBER | NUMBER.map(written)
    if kind == pa.date32():
        return DATE.map(written)
    if pa.types.is_timestamp(kind):
        suffix = "" if kind.tz is None else "Z"
        good = st.datetimes().map(lambda at: written(at.isoformat() + suffix))
        return good | TIMESTAMP.map(written)
    if kind == pa.string():
        return TEXT.map(written)
    return HEX.map(written)


@st.composite
def objects(draw: st.DrawFn, members: list[tuple[str, pa.DataType]], value: Any) -> str:
    parts = []
    for name, kind in members:
        if draw(st.integers(0, 9)) == 0:
            continue
        for _ in range(2 if draw(st.integers(0, 14)) == 0 else 1):
            entry = draw(value(kind))
            key = written(name)
            if name and draw(st.integers(0, 9)) == 0:
                key = (
                    '"'
                    + "".join(
                        f"\\u{ord(character):04x}"
                        for character in name
                        if ord(character) < 2**16
                    )
                    + '"'
                )
            parts.append(f"{draw(SPACE)}{key}{draw(SPACE)}:{draw(SPACE)}{entry}{draw(SPACE)}")
    if draw(st.integers(0, 4)) == 0:
        parts.append(f'"extra": {draw(NASTY)}')
    return "{" + ",".join(draw(st.permutations(parts))) + "}"


@st.composite
def payloads(draw: st.DrawFn, schema: TableSchema) -> bytes | None:
    if draw(st.integers(0, 19)) == 0:
        return None
    parts = [(column.name, column) for column in schema.payload]
    parts += [(key, column) for column in schema.payload for key in column.keys[1:]]
    text = draw(
        objects(parts, lambda column: values(column.type, column.epoch_unit is not None))
    )
    raw = (draw(SPACE) + text + draw(SPACE)).encode("utf-8", "surrogatepass")
    if draw(st.integers(0, 14)) == 0:
        at = draw(st.integers(0, len(raw)))
        raw = raw[:at] + draw(st.binary(max_size=2)) + raw[at + draw(st.integers(0, 2)) :]
    return raw


@st.composite
def cases(draw: st.DrawFn) -> tuple[TableSchema, Binding, pa.RecordBatch]:
    schema, bound = draw(tables())
    raws = draw(st.lists(payloads(schema), max_size=6))
    records = [
        {"kafka_partition": 0, "kafka_offset": at, "kafka_key": b"k", "kafka_value": value}
        for at, value in enumerate(raws)
    ]
    return schema, bound, pa.RecordBatch.from_pylist(records, RAW_SCHEMA)


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(cases())
def test_fast_and_exact_paths_and_the_oracle_agree(
    case: tuple[TableSchema, Binding, pa.RecordBatch],
) -> None:
    schema, bound, batch = case
    results = [oracle_decode(schema, bound, record) for record in batch.to_pylist()]
    expected = [row for row in results if isinstance(row, dict)]
    for exact_only in (True, False):
        decoded = json_decoder("t", schema, bound, exact_only).decode(batch)
        decoded.rows.validate(full=True)
        assert decoded.rows.schema.equals(schema.arrow, check_metadata=True)
        actual = decoded.rows.to_pylist()
        assert len(actual) == len(expected)
        for target, row in zip(expected, actual, strict=True):
            assert same(target, row), (exact_only, target, row)
        assert decoded.outcomes == Outcomes(
            rows=len(expected),
            skipped=sum(isinstance(row, Bad) for row in results),
            tombstones=results.count(None),
        )


@settings(
    max_examples=EXAMPLES // 3,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(cases())
def test_lenient_keeps_every_value_strict_accepts(
    case: tuple[TableSchema, Binding, pa.RecordBatch],
) -> None:
    schema, bound, batch = case
    assert isinstance(bound.format, JsonFormat)
    lenient = replace(bound, on_error="skip", format=replace(bound.format, mode="lenient"))
    for record in range(batch.num_rows):
        one = batch.slice(record, 1)
        result = oracle_decode(schema, replace(bound, on_error="fail"), one.to_pylist()[0])
        decoded = json_decoder("t", schema, lenient).decode(one)
        decoded.rows.validate(full=True)
        if isinstance(result, dict):
            assert same(result, decoded.rows.to_pylist()[0])


@settings(
    max_examples=EXAMPLES // 3,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(cases())
def test_policy_fail_stops_at_the_first_bad_record(
    case: tuple[TableSchema, Binding, pa.RecordBatch],
) -> None:
    schema, bound, batch = case
    failing = replace(bound, on_error="fail")
    results = [oracle_decode(schema, failing, record) for record in batch.to_pylist()]
    bad = [(at, row) for at, row in enumerate(results) if isinstance(row, Bad)]
    decoder = json_decoder("t", schema, failing)
    if not bad:
        assert decoder.decode(batch).outcomes.rows == len(results) - results.count(None)
        return
    with pytest.raises(UndecodableRecord) as caught:
        decoder.decode(batch)
    at, row = bad[0]
    path = caught.value.facts["field"]
    assert caught.value.facts["offset"] == at
    assert str(path).startswith(row.field) if row.field is not None else path is None


_CHECKS: tuple[Any, ...] = (
    test_fast_and_exact_paths_and_the_oracle_agree,
    test_lenient_keeps_every_value_strict_accepts,
    test_policy_fail_stops_at_the_first_bad_record,
)


@pytest.mark.soak
@settings(
    max_examples=SOAK_EXAMPLES,
    deadline=None,
    derandomize=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(cases())
def test_all_of_it_holds_for_many_more_cases(
    case: tuple[TableSchema, Binding, pa.RecordBatch],
) -> None:
    for check in _CHECKS:
        check.hypothesis.inner_test(case)
