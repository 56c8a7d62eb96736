"""Calls are answered by their deadline: on threads of their own, or where nobody has to be asked, at once."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from itertools import product
from typing import Any, cast

import pyarrow as pa
import pytest

from connectors.iceberg.pin_cache import PinCache
from planner.errors import (
    BadParameter,
    BadTicket,
    Cancelled,
    DeadlineExceeded,
    FederationError,
    GrantsChanged,
    Overloaded,
    TicketExpired,
    UnknownTable,
)
from planner.names import TableName
from planner.permissions import GrantList
from planner.schema import Column
from proxy.access.fairness import LONG_CHARS
from proxy.engine.engine import Engine
from proxy.engine.result import Result
from proxy.engine.thread_pool import ThreadPool
from proxy.query.executor import Statements
from proxy.query.relations import Signatures
from proxy.session import Deadline, Prepared, Session
from tests.doubles.cold import MemoryColdStore
from tests.doubles.log import MemoryLog
from tests.harness.builders import FLOWS
from tests.harness.lake import Lake
from tests.harness.serving import SESSION, forget, serve

ONE = "SELECT 1 AS one"


@pytest.fixture
def statements(engine: Engine) -> Iterator[Statements]:
    board, tails, result = serve(MemoryColdStore(), MemoryLog(), runs_in=engine)
    yield result
    forget(board, tails)


@pytest.fixture
def session(statements: Statements) -> Session:
    return statements.browser.configure(SESSION)


def answer_of(statements: Statements, session: Session, sql: str) -> tuple[bytes, list[Any]]:
    """Ask as somebody does who is the first; return the ticket and the rows."""
    planned = statements.plan(session, sql, None, Deadline(60))
    with closing(statements.open(session, planned.ticket, Deadline(60))) as stream:
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
def test_only_what_was_asked_before_and_depends_on_nothing_stays_on_the_callers_thread(
    sql: str,
    is_planned: bool,
    is_opened: bool,
    statements: Statements,
    session: Session,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ticket, rows = answer_of(statements, session, sql)
    deadline = Deadline(60)

    def refused(*_: object, **__: object) -> Any:
        raise ElsewhereError

    monkeypatch.setattr(ThreadPool, "run", refused)
    if not is_planned:
        with pytest.raises(ElsewhereError):
            statements.plan(session, sql, None, deadline)
    else:
        for name in ("parse", "unparse", "describe", "run"):
            monkeypatch.setattr(Engine, name, refused)
        planned = statements.plan(session, sql, None, deadline)
        if is_opened:
            for inputs in (ticket, planned.ticket):
                stream = statements.open(session, inputs, deadline)
                assert pa.Table.from_batches(stream, stream.schema).to_pylist() == rows
        else:
            with pytest.raises(ElsewhereError):
                statements.open(session, planned.ticket, deadline)


class ElsewhereError(Exception):
    """Another thread was asked for."""


@pytest.fixture
def blocked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], threading.Event]]:
    """Make a method of the engine wait, whatever its deadline; returns what lets it go on."""
    gates = []

    def block(name: str) -> threading.Event:
        gate, method = threading.Event(), getattr(Engine, name)

        def waiting(*arguments: Any, **options: Any) -> Any:
            result = method(*arguments, **options)
            gate.wait(60)
            return result

        monkeypatch.setattr(Engine, name, waiting)
        gates.append(gate)
        return gate

    yield block
    for gate in gates:
        gate.set()


def test_calls_are_answered_by_their_deadline_whatever_the_engine_does(
    statements: Statements, session: Session, blocked: Callable[[str], threading.Event]
) -> None:
    blocked("parse")
    for ask in (
        lambda: statements.prepare(session, ONE, Deadline(0.01)),
        lambda: statements.plan(replace(session, id="another"), ONE, None, Deadline(0.01)),
    ):
        with pytest.raises(DeadlineExceeded, match=r"longer than 0\.01 s, in a part that"):
            ask()


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when a result was closed."""
    event, close = threading.Event(), Result.close

    def closing_result(result: Result) -> None:
        close(result)
        event.set()

    monkeypatch.setattr(Result, "close", closing_result)
    return event


def test_a_stream_that_opens_too_late_is_closed(
    statements: Statements,
    session: Session,
    blocked: Callable[[str], threading.Event],
    closed: threading.Event,
) -> None:
    ticket = statements.plan(session, "SELECT 1 + 1", None, Deadline(60)).ticket
    gate = blocked("run")
    with pytest.raises(DeadlineExceeded, match="in a part that cannot be interrupted"):
        statements.open(session, ticket, Deadline(0.5))
    assert not closed.is_set()
    gate.set()
    assert closed.wait(60)


