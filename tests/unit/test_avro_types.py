"""docs/avro-types.md is true: every row of its table, through both paths."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from connectors.decoding.writers import Writers
from planner.errors import UndecodableRecord
from planner.schema import Column
from planner.seam.formats import AvroFormat
from tests.harness.avro_decoder import PATHS, avro_decoder, framed, raw_batch
from tests.harness.builders import schema
from tests.harness.type_pages import FLOOR, TYPES, access_filter

DOC = Path(__file__).parents[2] / "docs" / "avro-types.md"
ROW = re.compile(
    r"\| `(?P<writer>.+)` \| (?:`(?P<bytes>[0-9a-f]+)`|none) \| (?P<column>[^|]+) \| (?P<value>[^|]+) \|"
)
ROWS = [
    match.groupdict() for match in map(ROW.fullmatch, DOC.read_text().splitlines()) if match
]
COLUMNS = TYPES | {
    "decimal(38, 2)": pa.decimal128(38, 2),
    "fixed(12)": pa.binary(12),
    "list of binary": pa.list_(pa.field("element", pa.binary())),
    "struct of int int, string string": pa.struct(
        [("int", pa.int32()), ("string", pa.string())]
    ),
    "struct of x int, y int": pa.struct([("x", pa.int32()), ("y", pa.int32())]),
}


def test_the_table_of_the_page_is_read_whole() -> None:
    table = DOC.read_text().split("## Value by value")[1]
    assert len(ROWS) == table.count("\n| ") - 1 > 90


@pytest.mark.parametrize("fast_from", PATHS)
@pytest.mark.parametrize(
    "row", ROWS, ids=lambda row: f"{row['writer'][:30]} {row['bytes']} {row['column']}"
)
def test_a_value_becomes_what_the_page_says(row: dict[str, Any], fast_from: int | None) -> None:
    name = row["column"].removesuffix(FLOOR)
    kind, _, unit = name.removeprefix("required ").partition(" in ")
    column = Column(
        10, "a", COLUMNS[kind], name.startswith("required "), epoch_unit=unit or None
    )
    writers = Writers()
    fields = f'[{{"name": "a", "type": {row["writer"]}}}]'
    writers.add(7, f'{{"type": "record", "name": "Root", "fields": {fields}}}')
    floors = (10,) if row["column"].endswith(FLOOR) else ()
    decoder = avro_decoder(
        schema(column), writers, fast_from=fast_from, format=AvroFormat(floors=floors)
    )
    # As many as the fast path wants.
    batch = raw_batch(*[framed(7, bytes.fromhex(row["bytes"] or ""))] * 20)
    if row["value"] == "refused":
        with pytest.raises(UndecodableRecord):
            decoder.decode(batch)
        return
    rows = decoder.decode(batch).rows
    rows.validate(full=True)
    assert {access_filter(value) for value in rows.column("a").to_pylist()} == {row["value"]}
