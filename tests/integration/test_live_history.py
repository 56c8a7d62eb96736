"""Every engine over every state of a table's history: each reads what Flight reads at the same cut.

What is current, what is a branch's, what was rolled back and what came later lies in one metadata file, and each engine
has its own rule for which of it is the table.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from planner.live import client_answers
from planner.live.metadata import MAIN
from planner.names import TableName
from planner.seam.binding import LIVE_CUT
from planner.seam.snapshots import STAGE_BRANCH_PREFIX
from tests.fixtures.flink import Flink
from tests.fixtures.kafka import Kafka
from tests.fixtures.live import Engine, LiveServer
from tests.harness.live_rows import COLUMNS, produce
from tests.harness.table_history import move, rewrite

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::polars.exceptions.PerformanceWarning"),
]

STATEMENTS = (
    "SELECT count(*), min(n), max(n), sum(n) FROM {t}",
    "SELECT n FROM {t} WHERE n >= 30 ORDER BY n",
)
MINUTE_MS = 60_000
#: Makes a table's history; returns the warehouses to read it by.
History = Callable[["Site"], tuple[str, ...]]


class Site:
    """One table, bound to a topic or not, and what happens to it."""

    def __init__(self, kafka: Kafka, live: LiveServer) -> None:
        self.kafka, self.live = kafka, live
        self.topic = ""
        self.table: TableName

    def bind(self) -> None:
        self.topic = self.kafka.topic(2)
        self.table = self.live.bind(self.topic, COLUMNS)

    def plain(self, *commits: int) -> None:
        """A table without a topic, with a commit of so many rows each."""
        self.table = self.live.create_plain(numbers(0, 0))
        for rows in commits:
            self.append(rows)

    def append(self, rows: int, branch: str = MAIN) -> None:
        """Append rows to a plain table, or to a new branch of any."""
        with self.live.catalog() as catalog:
            table = catalog.load_table((*self.table.namespace, self.table.name))
            arrow = numbers(1_000, rows)
            if self.topic:
                arrow = arrow.cast(pa.schema([pa.field("n", pa.int32())]))
            if branch != MAIN:
                head = table.metadata.current_snapshot_id
                assert head is not None
                table.manage_snapshots().create_branch(head, branch).commit()
            table.append(arrow, branch=branch)
        self.live.refresh(self.table)

    def produce(self, start: int, stop: int) -> None:
        produce(self.kafka, self.topic, start, stop)

    def tier(self) -> None:
        self.live.tier(self.table)
        self.live.refresh(self.table)

    def cut(self) -> str:
        return f"lake@{self.live.cut(self.table)}"

    def rewrite(self, **offsets_ms: int) -> None:
        with self.live.catalog() as catalog:
            rewrite(catalog, self.table, move(**offsets_ms))
        self.live.refresh(self.table)

    def check(self, warehouse: str, flink: Flink | None = None) -> None:
        """Ask engines by a warehouse, and Flight at the cut of the same load; with Flink, it and Spark."""
        live, table = self.live, self.table
        cut = live.document(table, warehouse)["metadata"]["properties"][LIVE_CUT]
        at = f"{table} AT (VERSION => '{cut}')"
        expected = {
            sql: [tuple(row.values()) for row in live.ask(sql.format(t=at)).to_pylist()]
            for sql in STATEMENTS
        }
        if flink is not None:
            assert answers(live.through_spark(table, warehouse)) == expected, warehouse
            source = flink.live_table(live.address, table, warehouse)
            for sql, rows in expected.items():
                texts = [
                    ["null" if value is None else str(value) for value in row] for row in rows
                ]
                assert flink.ask(sql.format(t=source)) == texts, (warehouse, sql)
            return
        with live.through_duckdb(table, warehouse) as duck:
            assert answers(duck) == expected, warehouse
        polars = live.polars(table, warehouse).collect().to_arrow()
        for rows in (live.arrow(table, warehouse), polars):
            with duckdb.connect() as plain:
                plain.register("t", rows)
                own = {sql: plain.execute(sql.format(t="t")).fetchall() for sql in STATEMENTS}
                assert own == expected, warehouse


def answers(engine: Engine) -> dict[str, list[tuple[Any, ...]]]:
    return {sql: engine(sql) for sql in STATEMENTS}


def numbers(start: int, rows: int) -> pa.Table:
    return pa.table({"n": pa.array(range(start, start + rows), pa.int64())})


def before_a_publish(site: Site) -> tuple[str, ...]:
    site.bind()
    site.produce(0, 40)
    site.tier()
    site.produce(40, 50)
    cut = site.cut()
    site.produce(50, 60)
    site.tier()
    site.produce(60, 70)
    return cut, "lake", "lake@cold"


def before_the_first_publish(site: Site) -> tuple[str, ...]:
    site.bind()
    empty = site.cut()
    site.produce(0, 40)
    cut = site.cut()
    site.tier()
    return empty, cut, "lake"


def branch(site: Site) -> tuple[str, ...]:
    site.bind()
    site.produce(0, 40)
    site.tier()
    site.produce(40, 50)
    site.append(7, branch="other")
    return "lake", "lake@cold"


def stage(site: Site) -> tuple[str, ...]:
    site.bind()
    site.produce(0, 40)
    empty = site.cut()
    site.live.stage(site.table)
    site.live.refresh(site.table)
    site.produce(40, 50)
    names = site.live.document(site.table)["metadata"]["refs"]
    assert any(name.startswith(STAGE_BRANCH_PREFIX) for name in names)
    return "lake", empty, "lake@cold"


def tag(site: Site) -> tuple[str, ...]:
    site.bind()
    site.produce(0, 40)
    site.tier()
    site.live.spark(site.table).sql("ALTER TABLE {t} CREATE TAG first")
    site.produce(40, 60)
    site.tier()
    site.produce(60, 65)
    return "lake", "lake@cold"


def rollback(site: Site) -> tuple[str, ...]:
    site.bind()
    site.produce(0, 40)
    site.tier()
    first = site.live.running.pins.get(site.table).snapshot_id
    site.produce(40, 60)
    site.tier()
    site.produce(60, 65)
    cut = site.cut()
    site.live.spark(site.table).call("rollback_to_snapshot", f"snapshot_id => {first}")
    site.live.refresh(site.table)
    return "lake", cut, "lake@cold"


def plain_rollback(site: Site) -> tuple[str, ...]:
    site.plain(10, 100)
    cut = site.cut()
    with site.live.catalog() as catalog:
        table = catalog.load_table((*site.table.namespace, site.table.name))
        table.manage_snapshots().rollback_to_snapshot(
            table.metadata.snapshots[1].snapshot_id
        ).commit()
    site.live.refresh(site.table)
    return "lake", cut


def plain_branch(site: Site) -> tuple[str, ...]:
    site.plain(10)
    cut = site.cut()
    site.append(100, branch="other")
    return "lake", cut


def plain_replaced(site: Site) -> tuple[str, ...]:
    site.plain(10)
    site.live.spark(site.table).sql("CREATE OR REPLACE TABLE {t} (n bigint) USING iceberg")
    site.live.refresh(site.table)
    return ("lake",)


def plain_before_its_first_commit(site: Site) -> tuple[str, ...]:
    site.table = site.live.name()
    site.live.spark(site.table).sql("CREATE TABLE {t} (n bigint) USING iceberg")
    site.live.refresh(site.table)
    empty = site.cut()
    site.append(10)
    return empty, "lake"


def ahead_of_the_clock(site: Site) -> tuple[str, ...]:
    site.bind()
    site.produce(0, 40)
    site.tier()
    site.rewrite(at_1=MINUTE_MS)
    site.produce(40, 50)
    return "lake", "lake@cold"


def plain_ahead_of_the_clock(site: Site) -> tuple[str, ...]:
    site.plain(10, 100)
    site.rewrite(at_2=MINUTE_MS)
    return ("lake",)


def one_millisecond(site: Site) -> tuple[str, ...]:
    site.bind()
    site.produce(0, 40)
    site.tier()
    site.produce(40, 50)
    cut = site.cut()
    site.tier()
    site.produce(50, 55)
    times = [
        entry["timestamp-ms"]
        for entry in site.live.document(site.table)["metadata"]["snapshot-log"]
    ]
    site.rewrite(at_1=times[2] - times[1])
    return "lake", cut, "lake@cold"


#: Those of ``make test``, and others of their kinds.
HISTORIES: tuple[History, ...] = (
    before_a_publish, stage, rollback, plain_rollback, plain_branch, plain_replaced,
    plain_before_its_first_commit, plain_ahead_of_the_clock,
)  # fmt: skip
OTHERS: tuple[History, ...] = (
    before_the_first_publish, branch, tag, ahead_of_the_clock, one_millisecond,
)  # fmt: skip


@pytest.mark.parametrize(
    "history",
    [*HISTORIES, *(pytest.param(history, marks=pytest.mark.soak) for history in OTHERS)],
    ids=lambda history: history.__name__,
)
def test_engines_read_what_flight_reads(
    kafka: Kafka, live: LiveServer, history: History
) -> None:
    site = Site(kafka, live)
    for warehouse in history(site):
        site.check(warehouse)


@pytest.mark.soak
@pytest.mark.parametrize("history", [*HISTORIES, *OTHERS], ids=lambda history: history.__name__)
def test_spark_and_flink_read_what_flight_reads(
    kafka: Kafka, live: LiveServer, flink: Flink, history: History
) -> None:
    site = Site(kafka, live)
    for warehouse in history(site):
        site.check(warehouse, flink)


def test_a_transaction_of_duckdb_that_began_before_a_publish_reads_all_rows(
    kafka: Kafka, live: LiveServer
) -> None:
    site = Site(kafka, live)
    site.bind()
    site.produce(0, 40)
    site.tier()
    count = "SELECT count(*) FROM {t}"
    with live.through_duckdb(site.table) as duck:
        duck("BEGIN")
        duck("SELECT 1")
        site.produce(40, 50)
        site.tier()
        site.produce(50, 55)
        assert duck(count) == [(55,)]
        site.produce(55, 60)
        assert duck(count) == [(55,)]
        duck("COMMIT")
        assert duck(count) == [(60,)]


def test_the_past_in_duckdb_is_what_was_committed(
    kafka: Kafka, live: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, hour_ms = Site(kafka, live), 60 * MINUTE_MS
    site.bind()
    site.produce(0, 40)
    site.tier()
    site.produce(40, 60)
    site.tier()
    site.rewrite(at_0=-5 * hour_ms, at_1=-4 * hour_ms, at_2=-2 * hour_ms)
    site.produce(60, 70)
    site.tier()
    site.produce(70, 75)
    now = dt.datetime.now(dt.UTC)
    with live.through_duckdb(site.table) as duck:
        for minutes, rows in ((600, 0), (270, 0), (180, 40), (90, 60), (12, 60)):
            at = f"TIMESTAMP '{now - dt.timedelta(minutes=minutes):%Y-%m-%d %H:%M:%S}'"
            assert duck(f"SELECT count(*) FROM {{t}} AT (TIMESTAMP => {at})") == [(rows,)]
        document = live.document(site.table)["metadata"]
        for entry, rows in zip(document["snapshot-log"], (0, 40, 60, 70), strict=True):
            version = f"AT (VERSION => {entry['snapshot-id']})"
            assert duck(f"SELECT count(*) FROM {{t}} {version}") == [(rows,)]
        assert duck("SELECT count(*) FROM {t}") == [(75,)]
        # To a transaction from before the earliest time of the head, as if it had begun minutes ago.
        monkeypatch.setattr(client_answers, "DUCKDB_SKEW_MS", -2 * MINUTE_MS)
        site.produce(75, 80)
        assert duck("SELECT count(*) FROM {t}") == [(70,)]


def test_the_past_of_a_table_that_was_rolled_back(kafka: Kafka, live: LiveServer) -> None:
    site, hour_ms = Site(kafka, live), 60 * MINUTE_MS
    plain_rollback(site)
    site.rewrite(at_0=-9 * hour_ms, at_1=-5 * hour_ms, at_2=-3 * hour_ms, at_3=-hour_ms)
    now = dt.datetime.now(dt.UTC)
    with live.through_duckdb(site.table) as duck, live.cursor() as flight:
        for minutes, rows in ((240, 10), (120, 110), (30, 10)):
            at = f"AT (TIMESTAMP => TIMESTAMP '{now - dt.timedelta(minutes=minutes):%Y-%m-%d %H:%M:%S}')"
            flight.execute(f"SELECT count(*) FROM {site.table} {at}")
            assert flight.fetchall() == [(rows,)]
            assert duck(f"SELECT count(*) FROM {{t}} {at}") == [(rows,)]
