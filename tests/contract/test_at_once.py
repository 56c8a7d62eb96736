"""What is answered without asking anybody, and that it is checked like what is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from planner.errors import (
    BadParameter,
    BadTicket,
    FederationError,
    GrantsChanged,
    TicketExpired,
)
from planner.permissions import GrantList
from proxy.engine.engine import Engine
from proxy.flightsql.backend import Cancellation, Session
from proxy.query.executor import StatementLimits, Statements
from tests.doubles.cold import MemoryColdStore
from tests.doubles.log import MemoryLog
from tests.harness.serving import SESSION, forget, serve

ONE = "SELECT 1 AS one"


@pytest.fixture
def statements(engine: Engine) -> Iterator[Statements]:
    board, tails, found = serve(MemoryColdStore(), MemoryLog(), runs_in=engine)
    yield found
    forget(board, tails)


@pytest.fixture
def session(statements: Statements) -> Session:
    return statements.browsing.configure(SESSION)


def asked(statements: Statements, session: Session, sql: str) -> tuple[bytes, list[Any]]:
    """Ask as somebody does who is the first; return the ticket and the rows."""
    planned = statements.plan(session, sql, None, Cancellation())
    with closing(statements.open(session, planned.ticket, Cancellation())) as stream:
        return planned.ticket, pa.Table.from_batches(stream, stream.schema).to_pylist()


@pytest.mark.parametrize(
    ("sql", "is_planned", "is_opened"),
    [
        (ONE, True, True),
        ("SELECT 1 + 1 AS two", True, False),
        ("SELECT now() IS NULL AS never", True, False),
        ("SELECT * FROM information_schema.tables", False, False),
        (f"EXPLAIN {ONE}", False, False),
    ],
)
def test_only_what_was_asked_before_and_depends_on_nothing_is_answered_at_once(
    sql: str,
    is_planned: bool,
    is_opened: bool,
    statements: Statements,
    session: Session,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert statements.plan_at_once(session, sql, None, Cancellation()) is None
    ticket, rows = asked(statements, session, sql)

    def nobody(*_: object, **__: object) -> Any:
        raise AssertionError("the engine was asked")

    for name in ("parse", "unparse", "describe", "run"):
        monkeypatch.setattr(Engine, name, nobody)
    planned = statements.plan_at_once(session, sql, None, Cancellation())
    assert (planned is not None) == is_planned
    for held in (ticket, *([] if planned is None else [planned.ticket])):
        stream = statements.open_at_once(session, held)
        assert (stream is not None) == is_opened
        if stream is not None:
            assert pa.Table.from_batches(stream, stream.schema).to_pylist() == rows


def expires(statements: Statements) -> None:
    statements.limits = StatementLimits(timeout_s=60, ticket_ttl_s=0)


def is_closed(statements: Statements) -> None:
    statements.grants.policy = GrantList(())


@pytest.mark.parametrize(
    ("before", "after", "user", "error"),
    [
        (expires, None, None, TicketExpired),
        (None, is_closed, None, GrantsChanged),
        (None, None, "eve", BadTicket),
    ],
)
def test_a_ticket_that_was_opened_before_is_checked_again(
    before: Callable[[Statements], None] | None,
    after: Callable[[Statements], None] | None,
    user: str | None,
    error: type[FederationError],
    statements: Statements,
    session: Session,
) -> None:
    asked(statements, session, ONE)
    if before is not None:
        before(statements)
    ticket = statements.plan(session, ONE, None, Cancellation()).ticket
    if after is not None:
        after(statements)
    other = replace(session, user=user)
    for ask in (
        lambda: statements.open_at_once(other, ticket),
        lambda: statements.open(other, ticket, Cancellation()),
    ):
        with pytest.raises(error):
            ask()


def test_a_ticket_that_differs_in_one_byte_is_none(
    statements: Statements, session: Session
) -> None:
    ticket, _ = asked(statements, session, ONE)
    for at in (3, len(ticket) // 2, len(ticket) - 1):
        altered = bytes((*ticket[:at], ticket[at] ^ 1, *ticket[at + 1 :]))
        with pytest.raises(BadTicket):
            statements.open_at_once(session, altered)


def test_parameters_are_counted_at_once_too(statements: Statements, session: Session) -> None:
    asked(statements, session, ONE)
    with pytest.raises(BadParameter, match="0 parameters and 1 are bound"):
        statements.plan_at_once(session, ONE, pa.record_batch({"p": [1]}), Cancellation())
