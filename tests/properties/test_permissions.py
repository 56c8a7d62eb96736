"""Under a random grant, a random statement answers as plain DuckDB does over the table filtered and masked before."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from connectors.iceberg.store import IcebergStore
from planner.errors import BadStatement, FederationError
from planner.names import TableName
from planner.permissions import ANY, Grant, GrantList, TablePattern
from planner.sql_text import identifier
from planner.type_text import sql_type
from proxy.query.executor import Statements
from proxy.session import Deadline, Session
from tests.doubles.log import MemoryLog
from tests.fixtures.engine import Place
from tests.harness.asking import bag
from tests.harness.cold_tables import folder_of
from tests.harness.lake import FLOWS, Lake
from tests.harness.serving import forget, serve

ADA = Session("test", "ada", frozenset({"eu", "staff"}))
ROOT = Session("root", "root")
#: Values of hidden rows begin so, and of no other.
HIDDEN = "HIDDEN"

#: Constants and masks by what a column holds.
CONSTANTS = {
    "BIGINT": ("0", "7", "20", "45", "99", "-1"),
    "INTEGER": ("0", "3", "5", "-1"),
    "VARCHAR": ("'a'", "'eu'", "'5'", "'HIDDEN'", "'zz'", "''"),
    "DOUBLE": ("0.0", "1.5", "'NaN'::DOUBLE", "-2.5"),
    "DATE": ("DATE '2026-01-05'", "DATE '1969-12-31'"),
}
MASKS = {
    "BIGINT": ("NULL", "{c} % 3", "99 - {c}", "CAST({c} AS VARCHAR)", "20 * length({c}::VARCHAR)"),
    "INTEGER": ("NULL", "{c} // 2", "CAST('x' AS INTEGER)"),
    "VARCHAR": ("NULL", "left({c}, 1)", "current_user", "regexp_replace({c}, '[0-9]', 'x', 'g')", "md5({c})",
                "CAST(CAST({c} AS INTEGER) AS VARCHAR)"),
    "DOUBLE": ("NULL", "round({c})", "0"),
    "DATE": ("NULL", "date_trunc('month', {c})"),
}  # fmt: skip
#: May fail on a row, and then quote it.
FAILING = ("CAST({c} AS INTEGER)", "CAST({c} AS UUID)", "strptime({c}, '%Y')", "CAST({c} AS BIT)",
           "datediff({c}, DATE '2026-01-01', DATE '2026-01-02')")  # fmt: skip


@dataclass
class World:
    """A table behind a server. ``types`` are DuckDB's, of the columns statements and grants are about."""

    statements: Statements
    table: TableName
    types: dict[str, str]

    def ask(self, session: Session, sql: str) -> pa.Table:
        planned = self.statements.plan(session, sql, None, Deadline(60))
        stream = self.statements.open(session, planned.ticket, Deadline(60))
        try:
            return pa.Table.from_batches(list(stream), stream.schema.remove_metadata())
        finally:
            stream.close()

    def named(self, sql: str) -> str:
        """A statement over ``t``, over the table."""
        return re.sub(r"\b(FROM|JOIN) t\b", rf"\1 {self.table}", sql)

    def answer_of(self, sql: str) -> pa.Table | FederationError:
        """What is answered to a statement over ``t``."""
        try:
            return self.ask(ADA, self.named(sql))
        except FederationError as error:
            return error


@pytest.fixture(scope="module")
def iceberg(place: Place) -> Iterator[World]:
    """Five files, apart by ``id``: statements leave some of them out."""
    folder = place.root / "permissions"
    folder.mkdir()
    rows = [
        {
            "id": None if number % 17 == 0 else number,
            "v": None if number % 11 == 0 else f"HIDDEN{number}" if number % 5 == 4 else str(number % 7),
            "r": (None, "eu", "us", "eu", "hid")[number % 5],
            "x": (0.0, -0.0, float("nan"), 1.5, None)[number % 5],
            "n": number % 6,
        }
        for number in range(100)
    ]  # fmt: skip
    schema = pa.schema(
        [("id", pa.int64()), ("v", pa.string()), ("r", pa.string()), ("x", pa.float64()), ("n", pa.int32())]
    )  # fmt: skip
    catalog = load_catalog("c", **folder_of(folder))
    catalog.create_namespace("n")
    made = catalog.create_table("n.t", schema)
    for start in range(0, 100, 20):
        made.append(pa.Table.from_pylist(rows[start : start + 20], schema))
    catalog.close()
    store = IcebergStore({"c": folder_of(folder)})
    board, tails, statements = serve(store, MemoryLog(), runs_in=place.engine)
    types = {"id": "BIGINT", "v": "VARCHAR", "r": "VARCHAR", "x": "DOUBLE", "n": "INTEGER"}
    yield World(statements, TableName("c", ("n",), "t"), types)
    forget(board, tails)
    store.close()


