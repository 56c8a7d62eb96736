"""Avro: the product == what was written == fastavro == Apache's avro, and fast path == exact path, also on mutated bytes.

Values are written here, by the specification, so that each branch of a union and each form of a block comes.
"""

from __future__ import annotations

import io
import json
import os
import struct
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import count
from typing import Any
from uuid import UUID

import avro.io
import avro.schema
import fastavro
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors.decoding.avro.decoder import AvroRecords
from connectors.decoding.writers import Writers
from planner.evolution.avro import parse_schema
from planner.evolution.table_types import table_type
from planner.names import METADATA_COLUMNS
from planner.schema import METADATA_TYPES, Column, TableSchema
from planner.seam.binding import Binding
from planner.seam.formats import AvroFormat
from tests.harness.avro_decoder import avro_decoder, framed, raw_batch

EXAMPLES = 150
SOAK_EXAMPLES = int(os.environ.get("THERMOCLINE_DECODING_EXAMPLES", "2000"))
QUICK = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
LONG = settings(QUICK, max_examples=SOAK_EXAMPLES, derandomize=False)
EPOCH = datetime(1970, 1, 1)
#: More than the fast path wants of one schema.
TIMES = 8
LEADING = tuple(
    Column(at, name, METADATA_TYPES[name]) for at, name in enumerate(METADATA_COLUMNS, 1)
)
LEAST_US, MOST_US = -62_135_596_800_000_000, 253_402_300_799_999_999

Schema = Any
#: Bytes, what a library reads of them, what a column has, what a library reads without logical types.
Written = tuple[bytes, Any, Any, Any]

SCALARS = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
MEANINGS = (
    {"type": "int", "logicalType": "date"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "string", "logicalType": "uuid"},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 10},
    {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 2},
)


class Names:
    """Gives each named type another name."""

    def __init__(self) -> None:
        self._numbers = count()

    def __call__(self) -> str:
        return f"N{next(self._numbers)}"


@st.composite
def types(draw: st.DrawFn, names: Names, depth: int = 3) -> Schema:
    shape = draw(st.integers(0, 11)) if depth else draw(st.integers(0, 4))
    if shape < 4:
        return draw(st.sampled_from(SCALARS))
    if shape == 4:
        return dict(draw(st.sampled_from(MEANINGS)))
    if shape == 5:
        return {"type": "enum", "name": names(), "symbols": ["A", "B", "C"]}
    if shape == 6:
        return {"type": "fixed", "name": names(), "size": draw(st.sampled_from([1, 16, 70]))}
    if shape == 7:
        return {"type": "array", "items": draw(types(names, depth - 1))}
    if shape == 8:
        return {"type": "map", "values": draw(types(names, depth - 1))}
    if shape == 9:
        return draw(records(names, depth))
    branches = draw(st.lists(types(names, depth - 1), min_size=1, max_size=3))
    if shape == 10:
        branches = ["null", *branches[:1]]
    unlike = {_branch(each): each for each in branches if not isinstance(each, list)}
    return list(unlike.values()) or "int"


@st.composite
def records(draw: st.DrawFn, names: Names, depth: int = 3) -> Schema:
    fields = [
        {"name": f"f{at}", "type": draw(types(names, depth - 1))}
        for at in range(draw(st.integers(1, 4)))
    ]
    return {"type": "record", "name": names(), "fields": fields}


def _branch(schema: Schema) -> str:
    return schema if isinstance(schema, str) else schema.get("name") or schema["type"]


def varint(number: int) -> bytes:
    number = ((number << 1) ^ (number >> 63)) & (1 << 64) - 1
    octets = bytearray()
    while number >= 0x80:
        octets.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*octets, number])


def sized(octets: bytes) -> bytes:
    return varint(len(octets)) + octets


