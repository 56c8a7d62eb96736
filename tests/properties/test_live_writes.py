"""Which files a load writes: what came since the last one, and few."""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import replace
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

from planner.errors import ColdStoreUnavailable
from planner.live.tiling import MERGE, MOST
from planner.repairs import skip_record
from planner.seam.binding import LIVE_CUT
from planner.seam.watermark import Skip, format_watermark
from proxy.engine.running import give_way
from proxy.query.cut import FreshnessContract
from proxy.session import Deadline
from tests.harness.builders import FLOWS
from tests.harness.sea import PARTITIONS, TTL_S, Sea, expected, rows_of
from tests.harness.serving import SESSION


def test_a_load_writes_only_what_came_since_the_last(live_harness: Sea) -> None:
    for _ in range(5):
        live_harness.produce(0, "a")
    live_harness.load()
    before = set(live_harness.folder.rglob("*.parquet"))
    live_harness.produce(1, "b")
    _, table = live_harness.load()
    (new,) = set(live_harness.folder.rglob("*.parquet")) - before
    (task,) = [t for t in table.scan().plan_files() if t.file.file_path == str(new)]
    assert task.file.record_count == 1
    live_harness.load()
    assert set(live_harness.folder.rglob("*.parquet")) == before | {new}


@pytest.mark.parametrize(("wait_for", "times"), [(None, 1), ("flows/0:0", 2)])
def test_a_load_measures_its_log_once_unless_it_waits_for_records(
    live_harness: Sea, monkeypatch: pytest.MonkeyPatch, wait_for: str | None, times: int
) -> None:
    """One that waits looks before its turn, so that others need not wait with it."""
    live_harness.produce(0, "a")
    measure, calls = live_harness.log.measure, list[object]()

    def counted(topics: Any) -> Any:
        calls.append(topics)
        return measure(topics)

    monkeypatch.setattr(live_harness.log, "measure", counted)
    live_harness.live.load(replace(SESSION, wait_for=wait_for), FLOWS, Deadline(60))
    assert len(calls) == times


