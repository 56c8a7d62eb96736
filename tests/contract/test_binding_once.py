"""What a statement costs the second time: it is read and bound once, with tables or without."""

from __future__ import annotations

import gc
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from planner.names import TableName
from planner.schema import Column
from proxy.engine import statement_cache as once
from proxy.engine.engine import Engine
from proxy.query.parsing import ParsedStatement
from proxy.session import Deadline
from tests.doubles.cold import MemoryColdStore
from tests.doubles.log import MemoryLog
from tests.harness.serving import SESSION, forget, serve


@pytest.mark.parametrize(
    "sql", ["SELECT 1", "SELECT 'a' LIKE '%a%'", "SELECT * FROM information_schema.tables"]
)
def test_what_was_prepared_is_not_bound_again(
    sql: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = 0
    describe = Engine.describe

    def counted(*inputs: Any, **settings: Any) -> Any:
        nonlocal bound
        bound += 1
        return describe(*inputs, **settings)

    monkeypatch.setattr(Engine, "describe", counted)
    board, tails, statements = serve(MemoryColdStore(), MemoryLog(), runs_in=engine)
    try:
        session, deadline = statements.browser.configure(SESSION), Deadline(60)
        prepared = statements.prepare(session, sql, deadline)
        for _ in range(2):
            planned = statements.plan(session, sql, None, deadline)
            assert planned.schema == prepared.dataset_schema
    finally:
        forget(board, tails)
    assert bound == 1


@pytest.mark.parametrize(
    ("sql", "times"),
    [("SELECT 1 AS a WHERE ? > 1", 0), ("SELECT 1 AS a LIMIT ?", 0), ("SELECT ? AS a", 1)],
)
def test_parameters_are_bound_once_more_where_columns_depend_on_them(
    sql: str, times: int, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = 0
    describe = Engine.describe_bound

    def counted(*inputs: Any, **settings: Any) -> Any:
        nonlocal bound
        bound += 1
        return describe(*inputs, **settings)

    monkeypatch.setattr(Engine, "describe_bound", counted)
    board, tails, statements = serve(MemoryColdStore(), MemoryLog(), runs_in=engine)
    try:
        session, deadline = statements.browser.configure(SESSION), Deadline(60)
        statements.prepare(session, sql, deadline)
        parameters = pa.record_batch({"1": [2]})
        statements.plan(session, sql, parameters, deadline)
    finally:
        forget(board, tails)
    assert bound == times


@pytest.mark.parametrize(
    ("sql", "times"),
    [
        ("SELECT n FROM lake.net.hosts WHERE n > 1 + 1", 1),
        ("SELECT count(n) FROM lake.net.hosts WHERE n > 1 + 1", 0),
        ("SELECT n FROM lake.net.hosts WHERE n > 1 + 1 ORDER BY n", 0),
    ],
)
def test_constants_are_worked_out_at_the_plan_only_where_the_answer_can_be_split(
    sql: str, times: int, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluated = 0
    evaluate = Engine.evaluate

    def counted(*inputs: Any, **settings: Any) -> Any:
        nonlocal evaluated
        evaluated += 1
        return evaluate(*inputs, **settings)

    monkeypatch.setattr(Engine, "evaluate", counted)
    store, hosts = MemoryColdStore(), TableName.parse("lake.net.hosts")
    store.create(hosts, (Column(0, "n", pa.int64()),))
    store.append(hosts, pa.table({"n": [1, 2]}))
    board, tails, statements = serve(store, MemoryLog(), runs_in=engine)
    try:
        statements.plan(replace(SESSION, max_endpoints=2), sql, None, Deadline(60))
    finally:
        forget(board, tails)
    assert evaluated == times


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
    sql: str, row: dict[str, Any], runs: int, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = 0
    run = Engine.run

    def counted(*inputs: Any, **settings: Any) -> Any:
        nonlocal ran
        ran += 1
        return run(*inputs, **settings)

    monkeypatch.setattr(Engine, "run", counted)
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
    assert ran == runs


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
