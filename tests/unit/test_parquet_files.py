"""Files that a task writes by itself; against Iceberg's own in ``integration/test_parquet_by_tasks.py``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import LocalFileSystem

from connectors.spark.publish.data_folder import TableFolder
from connectors.spark.publish.parquet_files import ParquetFile, TableFiles
from planner.tiering.write_plan import ParquetOptions, PartitionColumn

SCHEMA = pa.schema(
    [
        pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})
        for number, (name, kind) in enumerate(
            {"id": pa.int64(), "host": pa.string(), "ratio": pa.float64()}.items(), 1
        )
    ]
)
OPTIONS = ParquetOptions("zstd", 3, 1 << 27, 1 << 20, 20_000, 1 << 21, 1 << 29, ())
BY_HOST = replace(OPTIONS, partitions=(PartitionColumn("host", 1, "identity", is_date=False),))


def rows(start: int, count: int, hosts: int = 3) -> pa.RecordBatch:
    numbers = range(start, start + count)
    return pa.record_batch(
        [
            pa.array(numbers, pa.int64()),
            pa.array([f"h{number % hosts}" for number in numbers]),
            pa.array([float("nan") if number % 10 == 0 else 0.5 for number in numbers]),
        ],
        schema=SCHEMA,
    )


def table_files(folder: Path, options: ParquetOptions) -> TableFiles:
    place = TableFolder(f"file:{folder}", str(folder), LocalFileSystem)
    return TableFiles(place, SCHEMA, options, name="00000-run")


def ids(files: tuple[ParquetFile, ...]) -> list[int]:
    return sorted(
        number
        for file in files
        for number in pq.read_table(file.location.removeprefix("file:"))["id"].to_pylist()
    )


def test_all_rows_are_in_one_file(tmp_path: Path) -> None:
    with table_files(tmp_path / "new", OPTIONS) as files:
        for start in range(0, 1_000, 100):
            files.write(rows(start, 100))
        written = files.close()
    [file] = written
    path = Path(file.location.removeprefix("file:"))
    assert path.parent == tmp_path / "new"
    assert path.stat().st_size == file.size_bytes
    assert (file.rows, file.partition, file.split_offsets) == (1_000, (), (4,))
    assert (file.nans, file.unbounded) == (((3, 100),), ())
    assert ids(written) == list(range(1_000))


def test_columns_without_statistics_have_none_and_no_bounds(tmp_path: Path) -> None:
    with table_files(tmp_path, replace(OPTIONS, without_statistics=frozenset({1}))) as files:
        files.write(rows(0, 100))
        [file] = files.close()
    group = pq.read_metadata(file.location.removeprefix("file:")).row_group(0)
    columns = [group.column(at) for at in range(group.num_columns)]
    assert [bool(column.statistics) for column in columns] == [False, True, True]
    assert file.unbounded == (1,)


def test_a_task_without_rows_makes_no_file(tmp_path: Path) -> None:
    with table_files(tmp_path / "new", OPTIONS) as files:
        files.write(rows(0, 0))
        assert files.close() == ()
    assert not (tmp_path / "new").exists()


def test_a_file_that_has_its_size_is_followed_by_another(tmp_path: Path) -> None:
    small = replace(OPTIONS, group_bytes=1_000, target_file_bytes=1_500)
    with table_files(tmp_path, small) as files:
        for start in range(0, 2_000, 100):
            files.write(rows(start, 100))
        written = files.close()
    assert len(written) > 2
    assert all(file.size_bytes < 5_000 for file in written)
    assert ids(written) == list(range(2_000))


def test_a_row_group_has_no_more_bytes_than_the_table_allows(tmp_path: Path) -> None:
    with table_files(tmp_path, replace(OPTIONS, group_bytes=1_000)) as files:
        for start in range(0, 500, 100):
            files.write(rows(start, 100))
        [file] = files.close()
    footer = pq.read_metadata(file.location.removeprefix("file:"))
    assert footer.num_row_groups == len(file.split_offsets) == 5
    assert list(file.split_offsets) == sorted(file.split_offsets)


def test_each_partition_has_a_file(tmp_path: Path) -> None:
    with table_files(tmp_path, BY_HOST) as files:
        for start in range(0, 600, 100):
            files.write(rows(start, 100))
        written = files.close()
    assert sorted(file.partition for file in written) == [("h0",), ("h1",), ("h2",)]
    assert {Path(file.location).parent.name for file in written} == {
        "host=h0",
        "host=h1",
        "host=h2",
    }
    assert ids(written) == list(range(600))


def test_files_of_more_partitions_than_may_be_open_are_closed_and_made_again(
    tmp_path: Path,
) -> None:
    with table_files(tmp_path, BY_HOST) as files:
        for start in (0, 100):
            files.write(rows(start, 100, hosts=100))
        written = files.close()
    # The last 64 of the first hundred were open still.
    assert len(written) == 136
    assert ids(written) == list(range(200))


def test_many_partitions_together_gather_no_more_than_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.spark.publish.parquet_files._GATHERED_BYTES", 5_000)
    with table_files(tmp_path, BY_HOST) as files:
        for start in range(0, 1_000, 100):
            files.write(rows(start, 100))
        written = files.close()
    assert len(written) == 3
    assert sum(len(file.split_offsets) for file in written) > 3
    assert ids(written) == list(range(1_000))


def test_an_error_leaves_no_file(tmp_path: Path) -> None:
    def fail() -> None:
        with table_files(tmp_path, replace(BY_HOST, group_bytes=1)) as files:
            files.write(rows(0, 100))
            files.write(rows(100, 100))
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_what_cannot_be_written_is_an_error_of_the_file_system(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with table_files(tmp_path / "file", OPTIONS) as files:
        files.write(rows(0, 10))
        with pytest.raises(OSError, match="file"):
            files.close()


def test_columns_of_different_values_have_no_dictionary(tmp_path: Path) -> None:
    with table_files(tmp_path, OPTIONS) as files:
        files.write(rows(0, 1_000))
        [file] = files.close()
    group = pq.read_metadata(file.location.removeprefix("file:")).row_group(0)
    encoded = {
        group.column(index).path_in_schema: group.column(index).has_dictionary_page
        for index in range(3)
    }
    assert encoded == {"id": False, "host": True, "ratio": True}


def test_a_column_whose_bounds_a_footer_leaves_out_is_reported(tmp_path: Path) -> None:
    long = rows(0, 10).set_column(1, SCHEMA.field(1), pa.array(["a" * 5_000] + ["b"] * 9))
    nothing = rows(10, 10).set_column(1, SCHEMA.field(1), pa.nulls(10, pa.string()))
    for batch, unbounded in ((long, (2,)), (nothing, ())):
        with table_files(tmp_path, OPTIONS) as files:
            files.write(batch)
            [file] = files.close()
        assert file.unbounded == unbounded
