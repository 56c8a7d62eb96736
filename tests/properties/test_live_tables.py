"""Live tables as pyiceberg reads them, whatever moves underneath: each load equals the ledger at its cut."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

from connectors.iceberg.live.files import LiveFiles
from planner.binding import LIVE_CUT, Binding
from planner.errors import ColdStoreUnavailable, CutExpired, FederationError
from planner.live_pieces import MERGE, MOST
from planner.names import KAFKA_OFFSET, KAFKA_PARTITION
from planner.offsets import OffsetVector
from planner.time_travel import parse_cut
from planner.watermark import Watermark, format_watermark
from proxy.deadline import Deadline
from proxy.engine.running import give_way
from proxy.live.tables import LiveTables
from proxy.query.cut import FreshnessContract
from tests.doubles.log import MemoryLog, MemoryRecord
from tests.fixtures.cold import IcebergCold
from tests.harness.builders import FLOWS
from tests.harness.published import publish
from tests.harness.serving import SESSION, engine, forget, serve

BINDING = Binding("flows")
TTL_S = 100.0
LOADS = 100
PARTITIONS = 3

Place = tuple[int, int]


@dataclass
class Sea:
    """A real Iceberg table, a log in memory, live tables over both, and what was written."""

    cold: IcebergCold
    folder: Path
    log: MemoryLog = field(default_factory=MemoryLog)
    ledger: dict[Place, str] = field(default_factory=dict)
    now_s: float = 0.0
    #: What the table's snapshots hold, by id.
    covered: dict[int, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.topic_id = self.log.create_topic("flows", PARTITIONS)
        self.cold.create(first=self.mark([0] * PARTITIONS), binding=BINDING)
        self.covered[self.head] = [0] * PARTITIONS
        self.start()

    def mark(self, offsets: list[int], **changes: Any) -> Watermark:
        return Watermark(
            cluster_id="memory",
            topic="flows",
            topic_id=self.topic_id,
            next=OffsetVector.of(enumerate(offsets)),
            shape=BINDING.shape,
            run="sea",
            **changes,
        )

    @property
    def head(self) -> int:
        head = self.cold.table().metadata.current_snapshot_id
        assert head is not None
        return head

    def line(self) -> list[int]:
        """The head and its ancestors, the newest first."""
        metadata, line = self.cold.table().metadata, []
        at: int | None = self.head
        while at is not None and (snapshot := metadata.snapshot_by_id(at)) is not None:
            line.append(at)
            at = snapshot.parent_snapshot_id
        return line

    def start(self) -> None:
        """A new replica: it knows no pin, no tail and no file."""
        self.pins, self.tails, self.statements = serve(self.cold.store, self.log)
        self.files = LiveFiles(self.cold.store, {"lake": str(self.folder)}, ttl_s=TTL_S)
        self.live = LiveTables(
            pins=self.pins,
            cutter=self.statements.cutter,
            tails=self.tails,
            engine=engine(),
            grants=self.statements.grants,
            files=self.files,
            ttl_s=TTL_S,
            clock=lambda: self.now_s,
        )

    def stop(self) -> None:
        self.live.stop()
        forget(self.pins, self.tails)

    def produce(self, partition: int, host: str | None) -> None:
        value = None if host is None else json.dumps({"host": host, "bytes": 1}).encode()
        offset = self.log.append("flows", partition, MemoryRecord(value))
        if host is not None:
            self.ledger[partition, offset] = host

    def abort(self, partition: int) -> None:
        transaction = self.log.begin()
        transaction.append("flows", partition, MemoryRecord(b'{"host": "aborted"}'))
        transaction.abort()

    def ends(self) -> list[int]:
        bounds = self.log.measure(["flows"])["flows"]
        return [part.log_end for part in bounds.partitions]

    def tier(self, offsets: list[int]) -> None:
        before = self.covered[self.head]
        table = self.cold.table()
        names = table.schema().as_arrow()
        rows = [
            {KAFKA_PARTITION: partition, KAFKA_OFFSET: offset, names.names[3]: host, "bytes": 1}
            for (partition, offset), host in sorted(self.ledger.items())
            if before[partition] <= offset < offsets[partition]
        ]
        mark = self.mark(offsets, prev_snapshot_id=self.head)
        publish(table, pa.Table.from_pylist(rows, names), format_watermark(mark))
        self.covered[self.head] = offsets

    def compact(self) -> None:
        before = self.covered[self.head]
        if list(self.cold.table().scan().plan_files()):
            self.covered[self.cold.compact()] = before

    def load(self, **session: Any) -> tuple[dict[str, Any], StaticTable]:
        loaded = self.live.load(SESSION, FLOWS, Deadline(60))
        document = json.loads(loaded.metadata)
        return document, StaticTable.from_metadata(loaded.location)


def rows_of(table: StaticTable) -> dict[Place, str]:
    rows = table.scan().to_arrow()
    host = next(name for name in rows.column_names if name.startswith("host"))
    by_place: dict[Place, str] = {}
    for row in rows.to_pylist():
        place = row[KAFKA_PARTITION], row[KAFKA_OFFSET]
        assert place not in by_place, f"{place} is there twice"
        by_place[place] = row[host]
    return by_place


def expected(sea: Sea, document: dict[str, Any]) -> dict[Place, str]:
    (entry,) = parse_cut(document["properties"][LIVE_CUT]).tables
    assert entry.end is not None
    ends = entry.end.as_dict()
    return {
        place: host for place, host in sea.ledger.items() if place[1] < ends.get(place[0], 0)
    }


@pytest.fixture
def sea(iceberg: IcebergCold, tmp_path: Path) -> Iterator[Sea]:
    sea = Sea(iceberg, tmp_path / "live")
    yield sea
    sea.stop()


def story(sea: Sea, chance: random.Random, loads: int) -> None:
    """Move something, load, compare; again and again."""
    names = 0
    for number in range(loads):
        for _ in range(chance.randrange(4)):
            partition = chance.randrange(PARTITIONS)
            for _ in range(chance.randrange(6)):
                sea.produce(partition, chance.choice([f"h{number}", "", None]))
        move = chance.randrange(14)
        if move == 0:
            sea.abort(chance.randrange(PARTITIONS))
        elif move in (1, 2):
            low, high = sea.covered[sea.head], sea.ends()
            sea.tier([chance.randint(at, end) for at, end in zip(low, high, strict=True)])
        elif move == 3:
            sea.tier(sea.ends())
        elif move == 4:
            sea.compact()
        elif move == 5:
            sea.cold.add_column(f"added_{number}", pa.string())
        elif move == 6:
            names += 1
            old = sea.cold.table().schema().fields[3].name
            sea.cold.rename_column(old, f"host_{names}")
        elif move == 7:
            sea.stop()
            sea.start()
        elif move == 8:
            sea.cold.rollback(chance.choice(sea.line()[:4]))
        elif move == 9:
            sea.now_s += chance.choice([1.0, TTL_S / 2, TTL_S * 2])
            sea.live.tend()
        if chance.random() < 0.6:
            sea.pins.refresh(FLOWS)
        document, table = sea.load()
        assert rows_of(table) == expected(sea, document)


def test_each_load_equals_the_ledger_at_its_cut(
    sea: Sea, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "planner.live_pieces.MERGE", 4
    )  # there are few loads between two publishes
    monkeypatch.setattr("planner.live_pieces._LEAST", 2)
    story(sea, random.Random(os.environ.get("THERMOCLINE_SEED", "live")), LOADS)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
def test_each_of_a_thousand_loads_equals_the_ledger(sea: Sea, seed: int) -> None:
    story(sea, random.Random(seed), LOADS)


def test_a_load_writes_only_what_came_since_the_last(sea: Sea) -> None:
    for _ in range(5):
        sea.produce(0, "a")
    sea.load()
    before = set(sea.folder.rglob("*.parquet"))
    sea.produce(1, "b")
    _, table = sea.load()
    (new,) = set(sea.folder.rglob("*.parquet")) - before
    (task,) = [t for t in table.scan().plan_files() if t.file.file_path == str(new)]
    assert task.file.record_count == 1
    sea.load()
    assert set(sea.folder.rglob("*.parquet")) == before | {new}


def test_rows_are_written_by_a_thread_that_may_lose_its_priority(
    sea: Sea, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What takes long in the engine gives way from then on (``proxy.engine.running``): a caller's thread would for good."""
    write, niceness = sea.files.write_piece, list[int]()

    def slow(*arguments: Any) -> Any:
        give_way(threading.get_native_id())
        niceness.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        return write(*arguments)

    own = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    monkeypatch.setattr(sea.files, "write_piece", slow)
    for _ in range(2):
        sea.produce(0, "a")
        sea.load()
        assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == own
    assert len(niceness) == 2


