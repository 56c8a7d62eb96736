"""Columns from samples: the rules of docs/json-types.md, "Inferred columns"."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from connectors.json.decoder import JsonDecoder
from connectors.json.infer import infer_columns
from planner.binding import Binding
from planner.errors import BadBinding
from planner.schema import RAW_SCHEMA, TIMESTAMPTZ, TableSchema
from planner.watermark import Outcomes


def samples(*records: Any) -> list[bytes]:
    return [
        record if isinstance(record, bytes) else json.dumps(record).encode()
        for record in records
    ]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([True, None, False], pa.bool_()),
        ([1, -(2**63), 2**63 - 1], pa.int64()),
        ([1, 1.5], pa.float64()),
        ([1e3], pa.float64()),
        (["2024-01-05T10:00:00Z", "2024-01-05T10:00:00.5+02:00"], TIMESTAMPTZ),
        (["2024-01-05T10:00:00"], pa.timestamp("us")),
        (["2024-02-29"], pa.date32()),
        (["2024-02-30"], pa.string()),
        (["2024-01-05", "2024-01-05T10:00:00Z"], pa.string()),
        (["2024-01-05T10:00:00Z", "2024-01-05T10:00:00"], pa.string()),
        (["2024-01-05T10:00:00.1234567Z"], pa.string()),
        (["", "7"], pa.string()),
        ([[1], [], [None, 2.5]], pa.list_(pa.field("element", pa.float64()))),
        ([{"x": 1}, {"y": "2024-02-29"}], pa.struct([("x", pa.int64()), ("y", pa.date32())])),
        (
            [[{"x": [1]}], [{"x": [None]}]],
            pa.list_(
                pa.field(
                    "element",
                    pa.struct([("x", pa.list_(pa.field("element", pa.int64())))]),
                )
            ),
        ),
    ],
    ids=str,
)
def test_a_column_takes_all_values_seen(values: list[Any], kind: pa.DataType) -> None:
    entry = samples(*({"a": value} for value in values), {})
    (column,) = infer_columns(entry)
    assert (column.name, column.type, column.required) == ("a", kind, False)
    assert decodes(entry)


def decodes(entry: list[bytes]) -> bool:
    """Whether every sample decodes under its own columns, which is what inference promises."""
    records = [
        {"kafka_partition": 0, "kafka_offset": at, "kafka_value": value}
        for at, value in enumerate(entry)
    ]
    schema = TableSchema(0, infer_columns(entry))
    decoded = JsonDecoder("t", schema, Binding("t")).decode(
        pa.RecordBatch.from_pylist(records, RAW_SCHEMA)
    )
    return decoded.outcomes == Outcomes(rows=len(entry))


def test_columns_come_in_the_order_keys_appear() -> None:
    columns = infer_columns(samples({"b": 1, "a": 1}, {"c": 1, "a": 2}))
    assert [(column.field_id, column.name) for column in columns] == [
        (1, "b"),
        (2, "a"),
        (3, "c"),
    ]


def test_fields_without_a_known_type_are_left_out() -> None:
    record = {"a": None, "b": [], "c": {}, "d": {"x": None, "y": 1}, "e": [[None]], "f": 1}
    columns = infer_columns(samples(record))
    assert [column.name for column in columns] == ["d", "f"]
    assert columns[0].type == pa.struct([("y", pa.int64())])
    assert decodes(samples(record))


def test_unreadable_samples_are_left_out() -> None:
    assert len(infer_columns(samples({"a": 1}, b"x", b"[]", b"\xff"))) == 1


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            [],
            "No columns can be inferred: none of 0 samples is a JSON object; give the columns.",
        ),
        (
            [b"x"],
            "No columns can be inferred: none of 1 samples is a JSON object; give the columns.",
        ),
        (
            [{"a": {"b": 1}}, {"a": {"b": "x"}}],
            "Field a.b is number and string in different samples, and no type takes both; give the columns, "
            "with lenient JSON or without this one.",
        ),
        (
            [{"a": [1, {}]}],
            "Field a[] is number and object in different samples, and no type takes both; give the columns, "
            "with lenient JSON or without this one.",
        ),
        (
            [{"a": 2**63}],
            "Field a has whole numbers beyond 64 bits; give the columns, with decimal or double here.",
        ),
        (
            [{"a": 2**63}, {"a": 0.5}],
            "Field a has whole numbers beyond 64 bits; give the columns, with decimal or double here.",
        ),
        (
            [b'{"a": 1e400}'],
            "Field a has numbers beyond double; give the columns, with decimal or without this one.",
        ),
        (
            [b'{"a": "\\ud800"}'],
            "Field a has strings with half of a surrogate pair, which no column holds; give the columns "
            "without it.",
        ),
        (
            [{"s": {"Id": 1}}, {"s": {"id": 1}}],
            "Fields Id and id in s differ in case only, which SQL does not tell apart; give the columns.",
        ),
        (
            [{"kafka_offset": 1}],
            "Field kafka_offset has the name of a log metadata column; give the columns, and leave it out or "
            "read it under another name.",
        ),
    ],
    ids=[
        "no samples",
        "none readable",
        "conflict",
        "conflict in a list",
        "large",
        "large and fraction",
        "beyond double",
        "surrogate",
        "case",
        "metadata",
    ],
)
def test_what_no_column_takes_is_refused_by_name(value: list[Any], message: str) -> None:
    with pytest.raises(BadBinding) as caught:
        infer_columns(samples(*value))
    assert str(caught.value) == message
