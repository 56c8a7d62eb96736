"""A keyed table's binding: its properties, what a key can be, and what changes have."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from planner.errors import BadBinding
from planner.names import KAFKA_OP
from planner.schema import METADATA_TYPES, Column, TableSchema
from planner.seam.binding import (
    Binding,
    check_keyed,
    check_mode,
    decoded_schema,
    parse_binding,
)
from planner.seam.keys import MODE, RecordKey, Upsert
from tests.harness.builders import FLOWS
from tests.harness.keyed import BINDING, SCHEMA

PROPERTIES = BINDING.properties()


@pytest.mark.parametrize(
    "binding",
    [
        BINDING,
        replace(BINDING, upsert=Upsert((4,), envelope="debezium")),
        Binding("devices", upsert=Upsert((4, 5), "value", "debezium-flat")),
        replace(BINDING, upsert=Upsert((4, 5), "value"), on_error="skip"),
    ],
)
def test_properties_read_back_equal_and_decide_rows(binding: Binding) -> None:
    assert parse_binding(FLOWS, binding.properties()) == binding
    assert binding.mode == "upsert"
    append = replace(binding, upsert=None)
    assert append.mode == "append"
    assert binding.shape != append.shape
    other = replace(binding, upsert=Upsert((7,), "value"))
    assert binding.shape != other.shape


def test_an_append_table_has_the_properties_and_the_shape_it_had() -> None:
    """Both are in tables: another shape would stop every table ever tiered."""
    binding = Binding("flows")
    assert binding.properties()[MODE] == "append"
    assert binding.shape == "ae369d189892d514"
    assert decoded_schema(SCHEMA, binding) is SCHEMA.arrow


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({MODE: "append"}, "property thermocline.key_fields is for a keyed table, and"),
        ({"thermocline.key_fields": ""}, "is ''; it must be the ids of the key's columns"),
        ({"thermocline.key_fields": "4,id"}, "is '4,id'; it must be the ids"),
        (
            {"thermocline.retention_days": "30"},
            "property thermocline.retention_days is not for a keyed table, whose rows do not age out",
        ),
        ({"thermocline.key_from": "both"}, "is 'both'; allowed are key, value."),
        ({"thermocline.envelope": "avro"}, "allowed are none, debezium, debezium-flat."),
        (
            {"thermocline.key_column": "4"},
            "property thermocline.key_column is not for a keyed table",
        ),
        (
            {"thermocline.key_format": None},
            "property thermocline.key_format is not set, and the key's columns have the keys of records; set it.",
        ),
    ],
)
def test_a_wrong_property_is_named(changes: dict[str, str | None], text: str) -> None:
    properties = {
        key: value for key, value in (PROPERTIES | changes).items() if value is not None
    }
    with pytest.raises(BadBinding) as caught:
        parse_binding(FLOWS, properties)
    assert text in caught.value.message
    assert caught.value.facts["table"] == "lake.net.flows"


def with_key(kind: pa.DataType, *, required: bool = True, name: str = "id") -> TableSchema:
    """The schema whose first column of the key is of another kind."""
    columns = tuple(
        replace(each, name=name, type=kind, required=required) if each.field_id == 4 else each
        for each in SCHEMA.columns
    )
    return replace(SCHEMA, columns=columns)


@pytest.mark.parametrize(
    ("schema", "what"),
    [
        (
            replace(SCHEMA, identifier=frozenset()),
            "the table is keyed, but declares no key: set its columns as Iceberg's identifier fields, as "
            "`thermocline create --mode upsert --key` does.",
        ),
        (
            replace(SCHEMA, identifier=frozenset((4, 90))),
            "the table's identifier fields are id, field 90, and it was bound with the key id, region, which its rows are "
            "one each of; set the identifier fields back, or make another table for another key.",
        ),
        (
            with_key(pa.int64(), required=False),
            "column id of the key is optional, and every row has a key; make it required.",
        ),
        (
            with_key(pa.float64()),
            "column id of the key is double, whose NaN and zeros are not equal alike everywhere; use a decimal or a text.",
        ),
        (
            with_key(pa.list_(pa.int64())),
            "column id of the key is list<long>, and only plain values can be a key.",
        ),
        (
            with_key(METADATA_TYPES["kafka_key"], name="kafka_key"),
            "column kafka_key of the key says where a record is, and not which row it changes.",
        ),
        (
            replace(SCHEMA, columns=SCHEMA.columns[:4]),
            "a field inside a column is part of the key; only whole columns can be.",
        ),
    ],
)
def test_what_cannot_be_a_key_is_named(schema: TableSchema, what: str) -> None:
    check_keyed("lake.net.t", SCHEMA, BINDING)
    check_keyed("lake.net.t", schema, Binding("devices"))
    with pytest.raises(BadBinding) as caught:
        check_keyed("lake.net.t", schema, BINDING)
    assert caught.value.message == f"lake.net.t: {what}"


@pytest.mark.parametrize("name", ["kafka_op", "KAFKA_OP", "kafka_previous"])
def test_a_name_of_changes_is_no_column(name: str) -> None:
    schema = replace(SCHEMA, columns=(*SCHEMA.columns, Column(9, name, pa.string())))
    check_keyed("lake.net.t", schema, Binding("devices"))
    with pytest.raises(BadBinding) as caught:
        check_keyed("lake.net.t", schema, BINDING)
    assert caught.value.message == (
        f"lake.net.t: column {name} has a name that changes of a keyed table use; give it another one."
    )


def test_bad_records_are_no_rows_of_a_keyed_table() -> None:
    with pytest.raises(
        BadBinding, match="a row of NULLs would replace the good one of its key"
    ):
        check_keyed("lake.net.t", SCHEMA, replace(BINDING, on_error="null"))


def test_a_table_never_changes_its_mode() -> None:
    append = Binding("devices")
    check_mode("lake.net.t", BINDING, "upsert")
    check_mode("lake.net.t", append, "append")
    for binding, mode in ((BINDING, "append"), (append, "upsert")):
        with pytest.raises(BadBinding) as caught:
            check_mode("lake.net.t", binding, mode)  # type: ignore[arg-type]
        assert caught.value.message == (
            f"lake.net.t: property thermocline.mode is {binding.mode}, but the table's rows were tiered as {mode}, by its "
            f"watermark, and a table never changes its mode; set it back, and make another table of the topic for the other "
            f"mode (`thermocline create`)."
        )


def test_changes_have_the_columns_of_the_table_and_what_they_are() -> None:
    schema = decoded_schema(SCHEMA, BINDING)
    assert schema.names == [*SCHEMA.names, KAFKA_OP]
    always = [field.name for field in schema if not field.nullable]
    assert always == ["kafka_partition", "kafka_offset", "id", "region", KAFKA_OP]
    assert [field.metadata for field in schema][:-1] == [
        field.metadata for field in SCHEMA.arrow
    ]


def test_keys_of_records_of_a_keyed_table_fill_no_column_of_their_own() -> None:
    assert BINDING.key_column(SCHEMA) is None
    column = Column(9, "k", pa.string())
    schema = replace(SCHEMA, columns=(*SCHEMA.columns, column))
    assert replace(BINDING, key=RecordKey("string", 9)).key_column(schema) == column