def test_a_load_of_another_kind_does_not_write_the_tail_again(sea: Sea) -> None:
    for _ in range(5):
        sea.produce(0, "a")
    document, _ = sea.load()
    before = set(sea.folder.rglob("*.parquet"))
    text = document["properties"][LIVE_CUT]
    cut = sea.live.load(replace(SESSION, cut=text), FLOWS, Deadline(60))
    assert json.loads(cut.metadata) == document
    sea.live.load(replace(SESSION, freshness="cold"), FLOWS, Deadline(60))
    sea.produce(0, "b")
    newer, table = sea.load()
    assert len(set(sea.folder.rglob("*.parquet")) - before) == 1
    assert rows_of(table) == expected(sea, newer)
    assert [task.file.record_count for task in table.scan().plan_files()].count(5) == 1
    # A new replica, asked for the cut alone.
    sea.stop()
    sea.start()
    cut = sea.live.load(replace(SESSION, cut=text), FLOWS, Deadline(60))
    assert rows_of(StaticTable.from_metadata(cut.location)) == expected(sea, document)


def test_loads_that_accept_an_older_answer_write_no_row_again(sea: Sea) -> None:
    stale = replace(SESSION, freshness="max_staleness 1h")
    for number in range(10):
        sea.produce(number % PARTITIONS, "a")
        sea.load()
        sea.produce(number % PARTITIONS, "b")
        sea.statements.cutter.cut_table(FLOWS, FreshnessContract(), Deadline(60))
        sea.produce(number % PARTITIONS, "c")
        sea.live.load(stale, FLOWS, Deadline(60))
    document, table = sea.load()
    assert rows_of(table) == expected(sea, document)
    written = sum(pq.read_metadata(file).num_rows for file in sea.folder.rglob("*.parquet"))
    assert written <= 2 * 30  # each row once, and once more where many files became one


