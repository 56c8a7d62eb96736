"""The pin board over the store in memory: a clock that is set, outages that are switched on."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import cast

import pyarrow as pa
import pytest

from connectors.iceberg.pin_cache import RELIST_BURST, RELIST_S, PinCache
from planner.errors import (
    CatalogUnavailable,
    FederationError,
    ForeignCommit,
    SnapshotExpired,
    UnknownTable,
)
from planner.names import TableName
from planner.ports import ColdStore
from planner.schema import Column
from planner.seam.cut import Pin
from planner.seam.seam_table import PinFacts
from tests.doubles.cold import MemoryColdStore
from tests.harness.builders import BINDING, FLOWS, watermark

HOSTS = TableName("lake", ("net",), "hosts")
PAYLOAD = (Column(0, "host", pa.string()),)


class World:
    """A store whose catalog can be switched off, and the time."""

    def __init__(self, *, refresh_s: float = 3600.0) -> None:
        self.now = 100.0
        self.reads = self.listings = 0
        self.failure: FederationError | None = None
        self.store = MemoryColdStore(fault=self._fault)
        self.store.create(FLOWS, PAYLOAD, BINDING, watermark(0))
        self.board = PinCache(
            self.store,
            refresh_s=refresh_s,
            idle_s=600.0,
            clock=lambda: self.now,
        )

    def _fault(self, step: str) -> None:
        if step == "pin":
            self.reads += 1
        self.listings += step == "tables"
        if step in ("pin", "tables") and self.failure is not None:
            raise self.failure

    def fail(self) -> None:
        self.failure = CatalogUnavailable("lake: no answer.", catalog="lake")

    def tier(self, offset: int) -> None:
        self.store.commit(
            FLOWS,
            "append",
            lambda value: (value, value.slice(0, 0)),
            check=lambda *_: watermark(offset),
        )

    def tier_foreign(self) -> None:
        schema = self.store.facts(FLOWS).schema.arrow
        row = pa.Table.from_pylist([{"kafka_partition": 0, "kafka_offset": 9}], schema)
        self.store.append(FLOWS, row)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.board.refresh_due("lake")
        self.board.refresh_due(None)

    def offset(self) -> int:
        mark = self.board.get(FLOWS).watermark
        assert mark is not None
        return mark.offset(0)


@pytest.fixture
def world() -> World:
    return World()


def test_a_pin_is_read_once_and_then_held(world: World) -> None:
    with world.board:
        assert [world.offset() for _ in range(3)] == [0, 0, 0]
        assert world.reads == 1


def test_a_refresh_in_the_background_shows_what_was_tiered(world: World) -> None:
    with world.board:
        assert world.offset() == 0
        world.tier(5)
        assert world.offset() == 0
        world.pass_time(5)
        assert world.offset() == 5


def test_a_statement_that_met_a_gap_reads_again_at_once(world: World) -> None:
    with world.board:
        world.offset()
        world.tier(5)
        world.now += 1
        assert world.board.refresh(FLOWS).watermark == watermark(5)
        assert world.offset() == 5


def test_an_outage_keeps_the_last_good_pin_and_shows_its_age(world: World) -> None:
    with world.board:
        world.offset()
        world.fail()
        world.tier(5)
        world.pass_time(40)
        assert world.offset() == 0
        (status,) = world.board.status()
        assert (status.table, status.age_s) == (FLOWS, 40)
        assert isinstance(status.error, CatalogUnavailable)
        assert world.board.refresh(FLOWS).watermark == watermark(0)

        world.failure = None
        world.pass_time(5)
        assert world.offset() == 5
        (status,) = world.board.status()
        assert (status.age_s, status.error) == (0, None)


def test_an_outage_before_the_first_pin_is_an_error(world: World) -> None:
    world.fail()
    with world.board:
        with pytest.raises(CatalogUnavailable):
            world.board.get(FLOWS)
        world.failure = None
        assert world.offset() == 0


def test_a_verdict_takes_the_pin_away_until_it_is_lifted(world: World) -> None:
    with world.board:
        world.offset()
        ours = world.store.facts(FLOWS).head
        assert ours is not None
        world.tier_foreign()
        world.pass_time(5)
        for _ in range(2):
            with pytest.raises(ForeignCommit, match=r"lake\.net\.flows: snapshot 2"):
                world.board.get(FLOWS)
        (status,) = world.board.status()
        assert status.pin is None
        world.store.rollback(FLOWS, ours)
        world.pass_time(5)
        assert world.offset() == 0


def test_an_outage_after_a_verdict_does_not_bring_the_pin_back(world: World) -> None:
    with world.board:
        world.offset()
        world.tier_foreign()
        world.pass_time(5)
        world.fail()
        world.pass_time(5)
        with pytest.raises(CatalogUnavailable):
            world.board.get(FLOWS)


def test_after_a_verdict_and_an_outage_the_first_reader_asks_the_catalog(world: World) -> None:
    with world.board:
        head = world.board.get(FLOWS).snapshot_id
        assert head is not None
        world.tier_foreign()
        world.pass_time(5)
        world.fail()
        world.pass_time(5)
        world.failure = None
        with pytest.raises(ForeignCommit):
            world.board.get(FLOWS)
        world.fail()
        world.pass_time(5)
        world.store.rollback(FLOWS, head)
        world.failure = None
        assert world.offset() == 0


def test_a_dropped_table_is_unknown_after_the_next_refresh(world: World) -> None:
    with world.board:
        world.offset()
        world.store.drop(FLOWS)
        world.pass_time(5)
        with pytest.raises(UnknownTable):
            world.board.get(FLOWS)


def test_names_that_never_were_tables_leave_nothing_behind(world: World) -> None:
    before = threading.active_count()
    with world.board:
        for index in range(20):
            with pytest.raises(UnknownTable):
                world.board.get(TableName(f"catalog{index}", ("a",), "b"))
        assert world.board.status() == ()
        assert threading.active_count() == before


def test_a_table_nobody_asks_for_is_forgotten(world: World) -> None:
    with world.board:
        world.offset()
        world.pass_time(601)
        assert world.board.status() == ()
        assert world.offset() == 0


def test_the_list_of_tables_outlives_an_outage(world: World) -> None:
    with world.board:
        assert world.board.tables() == (FLOWS,)
        world.store.create(HOSTS, PAYLOAD)
        world.fail()
        world.pass_time(5)
        assert world.board.tables() == (FLOWS,)
        world.failure = None
        world.pass_time(5)
        assert world.board.tables() == (FLOWS, HOSTS)


def test_what_a_catalog_that_is_down_does_not_list_may_be_there(world: World) -> None:
    world.board.tables()
    world.board.check_listed("lake")
    world.board.check_listed("no catalog")
    world.fail()
    world.now += 2.0
    assert HOSTS not in world.board.relist("ann")
    with pytest.raises(CatalogUnavailable, match="no answer"):
        world.board.check_listed("lake")
    world.failure = None
    world.now += 2.0
    world.board.relist("ann")
    world.board.check_listed("lake")


def test_a_version_of_a_table_made_anew_is_found_before_the_next_refresh(world: World) -> None:
    """The file of the pin at hand went with the table of before."""
    world.board.get(FLOWS)
    world.store.drop(FLOWS)
    world.store.create(FLOWS, PAYLOAD, BINDING, watermark(5))
    head = world.store.facts(FLOWS).head
    assert head is not None
    mark = world.board.pin_version(FLOWS, head).watermark
    assert mark is not None
    assert mark.offset(0) == 5


def test_a_ticket_of_this_board_needs_no_catalog(world: World) -> None:
    with world.board:
        pin = world.board.get(FLOWS)
        world.tier(5)
        world.pass_time(5)
        world.fail()
        assert world.board.pin_at(pin.reference) == pin
        world.failure = None
        with pytest.raises(SnapshotExpired):
            world.board.pin_at(replace(pin.reference, table_uuid="another"))


def test_a_ticket_of_another_replica_asks_the_store(world: World) -> None:
    pin = world.store.pin(FLOWS)
    with world.board:
        assert world.board.pin_at(pin.reference) == pin


def test_many_statements_share_one_first_read() -> None:
    world = World()
    entered = threading.Event()
    release = threading.Event()
    reads = []

    def slow(step: str) -> None:
        if step == "pin":
            reads.append(step)
            entered.set()
            assert release.wait(10)

    store = MemoryColdStore(fault=slow)
    store.create(FLOWS, PAYLOAD, BINDING, watermark(0))
    with PinCache(store, refresh_s=3600) as board:
        threads = [threading.Thread(target=board.get, args=(FLOWS,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        assert entered.wait(10)
        release.set()
        for thread in threads:
            thread.join(10)
        assert board.get(FLOWS).table == FLOWS
    assert len(reads) == 1
    world.board.stop()


def test_threads_refresh_by_themselves_and_end_with_the_board() -> None:
    store = MemoryColdStore()
    store.create(FLOWS, PAYLOAD, BINDING, watermark(0))
    before = threading.active_count()
    with PinCache(store, refresh_s=0.005) as board:
        board.get(FLOWS)
        board.tables()
        store.commit(
            FLOWS,
            "append",
            lambda value: (value, value.slice(0, 0)),
            check=lambda *_: watermark(7),
        )
        deadline = time.monotonic() + 10
        while board.get(FLOWS).watermark != watermark(7):
            assert time.monotonic() < deadline
            time.sleep(0.002)
        assert {thread.name for thread in threading.enumerate()} >= {"pins lake"}
    assert threading.active_count() == before
    assert board.get(FLOWS).watermark == watermark(7)


def test_a_bug_in_reading_one_table_does_not_end_the_refreshing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken = threading.Event()

    def fault(step: str) -> None:
        if step == "pin" and broken.is_set():
            raise ZeroDivisionError

    store = MemoryColdStore(fault=fault)
    store.create(FLOWS, PAYLOAD, BINDING, watermark(0))
    with PinCache(store, refresh_s=3600) as board:
        pin = board.get(FLOWS)
        broken.set()
        board.refresh_due("lake")
        assert board.get(FLOWS) == pin
    assert "refreshing a pin failed" in caplog.text


def test_how_long_the_catalog_has_been_failing_is_told(world: World) -> None:
    with world.board:
        world.offset()
        world.pass_time(5)
        world.fail()
        for _ in range(8):
            world.pass_time(450)
            world.offset()
        (status,) = world.board.status()
        assert (status.failing_s, status.age_s) == (3150, 3600)
        facts = world.board.facts(FLOWS)
        assert facts == PinFacts(3600, 3150, "CatalogUnavailable")
        assert world.offset() == 0
        world.failure = None
        world.pass_time(5)
        (status,) = world.board.status()
        assert status.failing_s is None


class Two:
    """Two catalogs, of which ``second`` can hang or be down."""

    def __init__(self, *, patience_s: float = 0.5) -> None:
        self.store = MemoryColdStore()
        self.store.create(FLOWS, PAYLOAD, BINDING, watermark(0))
        self.store.create(SECOND, PAYLOAD, BINDING, watermark(0))
        self.is_down = False
        self.answering = threading.Event()
        self.answering.set()
        self.board = PinCache(cast("ColdStore", self), refresh_s=3600, patience_s=patience_s)

    def catalogs(self) -> tuple[str, ...]:
        return self.store.catalogs()

    def tables(self, catalog: str | None = None) -> tuple[TableName, ...]:
        self._reach(catalog)
        return self.store.tables(catalog)

    def pin(self, table: TableName) -> Pin:
        self._reach(table.catalog)
        return self.store.pin(table)

    def _reach(self, catalog: str | None) -> None:
        if catalog == "second":
            if self.is_down:
                raise CatalogUnavailable("catalog second does not answer; try again.")
            assert self.answering.wait(30)

    def __getattr__(self, name: str) -> object:
        return getattr(self.store, name)


SECOND = TableName("second", ("net",), "flows")


def test_tables_are_listed_as_one_object_until_they_change(world: World) -> None:
    """What is worked out of a list is found again by it: 10,000 names are not compared each time."""
    with world.board:
        listed = world.board.tables()
        world.pass_time(5)
        assert world.board.relist() is listed
        assert world.board.tables() is listed
        world.store.create(HOSTS, PAYLOAD, BINDING, watermark(0))
        world.pass_time(5)
        assert world.board.tables() == (FLOWS, HOSTS)


def test_a_new_table_is_found_at_once_and_names_that_are_not_there_cost_little() -> None:
    world = World()
    with world.board as board:
        assert board.tables() == (FLOWS,)
        world.store.create(HOSTS, PAYLOAD, BINDING, watermark(0))
        assert board.relist() == (FLOWS, HOSTS)
        before = world.listings
        for _ in range(100):
            board.relist()
        assert world.listings == before + RELIST_BURST - 1
        # One who asks in vain costs nobody else his answer.
        board.relist("somebody else")
        assert world.listings == before + RELIST_BURST
        world.now += RELIST_BURST * RELIST_S
        board.relist()
        assert world.listings == before + RELIST_BURST + 1


def test_a_catalog_that_is_down_at_start_hides_only_its_own_tables() -> None:
    two = Two()
    two.is_down = True
    with two.board as board:
        assert board.tables() == (FLOWS,)
        assert board.get(FLOWS).table == FLOWS
        with pytest.raises(CatalogUnavailable, match="catalog second does not answer"):
            board.relist()
        with pytest.raises(CatalogUnavailable, match="catalog second does not answer"):
            board.get(SECOND)
        # Who may not know of it is not told that it is down.
        assert board.relist("ann", lambda name: name != "second") == (FLOWS,)
        two.is_down = False
        assert board.relist() == (FLOWS, SECOND)
        assert board.tables() == (FLOWS, SECOND)


def test_when_no_catalog_answers_there_is_no_list() -> None:
    world = World()
    world.fail()
    with world.board as board:
        for _ in range(2):
            with pytest.raises(CatalogUnavailable):
                board.tables()
        world.failure = None
        assert board.tables() == (FLOWS,)


def test_a_catalog_that_hangs_holds_no_statement_longer_than_its_patience() -> None:
    two = Two()
    two.answering.clear()
    with two.board as board:
        began = time.monotonic()
        assert board.tables() == (FLOWS,)
        with pytest.raises(
            CatalogUnavailable,
            match=r"second\.net\.flows: the catalog has not answered for 0\.5 s",
        ):
            board.get(SECOND)
        assert board.get(FLOWS).table == FLOWS
        assert time.monotonic() - began < 10
        assert board.tables() == (FLOWS,)
        two.answering.set()
        assert board.get(SECOND).table == SECOND
        two.board.refresh_due("second")
        assert board.tables() == (FLOWS, SECOND)


def test_a_pin_that_is_held_serves_on_while_its_catalog_hangs() -> None:
    two = Two()
    with two.board as board:
        pin = board.get(SECOND)
        two.answering.clear()
        assert board.refresh(SECOND) == pin, "a statement that met a gap waits, and goes on"
        board.refresh_due("second")
        took = []
        for _ in range(5):  # the quickest: a busy machine may stop us once
            began = time.monotonic()
            assert board.get(SECOND) == pin
            took.append(time.monotonic() - began)
        assert min(took) < 0.1, "it waited"
        (status,) = board.status()
        assert isinstance(status.error, CatalogUnavailable)
        two.answering.set()
        two.board.refresh_due("second")
        (status,) = board.status()
        assert status.error is None
