"""Ask a lake one statement, and compare the answer with plain DuckDB over what its ledger says is true."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cache

import duckdb
import pyarrow as pa

from planner.errors import (
    CutExpired,
    FederationError,
    LogTruncated,
    OffsetsExpired,
    SnapshotExpired,
    TopicRecreated,
)
from planner.names import TableName
from planner.seam.time_travel import format_cut
from planner.ticket import TicketTable
from proxy.query.cut import redeem_tables
from tests.harness.lake import FLOWS, HOSTS, Lake
from tests.harness.ledger import Topic, hidden_swap
from tests.harness.serving import SESSION

#: What happened in all examples together: an event that never came proves nothing.
EVENTS: Counter[str] = Counter()


@dataclass(frozen=True)
class Statement:
    """``plain`` is what DuckDB is asked where it has no table of that name.

    ``any_rows``: it answers so many of these rows, whichever they are.
    """

    name: str
    tables: tuple[TableName, ...]
    sql: str
    plain: str | None = None
    parameter: int | None = None
    any_rows: int | None = None


_HOSTS = "* REPLACE (kafka_error IS NOT NULL AS kafka_error)"
STATEMENTS = (
    Statement("whole", (FLOWS,), "SELECT * FROM flows"),
    Statement("whole with errors", (HOSTS,), f"SELECT {_HOSTS} FROM hosts"),
    Statement(
        "aggregate",
        (FLOWS,),
        "SELECT kafka_partition, count(*), sum(n), min(seen), max(price), min(kafka_offset), "
        'count(DISTINCT "at".x) FROM flows GROUP BY ALL',
    ),
    Statement("count", (FLOWS,), "SELECT count(*) FROM flows"),
    Statement(
        "extremes",
        (FLOWS,),
        "SELECT min(n), max(n) - min(n), max(seen), count(*), max(kafka_timestamp), min(price) FROM flows",
    ),
    Statement(
        "a look", (FLOWS,), "SELECT * FROM flows LIMIT 3", "SELECT * FROM flows", any_rows=3
    ),
    Statement("filter", (FLOWS,), "SELECT * FROM flows WHERE n > ? OR ratio > 1", parameter=3),
    Statement(
        "names with a path",
        (FLOWS,),
        'SELECT lake.net.flows.n, net.flows."at".x, net.flows AS whole FROM flows '
        "WHERE lake.net.flows.kafka_offset >= (SELECT min(b.kafka_offset) FROM flows b WHERE b.n = net.flows.n)",
        'SELECT n, "at".x, flows AS whole FROM flows '
        "WHERE kafka_offset >= (SELECT min(b.kafka_offset) FROM flows b WHERE b.n = flows.n)",
    ),
    Statement(
        "self-join",
        (FLOWS,),
        "SELECT a.kafka_offset, b.kafka_offset AS other, b.tags FROM flows a JOIN flows b "
        "ON a.kafka_partition = b.kafka_partition AND a.n = b.n AND a.kafka_offset <= b.kafka_offset",
    ),
    Statement(
        "CTE used twice",
        (FLOWS,),
        "WITH c AS (SELECT * FROM flows WHERE n IS NOT NULL) "
        "SELECT x.k, y.k AS last FROM (SELECT count(*) AS k FROM c) x, (SELECT max(kafka_offset) AS k FROM c) y",
    ),
    Statement(
        "set operation",
        (FLOWS, HOSTS),
        "(SELECT kafka_partition, n FROM flows) EXCEPT ALL (SELECT kafka_partition, n FROM hosts)",
    ),
    Statement(
        "two topics",
        (FLOWS, HOSTS),
        "SELECT f.kafka_offset, f.n, h.id, h.kafka_key FROM flows f FULL JOIN hosts h "
        "ON f.n = h.n AND f.kafka_partition = h.kafka_partition",
    ),
    Statement(
        "cold and tail",
        (FLOWS,),
        'SELECT * FROM "flows$cold" UNION ALL SELECT * FROM "flows$tail"',
        "SELECT * FROM flows",
    ),
    Statement(
        "seam",
        (FLOWS,),
        'SELECT kafka_partition, log_end FROM "flows$seam"',
        "SELECT kafka_partition, log_end FROM ends",
    ),
)
WHOLE = {FLOWS: STATEMENTS[0], HOSTS: STATEMENTS[1]}


@dataclass(frozen=True)
class SavedTicket:
    """A ticket with the answer of its cut. ``truncations`` per table: how many there had been."""

    statement: Statement
    ticket: bytes
    tables: tuple[TicketTable, ...]
    answer: pa.Table
    truncations: tuple[int, ...]
    topics: tuple[Topic, ...]
    unsure: bool
    cut: str = ""


@cache
def duck() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"threads": "1"})
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def plain_duckdb(statement: Statement, tables: dict[str, pa.Table]) -> pa.Table:
    connection = duck()
    for name, rows in tables.items():
        # Copied: filters on Arrow tables are left to pyarrow, to which NaN is not above 1.
        connection.register("rows", rows)
        connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS FROM rows")
        connection.unregister("rows")
    values = None if statement.parameter is None else [statement.parameter]
    return connection.execute(statement.plain or statement.sql, values).to_arrow_table()


def bag(table: pa.Table) -> Counter[str]:
    """Rows without order; ``repr`` keeps 1 and 1.0, -0.0 and 0.0, 1.50 and 1.5 apart."""
    return Counter(map(repr, map(tuple, map(dict.items, table.to_pylist()))))


class Asking:
    """What a reader does with a lake. Every refusal must have a cause in the world."""

    lake: Lake

    @staticmethod
    def justify(error: FederationError, causes: set[type[FederationError]]) -> None:
        assert type(error) in causes, (error, causes)

    def stands(self, table: TableName, snapshot_id: int | None) -> bool:
        lake = self.lake
        facts = replace(lake.store.facts(table), head=snapshot_id)
        return not (
            snapshot_id in lake.lost | lake.rewound
            or lake.causes_of(facts)
            or hidden_swap(facts, lake.versions)
        )

    def planned(self, statement: Statement) -> SavedTicket | None:
        lake = self.lake
        try:
            ticket, reply = lake.plan(statement.sql, statement.parameter)
        except FederationError as error:
            EVENTS[type(error).__name__] += 1
            causes = {
                cause for table in statement.tables for cause in lake.may_refuse_to_plan(table)
            }
            self.justify(error, causes)
            return None
        tables: dict[str, pa.Table] = {}
        unsure = False
        topics = tuple(lake.versions[item.snapshot_id or 0].topic for item in reply.tables)
        for item, topic in zip(reply.tables, topics, strict=True):
            # Now, and not what the ticket says: the answer reaches to the last committed record.
            expected = lake.expected(item, topic.ends())
            if expected is None:
                EVENTS["not promised"] += 1
                return None
            sure, maybe = expected
            if maybe.num_rows:
                unsure = True
                present = self.present(item.table, sure, maybe)
                if present is None:
                    return None
                sure = pa.concat_tables([sure, present])
            tables[item.table.name] = sure
            covered = lake.versions[item.snapshot_id or 0].covered
            # A partition that is new and empty is in neither watermark nor tail.
            ends = {at: end for at, end in enumerate(topic.ends()) if end or at in covered}
            tables["ends"] = pa.table(
                {
                    "kafka_partition": pa.array(list(ends), pa.int32()),
                    "log_end": pa.array(list(ends.values()), pa.int64()),
                }
            )
            assert {(r.partition, r.start, r.stop) for r in item.ranges} == {
                (partition, covered.get(partition, 0), end)
                for partition, end in ends.items()
                if end > covered.get(partition, 0)
            }
        truncations = tuple(len(topic.truncations) for topic in topics)
        answer = plain_duckdb(statement, tables)
        cut = format_cut(redeem_tables(lake.board, reply.tables))
        return SavedTicket(
            statement, ticket, reply.tables, answer, truncations, topics, unsure, cut
        )

    def present(self, table: TableName, sure: pa.Table, maybe: pa.Table) -> pa.Table | None:
        """Ask which of the rows that a compacted log may have lost are in the answer now."""
        EVENTS["compacted tail"] += 1
        places = f"SELECT kafka_partition, kafka_offset FROM {table}"
        ticket, reply = self.lake.plan(places)
        answer = self.answer(ticket, reply.tables)
        if answer is None:
            return None
        result = bag(answer)
        must, may = (bag(rows.select(answer.column_names)) for rows in (sure, maybe))
        assert max(result.values(), default=1) == 1
        assert must <= result <= must + may
        mask = [
            repr(tuple(row.items())) in result
            for row in maybe.select(answer.column_names).to_pylist()
        ]
        return maybe.filter(pa.array(mask, pa.bool_()))

    def answer(self, ticket: bytes, tables: tuple[TicketTable, ...]) -> pa.Table | None:
        try:
            return self.lake.open(ticket)
        except FederationError as error:
            EVENTS[f"open: {type(error).__name__}"] += 1
            causes = {cause for item in tables for cause in self.lake.may_refuse_to_open(item)}
            self.justify(error, causes)
            return None

    def opened(self, saved: SavedTicket) -> bool:
        answer = self.answer(saved.ticket, saved.tables)
        if answer is None:
            return False
        for item, topic, count in zip(
            saved.tables, saved.topics, saved.truncations, strict=True
        ):
            stops = {span.partition: span.stop for span in item.ranges}
            since = topic.truncations[count:]
            if any(end < stops.get(partition, 0) for partition, end in since):
                EVENTS["not promised"] += 1
                return False
        if any(map(self.is_changed_and_gone, saved.tables)):
            EVENTS["moved over a foreign change"] += 1
            return False
        EVENTS[saved.statement.name] += 1
        assert answer.schema.equals(saved.answer.schema), (answer.schema, saved.answer.schema)
        any_rows = saved.statement.any_rows
        if any_rows is not None:
            assert bag(answer) <= bag(saved.answer), saved.statement
            is_sure = not saved.unsure and not self.compacted_since(saved)
            expected = min(any_rows, saved.answer.num_rows)
            assert answer.num_rows == expected or not is_sure, saved.statement
        elif not saved.unsure and not self.compacted_since(saved):
            assert bag(answer) == bag(saved.answer), saved.statement
            EVENTS["with rows"] += answer.num_rows > 0
        elif saved.statement in WHOLE.values():
            assert bag(answer) <= bag(saved.answer), saved.statement
        return True

    # --- the past ---

    def returned(self, saved: SavedTicket) -> bool:
        """Ask a kept statement at its own cut: the same answer, or the past is gone for a reason."""
        lake = self.lake
        try:
            ticket, reply = lake.plan(
                saved.statement.sql, saved.statement.parameter, replace(SESSION, cut=saved.cut)
            )
        except FederationError as error:
            EVENTS[f"return: {type(error).__name__}"] += 1
            self.justify(
                error, {cause for item in saved.tables for cause in self.may_be_past(item)}
            )
            return False
        now = zip(saved.tables, reply.tables, strict=True)
        moved = [(old, new) for old, new in now if old.snapshot_id != new.snapshot_id]
        EVENTS["return to another snapshot"] += bool(moved)
        if any(self.differs(old, new) for old, new in moved):
            EVENTS["moved over a foreign change"] += 1
            return False
        again = replace(saved, ticket=ticket, tables=reply.tables)
        # What compaction of the log may have taken since depends on the ranges of both cuts.
        return not self.compacted_since(saved) and self.opened(again)

    def differs(self, old: TicketTable, new: TicketTable) -> bool:
        """Whether another snapshot tells other rows below an end: others changed them."""
        then, now = (
            self.lake.versions[old.snapshot_id or 0],
            self.lake.versions[new.snapshot_id or 0],
        )
        return not self.stands(new.table, new.snapshot_id) or (then.gone, then.updated) != (
            now.gone,
            now.updated,
        )

    def may_be_past(self, ticket_table: TicketTable) -> set[type[FederationError]]:
        """Why a cut may be refused: it cannot be opened as it was, and what is newest is no way either."""
        lake = self.lake
        facts = lake.store.facts(ticket_table.table)
        result = lake.may_refuse_to_plan(ticket_table.table) | lake.may_refuse_to_open(
            ticket_table
        )
        if ticket_table.snapshot_id not in facts.history.snapshots or lake.causes_of(
            replace(facts, head=ticket_table.snapshot_id)
        ):
            result.add(CutExpired)
        if {SnapshotExpired, OffsetsExpired, LogTruncated, TopicRecreated} & result:
            result.add(CutExpired)
        return result

    def looked_back(self, table: TableName, snapshot_id: int) -> bool:
        """Ask for one version: exactly the rows that were tiered into it, in the columns of then."""
        lake = self.lake
        facts = lake.store.facts(table)
        sql = f"{WHOLE[table].sql} AT (VERSION => {snapshot_id})"
        try:
            ticket, reply = lake.plan(sql)
        except FederationError as error:
            EVENTS[f"look back: {type(error).__name__}"] += 1
            causes = lake.may_refuse_to_plan(table)
            if snapshot_id in facts.history.snapshots:
                causes |= lake.causes_of(replace(facts, head=snapshot_id))
            if (
                snapshot_id not in facts.history.snapshots
                or snapshot_id in lake.lost
                or not lake.catalog_answers
            ):
                causes |= {CutExpired, SnapshotExpired}
            self.justify(error, causes)
            return False
        (item,) = reply.tables
        assert item.ranges == ()
        answer = self.answer(ticket, reply.tables)
        expected = lake.expected_version(item)
        if answer is None or expected is None:
            return False
        assert bag(answer) == bag(plain_duckdb(WHOLE[table], {table.name: expected})), sql
        EVENTS["look back"] += 1
        EVENTS["look back with rows"] += answer.num_rows > 0
        return True

    def is_changed_and_gone(self, ticket_table: TicketTable) -> bool:
        """Whether a ticket's snapshot is gone and others changed rows since: then the newest one answers."""
        lake = self.lake
        if ticket_table.snapshot_id not in lake.lost:
            return False
        facts = lake.store.facts(ticket_table.table)
        then, now = lake.versions[ticket_table.snapshot_id], lake.versions[facts.head or 0]
        sound = self.stands(ticket_table.table, facts.head)
        return not sound or (then.gone, then.updated) != (now.gone, now.updated)

    def compacted_since(self, saved: SavedTicket) -> bool:
        return any(
            slot.compacted
            for item, topic in zip(saved.tables, saved.topics, strict=True)
            for span in item.ranges
            for slot in topic.partitions[span.partition][span.start : span.stop]
        )