@pytest.mark.parametrize("loses", ["a beat", "a load"])
def test_a_replica_whose_folder_was_removed_writes_anew(
    sea: Sea, monkeypatch: pytest.MonkeyPatch, loses: str
) -> None:
    sea.produce(0, "a")
    before, _ = sea.load()
    (own,) = sea.folder.iterdir()
    shutil.rmtree(own)
    if loses == "a beat":
        sea.live.tend()
    else:  # the process stood still: its first load comes before its beat
        folder = sea.files._folder("lake")
        monkeypatch.setattr(folder, "_clocks", lambda: (0.0, time.time() + TTL_S + 1))
    document, table = sea.load()
    assert rows_of(table) == expected(sea, document) == expected(sea, before)
    assert document["properties"][LIVE_CUT] == before["properties"][LIVE_CUT]
    (new,) = sea.folder.iterdir()
    assert new != own
    sea.live.tend()
    assert sea.load()[0] == document


def test_a_cut_whose_snapshot_is_expired_is_refused_by_name(sea: Sea) -> None:
    sea.produce(0, "a")
    cut = sea.load()[0]["properties"][LIVE_CUT]
    first = sea.head
    sea.produce(0, "b")
    sea.tier(sea.ends())
    sea.cold.expire(first)
    sea.pins.refresh(FLOWS)
    sea.stop()
    sea.start()  # else the answer of then is still good, with its files
    with pytest.raises(CutExpired, match="the cut"):
        sea.live.load(replace(SESSION, cut=cut), FLOWS, Deadline(60))


