"""Units of times in columns without ids."""

from __future__ import annotations

import pyarrow as pa
import pytest

from planner.epoch_units import ids_at, numbered, type_at, units_by_id, with_epoch_unit
from planner.schema import TIMESTAMPTZ, Column, field_id

COLUMNS = (
    Column(0, "at", pa.date32()),
    Column(0, "m", pa.map_(pa.string(), pa.list_(pa.struct([("t", TIMESTAMPTZ)])))),
)


def test_a_unit_reaches_any_depth_and_is_there_again_by_id() -> None:
    columns = with_epoch_unit(COLUMNS, ("at",), "s")
    columns = with_epoch_unit(columns, ("m", "value", "element", "t"), "ms")
    schema = numbered(columns)
    inmost = schema.columns[1].type.item_type.value_type.field("t")
    assert units_by_id(columns, schema) == ((1, "s"), (field_id(inmost), "ms"))
    assert [column.type for column in columns] == [column.type for column in COLUMNS]
    assert units_by_id(COLUMNS, numbered(COLUMNS)) == ()


def test_types_are_found_by_path() -> None:
    assert type_at(COLUMNS, ("m", "key")) == pa.string()
    assert type_at(COLUMNS, ("m", "value", "element", "t")) == TIMESTAMPTZ
    assert type_at(COLUMNS, ("m", "element")) is None
    assert type_at(COLUMNS, ("at", "x")) is None
    with pytest.raises(ValueError, match="there is no field"):
        with_epoch_unit(COLUMNS, ("x",), "s")


def test_ids_are_found_by_path_and_what_is_not_there_has_none() -> None:
    schema = numbered(COLUMNS)
    inmost = schema.columns[1].type.item_type.value_type.field("t")
    paths = (("m", "value", "element", "t"), ("nope",), ("at",))
    assert ids_at(paths, schema) == (1, field_id(inmost))
