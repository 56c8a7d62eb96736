"""A replica's folder, and the snapshot that nobody commits: written, and read back with pyiceberg."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from datetime import timedelta
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import read_manifest_list
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField

from connectors.iceberg.live.files import LiveFiles
from connectors.iceberg.live.folder import LiveFolder, LostFolder
from connectors.iceberg.live.manifests import (
    EncodedFile,
    NewSnapshot,
    WrittenSnapshot,
    encode_file,
    pinned_manifests,
    write_metadata,
    write_snapshot,
)
from connectors.iceberg.live.parquet import write_data_file
from connectors.iceberg.store import IcebergStore
from planner.errors import BadConfig, ColdStoreUnavailable, UnsupportedFile
from planner.names import TableName

TTL_S = 10.0
SCHEMA = Schema(
    NestedField(1, "kafka_partition", IntegerType()), NestedField(2, "kafka_offset", LongType())
)
ARROW = pa.schema(
    [
        pa.field("kafka_partition", pa.int32(), metadata={"PARQUET:field_id": "1"}),
        pa.field("kafka_offset", pa.int64(), metadata={"PARQUET:field_id": "2"}),
    ]
)


def folder(at: Path) -> LiveFolder:
    return LiveFolder(PyArrowFileIO(), str(at), TTL_S)


def test_a_folder_is_its_owners_and_no_path_comes_twice(tmp_path: Path) -> None:
    own = folder(tmp_path / "deep" / "live")
    assert not own.is_made
    paths = {own.output("t", ".parquet").location for _ in range(5)}
    assert len(paths) == 5
    made = Path(own.location)
    assert made.stat().st_mode & 0o777 == made.parent.stat().st_mode & 0o777 == 0o700
    assert (made / "heartbeat").read_bytes() == b"alive"


def test_what_did_not_end_well_leaves_no_file(tmp_path: Path) -> None:
    own = folder(tmp_path)
    paths: list[str] = []

    def fail() -> None:
        for _ in range(2):
            output = own.output("t", ".avro")
            paths.append(output.location)
            with output.create() as stream:
                stream.write(b"half")
        paths.append(own.output("t", ".json").location)  # never written
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), own.undoing(paths):
        fail()
    assert [path.name for path in Path(own.location).rglob("*") if path.is_file()] == [
        "heartbeat"
    ]


def test_only_folders_whose_beat_is_old_are_removed(tmp_path: Path) -> None:
    own, alive, gone, silent, starting = (folder(tmp_path) for _ in range(5))
    for other in (own, alive, gone, silent, starting):
        other.make()
    (tmp_path / "stranger").mkdir()
    (tmp_path / "file").write_text("")
    long_ago = own.beat().timestamp() - 2 * TTL_S - 1
    os.utime(f"{gone.location}/heartbeat", (long_ago, long_ago))
    Path(silent.location, "heartbeat").unlink()  # holds nothing at all
    os.utime(silent.location, (long_ago, long_ago))
    Path(starting.location, "heartbeat").rename(f"{starting.location}/first.parquet")
    now = own.beat()
    assert own.sweep(now) == 2
    assert {path.name for path in tmp_path.iterdir()} == {
        *(Path(item.location).name for item in (own, alive, starting)),
        "stranger",
        "file",
    }
    assert own.sweep(now + timedelta(seconds=2 * TTL_S + 1)) == 2
    assert Path(own.location).exists()


def test_a_folder_that_others_may_have_removed_is_left(tmp_path: Path) -> None:
    now_s = [0.0]
    own = LiveFolder(PyArrowFileIO(), str(tmp_path), TTL_S, lambda: (0.0, now_s[0]))
    own.check()  # there is none yet
    own.make()
    beat = Path(own.location, "heartbeat")
    first = own.beat().timestamp()

    def written(seconds: float) -> None:
        """Have the last beat be so old, by the store and by a clock of ours."""
        own._last = (own.beat() - timedelta(seconds=seconds), own._clocks())
        now_s[0] += seconds
        own.check()

    written(TTL_S)  # not late yet: nothing is asked of the store
    written(2 * TTL_S - 1)
    assert beat.stat().st_mtime > first
    with pytest.raises(LostFolder):
        written(2 * TTL_S + 1)
    with pytest.raises(LostFolder):
        own.beat()
    removed = folder(tmp_path)
    removed.make()
    shutil.rmtree(removed.location)
    with pytest.raises(LostFolder):
        removed.beat()
    assert not Path(removed.location).exists()


def test_what_was_written_before_a_folder_was_lost_is_not_used_again(tmp_path: Path) -> None:
    store = IcebergStore({"lake": {"type": "in-memory"}})
    files = LiveFiles(store, {"lake": str(tmp_path)}, ttl_s=TTL_S)
    first = files.replica("lake")
    assert files.replica("lake") == first
    assert files.replica("sea") == ""  # a catalog without a place
    own = files._folder("lake")
    own.make()
    files._encoded[f"{own.location}/t/a.parquet"] = EncodedFile(b"", 1, 1)
    shutil.rmtree(own.location)
    files.tend()
    assert files.replica("lake") != first
    assert not files._encoded
    assert not Path(own.location).exists()


def test_a_place_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadConfig, match="live_location cannot be written"):
        folder(tmp_path / "file" / "live").make()
    own = folder(tmp_path)
    own.location = str(tmp_path / "file" / "x")
    with pytest.raises(ColdStoreUnavailable, match="live_location"):
        own.beat()


def test_a_snapshot_lists_its_files_before_the_pinned_manifests(tmp_path: Path) -> None:
    io = PyArrowFileIO()
    rows = pa.RecordBatch.from_pydict(
        {"kafka_partition": [0, 0], "kafka_offset": [4, 5]}, ARROW
    )
    written = write_data_file(
        io.new_output(f"{tmp_path}/a.parquet"), SCHEMA, ARROW, [rows], properties={}
    )
    assert written is not None

    def snapshot(
        number: int,
        parent: int | None,
        pinned: tuple[object, ...],
        first_row_id: int | None = None,
    ) -> WrittenSnapshot:
        return write_snapshot(
            io.new_output(f"{tmp_path}/{number}-m.avro"),
            io.new_output(f"{tmp_path}/{number}-list.avro"),
            NewSnapshot(
                version=2 if first_row_id is None else 3,
                schema=SCHEMA,
                spec_id=2,
                snapshot_id=number,
                parent_id=parent,
                sequence_number=number,
                first_row_id=first_row_id,
            ),
            files=[encode_file(written.data_file)],
            pinned=pinned,  # type: ignore[arg-type]
        )

    first = pinned_manifests(io, snapshot(7, None, ()).manifest_list)
    both = list(read_manifest_list(io.new_input(snapshot(8, 7, first).manifest_list)))
    assert [manifest.sequence_number for manifest in both] == [8, 7]
    assert both[1:] == list(first)
    (entry,) = both[0].fetch_manifest_entry(io)
    assert (entry.snapshot_id, entry.data_file.record_count, both[0].partition_spec_id) == (
        8,
        2,
        2,
    )
    assert entry.data_file.lower_bounds == written.data_file.lower_bounds
    assert entry.data_file.file_path == written.data_file.file_path
    # Version 3: rows without ids get some, and those that have theirs keep them.
    third = snapshot(9, 8, (), first_row_id=100)
    lists = pinned_manifests(io, third.manifest_list)
    fourth = snapshot(10, 9, (*lists, *first), first_row_id=102)
    ids = [manifest[15] for manifest in pinned_manifests(io, fourth.manifest_list)]
    assert (third.row_ids, fourth.row_ids, ids) == (2, 4, [102, 100, 104])
    assert [manifest[15] for manifest in first] == [None]
    (entry,) = lists[0].fetch_manifest_entry(io)
    assert (entry.sequence_number, entry.data_file.record_count) == (9, 2)
    raw = write_metadata(io.new_output(f"{tmp_path}/m.json"), {"location": "x", "a": 1})
    assert raw == b'{"location":"x","a":1}'
    assert json.loads((tmp_path / "m.json").read_bytes()) == {"location": str(tmp_path), "a": 1}


def test_a_catalog_without_a_place_is_told_so(tmp_path: Path) -> None:
    files = LiveFiles(cast("IcebergStore", None), {}, ttl_s=TTL_S)
    with pytest.raises(BadConfig, match="set iceberg_rest"):
        files.remove("lake", ["x"])
    files.tend()


def test_a_table_without_a_topic_is_answered_as_of_its_cut(tmp_path: Path) -> None:
    options = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/c.db",
        "warehouse": f"{tmp_path}/wh",
    }
    with contextlib.closing(load_catalog("lake", **options)) as catalog:
        catalog.create_namespace("net")
        table = catalog.create_table("net.plain", pa.schema([("id", pa.int64())]))
        table.append(pa.table({"id": [1]}))
        store = IcebergStore({"lake": options})
        files = LiveFiles(store, {"lake": f"{tmp_path}/wh-live"}, ttl_s=TTL_S)
        name = TableName("lake", ("net",), "plain")
        first = store.pin(name)
        table.append(pa.table({"id": [2]}))
    newest = store.pin(name)
    assert first.snapshot_id is not None
    passed = files.plain(newest, "now")
    assert (passed.location, passed.paths) == (newest.metadata_location, ())
    past = files.plain(store.pin_version(newest, first.snapshot_id), "then")
    assert past.paths == (past.location,)
    # ClickHouse reads the file alone, and looks for paths below its ``location`` in the file's own folder.
    folder, _, file_name = past.location.rpartition("/")
    assert json.loads(Path(past.location).read_bytes())["location"] == folder
    assert re.fullmatch(r"[0-9]+-[0-9a-f]+\.metadata\.json", file_name)
    assert json.loads(past.raw)["location"] == past.table_location == f"{tmp_path}/wh/net/plain"
    assert files.read("lake", past.location, past.table_location) == past.raw
    assert StaticTable.from_metadata(past.location).scan().to_arrow()["id"].to_pylist() == [1]
    store.close()


def test_a_partition_field_that_a_reader_may_not_survive_is_in_no_answer(
    tmp_path: Path,
) -> None:
    options = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/c.db",
        "warehouse": f"{tmp_path}/wh",
    }
    with contextlib.closing(load_catalog("lake", **options)) as catalog:
        catalog.create_namespace("net")
        table = catalog.create_table("net.plain", pa.schema([("id", pa.int64())]))
        with table.update_spec() as update:
            update.add_field("id", IdentityTransform(), "the id")
    with contextlib.closing(IcebergStore({"lake": options})) as store:
        files = LiveFiles(store, {"lake": f"{tmp_path}/wh-live"}, ttl_s=TTL_S)
        pin = store.pin(TableName("lake", ("net",), "plain"))
        for answer in (
            lambda: files.plain(pin, "now"),
            lambda: files.write_table(pin, (), "now"),
        ):
            with pytest.raises(
                UnsupportedFile, match=r"^lake\.net\.plain: its partition field 1000"
            ):
                answer()