@st.composite
def values(draw: st.DrawFn, schema: Schema) -> Written:
    if isinstance(schema, list):
        index = draw(st.integers(0, len(schema) - 1))
        octets, plain, ours, bare = draw(values(schema[index]))
        others = [each for each in schema if each != "null"]
        if len(others) > 1 and schema[index] != "null":
            ours = _members(
                [(_branch(each), each) for each in others], {_branch(schema[index]): ours}
            )
        return varint(index) + octets, plain, ours, bare
    if isinstance(schema, str):
        octets, plain = draw(SCALAR_VALUES[schema])
        return octets, plain, plain, plain
    kind = schema["type"]
    if "logicalType" in schema:
        return draw(MEANT[schema["logicalType"]](schema))
    if kind == "enum":
        index = draw(st.integers(0, 2))
        return varint(index), "ABC"[index], "ABC"[index], "ABC"[index]
    if kind == "fixed":
        octets = draw(st.binary(min_size=schema["size"], max_size=schema["size"]))
        return octets, octets, octets, octets
    if kind == "record":
        written = {each["name"]: draw(values(each["type"])) for each in schema["fields"]}
        ours = _members(
            [(each["name"], each["type"]) for each in schema["fields"]],
            {name: each[2] for name, each in written.items()},
        )
        octets = b"".join(each[0] for each in written.values())
        plain, bare = ({name: each[at] for name, each in written.items()} for at in (1, 3))
        return octets, plain, ours, bare
    if kind == "array":
        items = draw(st.lists(values(schema["items"]), max_size=4))
        octets = draw(blocks([each[0] for each in items]))
        plain, ours, bare = ([each[at] for each in items] for at in (1, 2, 3))
        return octets, plain, ours, bare
    entries = draw(st.dictionaries(st.text(max_size=3), values(schema["values"]), max_size=3))
    octets = draw(blocks([sized(key.encode()) + each[0] for key, each in entries.items()]))
    plain, bare = ({key: each[at] for key, each in entries.items()} for at in (1, 3))
    return octets, plain, [(key, each[2]) for key, each in entries.items()], bare


def _members(types_: list[tuple[str, Schema]], chosen: dict[str, Any]) -> Any:
    """Return a struct: what is no column (null, nothing in it) is no member."""
    return {name: chosen.get(name) for name, each in types_ if has_column(each)}


def has_column(schema: Schema) -> bool:
    return table_type(parse_schema(json.dumps(schema)).root) is not None


@st.composite
def blocks(draw: st.DrawFn, items: list[bytes]) -> bytes:
    """Write elements in one block or several, with their size or not."""
    octets, left = b"", items
    while left:
        size = draw(st.sampled_from([len(left), len(left), 1]))
        block, left = left[:size], left[size:]
        inner = b"".join(block)
        if draw(st.integers(0, 5)):
            octets += varint(len(block)) + inner
        else:
            octets += varint(-len(block)) + sized(inner)
    return octets + b"\0"


def _written(kind: st.SearchStrategy[Any], write: Callable[[Any], bytes]) -> Any:
    return kind.map(lambda value: (write(value), value))


SCALAR_VALUES: dict[str, st.SearchStrategy[tuple[bytes, Any]]] = {
    "null": _written(st.none(), lambda _: b""),
    "boolean": _written(st.booleans(), lambda value: bytes([value])),
    "int": _written(st.integers(-(2**31), 2**31 - 1), varint),
    "long": _written(st.integers(-(2**63), 2**63 - 1), varint),
    "float": _written(st.floats(width=32), lambda value: struct.pack("<f", value)),
    "double": _written(st.floats(), lambda value: struct.pack("<d", value)),
    "bytes": _written(st.binary(max_size=70), sized),
    "string": _written(st.text(max_size=70), lambda value: sized(value.encode())),
}


