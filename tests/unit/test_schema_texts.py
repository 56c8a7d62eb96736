"""What ``create --format avro`` and ``schemas`` say, over a registry in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest

from connectors.decoding.avro.columns import columns_from
from connectors.decoding.json.wishes import Wishes
from connectors.decoding.writers import FIXED_ID
from connectors.registry.decoders import Decoders
from connectors.registry.texts import UnusableSchema
from planner.errors import BadConfig
from planner.evolution.avro import parse_schema
from planner.evolution.ledger import UNKNOWN, SchemaLedger
from planner.names import TableName
from planner.schema import Column, TableSchema
from planner.seam.binding import Binding
from planner.seam.formats import AvroFormat
from tests.doubles.schema_registry import MemoryRegistry
from thermocline.commands.schemas import (
    _document,
    _last_lines,
    _ledger_rows,
    _planned,
    _Table,
    _today,
)
from thermocline.schema_columns import described, left_out, registered, schema_of_records

TABLE = TableName("lake", ("net",), "flows")
SUBJECT = "flows-value"


def flow(name: str = "Flow", **fields: Any) -> str:
    items = [{"name": field, "type": kind} for field, kind in fields.items()]
    return json.dumps({"type": "record", "name": name, "namespace": "net", "fields": items})


FIRST = flow(src="string", bytes="int")
WIDER = flow(src="string", bytes="long", port=["null", "int"])
OTHER = flow("Other", why="string")
BOTH = f"[{FIRST}, {OTHER}]"
COLUMNS = {"src": pa.string(), "bytes": pa.int32()}


def mark(text: str) -> str:
    return parse_schema(text).fingerprint


def table(
    registry: MemoryRegistry,
    entries: Mapping[int, str],
    columns: Mapping[str, pa.DataType] = COLUMNS,
    **options: Any,
) -> _Table:
    form = AvroFormat(
        **{"evolution": "additive", "ledger": SchemaLedger(dict(entries)), **options}
    )
    columns_ = (Column(at, name, kind) for at, (name, kind) in enumerate(columns.items(), 20))
    return _Table(
        TABLE,
        TableSchema(1, tuple(columns_)),
        Binding("flows", form),
        form,
        registry.client,
        Decoders(registry.of),
        frozenset,
        lambda *_: None,
    )


def plan(opened: _Table) -> list[str]:
    """What ``schemas plan`` prints."""

    def lines() -> Iterator[str]:
        steps = list(_planned(opened))
        for step in steps:
            yield from step.lines()
        yield from _last_lines(TABLE, steps, opened.changed())

    return list(lines())


@pytest.fixture
def registry() -> MemoryRegistry:
    filled = MemoryRegistry()
    filled.register(SUBJECT, 7, FIRST)
    return filled


def test_each_schema_is_planned_upon_those_before_it(registry: MemoryRegistry) -> None:
    opened = table(registry, {7: mark(FIRST)})
    assert plan(opened) == ["lake.net.flows: the ledger has every version of its subject."]
    registry.register(SUBJECT, 9, WIDER)
    registry.register(SUBJECT, 11, flow(src="int", bytes="long", port="long", nothing="null"))
    registry.register(SUBJECT, 12, flow(src="string"))
    assert plan(opened) == [
        "flows-value:2 (schema id 9):",
        "  widen bytes from int to long",
        "  add port int",
        "flows-value:3 (schema id 11):",
        "  widen port from int to long",
        "  does not fit: field src is int, and its column string",
        "  left out: field nothing: it holds no values",
        "flows-value:4 (schema id 12): nothing to change",
    ]
    document = json.loads(_document(TABLE, list(_planned(opened))[1:2], ()))
    assert document == {
        "table": "lake.net.flows",
        "schemas": [
            {
                "subject": SUBJECT,
                "version": 3,
                "id": 11,
                "changes": ["widen port from int to long"],
                "misfits": ["field src is int, and its column string"],
                "left_out": ["field nothing: it holds no values"],
            }
        ],
        "changed": [],
    }


def test_what_a_table_does_not_take_up_is_said(registry: MemoryRegistry) -> None:
    registry.register(SUBJECT, 9, WIDER)
    registry.register(SUBJECT, 10, OTHER)
    registry.register(SUBJECT, 11, "[]")
    registry.register(SUBJECT, 12, "{}", "JSON")
    opened = table(registry, {7: mark(FIRST)}, evolution="none", record="net.Flow")
    assert plan(opened) == [
        "flows-value:2 (schema id 9):",
        "  left out: widen bytes from int to long (thermocline.schema.evolution is none)",
        "  left out: add port int (thermocline.schema.evolution is none)",
        "flows-value:3 (schema id 10):",
        "  left out: all its records: they are net.Other, not net.Flow",
        "flows-value:4 (schema id 11):",
        "  left out: all its records, which are bad ones: schema id 11 cannot be read: a union is empty, has another one "
        "inside, or one type twice",
        "flows-value:5 (schema id 12):",
        "  left out: all its records, which are bad ones: schema id 12 is of the type JSON, not AVRO",
    ]


def test_a_plan_names_ids_that_have_changed_as_the_ledger_does(
    registry: MemoryRegistry,
) -> None:
    opened = table(registry, {5: mark(OTHER), 7: mark(WIDER), 8: UNKNOWN})
    says = "so the table answers SchemaRegistryChanged"
    assert plan(opened) == [
        f"schema id 5 has changed, {says}",
        f"schema id 7 has changed, {says}",
    ]
    assert json.loads(_document(TABLE, (), opened.changed()))["changed"] == [5, 7]
    registry.register(SUBJECT, 9, WIDER)
    assert plan(opened)[-3:] == [
        "  add port int",
        f"schema id 5 has changed, {says}",
        f"schema id 7 has changed, {says}",
    ]
    assert [(row["id"], row["state"]) for row in _ledger_rows(opened)] == [
        (5, "changed"),
        (7, "changed"),
        (8, "unknown"),
    ]
    changes: dict[int, str] = {}
    today = _today(TABLE, opened.binding, opened.decoders, changes)
    assert (today[5], today[7]) == (UNKNOWN, mark(FIRST))
    assert changes == {5: "schema id 5 is not there any more", 7: "schema id 7 is net.Flow"}
    assert _today(TABLE, Binding("flows"), opened.decoders, changes) == {}


def test_a_ledger_is_shown_with_the_subjects_of_its_topic(
    registry: MemoryRegistry, capsys: pytest.CaptureFixture[str]
) -> None:
    registry.register("returns-value", 7, FIRST)
    opened = table(registry, {7: mark(FIRST)})
    (row,) = _ledger_rows(opened)
    assert row == {
        "id": 7,
        "subjects": [[SUBJECT, 1]],
        "record": "net.Flow",
        "state": "same",
        "fingerprint": mark(FIRST),
    }
    fixed = table(registry, {FIXED_ID: mark(FIRST)}, fixed=(SUBJECT, 1))
    assert _ledger_rows(fixed) == [{**row, "id": FIXED_ID}]
    registry.is_up = False
    (row,) = _ledger_rows(opened)
    assert (row["subjects"], row["record"], row["state"]) == ([], None, "not asked")
    assert (
        capsys.readouterr().err == "thermocline: the schema registry does not answer; retry.\n"
    )


def test_columns_come_from_the_record_of_a_union_that_becomes_rows(
    registry: MemoryRegistry,
) -> None:
    registry.register(SUBJECT, 9, BOTH)
    schema = registered(registry.client, SUBJECT)
    rows = schema.of_rows("net.Other")
    columns = columns_from(rows.writer, Wishes()).columns
    assert described(columns, rows, Wishes()) == [
        "why  string  from flows-value:2 (schema id 9)"
    ]
    assert list(left_out(columns_from(rows.writer, Wishes()), rows, Wishes())) == []
    form = schema.format("", "net.Other", is_fixed=False)
    assert (form.record, form.ledger) == ("net.Other", SchemaLedger({9: mark(BOTH)}))
    # The table of these columns needs nothing of that schema, nor of the record alone.
    registry.register(SUBJECT, 10, OTHER)
    opened = table(registry, {}, {"why": pa.string()}, record="net.Other")
    assert plan(opened)[2:] == [
        "flows-value:2 (schema id 9): nothing to change",
        "flows-value:3 (schema id 10): nothing to change",
    ]
    columns = columns_from(schema.of_rows(None).writer, Wishes()).columns
    assert [each.name for each in columns] == ["value"]


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        (BOTH, "net.Flow, net.Other"),
        (FIRST, "net.Flow"),
        ('"string"', "string"),
        ('{"type": "array", "items": "int"}', "array"),
    ],
)
def test_a_record_that_a_schema_lacks_is_refused(
    text: str, kinds: str, registry: MemoryRegistry
) -> None:
    registry.register(SUBJECT, 9, text)
    with pytest.raises(BadConfig) as refused:
        registered(registry.client, SUBJECT).of_rows("net.None")
    assert refused.value.message == (
        f"--record net.None: flows-value:2 has {kinds}; name the schema of that record with --schema SUBJECT[:VERSION]."
    )


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (
            "flows-value:9",
            "the registry has no subject flows-value, version 9; its versions are 1, 2, 3, 4.",
        ),
        (
            "none:1",
            "the registry has no subject none, version 1; name another subject with --schema SUBJECT[:VERSION].",
        ),
        (
            "none",
            "the registry has no subject none; name one with --schema SUBJECT[:VERSION].",
        ),
        (
            "flows-value:2",
            "subject flows-value, version 2 (schema id 9) is of the type JSON, and records of Avro alone are read from "
            "behind a registry; name another version with --schema SUBJECT:VERSION.",
        ),
        (
            "flows-value:3",
            "subject flows-value, version 3 (schema id 10) cannot be read: a union is empty, has another one inside, or one "
            "type twice; name another version with --schema SUBJECT:VERSION.",
        ),
        (
            "flows-value:latest",
            "subject flows-value, version 4 (schema id 11) cannot be read: it is too large; name another version with "
            "--schema SUBJECT:VERSION.",
        ),
    ],
)
def test_a_schema_that_gives_no_columns_is_named(
    schema: str, message: str, registry: MemoryRegistry
) -> None:
    registry.register(SUBJECT, 9, "{}", "JSON")
    registry.register(SUBJECT, 10, "[]")
    registry.register(SUBJECT, 11, "{}")
    registry.answers[11] = UnusableSchema(11, "it is too large")
    with pytest.raises(BadConfig) as refused:
        registered(registry.client, schema)
    assert refused.value.message == message


def test_the_schema_of_records_is_looked_for_by_their_id() -> None:
    registry = MemoryRegistry()

    def refusal() -> str:
        with pytest.raises(BadConfig) as refused:
            schema_of_records(registry.client, "flows", 7)
        return refused.value.message

    none = "the registry has no subject flows-value"
    assert refusal() == f"{none}; name one with --schema SUBJECT[:VERSION]."
    registry.register("net.Flow", 7, FIRST)
    assert refusal() == f"{none}; records have schema id 7: --schema net.Flow:1."
    registry.register("flows-net.Flow", 7, FIRST)
    assert refusal() == f"{none}; records have schema id 7: --schema flows-net.Flow:1."
    registry.register(SUBJECT, 8, "[]")
    assert refusal().startswith("subject flows-value, version 1 (schema id 8) cannot be read")
    registry.register(SUBJECT, 7, FIRST)
    assert str(schema_of_records(registry.client, "flows", 7)) == "flows-value:2"


def test_columns_say_where_they_come_from(registry: MemoryRegistry) -> None:
    text = flow(src="string", bytes="int", Src="int", gone="null", kafka_offset="long")
    registry.register(SUBJECT, 9, text)
    schema = registered(registry.client, "flows-value:2")
    wishes = Wishes(
        columns=((("bytes",), pa.int64()), (("note",), pa.string())),
        renames={"Src": "source"},
        leave_out=(("src",),),
    )
    chosen = columns_from(schema.writer, wishes)
    assert described(chosen.columns, schema, wishes) == [
        "bytes  int64  from flows-value:2 (schema id 9), its type from --column",
        "source  int32  from field Src of flows-value:2 (schema id 9)",
        "note  string  from --column: flows-value:2 has no such field",
    ]
    assert list(left_out(chosen, schema, wishes)) == [
        "no column: field src: left out by --leave-out",
        "no column: field gone: it holds no values",
        "no column: field kafka_offset: its name is one of the metadata columns'; to have one: --rename "
        "kafka_offset=kafka_offset_2",
    ]
    registry.register(SUBJECT, 10, '"long"')
    schema = registered(registry.client, SUBJECT)
    chosen = columns_from(schema.writer, Wishes())
    assert list(left_out(chosen, schema, Wishes())) == [
        "flows-value:3 is no record: its values are the column value"
    ]