def test_a_first_batch_that_cannot_be_made_closes_what_was_opened(
    statements: Statements,
    session: Session,
    closed: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(_: Result) -> Any:
        raise Overloaded("no")

    monkeypatch.setattr(Result, "__next__", failing)
    ticket = statements.plan(session, "SELECT 1 + 1", None, Deadline(60)).ticket
    with pytest.raises(Overloaded):
        statements.open(session, ticket, Deadline(60))
    assert closed.is_set()


def test_a_call_that_was_given_up_gets_no_answer(
    statements: Statements, session: Session
) -> None:
    ticket, _ = answer_of(statements, session, ONE)
    abandoned = Deadline(60)
    abandoned.cancellation.request()
    for ask in (
        lambda: statements.prepare(session, ONE, abandoned),
        lambda: statements.plan(session, ONE, None, abandoned),
        lambda: statements.open(session, ticket, abandoned),
    ):
        with pytest.raises(Cancelled):
            ask()


@pytest.mark.parametrize(
    ("sql", "is_one_user", "most"),
    [(ONE, True, 1), (f"{ONE} -- {'x' * LONG_CHARS}", True, 1), (ONE, False, 2)],
    ids=["short", "long", "two sessions"],
)
@pytest.mark.parametrize("how", ["plan", "prepare"])
def test_statements_of_one_user_are_planned_and_prepared_in_turns(
    sql: str,
    is_one_user: bool,
    most: int,
    how: str,
    statements: Statements,
    session: Session,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lock, together, parse = threading.Lock(), threading.Semaphore(0), Engine.parse
    at_work = [0]
    counts = []

    def counted(engine: Engine, text: str) -> Any:
        with lock:
            at_work[0] += 1
            counts.append(at_work[0])
            if at_work[0] > 1:
                together.release(2)
        together.acquire(timeout=0.02 if most == 1 else 60)
        with lock:
            at_work[0] -= 1
        return parse(engine, text)

    monkeypatch.setattr(Engine, "parse", counted)

    def ask(number: int) -> None:
        text = sql.replace("one", f"one{number}")
        own = session if is_one_user else replace(session, id=f"session {number}")
        if how == "plan":
            statements.plan(own, text, None, Deadline(60))
        else:
            statements.prepare(own, text, Deadline(60))

    callers = [threading.Thread(target=ask, args=(number,)) for number in range(2)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert max(counts) == most


def expires(statements: Statements) -> None:
    statements.ticket_maker.ttl_s = 0


def is_closed(statements: Statements) -> None:
    statements.access.policy = GrantList(())


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
    answer_of(statements, session, ONE)
    if before is not None:
        before(statements)
    ticket = statements.plan(session, ONE, None, Deadline(60)).ticket
    if after is not None:
        after(statements)
    other = replace(session, user=user)
    with pytest.raises(error):
        statements.open(other, ticket, Deadline(60))


def test_a_ticket_that_differs_in_one_byte_is_none(
    statements: Statements, session: Session
) -> None:
    ticket, _ = answer_of(statements, session, ONE)
    for at in (3, len(ticket) // 2, len(ticket) - 1):
        altered = bytes((*ticket[:at], ticket[at] ^ 1, *ticket[at + 1 :]))
        with pytest.raises(BadTicket):
            statements.open(session, altered, Deadline(60))


def test_parameters_are_counted_at_once_too(statements: Statements, session: Session) -> None:
    answer_of(statements, session, ONE)
    with pytest.raises(BadParameter, match="0 parameters and 1 are bound"):
        statements.plan(session, ONE, pa.record_batch({"p": [1]}), Deadline(60))


@pytest.fixture
def store() -> MemoryColdStore:
    result, schema = MemoryColdStore(), (Column(0, "n", pa.int64()),)
    for table in ("lake.net.hosts", "lake.net.other"):
        result.create(TableName.parse(table), schema)
    return result


def test_another_text_of_a_shape_is_planned_on_the_callers_thread_and_no_catalog_is_asked(
    engine: Engine, store: MemoryColdStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    board, tails, statements = serve(store, MemoryLog(), runs_in=engine)
    sql = "SELECT n FROM lake.net.hosts WHERE n = {}"
    for number in (1, 2):
        answer_of(statements, SESSION, sql.format(number))

    def refused(*_: object, **__: object) -> Any:
        raise ElsewhereError

    monkeypatch.setattr(ThreadPool, "run", refused)
    deadline = Deadline(60)
    try:
        statements.prepare(SESSION, sql.format(3), deadline)
        planned = statements.plan(SESSION, sql.format(3), None, deadline)
        for ask in (
            # The engine is asked; a log might take longer than that; a text was never read; a past is looked up.
            lambda: statements.open(SESSION, planned.ticket, deadline),
            lambda: statements.plan(SESSION, sql.format(4), None, Deadline(9)),
            lambda: statements.plan(SESSION, sql.format("-n"), None, deadline),
            lambda: statements.plan(
                SESSION,
                f"SELECT n FROM lake.net.hosts WHERE n = 1 {'OR n = 2' * 9}",
                None,
                deadline,
            ),
            lambda: statements.plan(
                replace(SESSION, freshness="max_staleness 5s"), sql.format(4), None, deadline
            ),
            # Files are listed.
            lambda: statements.plan(
                replace(SESSION, max_endpoints=2), sql.format(4), None, deadline
            ),
        ):
            with pytest.raises(ElsewhereError):
                ask()
    finally:
        forget(board, tails)


def test_a_catalog_that_hangs_and_a_long_text_keep_no_client_beyond_its_deadline(
    engine: Engine, store: MemoryColdStore, blocked: Callable[[str], threading.Event]
) -> None:
    board, tails, statements = serve(store, MemoryLog(), runs_in=engine)
    sql = "SELECT n FROM lake.net.{} WHERE n = {}"
    for number in (1, 2):
        answer_of(statements, SESSION, sql.format("hosts", number))
    hangs = threading.Event()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store, "pin", lambda _: hangs.wait(60))
            with pytest.raises(DeadlineExceeded):
                statements.plan(SESSION, sql.format("other", 3), None, Deadline(0.05))
            # What is in hand is answered meanwhile.
            statements.plan(SESSION, sql.format("hosts", 3), None, Deadline(60))
        blocked("parse")
        text = f"{sql.format('hosts', 4)} OR n IN ({', '.join(map(str, range(20_000)))})"
        with pytest.raises(DeadlineExceeded):
            statements.plan(replace(SESSION, id="another"), text, None, Deadline(0.05))
        statements.plan(SESSION, sql.format("hosts", 4), None, Deadline(60))
    finally:
        hangs.set()
        forget(board, tails)


def test_one_that_waits_for_brokers_says_so() -> None:
    """Planned on another thread the first two times, on the caller's the third."""
    lake, waits = Lake(), []
    deadlines = [Deadline(60) for _ in range(3)]

    def note(step: str) -> None:
        if step == "measure":
            waits.append([deadline.waits_for for deadline in deadlines])

    lake.before = note
    try:
        for number, deadline in enumerate(deadlines):
            sql = f"SELECT kafka_offset FROM {FLOWS} WHERE kafka_offset = {number + 1}"
            lake.statements.plan(SESSION, sql, None, deadline)
            assert deadline.waits_for is None
    finally:
        lake.stop_server()
    assert waits == [["cut", None, None], [None, "cut", None], [None, None, "cut"]]


def test_statements_of_one_user_wait_for_a_catalog_together(
    engine: Engine, store: MemoryColdStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both for the first list of its tables, and for a newer one: a name is missing. Others of the user go on meanwhile."""
    board, tails, statements = serve(store, MemoryLog(), runs_in=engine)
    first, newer, relist = threading.Barrier(2), threading.Barrier(3), PinCache.relist
    listed = PinCache.tables

    def all_of_them(board: PinCache) -> Any:
        if not board.has_listed:
            first.wait(20)
        return listed(board)

    def newer_ones(*inputs: Any) -> Any:
        newer.wait(20)
        return relist(*inputs)

    monkeypatch.setattr(PinCache, "tables", all_of_them)
    monkeypatch.setattr(PinCache, "relist", newer_ones)

    def plan(table: str, number: int) -> object:
        sql = f"SELECT n FROM lake.net.{table} WHERE n = {number}"
        return statements.plan(SESSION, sql, None, Deadline(60)).schema.names

    with ThreadPoolExecutor(2) as asking:
        try:
            first_two = [asking.submit(plan, "hosts", number) for number in (1, 2)]
            assert [each.result(60) for each in first_two] == [["n"], ["n"]]
            missing = [asking.submit(plan, "missing", number) for number in (1, 2)]
            assert plan("hosts", 3) == plan("other", 3) == ["n"]
            newer.wait(20)
            for each in missing:
                with pytest.raises(UnknownTable, match="missing"):
                    each.result(60)
        finally:
            first.abort()
            newer.abort()
            forget(board, tails)


@pytest.mark.parametrize("hanging", ["tables", "pin"])
def test_who_gives_up_waiting_for_a_catalog_leaves_no_thread_behind(
    engine: Engine, store: MemoryColdStore, hanging: str
) -> None:
    """Eight that were left behind kept everybody out, of every catalog, for up to 10 s."""
    gate, read = threading.Event(), getattr(store, hanging)
    setattr(store, hanging, lambda *names: read(*names) if gate.wait(60) else None)
    gate.set()
    board, tails, statements = serve(store, MemoryLog(), runs_in=engine)
    statements._threads.grace_s = 60
    table = {"tables": "missing", "pin": "other"}[hanging]
    try:
        answer_of(statements, SESSION, "SELECT n FROM lake.net.hosts")
        gate.clear()
        sentence = "the statement waited longer than 0.05 s for a catalog; try again, or raise its limit."
        for user, number in product(("ada", "bob"), range(5)):
            session = replace(SESSION, id=user, user=user)
            sql = f"SELECT n FROM lake.net.{table} WHERE n = {number}"
            with pytest.raises(DeadlineExceeded, match=f"^{re.escape(sentence)}$"):
                statements.plan(session, sql, None, Deadline(0.05))
        left, waits = Deadline(60), cast("list[str | None]", [None])
        with ThreadPoolExecutor(1) as asking:
            planning = asking.submit(statements.prepare, SESSION, sql, left)
            until_s = time.monotonic() + 60
            while waits[-1] != "cut":
                waits.append(left.waits_for)
                assert time.monotonic() < until_s
                time.sleep(0.01)
            left.cancellation.request()
            with pytest.raises(Cancelled):
                planning.result(60)
        assert left.waits_for is None
        assert answer_of(statements, SESSION, "SELECT n + 1 FROM lake.net.hosts")
        # The catalog itself is not blamed for callers who leave.
        assert [each.error for each in board.catalog_status()] == [None]
    finally:
        gate.set()
        forget(board, tails)


@pytest.mark.parametrize("is_prepared", [True, False])
def test_a_table_that_is_forgotten_meanwhile_is_planned_from_the_pin_in_hand(
    engine: Engine,
    store: MemoryColdStore,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_prepared: bool,
) -> None:
    board, tails, statements = serve(store, MemoryLog(), runs_in=engine)
    sql = "SELECT n FROM lake.net.hosts WHERE n = {}"
    for number in (1, 2):
        answer_of(statements, SESSION, sql.format(number))
    cached = Signatures.cached

    def forgotten(*inputs: Any) -> Prepared | None:
        result = cached(*inputs)
        monkeypatch.setattr(board, "_idle_s", -1)
        board.refresh_due("lake")
        assert board.pinned([TableName.parse("lake.net.hosts")]) is None
        return result

    monkeypatch.setattr(Signatures, "cached", forgotten)
    pins: list[object] = []
    monkeypatch.setattr(store, "pin", pins.append)
    try:
        if is_prepared:
            prepared = statements.prepare(SESSION, sql.format(3), Deadline(60))
            assert prepared.dataset_schema.names == ["n"]
        else:
            planned = statements.plan(SESSION, sql.format(3), None, Deadline(60))
            assert planned.schema.names == ["n"]
    finally:
        forget(board, tails)
    assert pins == []


@pytest.mark.parametrize("is_prepared", [True, False])
def test_a_statement_in_hand_is_tried_again_where_others_hold_its_memory(
    engine: Engine,
    store: MemoryColdStore,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_prepared: bool,
) -> None:
    board, tails, statements = serve(store, MemoryLog(), runs_in=engine)
    sql = "SELECT n FROM lake.net.hosts WHERE n = {}"
    for number in (1, 2):
        answer_of(statements, SESSION, sql.format(number))
    short, cached = iter([True, True, False]), Signatures.cached

    def look(*inputs: Any) -> Prepared | None:
        if next(short):
            raise Overloaded("Statements of others held the memory.", memory=True)
        return cached(*inputs)

    monkeypatch.setattr(Signatures, "cached", look)
    try:
        if is_prepared:
            prepared = statements.prepare(SESSION, sql.format(3), Deadline(60))
            assert prepared.dataset_schema.names == ["n"]
        else:
            planned = statements.plan(SESSION, sql.format(3), None, Deadline(60))
            assert planned.schema.names == ["n"]
    finally:
        forget(board, tails)
    assert next(short, None) is None
