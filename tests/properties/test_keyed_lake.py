"""Keyed tables over the in-memory doubles: decoder, pins, cuts, tails, statements and engine are real.

Each step changes the world and asks a statement, whose answer must be that of plain DuckDB over a dictionary. Tickets and cuts
are saved and read later: they must give the answer of then. Cuts of before the log was compacted are left out: a change of
then may be gone (docs/limits.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from connectors.iceberg.live.files import LiveFiles
from planner.errors import (
    CutExpired,
    KeyInTwoPartitions,
    NotForKeyedTables,
    StalePlan,
)
from proxy.live.tables import LiveTables, check_has_files
from proxy.query.cut import FreshnessContract
from proxy.session import Deadline
from tests.doubles.log import MemoryRecord
from tests.fixtures.cold import IcebergCold
from tests.harness.asking import duck
from tests.harness.keyed_lake import DEVICES, KeyedLake
from tests.harness.serving import SESSION

#: What happened in all examples together.
EVENTS: Counter[str] = Counter()
KEYS = st.tuples(st.integers(0, 3), st.sampled_from(["eu", "us-east"]))
STATUSES = st.sampled_from(["open", "open", "done", None])
Change = tuple[tuple[int, str], str | None]
CHANGES = st.lists(st.tuples(KEYS, STATUSES), min_size=3, max_size=8)
STATEMENTS = (
    "SELECT * FROM devices",
    "SELECT count(*) FROM devices",
    "SELECT id, n FROM devices WHERE status = 'open'",
    "SELECT status, count(*), sum(n), min(kafka_timestamp) FROM devices GROUP BY ALL",
    "SELECT region FROM devices WHERE kafka_offset < 4 AND kafka_partition = 0",
    "SELECT n FROM devices WHERE kafka_timestamp > TIMESTAMPTZ '1970-01-01 00:00:09.995+00'",
    "SELECT * FROM devices WHERE id = 1 AND region = 'eu'",
    "SELECT a.n, b.n AS other FROM devices a JOIN devices b USING (id)",
    "SELECT n FROM devices ORDER BY n DESC LIMIT 2",
)


@dataclass(frozen=True)
class Saved:
    """A statement's ticket and cut, with the answer of then."""

    ticket: bytes
    cut: str
    sql: str
    answer: Counter[tuple[object, ...]]
    compactions: int


def multiset(rows: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in rows.to_pylist())