@pytest.fixture(scope="module")
def seam_permissions() -> Iterator[World]:
    """A topic, half of it tiered."""
    lake = Lake()
    for number in range(40):
        lake.produce(lake.topics["flows"], number % 2, "bad" if number % 9 == 0 else "good")
        if number == 20:
            target, plan = lake.plan_tiering(FLOWS, 100)
            lake.publish(lake.stage(FLOWS, target, plan))
            lake.board.refresh(FLOWS)
    types = {"n": "INTEGER", "host": "VARCHAR", "ratio": "DOUBLE", "kafka_offset": "BIGINT",
             "kafka_partition": "INTEGER"}  # fmt: skip
    yield World(lake.statements, FLOWS, types)
    lake.stop_server()


class Drawn:
    """Grants and statements, by chance."""

    def __init__(self, seed: int, types: dict[str, str], table: TableName) -> None:
        self.chance = random.Random(seed)
        self.types = types
        self.table = table

    def some(self, least: int = 0) -> list[str]:
        names = list(self.types)
        return self.chance.sample(names, self.chance.randint(least, len(names)))

    def condition(self, names: Sequence[str], depth: int = 2) -> str:
        kind = self.chance.randrange(9 if depth else 6)
        if kind >= 6:
            parts = [self.condition(names, depth - 1) for _ in range(2)]
            return (f"({parts[0]} AND {parts[1]})", f"({parts[0]} OR {parts[1]})", f"(NOT {parts[0]})")[kind - 6]  # fmt: skip
        name = self.chance.choice(names)
        kind_of = self.types[name.removeprefix("b.")]
        first, second = (self.chance.choice(CONSTANTS[kind_of]) for _ in range(2))
        operator = self.chance.choice(("=", "<", "<=", ">", ">=", "<>"))
        return (
            f"{name} {operator} {first}", f"{name} IN ({first}, {second})", f"{name} IS NULL",
            f"{name} IS NOT NULL", f"{name} BETWEEN {first} AND {second}", f"{name} {operator} {second}",
        )[kind]  # fmt: skip

    def rows(self) -> str | None:
        names, kind = list(self.types), self.chance.randrange(6)
        text = self.chance.choice([name for name in names if self.types[name] == "VARCHAR"])
        if kind == 0:
            return None
        if kind == 1:
            return f"list_contains(current_groups, {text}) OR {self.condition(names)}"
        if kind == 2:
            return f"CAST({text} AS INTEGER) >= 0 OR {text} = current_user"
        if kind == 3:
            return f"{text} NOT LIKE '{HIDDEN}%'"
        return self.condition(names)

    def grant(self, world: World) -> Grant:
        read = world.statements.access.expression
        opened = self.some(1)
        columns: tuple[str, ...]
        without: tuple[str, ...]
        columns, without = ((ANY,), ()) if self.chance.random() < 0.5 else (tuple(opened), ())
        if columns == (ANY,) and self.chance.random() < 0.5:
            without = tuple(name for name in self.types if name not in opened)
        rows = self.rows()
        masks = self.chance.sample(opened, min(len(opened), self.chance.randint(0, 3)))
        return Grant(
            "drawn",
            (TablePattern.parse("*"),),
            users=frozenset({"ada"}),
            columns=columns,
            without=without,
            rows=None if rows is None else read(rows),
            masks=tuple(
                (name, read(self.chance.choice(MASKS[self.types[name]]).format(c=name)))
                for name in masks
            ),
        )

    def statement(self, visible: Sequence[str]) -> str:
        """Over table ``t``: now and then of columns that are not there, or failing on some values."""
        names = list(self.types) if self.chance.random() < 0.15 else list(visible)
        first, second = self.chance.choice(names), self.chance.choice(names)
        where = f"WHERE {self.condition(names)}" if self.chance.random() < 0.7 else ""
        texts = [name for name in names if self.types[name] == "VARCHAR"]
        if texts and self.chance.random() < 0.25:
            failing = self.chance.choice(FAILING).format(c=self.chance.choice(texts))
            return self.chance.choice(
                (
                    f"SELECT count(*) FROM t WHERE {failing} IS NOT NULL",
                    f"SELECT CAST({failing} AS VARCHAR) AS f FROM t",
                    f"SELECT max(CAST({failing} AS VARCHAR)) FROM t",
                )
            )
        path = self.chance.choice((str(self.table), f"{self.table.schema}.{self.table.name}"))
        return self.chance.choice(
            (
                f"SELECT {path}.{first} AS one, {path} AS whole FROM t {where}",
                f"SELECT {first}, (SELECT count(*) FROM t AS b WHERE b.{second} = {path}.{second}) AS k FROM t",
                f"SELECT {', '.join(dict.fromkeys(names))} FROM t {where}",
                f"SELECT count(*), min({first}), max({first}), count(DISTINCT {second}) FROM t {where}",
                f"SELECT {first}, count(*) AS k FROM t {where} GROUP BY ALL",
                f"SELECT a.{first} AS one, b.{second} AS two FROM t AS a JOIN t AS b ON a.{first} = b.{first}",
                f"SELECT {first} FROM t WHERE {second} IN (SELECT {second} FROM t {where})",
                f"SELECT {first}, (SELECT count(*) FROM t AS b WHERE b.{second} = a.{second}) AS k FROM t AS a",
                f"SELECT {first} FROM t AS a WHERE EXISTS (SELECT 1 FROM t AS b WHERE b.{second} < a.{second})",
                f"SELECT a.{first}, k FROM t AS a, LATERAL (SELECT max(b.{second}) AS k FROM t AS b "
                f"WHERE b.{first} = a.{first} AND {self.condition([f'b.{name}' for name in names])})",
                f"SELECT {first}, count(*) OVER (PARTITION BY {second}) AS k FROM t {where}",
                f"WITH c AS (SELECT * FROM t {where}) SELECT {first} FROM c EXCEPT ALL SELECT {first} FROM t "
                f"WHERE {self.condition(names)}",
                f"SELECT DISTINCT {first} FROM t {where} ORDER BY {first} NULLS FIRST LIMIT 3",
            )
        )


