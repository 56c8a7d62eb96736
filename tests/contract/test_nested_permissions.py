"""Fields of structs that a grant masks or leaves out: no way of asking for the struct shows what they held."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from planner.errors import BadStatement
from planner.permissions import Grant, Identity, RowExpression, TablePattern
from planner.ports import SqlRelation
from planner.schema import Column, TableSchema
from planner.statement.references import ResolvedTable
from proxy.access.policy import AccessPolicy
from proxy.engine.relations import Relation
from tests.contract.engine import rows, table
from tests.fixtures.engine import Place
from tests.harness.builders import FLOWS

POINT = pa.struct([pa.field("x", pa.int64()), pa.field('y"', pa.string())])
POS = pa.struct([pa.field("point", POINT), pa.field("name", pa.string())])
SCHEMA = TableSchema(0, (Column(1, "id", pa.int64()), Column(2, "pos", POS)))
SECRET = "SECRET"
ROWS = [
    {"id": 1, "pos": {"point": {"x": 10, 'y"': SECRET}, "name": "a"}},
    {"id": 2, "pos": {"point": None, "name": SECRET}},
    {"id": 3, "pos": None},
    {"id": None, "pos": {"point": {"x": None, 'y"': SECRET}, "name": None}},
]


def relation(place: Place, **changes: Any) -> Relation:
    """The table as a file, as one grant shows it."""
    file = place.root / "nested.parquet"
    content = pa.Table.from_pylist(ROWS, pa.schema([("id", pa.int64()), ("pos", POS)]))
    pq.write_table(content, file, use_dictionary=True)
    grants = AccessPolicy(place.engine)

    def read(text: str) -> RowExpression:
        return grants.expression(text)

    masks = tuple((name, read(text)) for name, text in changes.pop("masks", {}).items())
    filtered = changes.pop("rows", None)
    grant = Grant(
        "g",
        (TablePattern.parse("*"),),
        users=frozenset({"ada"}),
        masks=masks,
        rows=None if filtered is None else read(filtered),
        **changes,
    )
    observed = grants.fit(grant, Identity("ada"), ResolvedTable(FLOWS), SCHEMA)
    part = SqlRelation(f"SELECT * FROM read_parquet('{file}')")
    value = Relation("lake.net.flows", SCHEMA, (part,), observed.access_filter)
    # What is shown is what was said to be.
    assert table(place.engine, "SELECT * FROM flows", [value]).schema.types == [
        column.type for column in observed.schema.columns
    ]
    return value


MASKS = {'pos.point.y"': "'y of ' || id", "pos.name": "upper(left(pos.name, 1))"}


def test_a_masked_field_is_its_mask_and_a_missing_struct_stays_missing(place: Place) -> None:
    value = relation(place, masks=MASKS)
    assert rows(place.engine, "SELECT * FROM flows", [value]) == [
        {"id": 1, "pos": {"point": {"x": 10, 'y"': "y of 1"}, "name": "A"}},
        {"id": 2, "pos": {"point": None, "name": "S"}},
        {"id": 3, "pos": None},
        {"id": None, "pos": {"point": {"x": None, 'y"': None}, "name": None}},
    ]


@pytest.mark.parametrize("row_count", [None, "id IS NULL OR id > 0"])
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT pos FROM flows",
        'SELECT pos.point."y""", pos.name FROM flows',
        "SELECT pos['point'], pos['name'] FROM flows",
        "SELECT struct_extract(pos, 'point') FROM flows",
        "SELECT flows FROM flows",
        "SELECT flows.pos.point FROM flows",
        "SELECT CAST(pos AS VARCHAR), pos::JSON FROM flows",
        "SELECT to_json(pos) FROM flows",
        "SELECT hash(pos) IS NULL, pos FROM flows",
        "SELECT unnest(pos) FROM flows",
        "SELECT unnest(pos, recursive := true) FROM flows",
        "SELECT min(pos), max(pos.point), list(pos) FROM flows",
        "SELECT pos FROM flows GROUP BY ALL ORDER BY pos",
        "SELECT a.pos FROM flows a JOIN flows b USING (pos)",
        "SELECT id FROM flows WHERE pos.name = 'SECRET' OR pos.point.\"y\"\"\" = 'SECRET'",
        "SELECT id FROM flows WHERE pos.name LIKE 'SEC%'",
        "SUMMARIZE flows",
    ],
)
def test_no_way_of_asking_shows_what_a_mask_hides(
    place: Place, sql: str, row_count: str | None
) -> None:
    value = relation(place, masks=MASKS, rows=row_count)
    result = rows(place.engine, sql, [value])
    assert SECRET not in str(result), sql
    assert " WHERE " not in sql or result == []


def test_a_field_that_is_left_out_is_not_there(place: Place) -> None:
    value = relation(place, without=('pos.point.y"', "pos.name"))
    assert rows(place.engine, "SELECT pos FROM flows WHERE id = 1", [value]) == [
        {"pos": {"point": {"x": 10}}}
    ]
    for sql in ("SELECT pos.name FROM flows", 'SELECT pos.point."y""" FROM flows'):
        with pytest.raises(BadStatement):
            rows(place.engine, sql, [value])


def test_of_a_struct_only_what_is_listed_is_there(place: Place) -> None:
    value = relation(place, columns=("id", "pos.point.x"))
    assert rows(place.engine, "SELECT * FROM flows WHERE id = 1", [value]) == [
        {"id": 1, "pos": {"point": {"x": 10}}}
    ]
