"""What a statement costs the second time: it is read and bound once, with tables or without."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from planner.errors import UnknownTable
from planner.names import TableName
from planner.permissions import Grant, GrantList, TablePattern
from planner.reading.parsed_statement import ParsedStatement
from planner.schema import Column
from proxy.engine import statement_cache as once
from proxy.engine.engine import Engine
from proxy.session import Deadline
from tests.doubles.cold import MemoryColdStore
from tests.doubles.log import MemoryLog
from tests.harness.serving import SESSION, forget, serve

#: Notes each call of a method of the engine, which does what it did.
CallsOf = Callable[[str], list[str]]


@pytest.fixture
def calls_of(monkeypatch: pytest.MonkeyPatch) -> CallsOf:
    def noted(name: str) -> list[str]:
        calls: list[str] = []
        method = getattr(Engine, name)

        def noting(*inputs: Any, **settings: Any) -> Any:
            calls.append(name)
            return method(*inputs, **settings)

        monkeypatch.setattr(Engine, name, noting)
        return calls

    return noted


@pytest.mark.parametrize(
    "sql", ["SELECT 1", "SELECT 'a' LIKE '%a%'", "SELECT * FROM information_schema.tables"]
)
def test_what_was_prepared_is_not_bound_again(
    sql: str, engine: Engine, calls_of: CallsOf
) -> None:
    bound = calls_of("describe")
    board, tails, statements = serve(MemoryColdStore(), MemoryLog(), runs_in=engine)
    try:
        session, deadline = statements.browser.configure(SESSION), Deadline(60)
        prepared = statements.prepare(session, sql, deadline)
        for _ in range(2):
            planned = statements.plan(session, sql, None, deadline)
            assert planned.schema == prepared.dataset_schema
    finally:
        forget(board, tails)
    assert len(bound) == 1


@pytest.mark.parametrize(
    ("sql", "times"),
    [("SELECT 1 AS a WHERE ? > 1", 0), ("SELECT 1 AS a LIMIT ?", 0), ("SELECT ? AS a", 1)],
)
def test_parameters_are_bound_once_more_where_columns_depend_on_them(
    sql: str, times: int, engine: Engine, calls_of: CallsOf
) -> None:
    bound = calls_of("describe_bound")
    board, tails, statements = serve(MemoryColdStore(), MemoryLog(), runs_in=engine)
    try:
        session, deadline = statements.browser.configure(SESSION), Deadline(60)
        statements.prepare(session, sql, deadline)
        parameters = pa.record_batch({"1": [2]})
        statements.plan(session, sql, parameters, deadline)
    finally:
        forget(board, tails)
    assert len(bound) == times


@pytest.mark.parametrize(
    ("sql", "times"),
    [
        ("SELECT n FROM lake.net.hosts WHERE n > 1 + 1", 1),
        ("SELECT count(n) FROM lake.net.hosts WHERE n > 1 + 1", 0),
        ("SELECT n FROM lake.net.hosts WHERE n > 1 + 1 ORDER BY n", 0),
    ],
)
def test_constants_are_worked_out_at_the_plan_only_where_the_answer_can_be_split(
    sql: str, times: int, engine: Engine, calls_of: CallsOf
) -> None:
    evaluated = calls_of("evaluate")
    store, hosts = MemoryColdStore(), TableName.parse("lake.net.hosts")
    store.create(hosts, (Column(0, "n", pa.int64()),))
    store.append(hosts, pa.table({"n": [1, 2]}))
    board, tails, statements = serve(store, MemoryLog(), runs_in=engine)
    try:
        statements.plan(replace(SESSION, max_endpoints=2), sql, None, Deadline(60))
    finally:
        forget(board, tails)
    assert len(evaluated) == times


@pytest.mark.parametrize(
    ("sql", "row", "runs"),
    [
        ("SELECT 1", {"1": 1}, 1),
        ("SELECT 'a' AS b, NULL AS c", {"b": "a", "c": None}, 1),
        ("SELECT 1 + 1 AS two", {"two": 2}, 2),
        ("SELECT now() IS NULL AS never", {"never": False}, 2),
    ],
)
def test_literals_are_selected_once(
    sql: str, row: dict[str, Any], runs: int, engine: Engine, calls_of: CallsOf
) -> None:
    ran = calls_of("run")
    board, tails, statements = serve(MemoryColdStore(), MemoryLog(), runs_in=engine)
    try:
        session, deadline = statements.browser.configure(SESSION), Deadline(60)
        answers = []
        for _ in range(2):
            planned = statements.plan(session, sql, None, deadline)
            with closing(statements.open(session, planned.ticket, deadline)) as stream:
                assert stream.schema == planned.schema
                answers += pa.Table.from_batches(stream, stream.schema).to_pylist()
    finally:
        forget(board, tails)
    assert answers == [row, row]
    assert len(ran) == runs


def test_of_long_statements_few_are_remembered(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(once, "MAX_CHARS", 4_000)
    board, tails, statements = serve(MemoryColdStore(), MemoryLog(), runs_in=engine)
    try:
        session = statements.browser.configure(SESSION)
        for number in range(10):
            sql = f"SELECT {number} AS n, '{'x' * 1_500}' AS text"
            statements.prepare(session, sql, Deadline(60))
        gc.collect()
        items = [
            get_object
            for get_object in gc.get_objects()
            if type(get_object) is ParsedStatement and get_object.chars > 1_500
        ]
        assert 1 <= len(items) <= 4
    finally:
        forget(board, tails)


@pytest.mark.parametrize(
    ("where", "times"),
    [
        ("n = {0}", 1),
        ("host = 'h{0}' AND n BETWEEN {0} AND 9", 1),
        ("day >= '2026-01-0{0}' AND n < 9000000000", 1),
        # Another count is another statement.
        ("host = repeat('h', {0})", 3),
    ],
)
def test_other_constants_are_neither_parsed_nor_bound_again(
    where: str, times: int, engine: Engine, calls_of: CallsOf
) -> None:
    bound = calls_of("describe")
    store, hosts = MemoryColdStore(), TableName.parse("lake.net.hosts")
    columns = (
        Column(0, "n", pa.int64()),
        Column(0, "host", pa.string()),
        Column(0, "day", pa.timestamp("us", "UTC")),
    )
    store.create(hosts, columns)
    days = [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3)]
    rows = {"n": [1, 2, 3], "host": ["h1", "h2", "hhh"], "day": days}
    store.append(
        hosts, pa.table(rows, schema=pa.schema([(each.name, each.type) for each in columns]))
    )
    board, tails, statements = serve(store, MemoryLog(), runs_in=engine)
    try:
        answers = []
        for number in (1, 2, 3, 2):
            sql = f"SELECT n FROM lake.net.hosts WHERE {where.format(number)} ORDER BY n"
            planned = statements.plan(SESSION, sql, None, Deadline(60))
            with closing(statements.open(SESSION, planned.ticket, Deadline(60))) as stream:
                assert stream.schema == planned.schema
                answers.append(pa.Table.from_batches(stream, stream.schema)["n"].to_pylist())
        with duckdb.connect() as plain:
            plain.register("everything", pa.table(rows))
            plain.execute("SET TimeZone = 'UTC'")
            expected = [
                [
                    value
                    for (value,) in plain.execute(
                        f"SELECT n FROM everything WHERE {where.format(number)} ORDER BY n"
                    ).fetchall()
                ]
                for number in (1, 2, 3, 2)
            ]
        assert answers == expected
        assert len(bound) == times
    finally:
        forget(board, tails)


#: Types as a table's columns have them, and others that an expression of a grant may be of.
TYPES = (
    *("TINYINT", "INTEGER", "BIGINT", "HUGEINT", "UBIGINT", "FLOAT", "DOUBLE", "DECIMAL(4,2)"),
    *(
        "DECIMAL(18,4)",
        "DECIMAL(38,38)",
        "VARCHAR",
        "BLOB",
        "BOOLEAN",
        "DATE",
        "TIME",
        "TIMESTAMP",
    ),
    *("TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE", "INTERVAL", "UUID", "JSON", "INTEGER[]"),
    *("STRUCT(a INTEGER)", "MAP(VARCHAR, INTEGER)"),
)
VALUES = (
    ("1", "300", "70000", "2147483647"),
    ("2147483648", "999999999999999999", "9223372036854775807"),
    ("'x'", "'2026-01-01'", "'2026-01-01 10:00:00+01'", "'[1]'", "'true'", "'1 day'"),
)


@pytest.mark.parametrize("kind", TYPES)
def test_whether_a_comparison_binds_depends_on_no_value(kind: str) -> None:
    with duckdb.connect() as plain:
        for condition in ("c = {0}", "c IN ({0}, {0})", "{0} < c", "c BETWEEN {0} AND {0}"):
            for values in VALUES:
                outcomes = set()
                for value in values:
                    sql = f"SELECT c FROM rows WHERE {condition.format(value)} LIMIT 0"
                    try:
                        plain.execute(
                            f"WITH rows AS (SELECT CAST(NULL AS {kind}) AS c WHERE false) {sql}"
                        )
                        outcomes.add("")
                    except duckdb.Error as error:
                        outcomes.add(type(error).__name__)
                assert len(outcomes) == 1, (condition, values)


def test_a_shape_that_one_user_asked_for_shows_another_what_his_grant_leaves(
    engine: Engine,
) -> None:
    store, hosts = MemoryColdStore(), TableName.parse("lake.net.hosts")
    store.create(hosts, (Column(0, "n", pa.int64()), Column(0, "host", pa.string())))
    store.append(hosts, pa.table({"n": [1, 2, 3], "host": ["a", "b", "a"]}))
    board, tails, statements = serve(store, MemoryLog(), runs_in=engine)
    access = statements.access
    tables = (TablePattern.parse("lake.net.*"),)
    part = Grant(
        *("part", tables, frozenset({"bob"})),
        rows=access.expression("host = 'a'"),
        masks=(("host", access.expression("upper(host)")),),
    )
    every = Grant("every", tables, frozenset({"ada"}))

    def ask(user: str, number: int) -> list[dict[str, Any]]:
        session = replace(SESSION, user=user)
        sql = f"SELECT n, host FROM lake.net.hosts WHERE n <= {number} ORDER BY n"
        planned = statements.plan(session, sql, None, Deadline(60))
        with closing(statements.open(session, planned.ticket, Deadline(60))) as stream:
            return pa.Table.from_batches(stream, stream.schema).to_pylist()

    try:
        access.policy = GrantList((every, part))
        for number in (1, 2, 3):
            assert [row["n"] for row in ask("ada", number)] == [1, 2, 3][:number]
            assert ask("bob", number) == [{"n": n, "host": "A"} for n in (1, 3) if n <= number]
        access.policy = GrantList((every,))
        with pytest.raises(UnknownTable):
            ask("bob", 2)
        assert len(ask("ada", 4)) == 3
    finally:
        forget(board, tails)


def test_a_statement_has_its_own_constants_when_the_first_of_its_shape_is_forgotten(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Room for less than there is to remember of four shapes.
    monkeypatch.setattr(once, "MAX_CHARS", 1_000)
    store, hosts = MemoryColdStore(), TableName.parse("lake.net.hosts")
    store.create(hosts, (Column(0, "n", pa.int64()),))
    store.append(hosts, pa.table({"n": [1, 2, 3, 4, 5]}))
    board, tails, statements = serve(store, MemoryLog(), runs_in=engine)
    chance = random.Random(5)
    ends = ("", " AND n < 100", " AND n < 200 AND n > -1", " ORDER BY 1")
    expected, answers = [], []
    try:
        for _ in range(200):
            number, end = chance.randrange(1, 6), chance.choice(ends)
            sql = f"SELECT n FROM hosts WHERE n = {number}{end}"
            planned = statements.plan(SESSION, sql, None, Deadline(60))
            with closing(statements.open(SESSION, planned.ticket, Deadline(60))) as stream:
                answers += pa.Table.from_batches(stream, stream.schema)["n"].to_pylist()
            expected.append(number)
    finally:
        forget(board, tails)
    assert answers == expected
