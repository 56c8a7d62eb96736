"""Files of a tail, and times and waits of a cut in Spark."""

from __future__ import annotations

import datetime as dt
import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connectors.spark.lake import tail
from connectors.spark.lake.lake import _microseconds
from connectors.spark.session_check import missing_conf
from planner.errors import BadConfig, BadParameter


def batch(*values: float) -> pa.RecordBatch:
    return pa.record_batch({"load": pa.array(values, pa.float64())})


def test_a_tail_is_written_without_statistics(tmp_path: Path) -> None:
    """Bounds leave NaN out, which is the largest number to Spark."""
    (file,) = tail._written([batch(1.0, math.nan), batch(-0.0)], tmp_path / "a")
    written = pq.ParquetFile(file)
    column = written.metadata.row_group(0).column(0)
    assert (column.statistics, column.has_dictionary_page) == (None, False)
    assert [str(value) for value in written.read()["load"].to_pylist()] == [
        "1.0",
        "nan",
        "-0.0",
    ]


def test_a_large_tail_is_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "_FILE_ROWS", 4)
    files = tail._written([batch(n, n + 0.5) for n in range(5)], tmp_path / "a")
    values = [value for file in files for value in pq.read_table(file)["load"].to_pylist()]
    assert len(files) == 3
    assert values == [n / 2 for n in range(10)]


def test_a_folder_that_takes_nothing_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="temporary folder does not take the tail"):
        tail._written([batch(1.0)], tmp_path / "missing" / "a")


def test_times_without_a_zone_are_utc() -> None:
    zone = dt.timezone(dt.timedelta(hours=1))
    assert _microseconds("1970-01-01T00:00:01") == 1_000_000
    assert _microseconds(dt.datetime(1970, 1, 1, 1, 0, 1, tzinfo=zone)) == 1_000_000
    with pytest.raises(BadParameter, match="is no time"):
        _microseconds("soon")


def test_the_configuration_that_is_missing_keeps_secrets() -> None:
    lines = missing_conf(
        "lake", {"type": "rest", "uri": "https://catalog.example.com", "credential": "a:hush"}
    )
    assert "spark.sql.catalog.lake.uri=https://catalog.example.com" in lines
    assert "spark.sql.catalog.lake.credential=…" in lines
