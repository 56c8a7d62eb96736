"""Files that tasks write by themselves: Iceberg's metadata says of them what it says of its own writer's."""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
import math
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connectors.jobs.round import tier_once
from connectors.spark.metadata import identifier
from planner.errors import LogUnavailable
from planner.ports import Decoded, Decoder
from planner.schema import TIMESTAMPTZ, Column, TableSchema
from planner.seam.binding import Binding
from planner.seam.watermark import Outcomes
from tests.fixtures.spark import BUDGET, BoundTable, SparkLake
from tests.harness.generated_log import GeneratedLog

pytestmark = pytest.mark.spark

BY_SPARK = {"thermocline.tier.writer": "spark"}
COLUMNS = tuple(
    Column(0, name, kind)
    for name, kind in {
        "flag": pa.bool_(),
        "small": pa.int32(),
        "large": pa.int64(),
        "single": pa.float32(),
        "double": pa.float64(),
        "never": pa.float64(),
        "day": pa.date32(),
        "local": pa.timestamp("us"),
        "at": TIMESTAMPTZ,
        "text": pa.string(),
        "short": pa.string(),
        "raw": pa.binary(),
        "id": pa.uuid(),
        "fixed": pa.binary(4),
        "cents": pa.decimal128(9, 2),
        "units": pa.decimal128(18, 4),
        "wide": pa.decimal128(38, 6),
        "inner": pa.struct([pa.field("ratio", pa.float64()), pa.field("name", pa.string())]),
        "ratios": pa.list_(pa.float64()),
        "sizes": pa.map_(pa.string(), pa.float64()),
        "ids": pa.list_(pa.uuid()),
        "deep": pa.struct([pa.field("id", pa.uuid()), pa.field("ids", pa.list_(pa.uuid()))]),
    }.items()
)


@dataclass(frozen=True)
class Varied:
    """Makes values of every type from an offset."""

    reads: ClassVar[frozenset[str]] = frozenset({"kafka_value"})

    schema: TableSchema

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        records = batch.select(["kafka_partition", "kafka_offset", "kafka_timestamp"])
        rows = [record | varied(record["kafka_offset"]) for record in records.to_pylist()]
        columns = [
            array([row[field.name] for row in rows], field.type) for field in self.schema.arrow
        ]
        return Decoded(
            pa.RecordBatch.from_arrays(columns, schema=self.schema.arrow),
            Outcomes(rows=len(rows)),
        )


