"""What is said of a binding whose shape is not that of a table's rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from planner.schema import TIMESTAMPTZ, Column
from planner.seam.binding import Binding, shape_under
from planner.seam.formats import AvroFormat, JsonFormat
from planner.shape_changes import shape_changes
from tests.harness.builders import schema

INNER = pa.struct([pa.field("t", TIMESTAMPTZ, metadata={"PARQUET:field_id": "6"})])
COLUMNS = schema(
    Column(4, "at", TIMESTAMPTZ), Column(5, "in", INNER), Column(7, "day", pa.date32())
)
NOW = Binding("flows", JsonFormat("strict", ((4, "ms"),), floors=(6,)), on_error="skip")


@pytest.mark.parametrize(
    ("before", "lines"),
    [
        ({"on_error": "fail"}, ("thermocline.on_error: fail -> skip",)),
        ({"mode": "lenient"}, ("thermocline.json_mode: lenient -> strict",)),
        (
            {"on_error": "null", "mode": "lenient"},
            ("thermocline.json_mode: lenient -> strict", "thermocline.on_error: null -> skip"),
        ),
        ({"epoch_units": ()}, ("thermocline.epoch_unit.4: not set -> ms",)),
        ({"epoch_units": ((4, "s"),)}, ("thermocline.epoch_unit.4: s -> ms",)),
        (
            {"epoch_units": ((4, "ms"), (7, "s"))},
            ("thermocline.epoch_unit.7: s -> not set",),
        ),
        ({"floors": ()}, ("thermocline.fraction.6: not set -> floor",)),
        ({"floors": (4, 6)}, ("thermocline.fraction.4: floor -> not set",)),
        (
            {"on_error": "null", "floors": ()},
            (
                "thermocline.fraction.6: not set -> floor",
                "thermocline.on_error: null -> skip",
            ),
        ),
        # Of more than one time: nothing that is tried.
        ({"epoch_units": ((4, "s"), (7, "s"))}, ()),
    ],
)
def test_what_changed_is_told_from_the_shape_alone(
    before: dict[str, Any], lines: tuple[str, ...]
) -> None:
    policy = before.pop("on_error", NOW.on_error)
    shape = replace(NOW, on_error=policy, format=replace(NOW.format, **before)).shape
    assert shape_changes(NOW, COLUMNS, shape) == lines


def test_a_newer_program_is_told_of() -> None:
    assert shape_changes(NOW, COLUMNS, shape_under(replace(NOW, on_error="null"), 1)) == (
        "thermocline.on_error: null -> skip",
        "strict JSON takes ISO 8601's short times now, such as 10:01Z",
    )


def test_of_avro_the_policy_and_times_are_tried() -> None:
    now = Binding("flows", AvroFormat(epoch_units=((4, "ms"),)))
    before = replace(now, format=replace(now.format, epoch_units=()), on_error="skip")
    assert shape_changes(now, COLUMNS, before.shape) == (
        "thermocline.epoch_unit.4: not set -> ms",
        "thermocline.on_error: skip -> fail",
    )
    assert not shape_changes(now, COLUMNS, Binding("flows").shape)