def test_rows_are_written_by_a_thread_that_may_lose_its_priority(
    live_harness: Sea, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What takes long in the engine gives way from then on (``proxy.engine.running``): a caller's thread would for good."""
    write, niceness = live_harness.files.write_piece, list[int]()

    def slow(*arguments: Any) -> Any:
        give_way(threading.get_native_id())
        niceness.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        return write(*arguments)

    own = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    monkeypatch.setattr(live_harness.files, "write_piece", slow)
    for _ in range(2):
        live_harness.produce(0, "a")
        live_harness.load()
        assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == own
    assert len(niceness) == 2


def test_a_load_of_another_kind_does_not_write_the_tail_again(live_harness: Sea) -> None:
    for _ in range(5):
        live_harness.produce(0, "a")
    document, _ = live_harness.load()
    before = set(live_harness.folder.rglob("*.parquet"))
    text = document["properties"][LIVE_CUT]
    cut = live_harness.live.load(replace(SESSION, cut=text), FLOWS, Deadline(60))
    assert json.loads(cut.metadata) == document
    live_harness.live.load(replace(SESSION, freshness="cold"), FLOWS, Deadline(60))
    live_harness.produce(0, "b")
    newer, table = live_harness.load()
    assert len(set(live_harness.folder.rglob("*.parquet")) - before) == 1
    assert rows_of(table) == expected(live_harness, newer)
    assert [task.file.record_count for task in table.scan().plan_files()].count(5) == 1
    # A new replica, asked for the cut alone.
    live_harness.stop()
    live_harness.start()
    cut = live_harness.live.load(replace(SESSION, cut=text), FLOWS, Deadline(60))
    assert rows_of(StaticTable.from_metadata(cut.location)) == expected(live_harness, document)


def test_loads_that_accept_an_older_answer_write_no_row_again(live_harness: Sea) -> None:
    stale = replace(SESSION, freshness="max_staleness 1h")
    for number in range(10):
        live_harness.produce(number % PARTITIONS, "a")
        live_harness.load()
        live_harness.produce(number % PARTITIONS, "b")
        live_harness.statements.cutter.cut_table(FLOWS, FreshnessContract(), Deadline(60))
        live_harness.produce(number % PARTITIONS, "c")
        live_harness.live.load(stale, FLOWS, Deadline(60))
    document, table = live_harness.load()
    assert rows_of(table) == expected(live_harness, document)
    written = sum(
        pq.read_metadata(file).num_rows for file in live_harness.folder.rglob("*.parquet")
    )
    assert written <= 2 * 30  # each row once, and once more where many files became one


def test_another_decoding_of_the_tail_is_written_to_new_files(live_harness: Sea) -> None:
    for host in ("a", "b", "c"):
        live_harness.produce(0, host)
    live_harness.load()
    before = set(live_harness.folder.rglob("*.parquet"))
    pin, bounds = (
        live_harness.cold.store.pin(FLOWS),
        live_harness.log.measure(["flows"])["flows"],
    )
    mark = skip_record(pin, bounds, [Skip(0, 1)], run="sea")
    live_harness.cold.tier_text(format_watermark(mark))
    live_harness.pins.refresh(FLOWS)
    _, table = live_harness.load()
    assert rows_of(table) == {(0, 0): "a", (0, 2): "c"}
    paths = {task.file.file_path for task in table.scan().plan_files()}
    assert paths == set(map(str, set(live_harness.folder.rglob("*.parquet")) - before))


def test_there_are_few_files_however_often_it_is_loaded(live_harness: Sea) -> None:
    for _ in range(MOST + MERGE):
        live_harness.produce(0, "a")
        document, table = live_harness.load()
    assert len(list(table.scan().plan_files())) <= MOST
    assert rows_of(table) == expected(live_harness, document)


def sizes(live_harness: Sea) -> list[int]:
    return sorted(
        pq.read_metadata(file).num_rows for file in live_harness.folder.rglob("*.parquet")
    )


def finish_merging(live_harness: Sea) -> None:
    until = time.monotonic() + 60
    while live_harness.live._merging._tasks and time.monotonic() < until:
        time.sleep(0.01)


def test_many_small_files_become_one_after_the_answer_and_only_once(
    live_harness: Sea, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    write = live_harness.live._merging._writer.write

    def slow(*arguments: Any) -> Any:
        if threading.current_thread() is live_harness.live._merging._thread:
            begun.set()
            assert go_on.wait(60)
        return write(*arguments)

    monkeypatch.setattr(live_harness.live._writer, "write", slow)
    for _ in range(MERGE):
        live_harness.produce(0, "a")
        live_harness.load()
    assert begun.wait(60)
    assert sizes(live_harness) == [1] * MERGE
    # Loads go on, and begin no other.
    for _ in range(3):
        live_harness.produce(0, "a")
        _, table = live_harness.load()
        assert len(list(table.scan().plan_files())) <= MOST
    go_on.set()
    finish_merging(live_harness)
    assert sizes(live_harness) == [1] * (MERGE + 3) + [MERGE]
    live_harness.produce(0, "a")
    document, table = live_harness.load()
    counts = [task.file.record_count for task in table.scan().plan_files()]
    assert sorted(counts) == [1, 1, 1, 1, MERGE]
    assert rows_of(table) == expected(live_harness, document)
    time.sleep(0.2)
    assert sizes(live_harness) == [1] * (MERGE + 4) + [MERGE]


def test_a_merged_file_counts_for_the_user_whose_load_made_it_necessary(
    live_harness: Sea,
) -> None:
    for _ in range(MERGE):
        live_harness.produce(0, "a")
        live_harness.live.load(replace(SESSION, user="ada"), FLOWS, Deadline(60))
    finish_merging(live_harness)
    assert sizes(live_harness) == [1] * MERGE + [MERGE]
    assert set(live_harness.live._rooms.live._bytes._of) == {"ada"}


def test_a_merge_that_cannot_be_written_is_left_and_loads_go_on(
    live_harness: Sea, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = live_harness.live._writer.write

    def refuse(*arguments: Any) -> Any:
        if threading.current_thread() is live_harness.live._merging._thread:
            raise ColdStoreUnavailable("the disk is full.")
        return write(*arguments)

    monkeypatch.setattr(live_harness.live._writer, "write", refuse)
    for _ in range(MOST + 3):
        live_harness.produce(0, "a")
        document, table = live_harness.load()
        assert len(list(table.scan().plan_files())) <= MOST
    assert rows_of(table) == expected(live_harness, document)


def test_a_merge_of_what_was_tiered_meanwhile_is_not_used(live_harness: Sea) -> None:
    for _ in range(MERGE):
        live_harness.produce(0, "a")
        live_harness.load()
    live_harness.tier([MERGE // 2, 0, 0])
    live_harness.pins.refresh(FLOWS)
    document, table = live_harness.load()
    assert rows_of(table) == expected(live_harness, document)
    time.sleep(0.3)
    again, table = live_harness.load()
    assert again == document
    assert rows_of(table) == expected(live_harness, document)


@pytest.mark.parametrize("are_there", [True, False], ids=["", "small files are gone"])
def test_a_publish_into_a_large_file_has_a_load_write_no_more_than_a_small_one(
    live_harness: Sea, are_there: bool
) -> None:
    for number in range(3 * MERGE):
        live_harness.produce(0, f"{number}")
        live_harness.produce(1, f"{number}")
        if number % 3 == 2:
            live_harness.load()
    finish_merging(live_harness)
    assert sizes(live_harness) == [6] * MERGE + [6 * MERGE]
    live_harness.now_s = TTL_S / 2
    live_harness.produce(2, "one more")
    _, table = live_harness.load()
    assert sorted(task.file.record_count for task in table.scan().plan_files()) == [
        1,
        6 * MERGE,
    ]
    if not are_there:
        live_harness.now_s = TTL_S
        live_harness.load()
        live_harness.now_s = TTL_S * 3 / 2 + 1
        live_harness.live.tend()
        assert sizes(live_harness) == [1, 6 * MERGE]
    before = set(live_harness.folder.rglob("*.parquet"))
    live_harness.tier([31, 29, 0])
    live_harness.pins.refresh(FLOWS)
    document, table = live_harness.load()
    assert rows_of(table) == expected(live_harness, document)
    written = [
        pq.read_metadata(file).num_rows
        for file in set(live_harness.folder.rglob("*.parquet")) - before
    ]
    # Of the small files of offsets 27 to 29, and 30 to 32, what is not tiered.
    assert sum(written) == (6 * MERGE - 60 if not are_there else 3 + 2 + 1)
    live_harness.produce(0, "newest")
    document, table = live_harness.load()
    assert rows_of(table) == expected(live_harness, document)


def test_an_answer_is_good_no_longer_than_the_grace_also_of_a_table_that_idles(
    live_harness: Sea,
) -> None:
    live_harness.cold.set_properties(**{"maintain.pin_grace_s": "50"})
    live_harness.pins.refresh(FLOWS)
    live_harness.produce(0, "a")
    live_harness.load()
    (file,) = live_harness.folder.rglob("*.parquet")
    live_harness.pins._idle_s = -1
    live_harness.pins.refresh_due(FLOWS.catalog)
    assert live_harness.pins.pinned([FLOWS]) is None
    live_harness.now_s += 51
    assert live_harness.now_s < TTL_S
    live_harness.live.tend()
    assert not file.exists()
