"""docs/change-data.md is true: every row of its tables of values, in events and in flat records, and in keys where they can be."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from connectors.decoding.connect import ConnectRecords
from connectors.decoding.json.decoder import JsonRecords
from connectors.decoding.registry import decoder_for
from connectors.decoding.writers import Writers
from planner.errors import UndecodableRecord
from planner.schema import Column
from planner.seam.formats import AvroFormat
from tests.harness.changes import changes, event, framed, keyed_binding, keyed_schema, raw
from tests.harness.type_pages import TYPES, access_filter

PAGE = (Path(__file__).parents[2] / "docs" / "change-data.md").read_text()
JSON_ROW = re.compile(
    r"\| (?:`(?P<schema>.+)`|none) \| `(?P<json>.+)` \| (?P<column>[^|]+) \| (?P<value>.*?) ?\|"
)
AVRO_ROW = re.compile(
    r"\| `(?P<writer>.+)` \| `(?P<bytes>[0-9a-f]+)` \| (?P<column>[^|]+) \| (?P<value>[^|]+) \|"
)
JSON_TABLE = PAGE.split("\n### JSON\n")[1].split("\n### ")[0]
AVRO_TABLE = PAGE.split("\n### Avro\n")[1].split("\n## ")[0]


def rows_of(table: str, row: re.Pattern[str]) -> list[dict[str, Any]]:
    return [match.groupdict() for match in map(row.fullmatch, table.splitlines()) if match]


JSON_ROWS, AVRO_ROWS = rows_of(JSON_TABLE, JSON_ROW), rows_of(AVRO_TABLE, AVRO_ROW)
COLUMNS = TYPES | {"list of binary": pa.list_(pa.field("element", pa.binary()))}
ID = Column(4, "id", pa.int64(), required=True)
ID_SCHEMA = {"type": "int64", "optional": False, "field": "id"}


def test_the_tables_of_the_page_are_read_whole() -> None:
    assert len(JSON_ROWS) == JSON_TABLE.count("\n| ") - 1 > 60
    assert len(AVRO_ROWS) == AVRO_TABLE.count("\n| ") - 1 > 5


def column_of(name: str) -> Column:
    kind, _, unit = name.partition(" in ")
    return Column(5, "a", COLUMNS[kind], epoch_unit=unit or None)  # type: ignore[arg-type]


def in_schema(payload: Any, schema: str | None, *, is_event: bool) -> Any:
    """Put a record beside its schema, where it has one."""
    if schema is None:
        return payload
    fields = [ID_SCHEMA, {**json.loads(schema), "optional": True, "field": "a"}]
    row = {"type": "struct", "fields": fields, "optional": True, "name": "Value"}
    if is_event:
        inside = [{**row, "field": "before"}, {**row, "field": "after"}]
        inside.append({"type": "string", "optional": False, "field": "op"})
        row = {"type": "struct", "fields": inside, "optional": False, "name": "Envelope"}
    return {"schema": row, "payload": payload}


@pytest.mark.parametrize("path", ["fast", "exact"])
@pytest.mark.parametrize("envelope", ["debezium", "debezium-flat"])
@pytest.mark.parametrize(
    "row", JSON_ROWS, ids=lambda row: f"{row['schema']} {row['json']} {row['column']}"
)
def test_a_value_of_json_becomes_what_the_page_says(
    row: dict[str, Any], envelope: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if path == "exact":
        monkeypatch.setattr(JsonRecords, "__init__", _exact)
    value = {"id": 1, "a": json.loads(row["json"])}
    is_event = envelope == "debezium"
    record = in_schema(
        event("c", value) if is_event else value, row["schema"], is_event=is_event
    )
    schema = keyed_schema(ID, column_of(row["column"]))
    binding = keyed_binding(schema, envelope)
    # One after the other, so that some are in the middle of others.
    records = [({"id": 1}, record)] * 3
    if row["value"] == "refused":
        with pytest.raises(UndecodableRecord, match=r"field a(\.scale)?: "):
            changes(schema, binding, *records)
        return
    rows = changes(schema, binding, *records)
    assert [access_filter(each[-1]) for each in rows] == [row["value"]] * 3


_init = JsonRecords.__init__


def _exact(self: JsonRecords, *of: Any, **options: Any) -> None:
    _init(self, *of, **{**options, "exact_only": True})


@pytest.mark.parametrize("count", [3, 300], ids=["exact", "fast"])
@pytest.mark.parametrize("envelope", ["debezium", "debezium-flat"])
@pytest.mark.parametrize(
    "row", AVRO_ROWS, ids=lambda row: f"{row['writer'][:60]} {row['bytes']}"
)
def test_a_value_of_avro_becomes_what_the_page_says(
    row: dict[str, Any], envelope: str, count: int
) -> None:
    inner = json.loads(row["writer"])
    fields = [{"name": "id", "type": "long"}, {"name": "a", "type": ["null", inner]}]
    body, text = (
        b"\2\2" + bytes.fromhex(row["bytes"]),
        {"type": "record", "name": "Value", "fields": fields},
    )
    if envelope == "debezium":
        optional = ["null", text], ["null", "Value"]
        text = {
            "type": "record",
            "name": "Envelope",
            "fields": [
                {"name": "before", "type": optional[0]},
                {"name": "after", "type": optional[1]},
                {"name": "op", "type": "string"},
            ],
        }
        body = b"\0\2" + body + b"\2u"
    writers = Writers()
    writers.add(7, json.dumps(text))
    schema = keyed_schema(ID, column_of(row["column"]))
    binding = keyed_binding(schema, envelope, format=AvroFormat())
    records = [({"id": 1}, framed(7, body))] * count
    if row["value"] == "refused":
        with pytest.raises(UndecodableRecord, match=r"field a(\.scale)?: "):
            changes(schema, binding, *records, writers=writers)
        return
    rows = changes(schema, binding, *records, writers=writers)
    assert {access_filter(each[-1]) for each in rows} == {row["value"]}
    assert len(rows) == count


def test_a_key_is_read_as_its_converter_writes_it() -> None:
    amount = Column(5, "amount", pa.decimal128(5, 2), required=True)
    day, note = Column(6, "day", pa.date32(), required=True), Column(7, "note", pa.string())
    schema = keyed_schema(amount, day, note, key=("amount", "day"))
    name = "org.apache.kafka.connect.data.Decimal"
    fields = [
        {"type": "int32", "name": "io.debezium.time.Date", "field": "day"},
        {"type": "bytes", "name": name, "parameters": {"scale": "2"}, "field": "amount"},
    ]
    key = {
        "schema": {"type": "struct", "fields": fields},
        "payload": {"day": 19000, "amount": "MDk="},
    }
    [change] = changes(schema, keyed_binding(schema, "debezium-flat"), (key, {"note": "n"}))
    assert [access_filter(each) for each in change] == ["0", "u", "123.45", "2022-01-08", "n"]


def test_records_of_several_schemas_keep_their_order() -> None:
    schema = keyed_schema(ID, Column(5, "a", TYPES["timestamp"]))
    names = ("io.debezium.time.Timestamp", "io.debezium.time.MicroTimestamp")
    texts = [json.dumps({"type": "int64", "name": name}) for name in names]
    records = [
        (
            {"id": at},
            in_schema(
                {"id": at, "a": at * 1_000}, texts[at % 2] if at % 3 else None, is_event=False
            ),
        )
        for at in range(60)
    ]
    binding = keyed_binding(schema, "debezium-flat", on_error="skip")
    rows = changes(schema, binding, *records)
    # Without a schema, a number is no time: it has no unit.
    expected = [at for at in range(60) if at % 3]
    assert [(offset, key) for offset, _, key, _ in rows] == [(at, at) for at in expected]
    assert [access_filter(each[-1]) for each in rows[:3]] == [
        "1970-01-01T00:00:00.001000",
        "1970-01-01T00:00:02",
        "1970-01-01T00:00:04",
    ]


def test_a_schema_that_is_no_text_makes_a_bad_record() -> None:
    schema = keyed_schema(ID)
    bad = b'{"schema":{"type":"struct","name":"\xff"},"payload":{"id":1}}'
    with pytest.raises(UndecodableRecord, match="the value is not UTF-8"):
        changes(schema, keyed_binding(schema, "debezium-flat"), ({"id": 1}, bad))


def test_the_readers_of_old_schemas_do_not_add_up() -> None:
    schema = keyed_schema(ID)
    records = [
        (
            {"id": 1},
            {
                "schema": {"type": "struct", "name": f"v{at}", "fields": []},
                "payload": {"id": 1},
            },
        )
        for at in range(200)
    ]
    binding = keyed_binding(schema, "debezium-flat")
    decoder = decoder_for("t", schema, binding)
    assert decoder.decode(raw(*records)).outcomes.rows == 200
    reader = decoder._records
    assert isinstance(reader, ConnectRecords)
    assert len(reader._by_schema) <= 64
