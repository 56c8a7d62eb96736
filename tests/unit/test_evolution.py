"""What a table needs for a writer's schema, which type may become which, and the ledger of schemas."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pyarrow as pa
import pytest

from planner.errors import BadBinding, SchemaRegistryChanged
from planner.evolution.applying import applied
from planner.evolution.avro import MAX_BYTES, MAX_DEPTH, MAX_TYPES, BadSchema, parse_schema
from planner.evolution.changes import (
    Evolution,
    LeftOut,
    MakeOptional,
    evolve,
    paths_of,
    record_fields,
    schema_of_rows,
)
from planner.evolution.ledger import UNKNOWN, UNREADABLE, SchemaLedger
from planner.evolution.promotions import is_promotion
from planner.evolution.table_types import table_type
from planner.names import TableName
from planner.schema import METADATA_TYPES, Column, TableSchema
from planner.type_text import parse_type, type_text

TABLE = TableName("lake", ("shop",), "orders")
LEAD = tuple(
    Column(at, name, METADATA_TYPES[name])
    for at, name in enumerate(("kafka_partition", "kafka_offset", "kafka_timestamp"), 1)
)


def schema(**columns: str) -> TableSchema:
    """Columns by type; ``!`` before it: required."""
    own = (
        Column(at, name, parse_type(text.lstrip("!")), text.startswith("!"))
        for at, (name, text) in enumerate(columns.items(), 10)
    )
    return TableSchema(0, (*LEAD, *own))


def record(**fields: Any) -> str:
    return json.dumps(
        {
            "type": "record",
            "name": "R",
            "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
        }
    )


def logical(kind: str, meaning: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": meaning, **more}


def fixed_decimal(size: int, precision: int) -> dict[str, Any]:
    return logical("fixed", "decimal", name="F", size=size, precision=precision, scale=2)


MONEY = logical("bytes", "decimal", precision=9, scale=2)
CONNECT_MONEY = logical("bytes", "decimal", precision=64, scale=2)
POINT_OF_LONGS = {"type": "record", "name": "P", "fields": [{"name": "x", "type": "long"}]}
POINT = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]}


@pytest.mark.parametrize(
    ("columns", "fields", "expected"),
    [
        ({"a": "int"}, {"a": "int"}, []),
        ({"a": "int"}, {"a": ["null", "long"]}, ["widen a from int to long"]),
        ({"a": "float"}, {"a": "double"}, ["widen a from float to double"]),
        (
            {"a": "decimal(7,2)"},
            {"a": MONEY},
            ["widen a from decimal(7,2) to decimal(9,2)"],
        ),
        (
            {"a": "decimal(7,2)"},
            {"a": CONNECT_MONEY},
            ["widen a from decimal(7,2) to decimal(38,2)"],
        ),
        ({"a": "decimal(38,2)"}, {"a": CONNECT_MONEY}, []),
        ({"a": "decimal(38,2)"}, {"a": {**CONNECT_MONEY, "precision": 100}}, []),
        ({"a": "decimal(38,2)"}, {"a": MONEY}, []),
        ({"a": "!int"}, {"a": ["null", "int"]}, ["make a optional"]),
        ({"a": "!int"}, {}, ["make a optional"]),
        ({"a": "int"}, {"a": "int", "b": MONEY}, ["add b decimal(9,2)"]),
        # Readers of narrower writers, exactly.
        ({"a": "long"}, {"a": "int"}, []),
        ({"a": "double"}, {"a": "long"}, []),
        ({"a": "string"}, {"a": logical("string", "uuid")}, []),
        # At any depth.
        (
            {"p": "struct<x: int>"},
            {
                "p": {
                    **POINT,
                    "fields": [{"name": "x", "type": "long"}, {"name": "y", "type": "int"}],
                }
            },
            ["widen p.x from int to long", "add p.y int"],
        ),
        (
            {"p": "list<struct<x: int>>", "m": "map<string, int>"},
            {
                "p": {
                    "type": "array",
                    "items": {**POINT, "fields": [{"name": "y", "type": "string"}]},
                },
                "m": {"type": "map", "values": "long"},
            },
            ["add p.element.y string", "widen m.value from int to long"],
        ),
        (
            {"u": "struct<string: string>"},
            {"u": ["null", "string", "long", POINT]},
            ["add u.long long", "add u.Point struct<x: int>"],
        ),
        # What no change makes fit.
        ({"a": "int"}, {"a": "string"}, ["field a is string, and its column int"]),
        (
            {"a": "struct<x: int>"},
            {"a": {"type": "array", "items": "int"}},
            ["field a is list<int>, and its column struct<x: int>"],
        ),
        (
            {"a": "date"},
            {"a": logical("long", "timestamp-millis")},
            ["field a is timestamptz, and its column date"],
        ),
        ({"a": "double"}, {"a": MONEY}, ["field a is decimal(9,2), and its column double"]),
        # What holds no values fits any column.
        ({"a": "int"}, {"a": "null"}, []),
        ({"p": "struct<x: int>"}, {"p": {**POINT, "fields": []}}, []),
        # What has no column.
        (
            {},
            {"A": "int", "a": "int"},
            [
                "add A int",
                "field a: its name differs from another one's in case only, which SQL does not tell apart",
            ],
        ),
        (
            {},
            {"kafka_offset": "long"},
            ["field kafka_offset: its name is one of the metadata columns'"],
        ),
        ({}, {"n": "null"}, ["field n: it holds no values"]),
    ],
)
def test_what_a_table_needs(
    columns: dict[str, str], fields: dict[str, Any], expected: list[str]
) -> None:
    evolution = evolve(schema(**columns), parse_schema(record(**fields)))
    items = [*evolution.changes, *evolution.misfits, *evolution.left_out]
    assert sorted(map(str, items)) == sorted(expected)


@pytest.mark.parametrize(
    ("columns", "fields"),
    [
        ({"a": "!int"}, {"a": ["null", "long"], "b": "string"}),
        ({"p": "struct<x: int>"}, {"p": {**POINT, "fields": [{"name": "y", "type": "int"}]}}),
        ({"p": "struct<x: int>"}, {"p": ["null", POINT_OF_LONGS]}),
        ({"l": "list<struct<x: int>>"}, {"l": {"type": "array", "items": POINT_OF_LONGS}}),
        ({"m": "map<string, int>"}, {"m": {"type": "map", "values": ["null", "long"]}}),
    ],
)
def test_what_a_table_needs_is_enough(columns: dict[str, str], fields: dict[str, Any]) -> None:
    writer = parse_schema(record(**fields))
    changes = evolve(schema(**columns), writer).changes
    assert changes
    assert not evolve(applied(schema(**columns), changes), writer).changes


@pytest.mark.parametrize(
    "kind",
    [
        pa.struct([pa.field("x", pa.int32(), nullable=False)]),
        pa.list_(pa.field("element", pa.int32(), nullable=False)),
        pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False)),
    ],
)
def test_what_is_inside_may_be_made_optional(kind: pa.DataType) -> None:
    inner: dict[str, Any] = {
        "struct": {**POINT, "fields": [{"name": "x", "type": ["null", "int"]}]},
        "list": {"type": "array", "items": ["null", "int"]},
        "map": {"type": "map", "values": ["null", "int"]},
    }
    name = next(each for each in inner if str(kind).startswith(each))
    writer = parse_schema(record(a=inner[name]))
    before = TableSchema(0, (*LEAD, Column(10, "a", kind)))
    (change,) = evolve(before, writer).changes
    assert str(change).endswith(" optional")
    assert not evolve(applied(before, [change]), writer).changes


def test_a_renamed_column_goes_on_under_both_names() -> None:
    renamed = TableSchema(0, (*LEAD, Column(10, "b", pa.int32(), keys=("b", "a"))))
    for name in ("a", "b"):
        assert not evolve(renamed, parse_schema(record(**{name: "int"}))).changes


def test_a_column_is_the_first_of_its_names_that_is_written() -> None:
    """As the decoder reads it: a field of a former name is no reason to stop or widen."""
    renamed = TableSchema(0, (*LEAD, Column(10, "b", pa.int32(), keys=("b", "a"))))
    for kind in ("int", "long", "string"):
        for written in ({"a": kind, "b": "int"}, {"b": "int", "a": kind}):
            evolution = evolve(renamed, parse_schema(record(**written)))
            left_out = LeftOut(("a",), "its column is filled by the field b")
            assert evolution == Evolution(left_out=(left_out,))


def test_a_field_that_held_no_values_at_first_gets_its_column_once_it_does() -> None:
    empty = {"type": "record", "name": "Empty", "fields": []}
    before = parse_schema(record(a="null", s=empty, l={"type": "array", "items": "null"}))
    inner = {**empty, "fields": [{"name": "x", "type": "int"}]}
    after = parse_schema(
        record(a=["null", "int"], s=inner, l={"type": "array", "items": "int"})
    )
    evolution = evolve(schema(), after, paths_of(before))
    assert [str(each) for each in evolution.changes] == [
        "add a int",
        "add s struct<x: int>",
        "add l list<int>",
    ]
    assert not evolution.left_out


def test_a_column_that_a_person_dropped_stays_dropped() -> None:
    before = parse_schema(record(a="int", p=POINT, l={"type": "array", "items": POINT}))
    assert paths_of(before) == {("a",), ("p",), ("p", "x"), ("l",), ("l", "element", "x")}
    text = record(
        a="int", b="int", p={**POINT, "fields": [{"name": "y", "type": "int"}]}, l=["null"]
    )
    evolution = evolve(schema(p="struct<x: int>"), parse_schema(text), paths_of(before))
    assert sorted(map(str, evolution.changes)) == ["add b int", "add p.y int"]
    assert "field a: a schema of before had it, too, and its column was dropped" in map(
        str, evolution.left_out
    )


def test_what_was_left_out_of_a_renamed_column_stays_so() -> None:
    """As by ``create --rename p=place --leave-out p.x``."""
    place = Column(10, "place", parse_type("struct<y: int>"), keys=("place", "p"))
    ints = [{"name": name, "type": "int"} for name in "xyz"]
    written = parse_schema(record(p={**POINT, "fields": ints}))
    (change,) = evolve(TableSchema(0, (*LEAD, place)), written, {("p", "x")}).changes
    assert str(change) == "add place.z int"


def test_a_schema_that_is_no_record_is_one_column() -> None:
    (change,) = evolve(schema(), parse_schema('["null", "long"]')).changes
    assert str(change) == "add value long"


ALL_TYPES = [
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "date",
    "timestamp",
    "timestamptz",
    "string",
    "binary",
    "uuid",
    "fixed[4]",
    "fixed[8]",
    "decimal(9,2)",
    "decimal(12,2)",
    "decimal(12,3)",
    "list<int>",
    "map<string,int>",
    "struct<a:int>",
]


@pytest.mark.parametrize(("before", "after"), [*itertools.product(ALL_TYPES, repeat=2)])
def test_promotions_are_icebergs_and_no_others(before: str, after: str) -> None:
    allowed = {
        ("int", "long"),
        ("float", "double"),
        ("decimal(9,2)", "decimal(12,2)"),
    }
    assert is_promotion(parse_type(before), parse_type(after)) == ((before, after) in allowed)


@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamptz"])
def test_a_number_is_a_time_where_its_column_has_a_unit(kind: str) -> None:
    table = schema(a=kind)
    (column,) = (each for each in table.columns if each.name == "a")
    for units in (None, {column.field_id}):
        assert not evolve(table, parse_schema(record(a="long")), units=units).misfits
    (misfit,) = evolve(table, parse_schema(record(a="long")), units={1}).misfits
    assert str(misfit) == f"field a is long, and its column {kind}"


@pytest.mark.parametrize(
    ("column", "writer"),
    [
        ("binary", {"type": "fixed", "name": "F", "size": 12, "logicalType": "duration"}),
        ("string", {"type": "string", "connect.name": "io.debezium.time.ZonedTimestamp"}),
    ],
)
def test_what_the_decoder_reads_is_no_misfit(column: str, writer: Any) -> None:
    assert evolve(schema(a=column), parse_schema(record(a=writer))) == Evolution()


@pytest.mark.parametrize("before", [{}, {"s": "struct<foo: int>"}])
def test_members_that_differ_in_case_only_are_one(before: dict[str, str]) -> None:
    twins = [{"name": name, "type": "int"} for name in ("foo", "Foo", "bar")]
    inner = {"type": "record", "name": "Inner", "fields": twins}
    evolution = evolve(schema(**before), parse_schema(record(s=inner)))
    assert [str(each) for each in evolution.changes] == (
        ["add s.bar int"] if before else ["add s struct<foo: int, bar: int>"]
    )
    assert [str(each) for each in evolution.left_out] == [
        "field s.Foo: its name differs from another one's in case only, which SQL does not tell apart"
    ]


@pytest.mark.parametrize(
    ("writer", "expected"),
    [
        ("boolean", "boolean"),
        (logical("int", "time-millis"), "int"),
        (logical("long", "timestamp-nanos"), "timestamptz"),
        (logical("long", "local-timestamp-millis"), "timestamp"),
        ({"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}, "timestamp"),
        ({"type": "string", "connect.name": "io.debezium.time.ZonedTimestamp"}, "timestamptz"),
        ({"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"}, "uuid"),
        ({"type": "fixed", "name": "F", "size": 12, "logicalType": "duration"}, "fixed[12]"),
        ({"type": "fixed", "name": "F", "size": 1024}, "fixed[1024]"),
        ({"type": "fixed", "name": "F", "size": 1025}, "binary"),
        # A logical type that may not stand there is none (specification, "Logical Types").
        (logical("string", "date"), "string"),
        (logical("bytes", "decimal", precision=2, scale=3), "binary"),
        (logical("bytes", "decimal", precision=0, scale=0), "binary"),
        # Kafka Connect's of a source that does not say how many digits there are.
        (logical("bytes", "decimal", precision=64, scale=2), "decimal(38,2)"),
        (logical("bytes", "decimal", precision=64, scale=38), "decimal(38,38)"),
        (logical("bytes", "decimal", precision=64, scale=39), "binary"),
        (logical("bytes", "decimal", scale=2), "binary"),
        (logical("bytes", "decimal", precision="9", scale=2), "binary"),
        (logical("fixed", "uuid", name="F", size=15), "fixed[15]"),
        (logical("fixed", "duration", name="F", size=16), "fixed[16]"),
        ({"type": {"type": {"type": "int"}}}, "int"),
        ({**POINT, "fields": [{"name": "n", "type": "null"}]}, None),
        (
            {**POINT, "fields": [{"name": n, "type": n} for n in ("null", "int")]},
            "struct<int: int>",
        ),
        (fixed_decimal(32, 76), "decimal(38,2)"),
        (fixed_decimal(32, 77), "fixed[32]"),
        (fixed_decimal(4, 9), "decimal(9,2)"),
        (fixed_decimal(4, 10), "fixed[4]"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "string"),
        (["int"], "int"),
        (["string", "int"], "struct<string: string, int: int>"),
        (
            ["string", {"type": "enum", "name": "String", "symbols": ["A"]}],
            "struct<string: string>",
        ),
    ],
)
def test_the_type_of_a_column(writer: Any, expected: str | None) -> None:
    kind = table_type(parse_schema(json.dumps(writer)).root)
    assert (kind if kind is None else type_text(kind)) == expected


def test_a_member_that_must_have_a_value_need_not_where_a_writer_may_leave_it_out() -> None:
    members = [pa.field("x", pa.int32(), nullable=False), pa.field("y", pa.int32())]
    column = TableSchema(0, (*LEAD, Column(10, "p", pa.struct(members))))
    of_x = {"type": "record", "name": "P", "fields": [{"name": "x", "type": "int"}]}
    of_y = {"type": "record", "name": "P", "fields": [{"name": "y", "type": "int"}]}
    assert evolve(column, parse_schema(record(p=of_x))) == Evolution()
    changes = evolve(column, parse_schema(record(p=of_y))).changes
    assert [str(each) for each in changes] == ["make p.x optional"]
    assert evolve(applied(column, changes), parse_schema(record(p=of_y))) == Evolution()


def test_a_field_with_the_name_of_the_keys_column_has_none() -> None:
    table = schema(key="string", a="int")
    key = table.columns[3]
    evolution = evolve(table, parse_schema(record(a="int", KEY="long")), key=key)
    left_out = LeftOut(("KEY",), "the column of this name is filled by records' keys")
    assert evolution == Evolution(left_out=(left_out,))


def test_a_record_inside_itself_is_text_from_there() -> None:
    tree = parse_schema(record(value="int", next=["null", "R"]))
    assert type_text(table_type(tree.root)) == "struct<value: int, next: string>"
    assert tree.recursive["R"] == tree.root


def test_references_and_namespaces_are_one_tree() -> None:
    inner = '{"type":"record","name":"shop.Point","fields":[{"name":"x","type":"int"}]}'
    outer = '{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"at","type":"Point"}]}'
    by_reference = parse_schema(outer, {"shop.Point": inner})
    at_once = parse_schema(outer.replace('"Point"', inner))
    assert by_reference.fingerprint == at_once.fingerprint


def test_a_fingerprint_is_of_what_the_bytes_mean() -> None:
    base = record(a=MONEY)
    same = [base.replace(": ", ":  "), base.replace('"name": "a"', '"doc": "x", "name": "a"')]
    other = [
        base.replace('"scale": 2', '"scale": 3'),
        base.replace('"name": "a"', '"default": "", "name": "a"'),
        record(a="bytes"),
        record(b=MONEY),
    ]
    fingerprint = parse_schema(base).fingerprint
    assert {parse_schema(each).fingerprint for each in same} == {fingerprint}
    assert fingerprint not in {parse_schema(each).fingerprint for each in other}


@pytest.mark.parametrize(
    "kind",
    [["string", "null"], "int", {"type": "array", "items": "int"}],
    ids=["of another branch", "of another type", "of a list"],
)
def test_a_default_that_does_not_fit_is_no_matter_of_records(kind: Any) -> None:
    fields = [{"name": "a", "type": kind, "default": None}]
    text = json.dumps({"type": "record", "name": "R", "fields": fields})
    assert parse_schema(text).root.value.fields[0].name == "a"


def deep(levels: int) -> str:
    return '{"type":"array","items":' * levels + '"int"' + "}" * levels


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<html>", "it is not JSON"),
        ("7", "neither a name nor an object"),
        ('"Nowhere"', "the type 'Nowhere' is not defined"),
        ('{"type":"record","name":"R"}', "record 'R' has no list of fields"),
        (record(a="int").replace('"R"', '""'), "has no name"),
        ('{"type":"enum","name":"E","symbols":["A","A"]}', "symbols of enum 'E'"),
        ('{"type":"fixed","name":"F","size":-1}', "size of fixed 'F' is '-1'"),
        ('["int","int"]', "one type twice"),
        (
            record(a="int", A="int").replace('"A"', '"a"'),
            "record 'R' has two fields of one name",
        ),
        (record(a="int").replace('"a"', '""'), "a field of record 'R' has no name"),
        (record(a=json.loads(deep(MAX_DEPTH + 1))), f"deeper than {MAX_DEPTH} levels"),
        (record(a={"type": {"type": "Nowhere"}}), "the type 'Nowhere' is not defined"),
        ("[]", "a union is empty"),
        (deep(MAX_DEPTH + 1), f"deeper than {MAX_DEPTH} levels"),
        (deep(20_000), f"deeper than {MAX_DEPTH} levels"),
        (record(a={"type": "string", "doc": "x" * MAX_BYTES}), "1,048,576 are allowed"),
        (record(**{f"f{at}": "int" for at in range(MAX_TYPES)}), f"{MAX_TYPES:,} types"),
    ],
)
def test_what_is_refused(text: str, reason: str) -> None:
    with pytest.raises(BadSchema) as refused:
        parse_schema(text)
    assert reason in str(refused.value)


def test_names_that_stand_for_much_are_counted() -> None:
    """Each record has the one before it ten times."""
    kinds: Any = {"type": "record", "name": "R0", "fields": [{"name": "x", "type": "int"}]}
    for level in range(1, 8):
        fields = [{"name": "f0", "type": kinds}]
        fields += [{"name": f"f{at}", "type": f"R{level - 1}"} for at in range(1, 10)]
        kinds = {"type": "record", "name": f"R{level}", "fields": fields}
    with pytest.raises(BadSchema, match="counting each use of a name"):
        parse_schema(json.dumps(kinds))


#: What the ledgers of tables have. A test that fails here says that tables would stop: where the parser is to learn what it
#: ignores of these, rule 1 must go on to ignore it (``planner.evolution.writer_types.RULE``).
BY_RULE_1 = {
    '"string"': "2f605780174727f36c1ab407d839f870",
    # No logical types of today, or none there.
    json.dumps(logical("string", "date")): "2f605780174727f36c1ab407d839f870",
    '{"type": "string", "connect.name": "io.debezium.data.Json"}': "2f605780174727f36c1ab407d839f870",
    '{"type": "string", "connect.name": "io.debezium.time.ZonedTime"}': "2f605780174727f36c1ab407d839f870",
    json.dumps(logical("bytes", "big-decimal")): "3c089ff017dc7b227a22ee99db63e066",
    json.dumps(
        logical("bytes", "decimal", precision=64, scale=39)
    ): "3c089ff017dc7b227a22ee99db63e066",
    '["null", "long"]': "141f448bb73d42db30f974125bd75d34",
    record(
        day=logical("int", "date"),
        money=CONNECT_MONEY,
        at={"type": "string", "connect.name": "io.debezium.time.ZonedTimestamp"},
        id=logical("fixed", "uuid", name="U", size=16),
        kind={"type": "enum", "name": "Kind", "symbols": ["A", "B"]},
        tags={"type": "map", "values": {"type": "array", "items": ["null", "R"]}},
    ): "bf8b54608aa2d7cb2c74263e6ddcf752",
    json.dumps(
        {"type": "record", "name": "D", "fields": [{"name": "a", "type": "int", "default": 1}]}
    ): "054678ee939649877c70099b3896ec5d",
}


@pytest.mark.parametrize("text", BY_RULE_1)
def test_a_rule_says_of_a_schema_what_it_always_said(text: str) -> None:
    assert parse_schema(text).fingerprint == f"1:{BY_RULE_1[text]}"


def test_a_ledger_of_a_later_rule_names_the_newer_program() -> None:
    with pytest.raises(BadBinding) as refused:
        SchemaLedger.parse(TABLE, '{"7":"unknown","8":"1:0f","9":"2:0f"}')
    assert refused.value.message == (
        f"{TABLE}: property thermocline.schemas has schema id 9 by rule 2, and this program goes by rule 1; run the newer "
        f"Thermocline that wrote it."
    )


def test_a_ledger_keeps_what_an_id_meant() -> None:
    ledger = SchemaLedger.parse(TABLE, None).with_schemas({7: "1:a", 9: "1:b"})
    assert SchemaLedger.parse(TABLE, ledger.text) == ledger
    accepted = SchemaLedger({7: "1:a", 8: UNKNOWN}, 3)
    assert accepted.text == '{"7":"1:a","8":"unknown","era":"3"}'
    assert SchemaLedger.parse(TABLE, accepted.text) == accepted
    ledger = SchemaLedger({7: "a", 9: "b"})
    assert ledger.lacks({7, 8}) == {8}
    assert ledger.with_schemas({7: "c", 8: "d"}).fingerprints == {7: "a", 8: "d", 9: "b"}
    ledger.check(TABLE, {7: "a", 8: "d"})
    with pytest.raises(SchemaRegistryChanged, match="another schema under id 7 than"):
        ledger.check(TABLE, {7: "c"})
    again = SchemaLedger({7: UNKNOWN, 8: UNREADABLE}).with_schemas({7: "c", 8: "d"})
    assert again.fingerprints == {7: "c", 8: "d"}
    for text in ("[1]", "{", '{"a":"unknown"}', '{"7":"0f"}'):
        with pytest.raises(BadBinding, match="is not a ledger of schemas"):
            SchemaLedger.parse(TABLE, text)


ROW: dict[str, Any] = {
    "type": "record",
    "name": "Row",
    "fields": [{"name": "id", "type": "int"}],
}


@pytest.mark.parametrize(
    ("envelope", "text", "names"),
    [
        ("none", ROW, ["id"]),
        ("debezium-flat", ROW, ["id"]),
        (
            "debezium-flat",
            {**ROW, "fields": [*ROW["fields"], {"name": "__deleted", "type": "string"}]},
            ["id"],
        ),
        (
            "debezium",
            {
                "type": "record",
                "name": "Envelope",
                "fields": [
                    {"name": "before", "type": ["null", ROW]},
                    {"name": "after", "type": ["null", "Row"]},
                    {"name": "op", "type": "string"},
                ],
            },
            ["id"],
        ),
        ("debezium", ROW, None),
        ("debezium", {**ROW, "fields": [{"name": "after", "type": "int"}]}, None),
    ],
)
def test_the_fields_of_a_row_are_those_inside_its_envelope(
    envelope: Any, text: Any, names: list[str] | None
) -> None:
    rows = schema_of_rows(parse_schema(json.dumps(text)), None, envelope)
    assert (rows and [name for name, _ in record_fields(rows)]) == names


def test_the_columns_of_a_key_stay_required() -> None:
    before = schema(id="!int", part="!string", other="!int")
    writer = parse_schema(record(id=["null", "int"]))
    assert evolve(before, writer, required=(10, 11)).changes == (MakeOptional(("other",)),)
    assert len(evolve(before, writer).changes) == 3
