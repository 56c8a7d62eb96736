"""Answers in parts: several endpoints where that is what a header says, which are together what one would be, at one cut."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pytest

from planner.names import TableName
from tests.fixtures.kafka import Kafka
from tests.fixtures.permissions import COLUMN, PAY, ROW, PermissionsServer
from tests.fixtures.server import TieredServer
from tests.harness.spark_rows import PAYLOAD, record

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

HEADER = "adbc.flight.sql.rpc.call_header.thermocline-"


@dataclass(frozen=True)
class Parts:
    """A statement, its endpoints, and the text of its cut."""

    cursor: adbc.Cursor
    sql: str
    endpoints: list[bytes]
    cut: str

    @classmethod
    def of(cls, cursor: adbc.Cursor, sql: str, count: int | str | None) -> Parts:
        if count is not None:
            cursor.adbc_statement.set_options(**{f"{HEADER}max-endpoints": str(count)})
        endpoints, schema = cursor.adbc_execute_partitions(sql)
        cut = (schema.metadata or {}).get(b"thermocline.cut", b"").decode()
        return cls(cursor, sql, endpoints, cut)

    def part(self, number: int) -> Counter[str]:
        self.cursor.adbc_read_partition(self.endpoints[number])
        return counted(self.cursor.fetch_arrow_table())

    def union(self) -> Counter[str]:
        """The rows of all parts; none twice where a table has it once."""
        rows: Counter[str] = Counter()
        for number in range(len(self.endpoints)):
            rows += self.part(number)
        return rows


def counted(rows: pa.Table) -> Counter[str]:
    return Counter(map(repr, rows.to_pylist()))


def whole(server: TieredServer, sql: str, cut: str) -> Counter[str]:
    """What a client that asks for nothing gets, at a cut."""
    with server.cursor() as cursor:
        cursor.adbc_statement.set_options(**{f"{HEADER}cut": cut})
        cursor.execute(sql)
        return counted(cursor.fetch_arrow_table())


@pytest.fixture
def cursor(tiered_server: TieredServer) -> Iterator[adbc.Cursor]:
    with tiered_server.cursor() as opened:
        yield opened


@pytest.fixture(scope="module")
def flows(tiered_server: TieredServer, kafka: Kafka) -> tuple[TableName, str]:
    """Three data files, a column that older ones have under another name, and a tail in three partitions."""
    topic = kafka.topic(3)
    table = tiered_server.bind(topic, PAYLOAD)
    for step in range(3):
        for partition in range(3):
            values = [record(n + 100 * partition) for n in range(10 * step, 10 * step + 10)]
            kafka.produce(topic, values, partition=partition)
        tiered_server.tier(table)
        if step == 0:
            tiered_server.spark(table).sql("ALTER TABLE {t} RENAME COLUMN host TO machine")
    for partition in range(3):
        values = [record(n + 100 * partition, machine="new") for n in range(30, 35 + partition)]
        kafka.produce(topic, values, partition=partition)
    tiered_server.refresh(table)
    return table, topic


SPLIT = (
    "FROM {t}",
    "SELECT id, upper(machine) AS m, place.city FROM {t} WHERE id % 3 = 0 OR load > 20",
    "SELECT * EXCLUDE (machine) FROM {t} WHERE kafka_partition <> 1 AND kafka_offset BETWEEN 5 AND 32",
    "SELECT id, now() AS at FROM {t} WHERE kafka_timestamp <= now()",
    'SELECT id FROM {n}."{s}$tail" WHERE id > 30',
    'SELECT id FROM {n}."{s}$cold"',
)


def text_of(sql: str, table: TableName) -> str:
    return sql.format(t=table, n=f"{table.catalog}.{table.schema}", s=table.name)


@pytest.mark.parametrize("sql", SPLIT)
def test_parts_are_together_the_answer(
    tiered_server: TieredServer,
    cursor: adbc.Cursor,
    flows: tuple[TableName, str],
    kafka: Kafka,
    sql: str,
) -> None:
    table, topic = flows
    text = text_of(sql, table)
    parts = Parts.of(cursor, text, 4)
    assert 2 <= len(parts.endpoints) <= 4
    # The cut is that of the plan, whatever comes.
    kafka.produce(topic, [record(77)], partition=2)
    rows, first = parts.union(), parts.part(1)
    assert parts.part(1) == first
    assert len(first) < len(rows)
    if "now()" not in sql:
        assert rows == whole(tiered_server, text, parts.cut)
    assert rows.total() == whole(tiered_server, text, parts.cut).total() > 0
    # Clients that ask for nothing, or for one, have one.
    assert len(Parts.of(cursor, text, 1).endpoints) == 1
    with tiered_server.cursor() as other:
        assert len(Parts.of(other, text, None).endpoints) == 1


NOT_SPLIT = (
    "SELECT count(*) FROM {t}",
    "SELECT * FROM {t} ORDER BY id",
    "SELECT * FROM {t} LIMIT 5",
    "SELECT DISTINCT machine FROM {t}",
    "SELECT a.id FROM {t} a JOIN {t} b USING (id)",
    "SELECT id, row_number() OVER (ORDER BY id) FROM {t}",
    "SELECT id FROM {t} WHERE id = (SELECT max(id) FROM {t})",
    'FROM {n}."{s}$seam"',
    "FROM information_schema.tables",
    "SELECT 1",
    "EXPLAIN FROM {t}",
)


def test_what_is_no_plain_scan_has_one_endpoint(
    cursor: adbc.Cursor, flows: tuple[TableName, str]
) -> None:
    for sql in NOT_SPLIT:
        assert len(Parts.of(cursor, text_of(sql, flows[0]), 8).endpoints) == 1, sql


def test_a_number_that_is_none_is_refused(
    cursor: adbc.Cursor, flows: tuple[TableName, str]
) -> None:
    for count in ("0", "65", "many", "-1"):
        with pytest.raises(adbc.Error, match="a number from 1 to 64"):
            Parts.of(cursor, f"FROM {flows[0]}", count)
    # As many as there are files and partitions at most.
    assert len(Parts.of(cursor, f"FROM {flows[0]}", 64).endpoints) <= 12


def test_parts_hold_with_deletes_without_a_tail_and_without_a_row(
    tiered_server: TieredServer, cursor: adbc.Cursor, kafka: Kafka
) -> None:
    topic = kafka.topic(2)
    table = tiered_server.bind(topic, PAYLOAD)
    assert len(Parts.of(cursor, f"FROM {table}", 4).endpoints) == 1
    for step in range(2):
        for partition in (0, 1):
            values = [record(n) for n in range(100 * step, 100 * step + 20)]
            kafka.produce(topic, values, partition=partition)
        tiered_server.tier(table)
    tiered_server.refresh(table)
    parts = Parts.of(cursor, f"FROM {table}", 4)
    assert len(parts.endpoints) >= 2
    assert parts.union() == whole(tiered_server, f"FROM {table}", parts.cut)
    # All files are pruned, and the tail is empty: nothing is left to share out.
    nothing = Parts.of(cursor, f"FROM {table} WHERE id > 5000", 4)
    assert (len(nothing.endpoints), nothing.union().total()) == (1, 0)
    past = parts.cut
    for mode in ("merge-on-read", "copy-on-write"):
        spark = tiered_server.spark(table)
        spark.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ('write.delete.mode'='{mode}')")
        spark.sql(f"DELETE FROM {{t}} WHERE id = {3 if mode == 'merge-on-read' else 105}")
        tiered_server.refresh(table)
        for partition in (0, 1):
            kafka.produce(topic, [record(7_000)], partition=partition)
        after = Parts.of(cursor, f"FROM {table}", 4)
        assert len(after.endpoints) >= 2
        rows = after.union()
        assert rows == whole(tiered_server, f"FROM {table}", after.cut)
        assert not any(f"'id': {3 if mode == 'merge-on-read' else 105}," in row for row in rows)
    # A cut of the past, which ends below its snapshot's watermark, in parts.
    tiered_server.tier(table)
    tiered_server.refresh(table)
    text = f"FROM {table} AT (VERSION => '{past}') WHERE id <> 3 AND id <> 105"
    older = Parts.of(cursor, text, 4)
    assert older.union() == whole(tiered_server, text, older.cut)
    assert older.union().total() == 76


def test_grants_hold_in_each_part(permissions_server: PermissionsServer) -> None:
    people = str(permissions_server.bound)
    for user, count, hidden in (
        ("boss", 31, ()),
        ("filtered", 20, (ROW,)),
        ("masked", 31, (COLUMN, PAY)),
        ("narrow", 31, (COLUMN, PAY)),
        ("both", 20, (ROW, COLUMN, PAY)),
    ):
        options = {
            "adbc.flight.sql.authorization_header": f"Bearer {permissions_server.tokens[user]}"
        }
        with permissions_server.server.cursor(**options) as cursor:
            parts = Parts.of(cursor, f"FROM {people}", 6)
            rows = parts.union()
            assert rows.total() == count
            for pattern in hidden:
                assert not pattern.search(repr(rows))
            # Who may not know how many records there are learns nothing by how many parts there are.
            for sql in (f"FROM {people}", f"FROM {people} WHERE id = 1"):
                endpoints = Parts.of(cursor, sql, 6).endpoints
                assert (len(endpoints) == 6) == (user == "both")
                if user == "both":
                    assert len({len(endpoint) for endpoint in endpoints}) == 1
                    assert len(set(endpoints)) == 6
            assert bool(parts.cut) == (user != "both")


def test_a_part_is_its_users_alone(permissions_server: PermissionsServer) -> None:
    people = str(permissions_server.bound)
    tokens = permissions_server.tokens
    with contextlib.ExitStack() as stack:
        cursors: dict[str, Any] = {
            user: stack.enter_context(
                permissions_server.server.cursor(
                    **{"adbc.flight.sql.authorization_header": f"Bearer {tokens[user]}"}
                )
            )
            for user in ("both", "masked")
        }
        parts = Parts.of(cursors["both"], f"FROM {people}", 6)
        with pytest.raises(adbc.Error, match="another user"):
            Parts(cursors["masked"], parts.sql, parts.endpoints, "").part(0)
