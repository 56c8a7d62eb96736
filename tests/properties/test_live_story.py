"""Live tables as pyiceberg reads them, whatever moves underneath: each load equals the ledger at its cut."""

from __future__ import annotations

import json
import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

from connectors.iceberg.pin_cache import PinCache
from planner.errors import (
    CatalogUnavailable,
    CutExpired,
    FederationError,
    Overloaded,
    TailGap,
    UnknownTable,
)
from planner.offsets import OffsetVector
from planner.schema import Column
from planner.seam.binding import LIVE_CUT
from planner.seam.time_travel import ended, format_cut, parse_cut
from proxy.query.cut import FreshnessContract
from proxy.session import Deadline
from tests.doubles.cold import MemoryColdStore
from tests.harness.builders import FLOWS
from tests.harness.sea import PARTITIONS, TTL_S, Sea, expected, rows_of
from tests.harness.serving import SESSION

LOADS = 50
#: Of each story in a soak.
SOAK_LOADS = 100


def story(live_harness: Sea, chance: random.Random, loads: int) -> None:
    """Move something, load, compare; again and again."""
    names = 0
    for number in range(loads):
        for _ in range(chance.randrange(4)):
            partition = chance.randrange(PARTITIONS)
            for _ in range(chance.randrange(6)):
                host = chance.choice([f"h{number}", "", None])
                live_harness.produce(partition, host, late=chance.choice([0, 0, 5, 50]))
        move = chance.randrange(18)
        if move == 0:
            live_harness.abort(chance.randrange(PARTITIONS))
        elif move in (1, 2):
            low, high = live_harness.covered[live_harness.head], live_harness.ends()
            live_harness.tier(
                [chance.randint(at, end) for at, end in zip(low, high, strict=True)]
            )
        elif move == 3:
            live_harness.tier(live_harness.ends())
        elif move == 4:
            live_harness.compact()
        elif move == 5:
            live_harness.cold.add_column(f"added_{number}", pa.string())
        elif move == 6:
            names += 1
            old = live_harness.cold.table().schema().fields[3].name
            live_harness.cold.rename_column(old, f"host_{names}")
        elif move == 7:
            live_harness.stop()
            live_harness.start()
        elif move == 8:
            live_harness.cold.rollback(chance.choice(live_harness.line()[:4]))
        elif move == 9:
            live_harness.now_s += chance.choice([1.0, TTL_S / 2, TTL_S * 2])
            live_harness.live.tend()
        elif move == 10:
            live_harness.expire()
        elif move == 11:
            partition = chance.randrange(PARTITIONS)
            start, end = (
                live_harness.covered[live_harness.head][partition],
                live_harness.ends()[partition],
            )
            live_harness.lose(partition, chance.randint(start, end))
        elif move in (12, 13):
            live_harness.age(live_harness.written - chance.randrange(60))
        if chance.random() < 0.6:
            live_harness.pins.refresh(FLOWS)
        if live_harness.gap():  # taken by retention, or a rollback went below what it took
            live_harness.pins.refresh(FLOWS)
            with pytest.raises(TailGap):
                live_harness.load()
            live_harness.accept()
        document, table = live_harness.load()
        assert rows_of(table) == expected(live_harness, document)


def test_each_load_equals_the_ledger_at_its_cut(
    live_harness: Sea, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "planner.live.tiling.MERGE", 4
    )  # there are few loads between two publishes
    monkeypatch.setattr("planner.live.tiling._LEAST", 2)
    story(live_harness, random.Random(os.environ.get("THERMOCLINE_SEED", "live")), LOADS)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
def test_each_of_a_thousand_loads_equals_the_ledger(live_harness: Sea, seed: int) -> None:
    story(live_harness, random.Random(seed), SOAK_LOADS)


