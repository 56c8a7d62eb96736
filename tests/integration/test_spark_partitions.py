"""Values that Spark and Iceberg's writer take for different partitions: they are tiered, and found again."""

from __future__ import annotations

import decimal
import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connectors.jobs.round import RoundResult, tier_once
from planner.errors import BadBinding
from planner.ports import ArrowRelation, Decoded, Decoder
from planner.reading.filters import EVERYTHING, Condition, ScanFilter
from planner.schema import Column, TableSchema
from planner.seam.binding import Binding
from planner.seam.watermark import Outcomes
from planner.statement.conditions import Operator
from tests.fixtures.cold import cold_slice
from tests.fixtures.spark import BUDGET, BoundTable, SparkLake
from tests.harness.generated_log import GeneratedLog

pytestmark = pytest.mark.spark

BY_SPARK = {"thermocline.tier.writer": "spark"}
#: Eleven of them, in no order of their texts.
UUIDS = tuple(uuid.UUID(int=number * (2**127 - 1) // 7).bytes for number in range(11))
ZEROS = (0.0, -0.0, 1.5, math.nan, None)

Values = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class InTurn:
    """Makes rows of values in turn, by offset."""

    reads: ClassVar[frozenset[str]] = frozenset({"kafka_value"})

    schema: TableSchema
    values: Values

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        offsets = batch["kafka_offset"].to_pylist()
        columns = [
            array([self.values[field.name][at % len(self.values[field.name])] for at in offsets], field.type)
            if field.name in self.values
            else batch[field.name]
            for field in self.schema.arrow
        ]  # fmt: skip
        rows = pa.RecordBatch.from_arrays(columns, schema=self.schema.arrow)
        return Decoded(rows, Outcomes(rows=len(offsets)))


def array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Arrow makes no arrays of uuids from values."""
    if kind == pa.uuid():
        return pa.ExtensionArray.from_storage(kind, pa.array(values, pa.binary(16)))
    if pa.types.is_struct(kind):
        parts = [array([value[field.name] for value in values], field.type) for field in kind]
        return pa.StructArray.from_arrays(parts, fields=list(kind))
    return pa.array(values, kind)


def open_in_turn(schema: TableSchema, binding: Binding, *, values: Values) -> Decoder:
    del binding
    return InTurn(schema, values)


def tier(table: BoundTable, values: Values, *ends: int) -> RoundResult:
    log = GeneratedLog(ends)
    target = table.target(log, decoder=partial(open_in_turn, values=values))
    return tier_once(log, target, BUDGET)


def columns(**kinds: pa.DataType) -> tuple[Column, ...]:
    return tuple(Column(0, name, kind) for name, kind in kinds.items())


def files(table: BoundTable) -> list[pa.Table]:
    """Content of each data file, in the order of its rows."""
    paths = [row[0] for row in table.sql("SELECT file_path FROM {t}.files")]
    return [
        pq.read_table(Path(path.removeprefix("file://")), partitioning=None) for path in paths
    ]


def rows_of(table: BoundTable) -> int:
    return int(table.sql("SELECT count(DISTINCT kafka_partition, kafka_offset) FROM {t}")[0][0])


@pytest.mark.parametrize("distribution", ["none", "hash"])
def test_buckets_of_uuids_are_those_of_icebergs_writer(
    lake: SparkLake, distribution: str
) -> None:
    table = lake.create(
        *(0, 0),
        columns=columns(u=pa.uuid()),
        partition_by=("bucket(4, u)",),
        properties={"thermocline.tier.distribution": distribution},
    )
    # Before the first publish nobody has counted partitions; after it, all may be open.
    for number, ends in enumerate(((140, 90), (280, 90))):
        assert tier(table, {"u": UUIDS}, *ends).published
        assert len(files(table)) == 4 * (number + 1)
    assert rows_of(table) == sum(offset % 7 != 0 for end in (280, 90) for offset in range(end))
    buckets = [{bytes(value.as_py().bytes) for value in file["u"]} for file in files(table)]
    for bucket in buckets:
        assert all(bucket == other or bucket.isdisjoint(other) for other in buckets)


def test_more_buckets_of_uuids_than_are_held_open_are_shuffled_into_a_file_each(
    lake: SparkLake,
) -> None:
    values = {"u": [uuid.UUID(int=number * 7**40 % 2**128).bytes for number in range(500)]}
    table = lake.create(0, columns=columns(u=pa.uuid()), partition_by=("bucket(20, u)",))
    tier(table, values, 2_000)
    before = len(files(table))
    assert before == 20
    tier(table, values, 6_000)
    assert len(files(table)) - before == 20


def test_fields_of_structs_are_no_exception(lake: SparkLake) -> None:
    inner = pa.struct([pa.field("u", pa.uuid()), pa.field("d", pa.float64())])
    table = lake.create(
        0, columns=columns(inner=inner), partition_by=("bucket(4, inner.u)", "inner.d")
    )
    values = {"inner": [{"u": u, "d": d} for u in UUIDS for d in (0.0, -0.0)]}
    tier(table, values, 150)
    assert rows_of(table) == sum(offset % 7 != 0 for offset in range(150))
    assert len(files(table)) == 8


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()], ids=str)
def test_the_two_zeros_are_two_partitions(lake: SparkLake, kind: pa.DataType) -> None:
    table = lake.create(0, 0, columns=columns(d=kind), partition_by=("d",))
    for ends in ((60, 8), (90, 8)):
        tier(table, {"d": ZEROS}, *ends)
        partitions = [row[0] for row in table.sql("SELECT partition.d FROM {t}.files")]
        assert len({repr(value) for value in partitions}) == len(ZEROS)
    for content in files(table):
        assert len({repr(value) for value in content["d"].to_pylist()}) == 1


@pytest.mark.usefixtures("compiled")
def test_rows_keep_the_tables_order_within_partitions(lake: SparkLake) -> None:
    table = lake.create(
        *(0, 0),
        columns=columns(u=pa.uuid(), d=pa.float64(), n=pa.int64()),
        partition_by=("bucket(2, u)", "d", "truncate(10, n)", "month(kafka_timestamp)"),
        sort_by=("kafka_offset desc", "n"),
    )
    values = {"u": UUIDS, "d": ZEROS, "n": (5, -5, None)}
    for ends in ((200, 10), (300, 10)):
        tier(table, values, *ends)
    for content in files(table):
        offsets = content["kafka_offset"].to_pylist()
        assert offsets == sorted(offsets, reverse=True)
    assert {row[0] for row in table.sql("SELECT sort_order_id FROM {t}.files")} == {1}
    assert rows_of(table) == sum(offset % 7 != 0 for end in (300, 10) for offset in range(end))


def matches(
    duck: duckdb.DuckDBPyConnection, table: BoundTable, condition: str, rows: ScanFilter
) -> int:
    """How many rows meet a condition, read with what a statement wants known beforehand."""
    relation = table.store.scan(cold_slice(table.store.pin(table.name)), rows)
    if isinstance(relation, ArrowRelation):
        return int(relation.table.num_rows)
    answer = duck.cursor().execute(f"SELECT count(*) FROM ({relation.sql}) WHERE {condition}")
    return int(answer.fetchall()[0][0])


def delete_one(table: BoundTable) -> None:
    """From now on DuckDB's extension reads the table."""
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    table.sql("DELETE FROM {t} WHERE kafka_partition = 0 AND kafka_offset = 1")


def asking(column: str, operator: Operator, value: pa.Scalar) -> ScanFilter:
    return ((Condition(column, operator, (value,)),),)


def test_either_zero_is_found_by_the_other(
    lake: SparkLake, duck: duckdb.DuckDBPyConnection
) -> None:
    table = lake.create(0, columns=columns(d=pa.float64()), partition_by=("d",))
    tier(table, {"d": ZEROS}, 60)
    zeros = [offset for offset in range(60) if offset % 7 and offset % 5 < 2]
    for gone in (0, 1):
        for text, value in (("0.0", 0.0), ("-0.0", -0.0)):
            rows = asking("d", "=", pa.scalar(value))
            condition = f"d = '{text}'::DOUBLE"
            assert matches(duck, table, condition, rows) == len(zeros) - gone
        delete_one(table)


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64()], ids=str)
def test_the_least_numbers_are_found_though_their_truncation_overflows(
    lake: SparkLake, duck: duckdb.DuckDBPyConnection, kind: pa.DataType
) -> None:
    table = lake.create(0, columns=columns(n=kind), partition_by=("truncate(10, n)",))
    least = -(1 << kind.bit_width - 1)
    values = (least, least + 3, least + 20, 0, 7, -least - 1)
    tier(table, {"n": values}, 60)
    assert rows_of(table) == 51
    operators: tuple[Operator, ...] = ("=", "<", "<=", ">", ">=")
    for stage in ("our list", "the extension"):
        every = table.store.scan(cold_slice(table.store.pin(table.name)), EVERYTHING)
        assert not isinstance(every, ArrowRelation)
        duck.execute(f"CREATE OR REPLACE TABLE every_row AS {every.sql}")
        for operator in operators:
            for value in values:
                # A literal of the column's own type: the least bigint has none.
                condition = f"n {operator} ({value + 1} - 1)"
                answer = duck.execute(f"SELECT count(*) FROM every_row WHERE {condition}")
                expected = answer.fetchall()[0][0]
                rows = asking("n", operator, pa.scalar(value, kind))
                assert matches(duck, table, condition, rows) == expected, (stage, condition)
        delete_one(table)
    duck.execute("DROP TABLE every_row")


