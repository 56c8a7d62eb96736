"""Results as bytes: what is written is what was answered, or nothing."""

from __future__ import annotations

import contextlib
import datetime as dt
import io
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from thermocline.output import formats
from thermocline.output.formats import WRITERS, format_of, opened

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("text", pa.string()),
        pa.field("price", pa.decimal128(10, 2)),
        pa.field("raw", pa.binary()),
        pa.field("tags", pa.list_(pa.struct([pa.field("x", pa.float64())]))),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("tick", pa.timestamp("ns")),
    ]
)
AT = dt.datetime(2026, 1, 2, 3, 4, 5, 600, tzinfo=dt.UTC)
BATCHES = [
    pa.record_batch(
        [
            [1, 2],
            ["", None],
            [Decimal("1.50"), None],
            [b"\x00\xff", None],
            [[{"x": 0.5}], None],
            [AT, None],
            pa.array([1, None], pa.int64()).cast(pa.timestamp("ns")),
        ],
        schema=SCHEMA,
    ),
    pa.record_batch([[3], ['a "b",\n漢'], [None], [b""], [[]], [None], [None]], schema=SCHEMA),
]


def written(form: str, batches: list[pa.RecordBatch] = BATCHES) -> bytes:
    sink = io.BytesIO()
    WRITERS[form](sink, SCHEMA, iter(batches))
    return sink.getvalue()


def test_csv_tells_null_from_an_empty_text_and_writes_what_csv_has_no_value_for_as_text() -> (
    None
):
    assert written("csv").decode().splitlines() == [
        '"id","text","price","raw","tags","at","tick"',
        '1,"",1.50,"00ff","[{""x"":0.5}]",2026-01-02 03:04:05.000600Z,1970-01-01 00:00:00.000000001',
        "2,,,,,,",
        '3,"a ""b"",',
        '漢",,"","[]",,',
    ]


def test_json_is_one_array_and_json_lines_one_object_a_line() -> None:
    rows = [json.loads(line) for line in written("jsonl").splitlines()]
    assert json.loads(written("json")) == rows
    assert rows == [
        {
            "id": 1,
            "text": "",
            "price": "1.50",
            "raw": "AP8=",
            "tags": [{"x": 0.5}],
            "at": "2026-01-02T03:04:05.000600Z",
            "tick": "1970-01-01 00:00:00.000000001",
        },
        dict.fromkeys(SCHEMA.names) | {"id": 2},
        dict.fromkeys(SCHEMA.names) | {"id": 3, "text": 'a "b",\n漢', "raw": "", "tags": []},
    ]


def test_no_rows_are_an_empty_array_a_header_or_a_schema() -> None:
    assert written("json", []) == b"[]\n"
    assert written("jsonl", []) == b""
    assert written("csv", []).count(b"\n") == 1
    assert pa.ipc.open_file(written("arrow", [])).schema == SCHEMA
    assert parquet.read_table(io.BytesIO(written("parquet", []))).num_rows == 0


def test_arrow_and_parquet_hold_the_same_rows() -> None:
    expected = pa.Table.from_batches(BATCHES)
    assert pa.ipc.open_file(written("arrow")).read_all() == expected
    assert parquet.read_table(io.BytesIO(written("parquet"))).equals(expected)


def test_parquet_gathers_batches_into_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "ROW_GROUP_ROWS", 6)
    sink = io.BytesIO(written("parquet", BATCHES * 5))  # 15 rows in batches of 2 and 1
    groups = parquet.ParquetFile(sink).metadata
    assert [groups.row_group(n).num_rows for n in range(groups.num_row_groups)] == [6, 6, 3]


def test_two_columns_of_one_name_are_both_in_the_object() -> None:
    schema = pa.schema([("a", pa.int32()), ("a", pa.int32())])
    [line] = formats.json_rows(schema, [pa.record_batch([[1], [2]], schema=schema)])
    assert json.loads(line) == {"a": 1, "a_2": 2}


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "out.csv"
    target.write_text("before")
    with contextlib.suppress(RuntimeError), opened(str(target)) as sink:
        sink.write(b"half")
        raise RuntimeError
    assert target.read_text() == "before"
    with opened(str(target)) as sink:
        sink.write(b"whole")
        assert target.read_text() == "before"
    assert target.read_text() == "whole"
    assert list(tmp_path.iterdir()) == [target]


def test_a_device_is_written_in_place() -> None:
    with opened("/dev/null") as sink:
        sink.write(b"x")
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize(
    ("name", "form"),
    [("a.csv", "csv"), ("b.PARQUET", "parquet"), ("c.ndjson", "jsonl"), ("d", None)],
)
def test_a_file_name_asks_for_its_format(name: str, form: str | None) -> None:
    assert format_of(name) == form
