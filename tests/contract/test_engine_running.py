"""Statements of the engine while they run: streams, cancelling, deadlines."""

import math
import threading
import time
from queue import SimpleQueue
from typing import Any

import pytest

from planner.errors import (
    BadStatement,
    Cancelled,
    DeadlineExceeded,
    FederationError,
    LimitExceeded,
)
from proxy.engine.engine import Engine
from proxy.engine.macros import When
from proxy.engine.running import working_for
from proxy.session import Deadline
from tests.contract.engine import LONG, NOW, prepared, table, value

SOON_S = 60.0

# --- at work ---


def test_an_engine_is_idle_unless_a_statement_is_at_work_in_it(engine: Engine) -> None:
    assert engine.watch.idle_s > 0
    deadline = Deadline(SOON_S)
    done = threading.Event()

    def run() -> None:
        with pytest.raises(Cancelled):
            table(engine, LONG, deadline=deadline)
        done.set()

    running = threading.Thread(target=run)
    running.start()
    try:
        while engine.watch.idle_s and not done.is_set():
            running.join(0.01)
        assert engine.watch.idle_s == 0
    finally:
        deadline.cancellation.request()
        running.join(SOON_S)
    assert done.is_set()
    assert 0 < engine.watch.idle_s < math.inf


# --- streams ---


def test_results_stream_and_can_be_left_early(engine: Engine) -> None:
    document = prepared(engine, "SELECT i, i::VARCHAR AS t FROM range(1000000000000) r(i)")
    started = time.monotonic()
    with engine.run(document, (), when=When(NOW)) as result:
        batch = next(iter(result))
    assert batch.num_rows >= 1_000
    assert time.monotonic() - started < 5


def test_order_survives(engine: Engine) -> None:
    sql = (
        "SELECT i, CASE WHEN i % 1000 = 0 THEN t ELSE 'x' END AS t "
        "FROM range(20000) r(i), (SELECT string_agg('0123456789', '') AS t FROM range(30000)) "
        "ORDER BY i DESC"
    )
    with engine.run(prepared(engine, sql), (), when=When(NOW)) as result:
        batches = list(result)
    numbers = [number for batch in batches for number in batch.column("i").to_pylist()]
    assert numbers == list(range(19_999, -1, -1))


def test_an_error_on_the_way_is_an_error_not_an_end(engine: Engine) -> None:
    sql = "SELECT CASE WHEN i = 3000000 THEN error('late') ELSE i END AS i FROM range(4000000) r(i)"
    result = engine.run(prepared(engine, sql), (), when=When(NOW))
    with pytest.raises(BadStatement, match="late"):
        list(result)


def test_two_results_are_open_at_once(engine: Engine) -> None:
    first = engine.run(prepared(engine, "SELECT * FROM range(300000)"), (), when=When(NOW))
    second = engine.run(prepared(engine, "SELECT * FROM range(300000)"), (), when=When(NOW))
    pairs = zip(first, second, strict=True)
    assert sum(one.num_rows + other.num_rows for one, other in pairs) == 600_000


# --- limits ---


def test_a_statement_is_cancelled_while_it_runs(engine: Engine) -> None:
    deadline = Deadline(SOON_S)
    threading.Timer(0.15, deadline.cancellation.request).start()
    started = time.monotonic()
    with pytest.raises(Cancelled) as stopped:
        table(engine, LONG, deadline=deadline)
    assert str(stopped.value) == "The statement was cancelled."
    assert 0.1 < time.monotonic() - started < 3
    assert value(engine, "SELECT 1") == 1


def test_a_statement_cancelled_before_it_starts_does_not_run(engine: Engine) -> None:
    deadline = Deadline(SOON_S)
    deadline.cancellation.request()
    started = time.monotonic()
    with pytest.raises(Cancelled):
        table(engine, LONG, deadline=deadline)
    assert time.monotonic() - started < 1


def test_a_stream_is_cancelled_between_batches(engine: Engine) -> None:
    document = prepared(engine, "SELECT * FROM range(1000000000000)")
    deadline = Deadline(SOON_S)
    with (
        working_for(deadline, None),
        engine.run(document, (), when=When(NOW)) as result,
    ):
        batches = iter(result)
        next(batches)
        deadline.cancellation.request()
        with pytest.raises(Cancelled):
            list(batches)


def test_many_statements_can_be_cancelled_at_once(engine: Engine) -> None:
    deadlines = [Deadline(SOON_S) for _ in range(6)]
    outcomes: list[BaseException | None] = []

    def attempt(deadline: Deadline) -> None:
        try:
            table(engine, LONG, deadline=deadline)
        except FederationError as error:
            outcomes.append(error)

    threads = [threading.Thread(target=attempt, args=(item,)) for item in deadlines]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    for item in deadlines:
        item.cancellation.request()
    for thread in threads:
        thread.join(10)
    assert [type(outcome) for outcome in outcomes] == [Cancelled] * 6
    assert engine.healthy()


def test_a_statement_that_runs_too_long_is_stopped(engine: Engine) -> None:
    started = time.monotonic()
    with pytest.raises(DeadlineExceeded) as stopped:
        table(engine, LONG, deadline=Deadline(0.1))
    assert time.monotonic() - started < 3
    assert str(stopped.value) == (
        "the statement ran longer than 0.1 s; narrow it, or raise its limit."
    )


def test_closing_the_engine_stops_what_runs(tmp_path: Any) -> None:
    engine = Engine(storage_roots=[], spill_dir=tmp_path)
    outcomes: list[BaseException] = []

    def attempt() -> None:
        try:
            table(engine, LONG)
        except FederationError as error:
            outcomes.append(error)

    thread = threading.Thread(target=attempt)
    thread.start()
    time.sleep(0.3)
    engine.close()
    thread.join(10)
    assert [type(outcome) for outcome in outcomes] == [Cancelled]


def test_of_those_that_run_the_last_to_begin_is_stopped_for_memory(engine: Engine) -> None:
    assert not engine.watch.cancel_newest_statement()
    ended: SimpleQueue[tuple[str, BaseException]] = SimpleQueue()

    def ask(name: str) -> None:
        try:
            table(engine, LONG)
        except FederationError as error:
            ended.put((name, error))

    threads = []
    for name in ("first", "second"):
        threads.append(threading.Thread(target=ask, args=(name,)))
        threads[-1].start()
        time.sleep(0.25)
    until = time.monotonic() + SOON_S
    for expected in ("second", "first"):
        while not engine.watch.cancel_newest_statement():
            assert time.monotonic() < until
            time.sleep(0.01)
        name, error = ended.get(timeout=SOON_S)
        assert name == expected
        assert isinstance(error, LimitExceeded)
        assert "ran short of memory" in str(error)
    for thread in threads:
        thread.join(SOON_S)
    assert not engine.watch.cancel_newest_statement()
    assert table(engine, "SELECT 1 AS x").to_pylist() == [{"x": 1}]