def _times(per_us: int, us: int, *, zone: bool) -> Callable[[Schema], Any]:
    def write(number: int) -> Written:
        moment = EPOCH + timedelta(microseconds=number * us // per_us)
        moment = moment.replace(tzinfo=UTC) if zone else moment
        return varint(number), moment, moment, number

    numbers = st.integers(-(-LEAST_US // us), MOST_US // us)
    return lambda _: numbers.map(write)


def _decimals(schema: Schema) -> Any:
    limit = 10 ** min(schema["precision"], 38) - 1

    def write(unscaled: int) -> Written:
        octets = unscaled.to_bytes(unscaled.bit_length() // 8 + 1, signed=True)
        digits = tuple(map(int, str(abs(unscaled))))
        number = Decimal((int(unscaled < 0), digits, -schema["scale"]))
        return sized(octets), number, number, octets

    return st.one_of(st.integers(-limit, limit), st.sampled_from([limit, -limit, 0])).map(write)


def _uuid(value: UUID) -> Written:
    return sized(str(value).encode()), value, value, str(value)


def _date(value: date) -> Written:
    days = (value - date(1970, 1, 1)).days
    return varint(days), value, value, days


MEANT: dict[str, Callable[[Schema], Any]] = {
    "date": lambda _: st.dates().map(_date),
    "timestamp-millis": _times(1, 1_000, zone=True),
    "timestamp-micros": _times(1, 1, zone=True),
    "local-timestamp-micros": _times(1, 1, zone=False),
    "uuid": lambda _: st.uuids().map(_uuid),
    "decimal": _decimals,
}


def as_text(value: Any) -> str:
    """Tell values apart that are equal: types, signs of zero, digits of decimals; zones are all UTC."""
    if isinstance(value, datetime):
        return f"{value.replace(tzinfo=None).isoformat()} {value.tzinfo is not None}"
    if isinstance(value, Decimal):
        return str(Decimal(0) if value == 0 else value.normalize())
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {as_text(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(as_text, value)) + "]"
    return repr(value)


def by_apache(schema: Schema, octets: bytes) -> Any:
    with warnings.catch_warnings(action="ignore"):
        parsed = avro.schema.parse(json.dumps(schema))
        return avro.io.DatumReader(parsed).read(avro.io.BinaryDecoder(io.BytesIO(octets)))


def bare_schema(schema: Schema) -> Schema:
    """Leave logical types out: Apache's library lacks some."""
    if isinstance(schema, list):
        return [bare_schema(each) for each in schema]
    if isinstance(schema, dict):
        return {
            key: bare_schema(each) if key in ("type", "items", "values", "fields") else each
            for key, each in schema.items()
            if key not in ("logicalType", "precision", "scale")
        }
    return schema


def table_of(*schemas: Schema) -> TableSchema:
    """Return a table with a column for each field: of the first schema that has it."""
    kinds: dict[str, Any] = {}
    for schema in schemas:
        for each in parse_schema(json.dumps(schema)).root.fields:
            kinds.setdefault(each.name, table_type(each.type))
    columns = [
        Column(10 + at, name, kind)
        for at, (name, kind) in enumerate(kinds.items())
        if kind is not None
    ]
    return TableSchema(0, (*LEADING, *columns))


@st.composite
def written_records(draw: st.DrawFn) -> tuple[Schema, list[Written]]:
    schema = draw(records(Names()))
    return schema, draw(st.lists(values(schema), min_size=1, max_size=4))


def check_against_libraries(schema: Schema, written: list[Written]) -> None:
    parsed = fastavro.parse_schema(schema, _force=True)
    table = table_of(schema)
    writers = Writers()
    writers.add(1, json.dumps(schema))
    names = [column.name for column in table.payload]
    for octets, plain, _, bare in written:
        read = fastavro.schemaless_reader(io.BytesIO(octets), parsed)
        assert as_text(read) == as_text(plain)
        assert as_text(by_apache(bare_schema(schema), octets)) == as_text(bare)
    batch = raw_batch(*[framed(1, octets) for octets, *_ in written] * TIMES * 2)
    for fast_from in (0, None):
        rows = avro_decoder(table, writers, fast_from=fast_from).decode(batch).rows
        rows.validate(full=True)
        decoded = rows.select(names).to_pylist()
        expected = [{name: ours[name] for name in names} for _, _, ours, _ in written]
        assert list(map(as_text, decoded)) == list(map(as_text, expected)) * TIMES * 2


@QUICK
@given(written_records())
def test_what_was_written_is_what_all_read(written: tuple[Schema, list[Written]]) -> None:
    check_against_libraries(*written)


@pytest.mark.soak
@LONG
@given(written_records())
def test_what_was_written_is_what_all_read_at_length(
    written: tuple[Schema, list[Written]],
) -> None:
    check_against_libraries(*written)


@st.composite
def mutated(draw: st.DrawFn, octets: bytes) -> bytes:
    at = draw(st.integers(0, len(octets)))
    match draw(st.integers(0, 7)):
        case 0:
            return octets[:at]
        case 1:
            return octets + draw(st.binary(min_size=1, max_size=3))
        case 2:
            return octets[:at] + draw(st.binary(max_size=12)) + octets[at + 1 :]
        case 3:
            return octets[:at] + draw(st.sampled_from(ODD)) + octets[at + 1 :]
    return octets


#: Numbers of nine and ten bytes, and beyond; counts, lengths and indices that are none; what is no boolean and no UTF-8.
ODD = (
    b"\xff" * 9 + b"\1",
    b"\xff" * 9 + b"\3",
    b"\x80" * 8 + b"\0",
    b"\x80" * 8 + b"\1",
    b"\x80" * 10 + b"\0",
    b"\xfe\xff\xff\xff\x0f",
    b"\x80\x80\x80\x80\x10",
    b"\x01",
    b"\x02",
    b"\x7f",
    b"\x80\0",
    b"\xff",
    b"\0\0",
)


@st.composite
def versions(draw: st.DrawFn) -> list[Schema]:
    """Return schemas of one table: fields come, go, move and change their types."""
    names = Names()
    schemas = [draw(records(names))]
    for _ in range(draw(st.integers(0, 3))):
        fields = list(schemas[-1]["fields"])
        match draw(st.integers(0, 3)):
            case 0:
                fields.append({"name": names(), "type": draw(types(names, 2))})
            case 1:
                at = draw(st.integers(0, len(fields)))
                fields = fields[:at] + fields[at + 1 :]
            case 2:
                fields = draw(st.permutations(fields))
            case _:
                fields = [
                    {**each, "type": draw(types(names, 2))} for each in fields[:1]
                ] + fields[1:]
        schemas.append({**schemas[-1], "fields": fields})
    return schemas


@st.composite
def topics(draw: st.DrawFn) -> tuple[list[Schema], list[bytes | None]]:
    schemas = draw(versions())
    raw: list[bytes | None] = [None, b"", b"\0\0\0\0\1", b"\1" + bytes(16)]
    for schema_id, schema in enumerate(schemas, 1):
        for octets, *_ in draw(st.lists(values(schema), min_size=1, max_size=3)):
            raw += [framed(schema_id, draw(mutated(octets))) for _ in range(TIMES)]
    return schemas, draw(st.permutations(raw))


def check_paths(schemas: list[Schema], raw: list[bytes | None]) -> None:
    writers = Writers()
    for schema_id, schema in enumerate(schemas, 1):
        writers.add(schema_id, json.dumps(schema))
    # In turns the newest schema's types and the oldest's.
    for table in (table_of(*schemas), table_of(*reversed(schemas))):
        fast, exact = (
            avro_decoder(table, writers, fast_from=fast_from, on_error="null")
            for fast_from in (0, None)
        )
        one, other = fast.decode(raw_batch(*raw)), exact.decode(raw_batch(*raw))
        one.rows.validate(full=True)
        assert one.outcomes == other.outcomes
        assert list(map(as_text, one.rows.to_pylist())) == list(
            map(as_text, other.rows.to_pylist())
        )
        offsets = [at for at, value in enumerate(raw) if value is not None]
        assert one.rows.column("kafka_offset").to_pylist() == offsets


@QUICK
@given(topics())
def test_both_paths_agree_on_any_bytes(topic: tuple[list[Schema], list[bytes | None]]) -> None:
    check_paths(*topic)


@pytest.mark.soak
@LONG
@given(topics())
def test_both_paths_agree_on_any_bytes_at_length(
    topic: tuple[list[Schema], list[bytes | None]],
) -> None:
    check_paths(*topic)


def _certain(schemas: list[Schema], raw: list[bytes]) -> Iterator[int]:
    writers = Writers()
    for schema_id, schema in enumerate(schemas, 1):
        writers.add(schema_id, json.dumps(schema))
    binding = Binding("t", AvroFormat())
    for fast_from in (0, None):
        records_ = AvroRecords("t", table_of(*schemas), binding, writers, fast_from=fast_from)
        yield len(records_.read(raw_batch(*raw)).positions)


def test_the_fast_path_reads_what_is_in_no_doubt() -> None:
    """Else the two would agree for want of one."""
    fields = [
        {"name": f"f{at}", "type": each}
        for at, each in enumerate((*SCALARS, *MEANINGS, {"type": "array", "items": "int"}))
    ]
    schema = {"type": "record", "name": "R", "fields": fields}
    body = bytes(1 + 1 + 1 + 4 + 8 + 1 + 1 + 4) + sized(str(UUID(int=5)).encode()) + bytes(3)
    # No element, one, and one behind its size, as libraries of Go write it.
    for items in (b"\0", b"\2\6\0", b"\1\2\6\0"):
        assert list(_certain([schema], [framed(1, body + items)] * 20)) == [20, 0]


@pytest.mark.parametrize("number", [0, 2**55, -(2**55) - 1, 2**62, 2**63 - 1, -(2**63)])
def test_the_fast_path_reads_numbers_of_64_bits(number: int) -> None:
    """As ids are that have a time in front, and nanoseconds."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}
    assert list(_certain([schema], [framed(1, varint(number))] * 20)) == [20, 0]
