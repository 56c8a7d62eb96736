"""Answers in the types a session chose."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from planner.errors import BadParameter, UnsupportedType
from proxy.flightsql.outgoing import shaping
from proxy.flightsql.state.client_session import settings_of, with_settings
from proxy.session import Session

AT = dt.datetime(2024, 2, 29, 12, 30, 15, 123456)


def shaped(column: pa.Array, **options: Any) -> pa.Array:
    """The one column of an answer, in a session with these options."""
    field = pa.field("c", column.type, nullable=False, metadata={b"k": b"v"})
    schema = pa.schema([field], {b"of": b"schema"})
    batch = pa.RecordBatch.from_arrays([column], schema=schema)
    expected, shape = shaping(Session("s", options=options), schema)
    table = shape(batch)
    assert table.schema.equals(expected, check_metadata=True)
    assert expected.metadata == schema.metadata
    assert expected.field("c").metadata == field.metadata
    assert not expected.field("c").nullable
    return table.column(0)


@pytest.mark.parametrize(
    ("column", "plain"),
    [
        (pa.array(["a", None, "a"]).dictionary_encode(), pa.string()),
        (pa.array(["a"], pa.string_view()), pa.string()),
        (pa.array([b"a"], pa.binary_view()), pa.binary()),
        (pa.array(["a"], pa.large_string()), pa.string()),
        (pa.array([Decimal(2**70), None], pa.decimal128(38, 0)), pa.float64()),
        (pa.array([[Decimal(7)]], pa.list_(pa.decimal128(38, 0))), pa.list_(pa.float64())),
        (
            pa.array([[("k", Decimal(7))]], pa.map_(pa.string(), pa.decimal128(38, 0))),
            pa.map_(pa.string(), pa.float64()),
        ),
        (
            pa.array(
                [{"a": {"b": Decimal(7)}}],
                pa.struct([pa.field("a", pa.struct([pa.field("b", pa.decimal128(38, 0))]))]),
            ),
            pa.struct([pa.field("a", pa.struct([pa.field("b", pa.float64())]))]),
        ),
    ],
)
def test_bi_tools_get_types_they_read(column: pa.Array, plain: pa.DataType) -> None:
    table = shaped(column, profile="bi")
    assert table.type == plain
    assert str(table.to_pylist()) == str(column.to_pylist()).replace(
        "Decimal('7')", "7.0"
    ).replace(f"Decimal('{2**70}')", str(float(2**70)))


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)), pa.array([1.5, None])),
        (pa.array([Decimal(7)], pa.decimal128(38, 0)), pa.array([7.0])),
        (
            pa.array([dt.date(2024, 2, 29)]),
            pa.array([dt.datetime(2024, 2, 29)], pa.timestamp("ns")),
        ),
        (pa.array([AT], pa.timestamp("us", "UTC")), pa.array([AT], pa.timestamp("ns"))),
        (pa.array([dt.time(12, 30, 15)]), pa.array(["12:30:15.000000"])),
        (pa.array(["a"]).dictionary_encode(), pa.array(["a"])),
        (pa.array([7], pa.uint8()), pa.array([7], pa.uint8())),
    ],
)
def test_grafana_gets_types_that_its_plugin_knows(column: pa.Array, values: pa.Array) -> None:
    assert shaped(column, profile="grafana").equals(values)


def test_what_is_set_beside_a_profile_holds() -> None:
    column = pa.array([AT], pa.timestamp("us"))
    assert shaped(column, profile="grafana", timestamp_unit="ms").type == pa.timestamp("ms")
    sums = pa.array([Decimal(7)], pa.decimal128(38, 0))
    assert shaped(sums, profile="grafana", hugeint="decimal").type == pa.float64()


@pytest.mark.parametrize(
    "column",
    [
        pa.array([Decimal("1.50")], pa.decimal128(38, 2)),
        pa.array([Decimal(7)], pa.decimal128(18, 0)),
        pa.array([AT], pa.timestamp("us")),
        pa.array([2**62]),
    ],
)
def test_bi_leaves_other_types_alone(column: pa.Array) -> None:
    assert shaped(column, profile="bi").equals(column)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Zurich"])
def test_bi_tells_times_with_a_zone_without_it_as_of_utc(zone: str) -> None:
    kind = pa.timestamp("us", zone)
    column = pa.array([{"a": [AT.replace(tzinfo=dt.UTC)]}], pa.struct([("a", pa.list_(kind))]))
    answer = shaped(column, profile="bi")
    assert answer.type == pa.struct([pa.field("a", pa.list_(pa.timestamp("us")))])
    assert answer.to_pylist() == [{"a": [AT]}]
    assert shaped(pa.array([AT], kind), profile="bi", timestamp_unit="ns").type == pa.timestamp(
        "ns"
    )


@pytest.mark.parametrize("options", [{}, {"hugeint": "double"}, {"profile": "bi"}])
@pytest.mark.parametrize(
    ("around", "plain"),
    [
        (lambda kind: kind, "a"),
        (lambda kind: pa.list_(kind), ["a"]),
        (lambda kind: pa.list_(kind, 1), ["a"]),
        (lambda kind: pa.struct([("x", kind)]), {"x": "a"}),
        (lambda kind: pa.map_(pa.string(), kind), [("k", "a")]),
    ],
)
def test_an_enum_is_text_whatever_was_chosen(
    around: Callable[[pa.DataType], pa.DataType], plain: Any, options: dict[str, str]
) -> None:
    enum = around(pa.dictionary(pa.uint8(), pa.string()))
    answer = shaped(pa.array([plain, None], around(pa.string())).cast(enum), **options)
    assert answer.type.equals(around(pa.string()))
    assert answer.to_pylist() == [plain, None]


def test_without_a_choice_nothing_is_touched() -> None:
    schema = pa.schema([("c", pa.decimal128(38, 0))])
    batch = pa.RecordBatch.from_pylist([], schema)
    expected, shape = shaping(Session("s"), schema)
    assert expected is schema
    assert shape(batch) is batch


def test_each_choice_works_by_itself_and_beside_the_profile() -> None:
    hugeint = pa.array([Decimal(7)], pa.decimal128(38, 0))
    assert shaped(hugeint, hugeint="double").to_pylist() == [7.0]
    assert shaped(hugeint, profile="bi", hugeint="decimal").type == hugeint.type
    view = pa.array(["a"], pa.string_view())
    assert shaped(view, hugeint="double").type == pa.string_view()


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("s", AT.replace(microsecond=0)),
        ("ms", AT.replace(microsecond=123000)),
        ("us", AT),
        ("ns", AT),
    ],
)
@pytest.mark.parametrize("zone", [None, "Europe/Zurich"])
def test_timestamps_come_in_the_unit_asked_for(
    unit: str, expected: dt.datetime, zone: str | None
) -> None:
    reply = shaped(pa.array([AT, None], pa.timestamp("us", zone)), timestamp_unit=unit)
    assert reply.type == pa.timestamp(unit, zone)
    assert reply.cast(pa.timestamp("us", zone)).cast(pa.timestamp("us")).to_pylist() == [
        expected,
        None,
    ]


def test_a_time_its_unit_cannot_tell_is_an_error_and_no_other_time() -> None:
    early = pa.array([dt.datetime(1, 1, 1)], pa.timestamp("us"))
    with pytest.raises(UnsupportedType, match="column c holds a value"):
        shaped(early, timestamp_unit="ns")


def test_settings_are_kept_told_and_set_back() -> None:
    session = with_settings(
        Session("s", catalog="a", schema="x"),
        [
            ("max_message_bytes", "8388608"),
            ("profile", "BI"),
            ("schema", "y"),
            ("catalog", "b"),
        ],
    )
    assert settings_of(session) == {
        "catalog": "b",
        "schema": "y",
        "profile": "bi",
        "max_message_bytes": 8_388_608,
    }
    assert settings_of(with_settings(session, [("profile", None), ("catalog", "c")])) == {
        "catalog": "c",
        "max_message_bytes": 8_388_608,
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("catalog", 7),
        ("profile", "excel"),
        ("profile", True),
        ("hugeint", "text"),
        ("timestamp_unit", "minutes"),
        ("max_message_bytes", "many"),
        ("max_message_bytes", 100),
        ("max_message_bytes", 2**31),
        ("max_message_bytes", True),
        ("max_message_bytes", 1e7),
    ],
)
def test_a_value_that_is_not_possible_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(BadParameter, match=name):
        with_settings(Session("s"), [(name, value)])
