"""Names of leaf columns, as Iceberg's properties have them."""

from __future__ import annotations

import pyarrow as pa

from connectors.parquet_columns import leaf_paths
from planner.column_statistics import (
    STATISTICS,
    UuidStatistics,
    leaves,
    uuid_properties,
    uuid_statistics,
)

ENTRY = pa.struct([pa.field("u", pa.uuid()), pa.field("n", pa.int32())])
SCHEMA = pa.schema(
    [
        ("u", pa.uuid()),
        ("one", pa.struct([pa.field("dotted.name", pa.uuid())])),
        ("some", pa.list_(ENTRY)),
        ("by", pa.map_(pa.uuid(), pa.list_(pa.uuid()))),
    ]
)


def test_every_leaf_has_the_name_that_iceberg_gives_it() -> None:
    assert [leaf.name for leaf in leaves(SCHEMA)] == [
        "u",
        "one.dotted.name",
        "some.element.u",
        "some.element.n",
        "by.key",
        "by.value.element",
    ]


def test_leaves_are_in_the_order_of_the_file() -> None:
    assert {path: leaf.name for path, leaf in leaf_paths(SCHEMA).items()} == {
        "u": "u",
        "one.dotted.name": "one.dotted.name",
        "some.list.element.u": "some.element.u",
        "some.list.element.n": "some.element.n",
        "by.key_value.key": "by.key",
        "by.key_value.value.list.element": "by.value.element",
    }


def test_properties_name_the_uuids_that_conditions_reach() -> None:
    assert uuid_properties(SCHEMA) == {
        f"{STATISTICS}{name}": "false" for name in ("u", "one.dotted.name")
    }


def test_what_a_table_lacks_is_told_by_name() -> None:
    ids = {b"PARQUET:field_id": b"4"}
    schema = pa.schema([pa.field("u", pa.uuid(), metadata=ids), SCHEMA.field("one")])
    named = f"{STATISTICS}u"
    assert uuid_statistics(schema, {}, ()) == UuidStatistics(("u", "one.dotted.name"), ())
    assert uuid_statistics(schema, {named: "false"}, (4, 5)).to_come == ("one.dotted.name",)
    assert uuid_statistics(schema, uuid_properties(schema), (4, 5)) == UuidStatistics(
        (), ("u",)
    )
    assert uuid_statistics(schema, uuid_properties(schema), (5,)) == UuidStatistics((), ())
