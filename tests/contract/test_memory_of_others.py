"""A statement whose memory others have: the server tries it again, as long as its client has seen no row of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from planner.errors import Overloaded
from proxy.engine.engine import Engine
from proxy.engine.result import Result
from proxy.query.executor import Statements
from proxy.session import Deadline
from tests.doubles.cold import MemoryColdStore
from tests.doubles.log import MemoryLog
from tests.harness.serving import SESSION, forget, serve

SQL = "SELECT i FROM range(1000000) t(i)"


def memory_of_others() -> Overloaded:
    return Overloaded("Statements of others held the memory.", retry_after_s=1, memory=True)


@pytest.fixture
def statements() -> Iterator[Statements]:
    board, tails, statements = serve(MemoryColdStore(), MemoryLog())
    yield statements
    forget(board, tails)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One for each time that the engine is asked to run a statement."""
    counted: list[None] = []
    run = Engine.run

    def counting(self: Engine, *inputs: Any, **named: Any) -> Result:
        counted.append(None)
        return run(self, *inputs, **named)

    monkeypatch.setattr(Engine, "run", counting)
    return counted


def fail_at(monkeypatch: pytest.MonkeyPatch, *batches: int) -> None:
    """Have the engine fail at these batches, counted over all runs."""
    number = 0
    read = Result.__next__

    def reading(self: Result) -> pa.RecordBatch:
        nonlocal number
        number += 1
        if number in batches:
            raise memory_of_others()
        return read(self)

    monkeypatch.setattr(Result, "__next__", reading)


def test_it_runs_again_and_answers_each_row_once(
    statements: Statements, runs: list[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_at(monkeypatch, 1, 2)
    planned = statements.plan(SESSION, SQL, None, Deadline(60))
    batches = list(statements.open(SESSION, planned.ticket, Deadline(60)))
    rows = pa.Table.from_batches(batches)["i"].combine_chunks()
    assert rows.equals(pa.array(range(1_000_000)))
    assert len(runs) == 3


def test_once_a_row_was_sent_it_is_not_run_again(
    statements: Statements, runs: list[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_at(monkeypatch, 3)
    planned = statements.plan(SESSION, SQL, None, Deadline(60))
    stream = statements.open(SESSION, planned.ticket, Deadline(60))
    with pytest.raises(Overloaded):
        list(stream)
    assert len(runs) == 1