def test_truncated_texts_are_found_by_their_code_points_beside_deletes(
    lake: SparkLake, duck: duckdb.DuckDBPyConnection
) -> None:
    """DuckDB's extension counts an accent that is a code point of its own with its letter."""
    table = lake.create(0, columns=columns(s=pa.string()), partition_by=("truncate(1, s)",))
    accented = "e\u0301"
    tier(table, {"s": (accented, "a")}, 60)
    delete_one(table)
    rows = asking("s", "=", pa.scalar(accented))
    expected = sum(offset % 7 != 0 and offset % 2 == 0 for offset in range(60))
    assert matches(duck, table, f"s = '{accented}'", rows) == expected


def test_a_decimal_whose_truncation_fits_no_partition_is_named(lake: SparkLake) -> None:
    table = lake.create(
        0, columns=columns(n=pa.decimal128(9, 2)), partition_by=("truncate(10, n)",)
    )
    values = {"n": (decimal.Decimal("-9999999.99"), decimal.Decimal("1.00"))}
    with pytest.raises(BadBinding) as caught:
        tier(table, values, 20)
    assert caught.value.message == (
        f"{table.name}: a value at the end of its type decimal(9,2) has a truncation that is not of that type, so there "
        f"is no partition for its row; widen the column (ALTER TABLE ... ALTER COLUMN ... TYPE decimal(10,2)), or drop "
        f"the partition field (ALTER TABLE ... DROP PARTITION FIELD ...). Then the table is tiered again."
    )
    assert table.branches() == []
    table.sql("ALTER TABLE {t} ALTER COLUMN n TYPE decimal(10, 2)")
    tier(table, values, 20)
    assert rows_of(table) == 17


@pytest.mark.parametrize(
    "writer", [pytest.param({}, id="tasks"), pytest.param(BY_SPARK, id="spark")]
)
def test_a_partition_whose_folder_no_disk_takes_is_named(
    lake: SparkLake, writer: Mapping[str, str]
) -> None:
    table = lake.create(
        0, columns=columns(url=pa.string()), partition_by=("url",), properties=writer
    )
    values = {"url": ("https://example.org/" + "a" * 302, "short")}
    with pytest.raises(BadBinding) as caught:
        tier(table, values, 20)
    assert caught.value.message == (
        f"{table.name}: a value of partition field url makes a folder's name of 334 characters, more than the store takes, "
        f"as it will again; partition by truncate or bucket of the column instead (ALTER TABLE ... REPLACE PARTITION FIELD "
        f"... WITH truncate(16, ...)). Then the table is tiered again."
    )
    assert table.branches() == []
    table.sql("ALTER TABLE {t} REPLACE PARTITION FIELD url WITH truncate(16, url)")
    tier(table, values, 20)
    assert rows_of(table) == 17