def plainly(
    raw: pa.Table, grant: Grant, visible: Sequence[str], table: TableName
) -> duckdb.DuckDBPyConnection:
    """A database where the table is what the grant leaves: made first, asked second."""
    connection = duckdb.connect()
    connection.execute(f"ATTACH ':memory:' AS {table.catalog}")
    connection.execute(f"CREATE SCHEMA {table.catalog}.{table.schema}")
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("arrow_rows", raw)
    connection.execute("CREATE TABLE raw AS FROM arrow_rows")

    def text(expression: str) -> str:
        return expression.replace("current_user", "'ada'").replace(
            "current_groups", "['eu', 'staff']"
        )

    masks = {name: value.text for name, value in grant.masks}
    columns = ", ".join(
        f"TRY(CAST(({text(masks[name])}) AS {sql_type(raw.schema.field(name).type)})) AS {identifier(name)}"
        if name in masks
        else identifier(name)
        for name in visible
    )
    rows = (
        "" if grant.rows is None else f"WHERE TRY(CAST(({text(grant.rows.text)}) AS BOOLEAN))"
    )
    connection.execute(f"CREATE TABLE {table} AS SELECT {columns} FROM raw {rows}")
    return connection


def rows_of(table: pa.Table) -> Counter[str]:
    """Rows without order. Of two zeros that are equal, a group or partition shows either."""
    return Counter(re.sub(r"-0\.0\b", "0.0", row) for row in bag(table).elements())


def compare(world: World, seed: int, grants: int, statements: int) -> Counter[str]:
    grants_of, outcomes = world.statements.access, Counter[str]()
    grants_of.policy = None
    raw = world.ask(ROOT, f"SELECT * FROM {world.table}")
    for number in range(grants):
        drawn = Drawn(seed * 1_000_003 + number, world.types, world.table)
        grant = drawn.grant(world)
        grants_of.policy = GrantList((grant,))
        answer = world.ask(ADA, f"SELECT * FROM {world.table}")
        visible = answer.schema.names
        plain = plainly(raw, grant, visible, world.table)
        opened = [name for name in visible if name in world.types] or list(world.types)
        hidden = Counter(bag(raw.select(visible))) - Counter(bag(answer))
        outcomes["rows hidden"] += bool(hidden)
        # Files are left out by bounds of a column, which say nothing of its mask.
        request = [
            f"SELECT count(*) AS k FROM t WHERE {name} = {constant}"
            for name, _ in grant.masks
            for constant in CONSTANTS[world.types[name]][:3]
        ]
        for sql in request + [drawn.statement(opened) for _ in range(statements)]:
            reply = f"{sql}\n{grant}"
            try:
                truth = rows_of(plain.execute(world.named(sql)).to_arrow_table())
            except (duckdb.Error, UnicodeDecodeError):  # quoting half a character
                truth = None
            result = world.answer_of(sql)
            if isinstance(result, BadStatement) and truth is None:
                quoted = set(re.findall(rf"{HIDDEN}\d+", str(result)))
                assert quoted <= set(re.findall(rf"{HIDDEN}\d+", str(answer.to_pylist()))), (
                    reply
                )
                outcomes["refused"] += 1
                continue
            assert isinstance(result, pa.Table), f"{result}\n{reply}"
            assert rows_of(result) == truth, reply
            outcomes["answered"] += 1
        plain.close()
    grants_of.policy = None
    return outcomes


def test_files_are_read_as_if_they_were_filtered_before(iceberg: World) -> None:
    outcomes = compare(iceberg, seed=1, grants=12, statements=8)
    assert outcomes["answered"] > 50, outcomes
    assert outcomes["refused"] > 4, outcomes
    assert outcomes["rows hidden"] > 3, outcomes


def test_both_sides_of_a_seam_are_read_as_if_they_were_filtered_before(
    seam_permissions: World,
) -> None:
    outcomes = compare(seam_permissions, seed=1, grants=8, statements=8)
    assert outcomes["answered"] > 30, outcomes
    assert outcomes["refused"] > 0, outcomes
    assert outcomes["rows hidden"] > 1, outcomes


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 8))
def test_the_same_for_long(iceberg: World, seam_permissions: World, seed: int) -> None:
    for world in (iceberg, seam_permissions):
        compare(world, seed=seed, grants=40, statements=25)
