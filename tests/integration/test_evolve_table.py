"""A table takes what its writers' new schemas need, with their ledger, in one commit."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.transforms import BucketTransform

from connectors.iceberg.catalogs import Catalogs
from connectors.iceberg.create import NAME_MAPPING, NewTable, create_table
from connectors.iceberg.evolve import evolve_table
from connectors.iceberg.types import parsed_schema
from planner.errors import CatalogUnavailable, SchemaIncompatible
from planner.evolution.applying import applied
from planner.evolution.avro import parse_schema
from planner.evolution.changes import Decide, Evolution, Evolving, evolve
from planner.evolution.ledger import SCHEMAS, SchemaLedger
from planner.names import TableName
from planner.schema import Column, TableSchema
from planner.seam.binding import Binding
from planner.sql_text import FieldPath
from planner.type_text import parse_type
from tests.fixtures.spark import first_watermark

TABLE = TableName("lake", ("shop",), "orders")
POINT = {"type": "record", "name": "P", "fields": [{"name": "x", "type": "int"}]}
BEFORE = {"id": "!int", "points": "list<struct<x: int>>", "by_name": "map<string, float>"}
AFTER = {
    "id": ["null", "long"],
    "points": {
        "type": "array",
        "items": {
            **POINT,
            "fields": [{"name": "x", "type": "long"}, {"name": "y", "type": ["null", POINT]}],
        },
    },
    "by_name": {"type": "map", "values": "double"},
    "key": {"type": "string", "logicalType": "uuid"},
    "a.b": "int",
}


def writer(fields: Mapping[str, Any]) -> Any:
    items = [{"name": name, "type": kind} for name, kind in fields.items()]
    return parse_schema(json.dumps({"type": "record", "name": "R", "fields": items}))


@pytest.fixture
def catalogs(tmp_path: Path) -> Iterator[Catalogs]:
    options = {
        "lake": {
            "type": "sql",
            "uri": f"sqlite:///{tmp_path}/catalog.db",
            "warehouse": f"file://{tmp_path}/warehouse",
        }
    }
    binding = Binding("orders")
    columns = [
        Column(0, name, parse_type(text.lstrip("!")), text.startswith("!"))
        for name, text in BEFORE.items()
    ]
    # As of `create --rename town=city`.
    columns.append(Column(0, "city", pa.string(), keys=("city", "town")))
    first = first_watermark(0, binding=binding)
    create_table(options, NewTable(TABLE, columns, binding), first)
    with closing(Catalogs(options)) as opened:
        yield opened


def schema_of(catalogs: Catalogs) -> TableSchema:
    loaded = catalogs.load(TABLE)
    mapping = loaded.metadata.properties.get(NAME_MAPPING)
    return parsed_schema(TABLE, loaded.schema().model_dump(), mapping)


def for_writer(fields: Mapping[str, Any], number: int) -> Decide:
    tree = writer(fields)

    def decide(
        schema: TableSchema, properties: Mapping[str, str], past: Collection[FieldPath]
    ) -> Evolving | None:
        ledger = SchemaLedger.parse(TABLE, properties.get(SCHEMAS))
        if not ledger.lacks([number]):
            return None
        more = ledger.with_schemas({number: tree.fingerprint})
        return Evolving(evolve(schema, tree, past).changes, more.text)

    return decide


def test_all_that_a_writer_needs_is_there_at_any_depth(catalogs: Catalogs) -> None:
    before = schema_of(catalogs)
    assert evolve_table(catalogs, TABLE, for_writer(AFTER, 7)) is not None
    after = schema_of(catalogs)
    evolution = evolve(after, writer(AFTER))
    assert evolution == Evolution()
    ids = {column.name: column.field_id for column in after.columns}
    assert all(ids[column.name] == column.field_id for column in before.columns)
    properties = catalogs.load(TABLE).metadata.properties
    assert properties[SCHEMAS] == json.dumps(
        {"7": writer(AFTER).fingerprint}, separators=(",", ":")
    )
    assert properties["write.parquet.stats-enabled.column.key"] == "false"
    # Again: nothing to do, no commit.
    location = catalogs.load(TABLE).metadata_location
    assert evolve_table(catalogs, TABLE, for_writer(AFTER, 7)) is None
    assert catalogs.load(TABLE).metadata_location == location


def test_a_schema_without_changes_is_in_the_ledger(catalogs: Catalogs) -> None:
    before = schema_of(catalogs)
    evolve_table(catalogs, TABLE, for_writer({"id": "int"}, 3))
    evolve_table(catalogs, TABLE, for_writer({"id": "int", "points": POINT}, 4))
    assert schema_of(catalogs) == before
    properties = catalogs.load(TABLE).metadata.properties
    assert SchemaLedger.parse(TABLE, properties[SCHEMAS]).fingerprints.keys() == {3, 4}


def test_schemas_that_change_the_same_fields_are_one_commit(catalogs: Catalogs) -> None:
    """The second widens what the first adds, and adds to it."""
    q = {"type": "record", "name": "Q", "fields": [{"name": "x", "type": "int"}]}
    wider = [{"name": "x", "type": "long"}, {"name": "y", "type": "int"}]
    trees = [
        writer({"id": "int", "at": q, "n": "int"}),
        writer({"id": "long", "at": {**q, "fields": wider}, "n": "long"}),
    ]

    def decide(schema: TableSchema, *_: object) -> Evolving:
        first = evolve(schema, trees[0]).changes
        second = evolve(applied(schema, first), trees[1]).changes
        return Evolving((*first, *second), "{}")

    before = len(catalogs.load(TABLE).metadata.metadata_log)
    evolve_table(catalogs, TABLE, decide)
    assert len(catalogs.load(TABLE).metadata.metadata_log) == before + 1
    assert [evolve(schema_of(catalogs), tree) for tree in trees] == [Evolution()] * 2
    kinds = {column.name: str(column.type) for column in schema_of(catalogs).columns}
    assert (kinds["id"], kinds["n"]) == ("int64", "int64")


def test_what_a_person_dropped_stays_dropped_at_any_depth(catalogs: Catalogs) -> None:
    """Also if it was renamed before, or its parent since."""
    inside = [{"name": "w", "type": "int"}]
    box = {"type": "record", "name": "Box", "fields": inside}
    fields = {
        "id": "int",
        "points": {"type": "array", "items": POINT},
        "by_name": {"type": "map", "values": "float"},
    }
    more = {**fields, "note": "string", "town": "string", "box": box}
    evolve_table(catalogs, TABLE, for_writer(more, 1))
    for old, new in (("note", "remark"), ("points.x", "far"), ("box", "chest")):
        with catalogs.load(TABLE).update_schema() as update:
            update.rename_column(old, new)
    inside.append({"name": "h", "type": "int"})
    evolve_table(catalogs, TABLE, for_writer({**more, "box": box}, 2))
    with catalogs.load(TABLE).update_schema() as update:
        for name in ("remark", "city", "chest.h"):
            update.delete_column(name)
    with catalogs.load(TABLE).update_schema() as update:
        update.rename_column("chest", "crate")
    before = schema_of(catalogs)
    inside.append({"name": "d", "type": "int"})
    evolving = evolve_table(catalogs, TABLE, for_writer({**more, "box": box, "new": "int"}, 3))
    assert evolving is not None
    assert list(map(str, evolving.changes)) == ["add crate.d int", "add new int"]
    assert schema_of(catalogs).names == (*before.names, "new")


def interrupted(decide: Decide, other: Callable[[], object], times: int) -> Decide:
    """Have another writer commit between the decision and its commit, so many times."""
    left = [times]

    def decides(
        schema: TableSchema, properties: Mapping[str, str], past: Collection[FieldPath]
    ) -> Evolving | None:
        decision = decide(schema, properties, past)
        if left[0]:
            left[0] -= 1
            other()
        return decision

    return decides


def test_two_tierers_end_with_one_column(catalogs: Catalogs) -> None:
    theirs = for_writer(AFTER, 7)
    decide = interrupted(
        for_writer(AFTER, 7), lambda: evolve_table(catalogs, TABLE, theirs), times=1
    )
    assert evolve_table(catalogs, TABLE, decide, sleep=lambda _: None) is None
    assert [column.name for column in schema_of(catalogs).columns].count("key") == 1


def test_who_is_always_late_says_so(catalogs: Catalogs) -> None:
    numbers = iter(range(100, 200))

    def other() -> None:
        number = next(numbers)
        evolve_table(catalogs, TABLE, for_writer({f"c{number}": "int"}, number))

    decide = interrupted(for_writer(AFTER, 7), other, times=10)
    with pytest.raises(CatalogUnavailable, match="its schema was not changed"):
        evolve_table(catalogs, TABLE, decide, sleep=lambda _: None)


@pytest.mark.parametrize(
    ("fields", "partition", "refusal"),
    [
        (
            {"id": "int", "id_bucket": "int"},
            True,
            "(add id_bucket int): Cannot create partition with a name that exists in schema: id_bucket",
        ),
        (
            {"other": "int"},
            False,
            "(add other int, make id optional): Identifier field 4 invalid: not a required field",
        ),
    ],
)
def test_what_iceberg_refuses_is_said_and_changes_nothing(
    catalogs: Catalogs, fields: dict[str, str], partition: bool, refusal: str
) -> None:
    if partition:
        with catalogs.load(TABLE).update_spec() as spec:
            spec.add_field("id", BucketTransform(4), "id_bucket")
    else:
        with catalogs.load(TABLE).update_schema() as update:
            update.set_identifier_fields("id")
    before = catalogs.load(TABLE).metadata_location
    with pytest.raises(SchemaIncompatible) as raised:
        evolve_table(catalogs, TABLE, for_writer(fields, 3))
    assert str(raised.value) == (
        f"lake.shop.orders: Iceberg refuses a change that a new schema asks for {refusal}; change the table so that it can be "
        f"made, or set its property thermocline.schema.evolution to none, by which the columns stay as they are."
    )
    assert catalogs.load(TABLE).metadata_location == before
