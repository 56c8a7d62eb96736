"""Rows as an Iceberg data file: field ids, counts, bounds, and what does not fit."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.conversions import from_bytes
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from connectors.iceberg.live import parquet as module
from connectors.iceberg.live.bounds import above
from connectors.iceberg.live.parquet import WrittenFile, write_data_file
from planner.errors import UnsupportedType
from planner.live.tiling import WrittenPartition

ICEBERG = Schema(
    NestedField(1, "kafka_partition", IntegerType()),
    NestedField(2, "kafka_offset", LongType()),
    NestedField(3, "kafka_timestamp", TimestamptzType()),
    NestedField(4, "ratio", DoubleType()),
    NestedField(5, "host", StringType()),
    NestedField(6, "id", UUIDType()),
    NestedField(7, "at", StructType(NestedField(8, "x", DoubleType()))),
)


def field(name: str, kind: pa.DataType, field_id: int) -> pa.Field:
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(field_id)})


ARROW = pa.schema(
    [
        field("kafka_partition", pa.int32(), 1),
        field("kafka_offset", pa.int64(), 2),
        field("kafka_timestamp", pa.timestamp("us", "UTC"), 3),
        field("ratio", pa.float64(), 4),
        field("host", pa.string(), 5),
        field("id", pa.uuid(), 6),
        field("at", pa.struct([field("x", pa.float64(), 8)]), 7),
    ]
)
ID = uuid.UUID(int=7)


def batch(*rows: tuple[int, int, float | None, str | None]) -> pa.RecordBatch:
    at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    columns = [
        pa.array([row[0] for row in rows], pa.int32()),
        pa.array([row[1] for row in rows], pa.int64()),
        pa.array([at] * len(rows), pa.timestamp("us", "Etc/UTC")),
        pa.array([row[2] for row in rows], pa.float64()),
        pa.array([row[3] for row in rows], pa.string()),
        pa.array([ID.bytes] * len(rows), pa.binary()),
        pa.array([{"x": row[2]} for row in rows], pa.struct([pa.field("x", pa.float64())])),
    ]
    return pa.RecordBatch.from_arrays(columns, ARROW.names)


def write(folder: Path, *batches: pa.RecordBatch, **properties: str) -> WrittenFile | None:
    return write_data_file(
        PyArrowFileIO().new_output(f"{folder}/one.parquet"),
        ICEBERG,
        ARROW,
        batches,
        properties=properties,
    )


def test_counts_bounds_and_ids_are_the_rows(tmp_path: Path) -> None:
    nan = float("nan")
    written = write(
        tmp_path,
        batch((0, 5, 1.5, "b"), (1, 9, nan, None)),
        batch(),
        batch((0, 7, None, "a"), (0, 6, -2.0, "c")),
    )
    assert written is not None
    file = written.data_file
    assert written.rows == file.record_count == 4
    assert written.partitions == (WrittenPartition(0, 3, 5, 7), WrittenPartition(1, 1, 9, 9))
    assert file.file_size_in_bytes == Path(file.file_path).stat().st_size
    assert file.nan_value_counts == {4: 1, 8: 1}
    assert file.null_value_counts == {1: 0, 2: 0, 3: 0, 4: 1, 5: 1, 6: 0}
    assert file.value_counts == dict.fromkeys((*range(1, 7), 8), 4)
    lower, upper = file.lower_bounds, file.upper_bounds
    bounds = [
        (from_bytes(kind, lower[key]), from_bytes(kind, upper[key]))
        for key, kind in ((2, LongType()), (5, StringType()))
    ]
    assert bounds == [(5, 9), ("a", "c")]
    read = pq.read_table(file.file_path)
    assert [int(item.metadata[b"PARQUET:field_id"]) for item in read.schema] == [*range(1, 8)]
    assert read["id"].to_pylist() == [ID] * 4


def test_nothing_is_told_that_engines_read_otherwise(tmp_path: Path) -> None:
    """The order of uuids, and a highest number where one may be NaN (docs/engines.md)."""
    nan = float("nan")
    with_nan, without = (
        write(tmp_path / name, batch((0, 1, 2.0, "a"), (0, 2, last, "b")))
        for name, last in (("one", nan), ("other", 1.0))
    )
    assert with_nan is not None
    assert without is not None
    for file in (with_nan.data_file, without.data_file):
        assert 6 not in file.lower_bounds.keys() | file.upper_bounds.keys()
        group = pq.read_metadata(file.file_path).row_group(0)
        columns = [group.column(at) for at in range(group.num_columns)]
        bounded = {column.path_in_schema for column in columns if column.statistics}
        assert bounded == {"kafka_partition", "kafka_offset", "kafka_timestamp", "host"}
    lowest: list[object] = [
        from_bytes(DoubleType(), f.data_file.lower_bounds[4]) for f in (with_nan, without)
    ]
    assert lowest == [2.0, 1.0]
    assert 4 not in with_nan.data_file.upper_bounds
    highest: object = from_bytes(DoubleType(), without.data_file.upper_bounds[4])
    assert highest == 2.0


@pytest.mark.parametrize(
    ("first", "second", "bounds"),
    [
        # Parquet's writer keeps no bounds of a group with such a text.
        ("z" * 5_000, "b", ("b", "z" * 15 + "{")),
        ("a" * 5_000, "b", ("a" * 16, "b")),
        (None, "b", ("b", "b")),
        # One more than the last character before the surrogates is the first one after.
        ("a" * 15 + "\ud7ff!", "a", ("a", "a" * 15 + "\ue000")),
        ("\U0010ffff" * 17, "a", ("a", None)),
    ],
)
def test_no_text_of_any_group_lies_outside_of_its_bounds(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    first: str | None,
    second: str,
    bounds: tuple[str, str | None],
) -> None:
    monkeypatch.setattr(module, "_GROUP_ROWS", 1)
    written = write(tmp_path, batch((0, 1, 1.0, first)), batch((0, 2, 1.0, second)))
    assert written is not None
    file = written.data_file
    assert pq.read_metadata(file.file_path).num_row_groups == 2
    lower, upper = file.lower_bounds[5], file.upper_bounds.get(5)
    assert (lower.decode(), upper and upper.decode()) == bounds


@pytest.mark.parametrize(
    ("value", "expected"),
    [(b"ab", b"ab"), (b"abc", b"ac"), (b"a\xff\xff", b"b"), (b"\xff\xff\xff", None)],
)
def test_bytes_are_cut_upwards(value: bytes, expected: bytes | None) -> None:
    assert above(value, 2) == expected


@pytest.mark.parametrize(
    ("kind", "stored", "values"),
    [
        (DateType(), pa.date32(), [3_000_000, -900_000]),
        (TimestamptzType(), pa.timestamp("us", "UTC"), [3 * 10**17, -(10**17)]),
        (TimestampType(), pa.timestamp("us"), [3 * 10**17, -(10**17)]),
        (TimeType(), pa.time64("us"), [86_399_999_999, 0]),
        (
            DecimalType(38, 2),
            pa.decimal128(38, 2),
            [Decimal("9" * 36 + ".99"), Decimal("-1.00")],
        ),
        (FixedType(2), pa.binary(2), [b"\xff\xff", b"\x00\x00"]),
        (BooleanType(), pa.bool_(), [True, False]),
        (FloatType(), pa.float32(), [float("inf"), 0.5, -1.5]),
        (DoubleType(), pa.float64(), [0.0, -0.0]),
    ],
)
def test_values_beyond_pythons_and_of_every_kind_have_bounds(
    tmp_path: Path, kind: PrimitiveType, stored: pa.DataType, values: list[Any]
) -> None:
    schema = Schema(*ICEBERG.fields[:2], NestedField(3, "value", kind))
    arrow = pa.schema([*(ARROW.field(at) for at in range(2)), field("value", stored, 3)])
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array([0] * (len(values) + 1), pa.int32()),
            pa.array(range(len(values) + 1), pa.int64()),
            pa.array([*values, None], stored),
        ],
        schema=arrow,
    )
    written = write_data_file(
        PyArrowFileIO().new_output(f"{tmp_path}/one.parquet"),
        schema,
        arrow,
        [rows],
        properties={"write.metadata.metrics.default": "no such mode"},
    )
    assert written is not None
    file = written.data_file
    lower, upper = (from_bytes(kind, of[3]) for of in (file.lower_bounds, file.upper_bounds))
    assert (lower, upper) == (values[-1], values[0])
    assert file.null_value_counts[3] == 1


def test_without_rows_there_is_no_file(tmp_path: Path) -> None:
    assert write(tmp_path, batch()) is None
    assert not list(tmp_path.iterdir())


def test_the_tables_codec_is_taken(tmp_path: Path) -> None:
    written = write(
        tmp_path, batch((0, 1, 1.0, "a")), **{"write.parquet.compression-codec": "uncompressed"}
    )
    assert written is not None
    group = pq.read_metadata(written.data_file.file_path).row_group(0)
    assert group.column(0).compression == "UNCOMPRESSED"


def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    rows = batch((0, 1, 1.0, "a"))
    wrong = rows.set_column(3, "ratio", pa.array(["much"]))
    with pytest.raises(UnsupportedType, match="column ratio of type double cannot be written"):
        write(tmp_path, wrong)


def test_values_that_repeat_have_a_dictionary_and_others_none(tmp_path: Path) -> None:
    rows = [(0, at, at % 3 / 7, "few"[at % 3] * 9) for at in range(2_000)]
    written = write(tmp_path, batch(*rows))
    assert written is not None
    group = pq.read_metadata(written.data_file.file_path).row_group(0)
    columns = [group.column(at) for at in range(group.num_columns)]
    coded = {column.path_in_schema for column in columns if column.has_dictionary_page}
    # Nor has a float: a dictionary tells 0.0 and -0.0 apart.
    assert coded == {"kafka_partition", "kafka_timestamp", "host"}
    assert pq.read_table(written.data_file.file_path)["host"].to_pylist() == [
        r[3] for r in rows
    ]
