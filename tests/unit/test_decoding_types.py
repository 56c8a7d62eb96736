"""docs/json-types.md is true: every row of its table, through both paths, in both modes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from planner.errors import UndecodableRecord
from planner.schema import METADATA_TYPES, RAW_SCHEMA, Column, TableSchema
from planner.seam.binding import Binding
from planner.seam.formats import JsonFormat
from tests.harness.json_decoder import json_decoder
from tests.harness.oracle import Bad, oracle_decode, same
from tests.harness.type_pages import FLOOR, TYPES, access_filter

DOC = Path(__file__).parents[2] / "docs" / "json-types.md"
ROW = re.compile(
    r"\| (?P<type>[^|`]+) \| `(?P<json>[^`]+)` \| (?P<strict>[^|]+) \| (?P<lenient>[^|]+) \|"
)

ROWS = [
    match.groupdict() for match in map(ROW.fullmatch, DOC.read_text().splitlines()) if match
]


def columns(name: str) -> TableSchema:
    kind, _, unit = name.removesuffix(FLOOR).partition(" in ")
    lead = (
        Column(index, column, METADATA_TYPES[column])
        for index, column in enumerate(RAW_SCHEMA.names[:3], start=1)
    )
    return TableSchema(0, (*lead, Column(10, "a", TYPES[kind], epoch_unit=unit or None)))  # type: ignore[arg-type]


def bound(name: str, mode: Any = "strict") -> Binding:
    return Binding("t", JsonFormat(mode, floors=(10,) if name.endswith(FLOOR) else ()))


def raw(text: str) -> pa.RecordBatch:
    record = {
        "kafka_partition": 0,
        "kafka_offset": 0,
        "kafka_value": f'{{"a": {text}}}'.encode(),
    }
    return pa.RecordBatch.from_pylist([record], RAW_SCHEMA)


def test_the_table_of_the_page_is_read_whole() -> None:
    table = DOC.read_text().split("## Value by value")[1].split("\n## ")[0]
    assert len(ROWS) == table.count("\n| ") - 1 > 100
    kinds = {row["type"].removesuffix(FLOOR).partition(" in ")[0] for row in ROWS}
    assert kinds == set(TYPES)


@pytest.mark.parametrize("exact_only", [False, True], ids=["fast", "exact"])
@pytest.mark.parametrize("mode", ["strict", "lenient"])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['type']} {row['json']}")
def test_a_value_becomes_what_the_page_says(
    row: dict[str, str], mode: Any, exact_only: bool
) -> None:
    binding = bound(row["type"], mode)
    decoder = json_decoder("t", columns(row["type"]), binding, exact_only)
    if row[mode] == "refused":
        with pytest.raises(UndecodableRecord):
            decoder.decode(raw(row["json"]))
        return
    rows = decoder.decode(raw(row["json"])).rows
    rows.validate(full=True)
    assert access_filter(rows.column("a")[0].as_py()) == row[mode]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['type']} {row['json']}")
def test_the_oracle_agrees_with_the_page(row: dict[str, str]) -> None:
    value, binding = columns(row["type"]), bound(row["type"])
    record = raw(row["json"]).to_pylist()[0]
    result = oracle_decode(value, binding, record)
    if row["strict"] == "refused":
        assert result == Bad("a")
    else:
        assert isinstance(result, dict)
        assert access_filter(result["a"]) == row["strict"]
        rows = json_decoder("t", value, binding).decode(raw(row["json"])).rows.to_pylist()
        assert same(result, rows[0])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['type']} {row['json']}")
def test_lenient_keeps_what_strict_accepts(row: dict[str, str]) -> None:
    assert row["strict"] in ("refused", row["lenient"])