def array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Arrow makes no arrays of uuids from values, and none with uuids inside."""
    mask = pa.array([value is None for value in values], pa.bool_())
    if kind == pa.uuid():
        return pa.ExtensionArray.from_storage(kind, pa.array(values, pa.binary(16)))
    if pa.types.is_struct(kind):
        parts = [
            array([value and value[field.name] for value in values], field.type)
            for field in kind
        ]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=mask)
    if pa.types.is_list(kind):
        flat = [each for value in values for each in value or ()]
        ends = itertools.accumulate((len(value or ()) for value in values), initial=0)
        offsets = pa.array(ends, pa.int32())
        items = array(flat, kind.value_type)
        return pa.ListArray.from_arrays(offsets, items, type=kind, mask=mask)
    return pa.array(values, kind)


def varied(number: int) -> dict[str, Any]:
    if number % 13 == 0:
        return dict.fromkeys(column.name for column in COLUMNS)
    sign = -1 if number % 2 else 1
    ratio = [math.nan, -0.0, 0.0, sign * number / 8][number % 4]
    return {
        "flag": number % 3 == 0,
        "small": sign * number,
        "large": sign * number * 10**12,
        "single": ratio,
        "double": ratio,
        "never": math.nan,
        "day": dt.date(1969, 12, 1) + dt.timedelta(days=number),
        "local": dt.datetime(1969, 12, 31, 23) + dt.timedelta(seconds=number),
        "at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(minutes=number),
        # Longer than what Iceberg keeps of a text, with characters of two units in Java.
        "text": "\U0010ffff" * (number % 20) + f"{number:06d}" + "é😀" * 8,
        "short": f"{number % 3}/ ~é",
        "raw": bytes([255] * 20 + [number % 256]),
        "id": uuid.UUID(int=number * 2**100).bytes,
        "fixed": number.to_bytes(4, "big"),
        "cents": decimal.Decimal(sign * number) / 100,
        "units": decimal.Decimal(sign * number * 10**8) / 10_000,
        "wide": decimal.Decimal(sign * number * 10**20) / 1_000_000,
        "inner": None if number % 5 == 0 else {"ratio": ratio, "name": f"n{number}"},
        "ratios": [ratio, None] * (number % 3),
        "sizes": [(f"k{number}", ratio)],
        "ids": [uuid.UUID(int=number).bytes, None],
        "deep": {"id": uuid.UUID(int=number + 1).bytes, "ids": [uuid.UUID(int=number).bytes]},
    }


def open_varied(schema: TableSchema, binding: Binding) -> Decoder:
    del binding
    return Varied(schema)


@dataclass(frozen=True)
class OneLong:
    """A text of 5,000 characters, greatest of all, in every record that 499 divides."""

    reads: ClassVar[frozenset[str]] = frozenset({"kafka_value"})

    schema: TableSchema

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        records = batch.select(["kafka_partition", "kafka_offset", "kafka_timestamp"])
        rows = [
            record
            | {"host": "z" * 5000 if record["kafka_offset"] % 499 == 0 else "host", "bytes": 1}
            for record in records.to_pylist()
        ]
        return Decoded(
            pa.RecordBatch.from_pylist(rows, self.schema.arrow), Outcomes(rows=len(rows))
        )


def open_one_long(schema: TableSchema, binding: Binding) -> Decoder:
    del binding
    return OneLong(schema)


def published(
    table: BoundTable, ends: Sequence[int], open_decoder: Any = open_varied
) -> list[dict[str, Any]]:
    """Tier, and return the metadata of the files that it added, in the order of their partitions."""
    before = {row["file_path"] for row in table.sql("SELECT file_path FROM {t}.files")}
    log = GeneratedLog(tuple(ends))
    tier_once(log, table.target(log, decoder=open_decoder), BUDGET)
    # Iceberg 1.12 cannot show the bounds of a uuid.
    frame = table.session.table(f"{identifier(table.name)}.files").drop("readable_metrics")
    files = [row.asDict(recursive=True) for row in frame.collect()]
    added = [file for file in files if file["file_path"] not in before]
    return sorted(added, key=lambda file: str(file.get("partition")))


def created_by(file: dict[str, Any]) -> str:
    return str(pq.read_metadata(local(file)).created_by)


def local(file: dict[str, Any]) -> Path:
    return Path(urlsplit(file["file_path"]).path)


#: What differs between two encodings of the same rows.
OWN = ("file_path", "file_size_in_bytes", "column_sizes", "split_offsets")


#: A zero bound is written as the lower or the greater of the two zeros (parquet.thrift, "Statistics"): never too narrow.
ZEROS = {bytes(size - 1) + b"\x80": bytes(size) for size in (4, 8)}


def same(file: dict[str, Any]) -> dict[str, Any]:
    facts = {key: value for key, value in file.items() if key not in OWN}
    for key in ("lower_bounds", "upper_bounds"):
        bounds = file[key] or {}
        facts[key] = {
            column: ZEROS.get(bytes(text), bytes(text)) for column, text in bounds.items()
        }
    return facts | {"columns": sorted(file["column_sizes"] or {})}


def differences(ours: list[dict[str, Any]], spark: list[dict[str, Any]]) -> list[object]:
    """Return what differs, by key, and in a map by column."""
    assert len(ours) == len(spark)
    answer: list[object] = []
    for one, other in zip(map(same, ours), map(same, spark), strict=True):
        for key in one.keys() | other.keys():
            first, second = one.get(key), other.get(key)
            if isinstance(first, dict) and isinstance(second, dict):
                answer += [
                    (key, column, first.get(column), second.get(column))
                    for column in first.keys() | second.keys()
                    if first.get(column) != second.get(column)
                ]
            elif first != second:
                answer.append((key, first, second))
    return answer


def test_metadata_is_that_of_icebergs_writer_for_every_type(lake: SparkLake) -> None:
    ours = lake.create(0, 0, columns=COLUMNS)
    spark = lake.create(0, 0, columns=COLUMNS, properties=BY_SPARK)
    metrics = "write.metadata.metrics"
    end = 0
    for properties in (
        {},
        {f"{metrics}.default": "full"},
        {f"{metrics}.default": "truncate(3)", f"{metrics}.column.double": "none"},
        {
            f"{metrics}.default": "counts",
            f"{metrics}.column.inner.ratio": "full",
            f"{metrics}.column.text": "truncate(1)",
        },
    ):
        pairs = ", ".join(f"'{key}' = '{text}'" for key, text in properties.items())
        end += 60
        added = []
        for table in (ours, spark):
            if pairs:
                table.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({pairs})")
            added.append(published(table, (end, end)))
        assert differences(*added) == []
        assert all("parquet-cpp" in created_by(file) for file in added[0])
        assert all("parquet-mr" in created_by(file) for file in added[1])
        assert all(file["split_offsets"] == [4] for file in added[0])
    for first, second in zip(rows(ours), rows(spark), strict=True):
        assert first == second


def rows(table: BoundTable) -> list[str]:
    # As text: NaN is not equal to itself.
    answer = table.sql("SELECT * FROM {t} ORDER BY kafka_partition, kafka_offset")
    return [str(row) for row in answer]


def test_a_text_that_a_footer_leaves_out_makes_no_bound_too_narrow(lake: SparkLake) -> None:
    """Arrow writes no bounds of 4 KiB or more; those of the other row groups do not hold for the file."""
    table = lake.create(0, properties={"write.parquet.row-group-size-bytes": "4096"})
    [file] = published(table, (2_000,), open_one_long)
    footer = pq.read_metadata(local(file))
    assert footer.num_row_groups > 1
    by_name = {
        column.name: column.field_id for column in table.store.pin(table.name).schema.columns
    }
    assert by_name["host"] not in file["upper_bounds"]
    assert by_name["host"] in file["null_value_counts"]
    assert by_name["bytes"] in file["upper_bounds"]
    assert file["split_offsets"] == [
        footer.row_group(index).column(0).dictionary_page_offset
        for index in range(footer.num_row_groups)
    ]
    answer = table.sql("SELECT count(*) AS n FROM {t} WHERE host > 'y'")
    assert answer[0]["n"] == len([n for n in range(2_000) if n % 499 == 0 and n % 7])


@pytest.mark.parametrize(
    "terms",
    [
        ("day(kafka_timestamp)", "kafka_partition", "hour(at)", "short"),
        ("year(local)", "month(at)", "flag", "day"),
    ],
)
def test_partitions_are_those_of_icebergs_writer(
    lake: SparkLake, terms: tuple[str, ...]
) -> None:
    added = []
    for properties in ({}, BY_SPARK):
        table = lake.create(0, 0, columns=COLUMNS, partition_by=terms, properties=properties)
        # Tells how many partitions there are.
        published(table, (14, 1))
        added.append(published(table, (27, 20)))
    assert differences(*added) == []
    assert [folder(file) for file in added[0]] == [folder(file) for file in added[1]]
    assert all("parquet-cpp" in created_by(file) for file in added[0])


def test_files_of_failed_attempts_are_removed(lake: SparkLake, tmp_path: Path) -> None:
    table = lake.create(0, 0)
    log = GeneratedLog((5_000, 3_000), fail_once=tmp_path / "failed")
    tier_once(log, table.target(log), BUDGET)
    files = {local(row.asDict()) for row in table.sql("SELECT file_path FROM {t}.files")}
    data = next(iter(files)).parent
    assert set(data.iterdir()) == files
    broken = GeneratedLog((6_000, 4_000), broken=True)
    with pytest.raises(LogUnavailable):
        tier_once(broken, table.target(broken), BUDGET)
    assert set(data.iterdir()) == files


def folder(file: dict[str, Any]) -> str:
    return unquote(file["file_path"].rpartition("/")[0].partition("/data/")[2])