def test_who_waits_for_a_record_holds_no_other_load_up(sea: Sea) -> None:
    sea.produce(0, "a")
    waiting = replace(SESSION, wait_for="flows/0:1")
    with ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(sea.live.load, waiting, FLOWS, Deadline(60))
        time.sleep(0.2)
        try:
            sea.live.load(SESSION, FLOWS, Deadline(10))
            assert not waiter.done()
        finally:
            sea.produce(0, "b")
        loaded = waiter.result(60)
    rows = rows_of(StaticTable.from_metadata(loaded.location))
    assert rows == expected(sea, json.loads(loaded.metadata))
    assert len(rows) == 2


def test_there_are_few_files_however_often_it_is_loaded(sea: Sea) -> None:
    for _ in range(150):
        sea.produce(0, "a")
        document, table = sea.load()
    assert len(list(table.scan().plan_files())) <= MOST
    assert rows_of(table) == expected(sea, document)


def test_an_answer_stays_until_its_time_and_then_goes_with_its_files(sea: Sea) -> None:
    sea.produce(0, "a")
    first, table = sea.load()
    expected_rows = expected(sea, first)
    sea.tier(sea.ends())
    sea.pins.refresh(FLOWS)
    sea.load()
    sea.now_s += TTL_S - 1
    sea.live.tend()
    assert rows_of(table) == expected_rows
    sea.now_s += 2
    sea.live.tend()
    assert not list(sea.folder.rglob("*.parquet"))
    with pytest.raises(FileNotFoundError):
        rows_of(table)


def test_what_another_leader_wrote_at_the_same_offsets_is_read_again(sea: Sea) -> None:
    sea.produce(0, "old")
    sea.load()
    sea.log.truncate("flows", 0, 0)
    sea.ledger.clear()
    sea.produce(0, "new")
    document, table = sea.load()
    assert rows_of(table) == {(0, 0): "new"} == expected(sea, document)


def test_a_gap_is_refused_and_no_older_answer_is_told(sea: Sea) -> None:
    for _ in range(3):
        sea.produce(0, "a")
    sea.load()
    sea.log.delete_records("flows", 0, 2)
    with pytest.raises(FederationError, match="removed before they were tiered"):
        sea.load()


def test_a_folder_of_a_replica_that_is_gone_is_removed_and_that_of_a_live_one_stays(
    sea: Sea,
) -> None:
    sea.produce(0, "a")
    sea.load()
    (gone,) = sea.folder.iterdir()
    assert gone.stat().st_mode & 0o777 == 0o700
    sea.stop()
    sea.start()
    sea.load()
    sea.live.tend()
    assert gone.exists()
    beat = gone / "heartbeat"
    long_ago = beat.stat().st_mtime - 2 * TTL_S - 5
    os.utime(beat, (long_ago, long_ago))
    stranger = sea.folder / "not-ours"
    stranger.mkdir()
    sea.live.tend()
    assert not gone.exists()
    assert stranger.exists()
    assert len(list(sea.folder.iterdir())) == 2


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
    sea: Sea, small_disk: Path, cause: str
) -> None:
    sea.stop()
    sea.folder = small_disk / "live"
    sea.start()
    sea.produce(0, "a")
    document, _ = sea.load()
    (own,) = sea.folder.iterdir()
    for _ in range(50):
        sea.produce(1, "b" * 50)

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
            sea.load()
    assert sorted(own.rglob("*")) == before
    if cause == "full":
        (small_disk / "fill").unlink()
    else:
        with pytest.raises(ColdStoreUnavailable, match=reason):
            sea.live.tend()
        remount("rw")
    sea.live.tend()
    document, table = sea.load()
    assert rows_of(table) == expected(sea, document)
    sea.now_s += TTL_S + 1
    sea.live.tend()
    assert [path.name for path in own.rglob("*") if path.is_file()] == ["heartbeat"]


def test_what_was_written_for_an_answer_that_failed_is_removed(
    sea: Sea, monkeypatch: pytest.MonkeyPatch
) -> None:
    sea.produce(0, "a")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("connectors.iceberg.live.files.write_metadata", full)
        with pytest.raises(ColdStoreUnavailable):
            sea.load()
    left = [path for path in sea.folder.rglob("*") if path.suffix in (".avro", ".json")]
    assert not left
    document, table = sea.load()
    assert rows_of(table) == expected(sea, document)
    sea.now_s += TTL_S + 1
    sea.tier(sea.ends())
    sea.pins.refresh(FLOWS)
    sea.load()
    sea.now_s += TTL_S + 1
    sea.live.tend()
    assert not list(sea.folder.rglob("*.parquet"))


