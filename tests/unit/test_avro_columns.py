"""Columns of a new table from a writer's schema, with what a person says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from connectors.decoding.avro.columns import columns_from
from connectors.decoding.json.wishes import Wishes
from planner.evolution.avro import parse_schema
from planner.evolution.writer_types import WriterSchema
from planner.schema import TIMESTAMPTZ
from planner.type_text import parse_type, type_text

MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}


def writer(**fields: Any) -> WriterSchema:
    items = [{"name": name, "type": kind} for name, kind in fields.items()]
    return parse_schema(json.dumps({"type": "record", "name": "R", "fields": items}))


def point(**fields: Any) -> dict[str, Any]:
    items = [{"name": name, "type": kind} for name, kind in fields.items()]
    return {"type": "record", "name": "P", "fields": items}


ORDER = writer(
    id="long",
    at="long",
    price=["null", MONEY],
    points={"type": "array", "items": point(x="int", y="int")},
)


def described(schema: WriterSchema, **wishes: Any) -> list[str]:
    result = columns_from(schema, Wishes(**wishes))
    assert not result.refusals
    return [f"{column.name} {type_text(column.type)}" for column in result.columns]


def test_columns_are_the_fields() -> None:
    assert described(ORDER) == [
        "id long",
        "at long",
        "price decimal(9,2)",
        "points list<struct<x: int, y: int>>",
    ]


def test_what_a_person_says_counts() -> None:
    columns = described(
        ORDER,
        epochs=((("at",), "ms"),),
        leave_out=(("price",), ("points", "element", "y")),
        columns=((("id",), parse_type("decimal(20,0)")), (("note",), parse_type("string"))),
    )
    assert columns == [
        "id decimal(20,0)",
        "at timestamptz",
        "points list<struct<x: int>>",
        "note string",
    ]


def test_a_renamed_field_is_read_under_its_own_name() -> None:
    (column,) = columns_from(writer(Id="long"), Wishes(renames={"Id": "id_2"})).columns
    assert (column.name, column.keys) == ("id_2", ("id_2", "Id"))


def test_a_unit_is_kept_with_its_column() -> None:
    (column,) = columns_from(writer(at="long"), Wishes(epochs=((("at",), "s"),))).columns
    assert (column.type, column.epoch_unit) == (TIMESTAMPTZ, "s")


@pytest.mark.parametrize(
    ("schema", "wishes", "reason"),
    [
        (
            ORDER,
            {"leave_out": (("prise",),)},
            "the schema has no such field; did you mean price",
        ),
        (ORDER, {"leave_out": (("points", "y"),)}, "the schema has no such field"),
        (
            ORDER,
            {"columns": ((("price",), parse_type("long")),)},
            "field price is decimal(9,2), and its column long: records would not decode",
        ),
        (
            ORDER,
            {"epochs": ((("price",), "s"),)},
            "column price is decimal(9,2), and only date",
        ),
        (ORDER, {"floors": (("id",),)}, "only timestamp and timestamptz have fractions"),
        (ORDER, {"renames": {"nothing": "x"}}, "there is no column x"),
        (
            writer(_pos="int"),
            {"reserved": frozenset({"_pos"})},
            "field _pos: no column can have this name",
        ),
    ],
)
def test_what_cannot_be_is_said(
    schema: WriterSchema, wishes: dict[str, Any], reason: str
) -> None:
    (refusal,) = columns_from(schema, Wishes(**wishes)).refusals
    assert reason in refusal.reason


def test_fields_without_a_column_are_named() -> None:
    result = columns_from(writer(a="int", A="int", n="null"), Wishes())
    assert [each.path for each in result.left_out] == [("A",), ("n",)]