def test_a_cut_whose_snapshot_is_expired_is_refused_by_name(live_harness: Sea) -> None:
    live_harness.produce(0, "a")
    cut = live_harness.load()[0]["properties"][LIVE_CUT]
    first = live_harness.head
    live_harness.produce(0, "b")
    live_harness.tier(live_harness.ends())
    live_harness.cold.expire(first)
    live_harness.pins.refresh(FLOWS)
    live_harness.stop()
    live_harness.start()  # else the answer of then is still good, with its files
    with pytest.raises(CutExpired, match="the cut"):
        live_harness.live.load(replace(SESSION, cut=cut), FLOWS, Deadline(60))


def made_up(sea: Sea, ends: list[int]) -> str:
    """The text of a cut that a reader makes up: the pinned snapshot, and other ends."""
    cut = sea.statements.cutter.cut_table(FLOWS, FreshnessContract(), Deadline(60))
    return format_cut({(FLOWS, None): ended(cut, OffsetVector.of(enumerate(ends)))})


def test_each_cut_that_readers_make_up_is_the_ledger(
    live_harness: Sea, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some cuts are of before a publish, some of after it; loads of the table as it is come between."""
    monkeypatch.setattr("planner.live.tiling._BLOCKS", (4, 16))
    chance = random.Random(os.environ.get("THERMOCLINE_SEED", "made up"))
    for number in range(30):
        if number % 4 == 0:
            for partition in range(PARTITIONS):
                for _ in range(chance.randint(0, 20)):
                    live_harness.produce(partition, chance.choice(["a", "b", None]))
            live_harness.load()
        if number == 15:
            covered = live_harness.covered[live_harness.head]
            live_harness.tier(
                [
                    chance.randint(*span)
                    for span in zip(covered, live_harness.ends(), strict=True)
                ]
            )
            live_harness.pins.refresh(FLOWS)
        starts = live_harness.covered[live_harness.head]
        ends = [chance.randint(*span) for span in zip(starts, live_harness.ends(), strict=True)]
        session = replace(SESSION, cut=made_up(live_harness, ends))
        loaded = live_harness.live.load(session, FLOWS, Deadline(60))
        table = StaticTable.from_metadata(loaded.location)
        document = json.loads(loaded.metadata)
        assert rows_of(table) == expected(live_harness, document)
        (entry,) = parse_cut(document["properties"][LIVE_CUT]).tables
        assert entry.end == OffsetVector.of(enumerate(ends))
        document, table = live_harness.load()
        assert rows_of(table) == expected(live_harness, document)


def test_a_reader_who_makes_cuts_up_fills_his_share_alone(live_harness: Sea) -> None:
    for _ in range(200):
        live_harness.produce(0, "a" * 50)
    eve, ada = replace(SESSION, user="eve"), replace(SESSION, user="ada")
    texts = [made_up(live_harness, [end, 0, 0]) for end in range(200)]
    live_harness.stop()
    live_harness.start(max_bytes=16 * 300_000)
    refused = None
    for text in texts:
        try:
            live_harness.live.load(replace(eve, cut=text), FLOWS, Deadline(60))
        except Overloaded as error:
            refused = str(error)
            break
    assert refused is not None
    assert "bytes of files of named cuts that you asked for are still good" in refused
    live_harness.live.load(replace(eve, cut=texts[0]), FLOWS, Deadline(60))  # it is there
    live_harness.live.load(eve, FLOWS, Deadline(60))
    live_harness.live.load(replace(ada, cut=texts[-1]), FLOWS, Deadline(60))
    live_harness.now_s += TTL_S + 1
    live_harness.live.tend()
    live_harness.live.load(replace(eve, cut=texts[-1]), FLOWS, Deadline(60))


def test_a_load_that_uses_up_a_share_ends_with_the_file_that_does(
    live_harness: Sea, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("planner.live.tiling._BLOCKS", (4, 16))
    for partition in range(PARTITIONS):
        for _ in range(50):
            live_harness.produce(partition, "a" * 50)
    named = replace(SESSION, user="eve", cut=made_up(live_harness, [40] * PARTITIONS))

    def sizes() -> list[int]:
        return [file.stat().st_size for file in live_harness.folder.rglob("*.parquet")]

    live_harness.live.load(named, FLOWS, Deadline(60))
    before = sizes()
    assert len(before) > 2
    live_harness.stop()
    live_harness.start(max_bytes=16 * max(before))  # of named cuts, a sixteenth
    with pytest.raises(Overloaded, match="bytes of files of named cuts that you asked for"):
        live_harness.live.load(named, FLOWS, Deadline(60))
    assert len(sizes()) == len(before) + 1


def test_what_another_leader_wrote_at_the_same_offsets_is_read_again(live_harness: Sea) -> None:
    live_harness.produce(0, "old")
    live_harness.load()
    live_harness.log.truncate("flows", 0, 0)
    live_harness.ledger.clear()
    live_harness.produce(0, "new")
    document, table = live_harness.load()
    assert rows_of(table) == {(0, 0): "new"} == expected(live_harness, document)


def test_a_gap_is_refused_and_no_older_answer_is_told(live_harness: Sea) -> None:
    for _ in range(3):
        live_harness.produce(0, "a")
    live_harness.load()
    live_harness.log.delete_records("flows", 0, 2)
    with pytest.raises(FederationError, match="removed before they were tiered"):
        live_harness.load()


def test_who_waits_for_a_record_holds_no_other_load_up(live_harness: Sea) -> None:
    live_harness.produce(0, "a")
    waiting = replace(SESSION, wait_for="flows/0:1")
    with ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(live_harness.live.load, waiting, FLOWS, Deadline(60))
        time.sleep(0.2)
        try:
            live_harness.live.load(SESSION, FLOWS, Deadline(10))
            assert not waiter.done()
        finally:
            live_harness.produce(0, "b")
        loaded = waiter.result(60)
    rows = rows_of(StaticTable.from_metadata(loaded.location))
    assert rows == expected(live_harness, json.loads(loaded.metadata))
    assert len(rows) == 2


def test_of_a_name_that_a_silent_catalog_did_not_list_nothing_is_said(
    live_harness: Sea,
) -> None:
    failures: list[CatalogUnavailable] = []

    def fail(_step: str) -> None:
        for failure in failures:
            raise failure

    store = MemoryColdStore(fault=fail)
    store.create(replace(FLOWS, name="hosts"), (Column(0, "host", pa.string()),))
    live_harness.live._pins = PinCache(store, refresh_s=3_600, idle_s=3_600)
    with pytest.raises(UnknownTable):
        live_harness.live.check(SESSION, FLOWS)
    failures.append(CatalogUnavailable("lake: no answer.", catalog="lake"))
    with pytest.raises(CatalogUnavailable, match="no answer"):
        live_harness.live.check(SESSION, FLOWS)


def test_cuts_that_readers_make_up_share_their_files(live_harness: Sea) -> None:
    """With blocks as they are: files hold a few times the tail, however many cuts name them."""
    chance, records = random.Random("shares"), 20_000
    for partition in range(PARTITIONS):
        for _ in range(records):
            live_harness.produce(partition, "a")
    cuts = [[chance.randint(0, records) for _ in range(PARTITIONS)] for _ in range(25)]
    for ends in cuts:
        session = replace(SESSION, cut=made_up(live_harness, ends))
        loaded = live_harness.live.load(session, FLOWS, Deadline(60))
        (live,) = (
            snapshot
            for snapshot in json.loads(loaded.metadata)["snapshots"]
            if snapshot.get("parent-snapshot-id")
        )
        assert int(live["summary"]["added-records"]) == sum(ends)
    files = live_harness.folder.rglob("*.parquet")
    written = sum(pq.read_metadata(file).num_rows for file in files)
    assert written < sum(map(sum, cuts)) / 2
