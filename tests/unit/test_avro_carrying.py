"""Whose records' rows of one schema say what they are under another, by kind of change."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from connectors.registry.decoders import Decoders
from connectors.registry.texts import UnknownSchema, WriterText
from planner.schema import METADATA_TYPES, Column, TableSchema
from planner.seam.binding import Binding
from planner.seam.formats import AvroFormat
from planner.seam.keys import RecordKey
from tests.harness.builders import schema

A = Column(10, "a", pa.int32())
B = Column(11, "b", pa.string())
P = Column(12, "p", pa.struct([pa.field("x", pa.int32())]))
B_OR_C = replace(B, keys=("b", "c"))
C = Column(15, "c", pa.string())
WIDE_P = replace(P, type=pa.struct([*P.type, pa.field("y", pa.int32())]))
KEY = Column(13, "kafka_key", METADATA_TYPES["kafka_key"])
WIDE = replace(A, type=pa.int64())
KEYS = Column(14, "k", pa.string())


def carries(
    before: TableSchema, after: TableSchema, *fields: tuple[str, Any], **options: Any
) -> bool:
    """Whether it does of records with an int ``a`` and these fields."""
    binding = Binding("t", **{"format": AvroFormat(), **options})
    members = [{"name": name, "type": kind} for name, kind in (("a", "int"), *fields)]
    text = json.dumps({"type": "record", "name": "R", "fields": members})
    decoders = Decoders()
    decoders.add("lake.net.t", binding, {7: WriterText(7, text, {}, "AVRO")})
    heritage = decoders.heritage("lake.net.t", binding, before, after)
    return heritage is not None and heritage.carries(frozenset({7}))


@pytest.mark.parametrize(
    ("before", "after", "fields", "expected"),
    [
        ([A], [A, B], [], True),
        ([A], [A, B], [("b", "string")], False),
        ([A], [A, B], [("c", "string")], True),
        ([A], [A, replace(B, keys=("b", "c"))], [("c", "string")], False),
        ([A], [A, replace(B, required=True)], [], False),
        ([A, B], [A], [("b", "string")], True),
        ([A, B], [B, A], [("b", "string")], True),
        ([A], [WIDE], [], True),
        ([WIDE], [A], [], False),
        # Another column of the same name.
        ([A], [replace(A, field_id=20)], [], False),
        # Renamed: the record still has the value under the first name.
        ([A], [replace(A, name="n", keys=("n", "a"))], [], False),
        ([A], [replace(WIDE, name="n", keys=("n", "a"))], [], False),
        # The field of a column that is gone fills another one.
        ([B_OR_C, C], [B_OR_C], [("c", "string")], False),
        ([A, P], [A, WIDE_P], [], True),
        ([A, P], [A, WIDE_P], [("p", {"type": "record", "name": "P", "fields": []})], False),
        ([replace(A, required=True)], [A], [], True),
        ([A], [A, KEY], [], False),
        ([A, KEY], [A, KEY, B], [], True),
    ],
)
def test_rows_carry_over_where_nothing_is_in_the_record_that_is_not_in_the_row(
    before: list[Column], after: list[Column], fields: list[tuple[str, Any]], expected: bool
) -> None:
    assert carries(schema(*before), schema(*after), *fields) is expected


@pytest.mark.parametrize("policy", ["null", "skip"])
@pytest.mark.parametrize(
    ("column", "writer", "expected"),
    [
        (Column(11, "b", pa.int32()), "int", True),
        (Column(11, "b", pa.int32()), "long", False),
        (Column(11, "b", pa.float32()), "float", True),
        # A number that no float is equal to.
        (Column(11, "b", pa.float32()), "int", False),
    ],
)
def test_a_wider_column_carries_over_where_no_record_can_have_been_a_bad_one_for_it(
    policy: str, column: Column, writer: str, expected: bool
) -> None:
    error = (
        Column(20, "kafka_value", METADATA_TYPES["kafka_value"]),
        Column(21, "kafka_error", METADATA_TYPES["kafka_error"]),
    )
    wide = pa.int64() if column.type == pa.int32() else pa.float64()
    before, after = schema(column, *error), schema(replace(column, type=wide), *error)
    assert carries(before, after, ("b", writer), on_error=policy) is expected
    assert carries(before, after, ("b", writer))
    # One that is gone made bad records, too.
    assert not carries(before, schema(*error), ("b", writer), on_error=policy)


def test_records_of_another_kind_are_no_rows_either_way() -> None:
    form = AvroFormat(record="Other")
    assert carries(schema(A), schema(A, B), ("b", "string"), format=form)


def test_what_is_not_known_does_not_carry_over() -> None:
    binding, decoders = Binding("t", AvroFormat()), Decoders()
    decoders.add("lake.net.t", binding, {7: UnknownSchema("schema id 7")})
    heritage = decoders.heritage("lake.net.t", binding, schema(A), schema(A, B))
    assert heritage is not None
    assert heritage.carries(frozenset())
    assert not heritage.carries(frozenset({7}))
    assert not heritage.carries(None)


def test_records_of_json_do_not_say_what_they_lack() -> None:
    assert Decoders().heritage("lake.net.t", Binding("t"), schema(A), schema(A, B)) is None


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([A, KEYS], [A, KEYS, B], True),
        ([A, KEYS], [KEYS, WIDE], True),
        ([A], [A, KEYS], False),
        ([A, KEYS], [A], False),
        ([A, KEYS], [A, replace(KEYS, name="other")], False),
    ],
)
def test_keys_carry_over_where_their_column_stays(
    before: list[Column], after: list[Column], expected: bool
) -> None:
    """Also where the writer has a field of its name, which is no matter of the column."""
    key = RecordKey("string", KEYS.field_id)
    fields = [("c", "string"), (KEYS.name, "long")]
    assert carries(schema(*before), schema(*after), *fields, key=key) is expected
