"""Live files on their disk: how long they stay, who removes them, and what a full disk does."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

from connectors.iceberg.live.files import LiveFiles
from planner.errors import ColdStoreUnavailable
from planner.live.tiling import MERGE, MOST
from planner.seam.binding import LIVE_CUT
from proxy.live.merging import MergeTask
from proxy.live.tables import LiveTables
from proxy.session import Deadline
from tests.harness.builders import FLOWS
from tests.harness.sea import TTL_S, Sea, expected, rows_of
from tests.harness.serving import SESSION, forget, serve


@pytest.mark.parametrize("loses", ["a beat", "a load"])
def test_a_replica_whose_folder_was_removed_writes_anew(
    live_harness: Sea, monkeypatch: pytest.MonkeyPatch, loses: str
) -> None:
    live_harness.produce(0, "a")
    before, _ = live_harness.load()
    (own,) = live_harness.folder.iterdir()
    shutil.rmtree(own)
    if loses == "a beat":
        live_harness.live.tend()
    else:  # the process stood still: its first load comes before its beat
        folder = live_harness.files._folder("lake")
        monkeypatch.setattr(folder, "_clocks", lambda: (0.0, time.time() + TTL_S + 1))
    document, table = live_harness.load()
    assert rows_of(table) == expected(live_harness, document) == expected(live_harness, before)
    assert document["properties"][LIVE_CUT] == before["properties"][LIVE_CUT]
    (new,) = live_harness.folder.iterdir()
    assert new != own
    live_harness.live.tend()
    assert live_harness.load()[0] == document


def test_an_answer_stays_until_its_time_and_then_goes_with_its_files(live_harness: Sea) -> None:
    live_harness.produce(0, "a")
    first, table = live_harness.load()
    expected_rows = expected(live_harness, first)
    live_harness.tier(live_harness.ends())
    live_harness.pins.refresh(FLOWS)
    live_harness.load()
    live_harness.now_s += TTL_S - 1
    live_harness.live.tend()
    assert rows_of(table) == expected_rows
    live_harness.now_s += 2
    live_harness.live.tend()
    assert not list(live_harness.folder.rglob("*.parquet"))
    with pytest.raises(FileNotFoundError):
        rows_of(table)


def test_an_answer_goes_with_the_grace_of_its_table(live_harness: Sea) -> None:
    live_harness.cold.set_properties(**{"maintain.pin_grace_s": "2"})
    live_harness.pins.refresh(FLOWS)
    live_harness.produce(0, "a")
    live_harness.load()
    live_harness.tier(live_harness.ends())
    live_harness.pins.refresh(FLOWS)
    live_harness.load()
    assert TTL_S > 3
    for passed_s, stays in ((1, True), (2, False)):
        live_harness.now_s += passed_s
        live_harness.live.tend()
        assert any(live_harness.folder.rglob("*.parquet")) == stays


def test_a_folder_of_a_replica_that_is_gone_is_removed_and_that_of_a_live_one_stays(
    live_harness: Sea,
) -> None:
    live_harness.produce(0, "a")
    live_harness.load()
    (gone,) = live_harness.folder.iterdir()
    assert gone.stat().st_mode & 0o777 == 0o700
    live_harness.stop()
    live_harness.start()
    live_harness.load()
    live_harness.live.tend()
    assert gone.exists()
    beat = gone / "heartbeat"
    long_ago = beat.stat().st_mtime - 2 * TTL_S - 5
    os.utime(beat, (long_ago, long_ago))
    stranger = live_harness.folder / "not-ours"
    stranger.mkdir()
    live_harness.live.tend()
    assert not gone.exists()
    assert stranger.exists()
    assert len(list(live_harness.folder.iterdir())) == 2


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with little room."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this user may mount nothing")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("cause", ["full", "read-only"])
def test_a_disk_that_takes_no_file_is_named_and_nothing_is_left(
    live_harness: Sea, small_disk: Path, cause: str
) -> None:
    live_harness.stop()
    live_harness.folder = small_disk / "live"
    live_harness.start()
    live_harness.produce(0, "a")
    document, _ = live_harness.load()
    (own,) = live_harness.folder.iterdir()
    for _ in range(50):
        live_harness.produce(1, "b" * 50)

    def remount(options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", str(small_disk)], check=True)

    before = sorted(own.rglob("*"))
    if cause == "full":
        with contextlib.suppress(OSError), (small_disk / "fill").open("wb", 0) as fill:
            while True:
                fill.write(b"x" * 512)
        reason = "No space left on device"
    else:
        remount("ro")
        reason = "Read-only file system"
    for _ in range(3):
        with pytest.raises(ColdStoreUnavailable, match=f"cannot be written: {reason}; make"):
            live_harness.load()
    assert sorted(own.rglob("*")) == before
    if cause == "full":
        (small_disk / "fill").unlink()
    else:
        with pytest.raises(ColdStoreUnavailable, match=reason):
            live_harness.live.tend()
        remount("rw")
    live_harness.live.tend()
    document, table = live_harness.load()
    assert rows_of(table) == expected(live_harness, document)
    live_harness.now_s += TTL_S + 1
    live_harness.live.tend()
    assert [path.name for path in own.rglob("*") if path.is_file()] == ["heartbeat"]


def test_what_was_written_for_an_answer_that_failed_is_removed(
    live_harness: Sea, monkeypatch: pytest.MonkeyPatch
) -> None:
    live_harness.produce(0, "a")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("connectors.iceberg.live.files.write_metadata", full)
        with pytest.raises(ColdStoreUnavailable):
            live_harness.load()
    left = [
        path for path in live_harness.folder.rglob("*") if path.suffix in (".avro", ".json")
    ]
    assert not left
    document, table = live_harness.load()
    assert rows_of(table) == expected(live_harness, document)
    live_harness.now_s += TTL_S + 1
    live_harness.tier(live_harness.ends())
    live_harness.pins.refresh(FLOWS)
    live_harness.load()
    live_harness.now_s += TTL_S + 1
    live_harness.live.tend()
    assert not list(live_harness.folder.rglob("*.parquet"))


def test_two_replicas_at_one_place_leave_each_other_alone(live_harness: Sea) -> None:
    live_harness.produce(0, "a")
    first, own = live_harness.load()
    pins, tails, statements = serve(live_harness.cold.store, live_harness.log)
    other = LiveTables(
        statements,
        LiveFiles(live_harness.cold.store, {"lake": str(live_harness.folder)}, ttl_s=TTL_S),
        ttl_s=TTL_S,
        clock=lambda: live_harness.now_s,
    )
    try:
        loaded = other.load(SESSION, FLOWS, Deadline(60))
        second, theirs = json.loads(loaded.metadata), StaticTable.from_metadata(loaded.location)
        assert second["properties"][LIVE_CUT] == first["properties"][LIVE_CUT]
        assert second["current-snapshot-id"] != first["current-snapshot-id"]
        assert rows_of(theirs) == rows_of(own) == expected(live_harness, first)
        # What one removes is its own.
        live_harness.now_s += TTL_S + 1
        other.load(SESSION, FLOWS, Deadline(60))
        live_harness.live.tend()
        other.tend()
        assert rows_of(theirs) == expected(live_harness, first)
        with pytest.raises(FileNotFoundError):
            rows_of(own)
        assert len(list(live_harness.folder.iterdir())) == 2
    finally:
        other.stop()
        forget(pins, tails)


@pytest.mark.parametrize("is_patient", [True, False])
def test_a_load_waits_for_what_is_being_merged_and_does_not_merge_it_again(
    live_harness: Sea, monkeypatch: pytest.MonkeyPatch, is_patient: bool
) -> None:
    merging, proceed = live_harness.live._merging, threading.Event()
    work = merging._work

    def later(task: MergeTask) -> None:
        assert proceed.wait(60)
        work(task)

    monkeypatch.setattr(merging, "_work", later)
    if not is_patient:
        monkeypatch.setattr("proxy.live.tables._MERGE_WAIT_S", 0.05)
    for number in range(MOST):
        live_harness.produce(0, f"host {number}")
        document, table = live_harness.load()
    assert len(list(table.scan().plan_files())) == MOST
    live_harness.produce(0, "newest")
    loaded: list[tuple[dict[str, object], StaticTable]] = []
    loading = threading.Thread(target=lambda: loaded.append(live_harness.load()))
    loading.start()
    if is_patient:
        loading.join(0.5)
        assert loading.is_alive()
        proceed.set()
    loading.join(60)
    proceed.set()
    [(document, table)] = loaded
    assert rows_of(table) == expected(live_harness, document)
    assert len(rows_of(table)) == MOST + 1
    merging.wait(live_harness.live._answers_of(FLOWS), Deadline(60), 60)
    written = [
        pq.read_metadata(file).num_rows for file in live_harness.folder.rglob("*.parquet")
    ]
    # One file for each load; beside them what was merged, once. Who does not wait has merged all there was by himself.
    large = sorted(rows for rows in written if rows > 1)
    assert large == ([MERGE] if is_patient else [MOST + 1])