class Devices(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.lake = KeyedLake()
        self.saved: list[Saved] = []
        self.compactions = 0
        self.turn = 0

    def teardown(self) -> None:
        self.lake.end_transaction(commit=False)
        self.lake.stop_server()

    # --- the log ---

    @initialize(changes=CHANGES)
    def begin(self, changes: list[Change]) -> None:
        self._write(changes)

    @rule(changes=CHANGES)
    def write(self, changes: list[Change]) -> None:
        self._write(changes)

    @rule(changes=CHANGES, max_rows=st.integers(1, 12))
    def write_and_tier(self, changes: list[Change], max_rows: int) -> None:
        self._write(changes)
        self.tier(max_rows)

    def _write(self, changes: list[Change]) -> None:
        for key, status in changes:
            self.lake.change(key, status)
            EVENTS["delete" if status is None else "row"] += 1

    @rule(changes=st.lists(st.tuples(KEYS, STATUSES), min_size=1, max_size=3))
    def write_in_transaction(self, changes: list[Change]) -> None:
        for key, status in changes:
            self.lake.change(key, status, in_transaction=True)

    @precondition(lambda self: self.lake.transaction is not None)
    @rule(commit=st.booleans())
    def end_transaction(self, commit: bool) -> None:
        self.lake.end_transaction(commit=commit)
        EVENTS["commit" if commit else "abort"] += 1

    @rule(partition=st.integers(0, 1), kind=st.integers(0, 3))
    def write_what_is_no_change(self, partition: int, kind: int) -> None:
        self.lake.bad(partition, kind)

    @rule(partition=st.integers(0, 1), back=st.integers(0, 3))
    def remove_what_is_cold(self, partition: int, back: int) -> None:
        below = max(0, self.lake.mark.offset(partition) - back)
        self.lake.log.delete_records("devices", partition, below)

    @rule(partition=st.integers(0, 1))
    def compact_the_log(self, partition: int) -> None:
        self.lake.log.compact("devices", partition)
        self.compactions += 1

    # --- the table ---

    def tier(self, max_rows: int) -> None:
        before = self.lake.mark
        after = self.lake.tier(max_rows)
        EVENTS["publish"] += after.next != before.next
        EVENTS["superseded"] += after.outcomes.superseded

    @rule()
    def rewrite_the_files(self) -> None:
        self.lake.compact()

    @rule(keep=st.integers(1, 3))
    def expire(self, keep: int) -> None:
        facts = self.lake.store.facts(DEVICES)
        line = [each.snapshot_id for each in facts.history.line(facts.head)]
        self.lake.store.expire(DEVICES, set(line[:keep]))
        EVENTS["expired"] += len(line) > keep

    @rule()
    def restart(self) -> None:
        self.lake.stop_server()
        self.lake.start_server()

    @rule()
    def see_the_newest_snapshot(self) -> None:
        self.lake.board.refresh(DEVICES)

    # --- answers ---

    @invariant()
    def the_answer_is_what_the_dictionary_says(self) -> None:
        self.turn += 1
        sql = STATEMENTS[self.turn % len(STATEMENTS)]
        lake = self.lake
        end = lake.end
        expected = self.truth(sql, lake.rows(end))
        ticket, plan = lake.plan(sql)
        try:
            answer = multiset(lake.open(ticket))
        except StalePlan:
            # As every client does: the pin was older than what expired.
            ticket, plan = lake.plan(sql)
            answer = multiset(lake.open(ticket))
        assert answer == expected, (sql, lake.mark.next, end)
        if self.turn % 3 == 0:
            self.saved.append(Saved(ticket, plan.cut, sql, expected, self.compactions))

    @precondition(lambda self: self.saved)
    @rule(at=st.integers(0, 99))
    def open_a_ticket_of_before(self, at: int) -> None:
        saved = self.saved[at % len(self.saved)]
        if saved.compactions == self.compactions:
            try:
                assert multiset(self.lake.open(saved.ticket)) == saved.answer, saved.sql
                EVENTS["ticket"] += 1
            except StalePlan:
                EVENTS["ticket expired"] += 1

    @precondition(lambda self: self.saved)
    @rule(at=st.integers(0, 99))
    def read_at_a_cut_of_before(self, at: int) -> None:
        saved = self.saved[at % len(self.saved)]
        if saved.compactions == self.compactions:
            try:
                assert multiset(self.lake.ask(saved.sql, cut=saved.cut)) == saved.answer, (
                    saved.sql
                )
                EVENTS["cut"] += 1
            except CutExpired:
                EVENTS["cut expired"] += 1

    @staticmethod
    def truth(sql: str, rows: pa.Table) -> Counter[tuple[object, ...]]:
        connection = duck()
        connection.register("rows", rows)
        connection.execute("CREATE OR REPLACE TEMP TABLE devices AS FROM rows")
        connection.unregister("rows")
        return multiset(connection.execute(sql).to_arrow_table())


SOMETIMES = (
    *("delete", "commit", "abort", "publish", "superseded"),
    *("expired", "ticket", "cut"),
)


def explore(examples: int, *, same: bool) -> None:
    EVENTS.clear()
    run_state_machine_as_test(
        Devices,
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            database=None,
            derandomize=same,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],
        ),
    )
    assert [event for event in SOMETIMES if not EVENTS[event]] == [], EVENTS


def test_answers_are_what_a_dictionary_says() -> None:
    explore(8, same=True)


@pytest.mark.soak
def test_answers_of_long_stories_are_what_a_dictionary_says() -> None:
    explore(300, same=False)


# --- what is refused ---