def sizes(sea: Sea) -> list[int]:
    return sorted(pq.read_metadata(file).num_rows for file in sea.folder.rglob("*.parquet"))


def test_many_small_files_become_one_after_the_answer_and_only_once(
    sea: Sea, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    write = sea.live._merging._writer.write

    def slow(*arguments: Any) -> Any:
        if threading.current_thread() is sea.live._merging._thread:
            begun.set()
            assert go_on.wait(60)
        return write(*arguments)

    monkeypatch.setattr(sea.live._writer, "write", slow)
    for _ in range(MERGE):
        sea.produce(0, "a")
        sea.load()
    assert begun.wait(60)
    assert sizes(sea) == [1] * MERGE
    # Loads go on, and begin no other.
    for _ in range(3):
        sea.produce(0, "a")
        _, table = sea.load()
        assert len(list(table.scan().plan_files())) <= MOST
    go_on.set()
    until = time.monotonic() + 60
    while sea.live._merging._tasks and time.monotonic() < until:
        time.sleep(0.01)
    assert sizes(sea) == [1] * (MERGE + 3) + [MERGE]
    sea.produce(0, "a")
    document, table = sea.load()
    counts = [task.file.record_count for task in table.scan().plan_files()]
    assert sorted(counts) == [1, 1, 1, 1, MERGE]
    assert rows_of(table) == expected(sea, document)
    time.sleep(0.2)
    assert sizes(sea) == [1] * (MERGE + 4) + [MERGE]


def test_a_merge_that_cannot_be_written_is_left_and_loads_go_on(
    sea: Sea, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = sea.live._writer.write

    def refuse(*arguments: Any) -> Any:
        if threading.current_thread() is sea.live._merging._thread:
            raise ColdStoreUnavailable("the disk is full.")
        return write(*arguments)

    monkeypatch.setattr(sea.live._writer, "write", refuse)
    for _ in range(MOST + 3):
        sea.produce(0, "a")
        document, table = sea.load()
        assert len(list(table.scan().plan_files())) <= MOST
    assert rows_of(table) == expected(sea, document)


def test_a_merge_of_what_was_tiered_meanwhile_is_not_used(sea: Sea) -> None:
    for _ in range(MERGE):
        sea.produce(0, "a")
        sea.load()
    sea.tier([MERGE // 2, 0, 0])
    sea.pins.refresh(FLOWS)
    document, table = sea.load()
    assert rows_of(table) == expected(sea, document)
    time.sleep(0.3)
    again, table = sea.load()
    assert again == document
    assert rows_of(table) == expected(sea, document)


def test_two_replicas_at_one_place_leave_each_other_alone(sea: Sea) -> None:
    sea.produce(0, "a")
    first, own = sea.load()
    pins, tails, statements = serve(sea.cold.store, sea.log)
    other = LiveTables(
        pins=pins,
        cutter=statements.cutter,
        tails=tails,
        engine=engine(),
        grants=statements.grants,
        files=LiveFiles(sea.cold.store, {"lake": str(sea.folder)}, ttl_s=TTL_S),
        ttl_s=TTL_S,
        clock=lambda: sea.now_s,
    )
    try:
        loaded = other.load(SESSION, FLOWS, Deadline(60))
        second, theirs = json.loads(loaded.metadata), StaticTable.from_metadata(loaded.location)
        assert second["properties"][LIVE_CUT] == first["properties"][LIVE_CUT]
        assert second["current-snapshot-id"] != first["current-snapshot-id"]
        assert rows_of(theirs) == rows_of(own) == expected(sea, first)
        # What one removes is its own.
        sea.now_s += TTL_S + 1
        other.load(SESSION, FLOWS, Deadline(60))
        sea.live.tend()
        other.tend()
        assert rows_of(theirs) == expected(sea, first)
        with pytest.raises(FileNotFoundError):
            rows_of(own)
        assert len(list(sea.folder.iterdir())) == 2
    finally:
        other.stop()
        forget(pins, tails)
