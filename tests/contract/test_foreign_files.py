"""Files that readers do not read, put into a bound table by others: named by both scans and by ``verify``."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _OverwriteFiles
from pyiceberg.types import LongType

from planner.errors import UnsupportedFile
from planner.reading.filters import Condition
from planner.seam.cut import ColdSlice
from tests.fixtures.cold import IcebergCold, cold_slice
from tests.fixtures.verification import Make
from tests.harness.builders import FLOWS

ROWS = [(0, offset, "a", 1) for offset in range(4)]


def rewritten_as(table: Table, kind: FileFormat) -> None:
    """Rewrite all rows, as a copy-on-write UPDATE under another ``write.format.default`` would."""
    with table.transaction() as transaction:
        producer = _OverwriteFiles(Operation.OVERWRITE, transaction, table.io)
        for task in table.scan().plan_files():
            producer.delete_data_file(task.file)
        for file in _dataframe_to_data_files(table.metadata, table.scan().to_arrow(), table.io):
            producer.append_data_file(_as(file, kind))
        producer.commit()


def _as(file: DataFile, kind: FileFormat) -> DataFile:
    names = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
    saved = {name: getattr(file, name) for name in (*names, "lower_bounds", "upper_bounds")}
    result = DataFile.from_args(
        content=file.content,
        file_path=file.file_path,
        file_format=kind,
        partition=file.partition,
        record_count=file.record_count,
        file_size_in_bytes=file.file_size_in_bytes,
        **saved,
    )
    result.spec_id = 0
    return result


@pytest.mark.parametrize("kind", [FileFormat.ORC, FileFormat.AVRO])
def test_our_own_list_names_files_of_another_format(
    iceberg: IcebergCold, kind: FileFormat
) -> None:
    iceberg.create()
    iceberg.tier(ROWS, 4, 0)
    rewritten_as(iceberg.table(), kind)
    pin = iceberg.store.pin(FLOWS)
    cold = cold_slice(pin)
    with pytest.raises(UnsupportedFile) as caught:
        iceberg.store.scan(cold)
    assert caught.value.message == (
        f"lake.net.flows: snapshot {pin.snapshot_id} has data files that are not read (1 {kind.name}), only Parquet is; "
        f"set write.format.default to parquet and rewrite them (CALL system.rewrite_data_files, options => "
        f"map('rewrite-all', 'true'))."
    )
    with pytest.raises(UnsupportedFile):
        iceberg.store.count_files(cold)
    # Files that a statement does not need do not matter to it.
    elsewhere = ((Condition("kafka_offset", ">", (pa.scalar(99, pa.int64()),)),),)
    iceberg.store.scan(cold, elsewhere)


@pytest.mark.parametrize("kind", [FileFormat.ORC, FileFormat.AVRO])
def test_the_extensions_scan_is_kept_from_files_of_another_format(
    iceberg: IcebergCold, kind: FileFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    iceberg.create()
    iceberg.tier(ROWS, 4, 0)
    rewritten_as(iceberg.table(), kind)
    # With more files than are listed, nothing is known of them before the scan.
    monkeypatch.setattr("connectors.iceberg.scan.planner.MAX_LISTED_FILES", 0)
    for _ in range(2):
        with pytest.raises(UnsupportedFile, match=rf"not read \(1 {kind.name}\)"):
            iceberg.store.scan(cold_slice(iceberg.store.pin(FLOWS)))


def test_verify_names_them(lake_of: Make) -> None:
    lake = lake_of()
    lake.produce(4)
    lake.tier()
    rewritten_as(lake.table(), FileFormat.ORC)
    with pytest.raises(UnsupportedFile, match=r"net\.flows: snapshot \d+ has data files"):
        lake.verify()


def test_manifests_of_a_codec_that_the_extension_does_not_know_never_reach_it(
    iceberg: IcebergCold, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if it did not know the one that all use."""
    iceberg.create()
    iceberg.tier(ROWS, 4, 0)
    cold: ColdSlice = cold_slice(iceberg.store.pin(FLOWS))
    with monkeypatch.context() as few:
        few.setattr("connectors.iceberg.scan.planner.MAX_LISTED_FILES", 0)
        few.setattr("connectors.iceberg.scan.extension_support._CODECS", frozenset({"null"}))
        with pytest.raises(UnsupportedFile, match=r"manifests of codec deflate, .* to gzip"):
            iceberg.store.scan(cold)
    assert iceberg.read(cold).num_rows == len(ROWS)


def test_a_widened_partition_column_is_read_and_resolved(iceberg: IcebergCold) -> None:
    iceberg.create()
    iceberg.tier(ROWS, 4, 0)
    iceberg.widen_column("kafka_partition")
    # Rewritten, the bounds take eight bytes where those of older files take four.
    iceberg.update(2, "b")
    iceberg.delete(3)
    pin = iceberg.store.pin(FLOWS)
    assert pin.watermark is not None
    assert pin.watermark.next.as_dict() == {0: 4, 1: 0}
    iceberg.tier([(1, 0, "c", 1)], 4, 1)
    rows = iceberg.read(cold_slice(iceberg.store.pin(FLOWS)))
    assert rows.schema.field("kafka_partition").type == pa.int64()
    places = zip(
        *(rows[name].to_pylist() for name in ("kafka_partition", "kafka_offset")), strict=True
    )
    assert sorted(places) == [(0, 0), (0, 1), (0, 2), (1, 0)]


def test_verify_goes_on_over_a_widened_partition_column(lake_of: Make) -> None:
    lake = lake_of(partitions=2)
    lake.produce(4)
    lake.tier()
    with lake.table().update_schema() as update:
        update.update_column("kafka_partition", LongType())
    lake.produce(3, partition=1)
    lake.tier()
    lake.update(3, host="changed")
    report = lake.verify()
    assert not report.findings, report.findings
    assert sum(len(value.compared) for value in report.coverage) == 7