@pytest.fixture
def lake() -> Iterator[KeyedLake]:
    value = KeyedLake()
    for number in range(6):
        value.change((number % 3, "eu"), f"s{number}")
    value.tier(3)
    yield value
    value.stop_server()


def test_a_time_and_following_are_refused_with_the_way(lake: KeyedLake) -> None:
    way = (
        "is not for a keyed table, which has the newest row of each key alone; an append table of the same topic keeps every "
        "change: `thermocline create` one beside it."
    )
    for sql, request in (
        ("SELECT * FROM devices AT (TIMESTAMP => TIMESTAMP '2026-01-01')", {}),
        ("SELECT * FROM devices", {"after": "beginning"}),
        ("SELECT * FROM devices", {"after": "now"}),
    ):
        what = "following" if request else "AT (TIMESTAMP => ...)"
        with pytest.raises(NotForKeyedTables) as caught:
            lake.plan(sql, **request)
        assert caught.value.message == f"lake.net.devices: {what} {way}"


def test_a_version_and_a_side_are_a_snapshot_and_the_tail_alone(lake: KeyedLake) -> None:
    pin = lake.store.pin(DEVICES)
    cold = lake.rows(lake.mark.next)
    for name in ('"devices$cold"', f"devices AT (VERSION => {pin.snapshot_id})"):
        assert multiset(lake.ask(f"SELECT * FROM {name}")) == multiset(cold)
    both = multiset(lake.ask("SELECT * FROM devices"))
    tail = multiset(lake.ask('SELECT * FROM "devices$tail"'))
    assert tail <= both
    assert {row[1] >= lake.mark.offset(row[0]) for row in tail} == {True}


def test_a_cut_is_answered_by_no_snapshot_that_is_newer(lake: KeyedLake) -> None:
    """Cold has forgotten the rows of then; a snapshot of before has them, and the log what came between."""
    older = lake.store.facts(DEVICES).head
    assert older is not None
    lake.tier(1)
    lake.board.refresh(DEVICES)
    _, ticket = lake.plan("SELECT * FROM devices")
    then = multiset(lake.rows(lake.end))
    for number in range(3):
        lake.change((number, "eu"), None if number else "changed")
    lake.tier()
    lake.store.expire(DEVICES, {older})
    lake.board.refresh(DEVICES)
    assert multiset(lake.ask("SELECT * FROM devices", cut=ticket.cut)) == then
    lake.store.expire(DEVICES, set())
    lake.board.refresh(DEVICES)
    with pytest.raises(
        CutExpired, match="the table is keyed, and what it holds has newer rows"
    ):
        lake.ask("SELECT * FROM devices", cut=ticket.cut)


def test_a_key_in_two_partitions_stops_the_table(lake: KeyedLake) -> None:
    lake.log.append("devices", 1, MemoryRecord(b"{}", b'{"id": 0, "region": "eu"}'))
    lake.log.append("devices", 0, MemoryRecord(b"{}", b'{"id": 0, "region": "eu"}'))
    with pytest.raises(KeyInTwoPartitions, match="has a change in partition"):
        lake.ask("SELECT * FROM devices")


def test_the_rest_catalog_has_a_keyed_table_without_its_tail_alone(
    lake: KeyedLake, iceberg: IcebergCold, tmp_path: Path
) -> None:
    files = LiveFiles(iceberg.store, {"lake": str(tmp_path)}, ttl_s=60)
    live = LiveTables(lake.statements, files, ttl_s=60)
    try:
        with pytest.raises(NotForKeyedTables) as caught:
            live.load(SESSION, DEVICES, Deadline(60))
    finally:
        live.stop()
    assert caught.value.message == (
        "lake.net.devices: the Iceberg REST catalog with the tail is not for a keyed table, which has the newest row of each "
        "key alone; load it from the warehouse lake@cold, which has the rows that are tiered, or ask over Flight SQL."
    )
    contract = FreshnessContract.of(replace(SESSION, freshness="cold"))
    cut = lake.statements.cutter.cut_table(DEVICES, contract, Deadline(60))
    check_has_files(cut, contract)
