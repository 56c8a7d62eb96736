"""Users who share one engine: who gives way, and whose statement ends where memory is short."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import duckdb
import pytest

from planner.errors import DeadlineExceeded, FederationError, LimitExceeded, Overloaded
from proxy.engine import running
from proxy.engine.engine import Engine
from proxy.engine.running import EngineCall, with_memory, working_for, working_user
from proxy.engine.thread_pool import ThreadPool
from proxy.session import Deadline
from tests.contract.engine import LONG, table

SOON_S = 60.0
MB = 1 << 20
#: It keeps all it reads in memory, and cannot spill that.
GREEDY = "SELECT list(i) FROM range(20000000) t(i)"
#: More than half of 256 MB, while it runs.
HALF = "SELECT list(i) FROM range(10000000) t(i)"


class Crowd:
    """Statements that run at the same time, each for somebody."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.ended: list[tuple[str, FederationError]] = []
        self.stops: list[Deadline] = []
        self.threads: list[threading.Thread] = []

    def run(self, owner: str, name: str, sql: str = LONG) -> None:
        stop = Deadline(60)

        def ask() -> None:
            try:
                table(self._engine, sql, deadline=stop, owner=owner)
            except FederationError as error:
                self.ended.append((name, error))

        self.stops.append(stop)
        self.threads.append(threading.Thread(target=ask))
        self.threads[-1].start()
        until = time.monotonic() + SOON_S
        while self._count() < len(self.threads) - len(self.ended):
            assert time.monotonic() < until
            time.sleep(0.01)

    def _count(self) -> int:
        return len(self._engine.watch._calls)


@contextmanager
def crowd(engine: Engine) -> Iterator[Crowd]:
    value = Crowd(engine)
    try:
        yield value
    finally:
        for stop in value.stops:
            stop.cancellation.request()
        for thread in value.threads:
            thread.join(SOON_S)


def _wait(crowd: Crowd, count: int) -> list[str]:
    until = time.monotonic() + SOON_S
    while len(crowd.ended) < count:
        assert time.monotonic() < until
        time.sleep(0.01)
    return sorted(name for name, _ in crowd.ended)


def test_where_memory_is_short_who_runs_most_loses_his_latest(engine: Engine) -> None:
    with crowd(engine) as value:
        value.run("limited", "first")
        value.run("limited", "second")
        value.run("admin", "latest of all")
        assert engine.watch.cancel_newest_statement()
        assert _wait(value, 1) == ["second"]
        assert isinstance(value.ended[0][1], LimitExceeded)


def test_where_it_is_very_short_who_runs_most_loses_all(engine: Engine) -> None:
    assert not engine.watch.cancel_largest_owner()
    with crowd(engine) as value:
        value.run("admin", "of another")
        value.run("limited", "first")
        value.run("limited", "second")
        assert engine.watch.cancel_largest_owner()
        assert _wait(value, 2) == ["first", "second"]


def test_who_finds_no_memory_because_of_another_may_try_again(engine: Engine) -> None:
    watch = engine.watch
    with crowd(engine) as value:
        for number in range(4):
            value.run("limited", str(number))
        assert not watch.cancel_for("limited")
        running = next(iter(watch._calls))
        running.owner, short = "admin", LimitExceeded("the statement needs more memory")
        assert watch.blamed(short, "admin") is short, "three are not several times one"
        running.owner = "limited"
        assert isinstance(watch.blamed(short, "admin"), Overloaded)
        assert _wait(value, 1) == ["3"]


def test_who_finds_no_memory_because_of_another_is_served_when_it_is_free(
    engine: Engine,
) -> None:
    with crowd(engine) as value:
        for number in range(4):
            value.run("limited", str(number))
        tries: list[None] = []

        def work() -> str:
            tries.append(None)
            if len(tries) < 3:
                short = LimitExceeded("the statement needs more memory")
                raise engine.watch.blamed(short, working_user())
            return "rows"

        with working_for(Deadline(SOON_S), "admin"):
            with pytest.raises(LimitExceeded):  # after the first he has no more than others
                with_memory(work, Deadline(SOON_S))
            assert len(tries) == 2
            assert with_memory(work, Deadline(SOON_S)) == "rows"
        assert _wait(value, 1) == ["3"]


def test_who_is_brief_does_not_fail_for_the_memory_of_one_who_runs_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once in an hour the quiet user of the siege was refused, where another had one statement at a time."""
    # How long the brief one takes to find no memory depends on the machine: brief is what the other exceeds by far.
    monkeypatch.setattr(running, "_BRIEF_S", SOON_S / 2)
    full = threading.Event()
    with closing(
        Engine(storage_roots=[], spill_dir=tmp_path, memory_limit_bytes=256 * MB, threads=2)
    ) as engine:

        def fill(cursor: duckdb.DuckDBPyConnection) -> None:
            cursor.execute(HALF)
            full.set()
            while len(tries) < 3:
                time.sleep(0.01)

        def hold() -> None:
            with (
                closing(engine._connection.cursor()) as cursor,
                working_for(Deadline(SOON_S), "limited"),
            ):
                call = EngineCall(cursor, engine.watch)
                call.began_s -= 4 * SOON_S
                call.call(fill)

        def work() -> int:
            tries.append(None)
            return table(engine, HALF, deadline=Deadline(SOON_S), owner="admin").num_rows

        tries: list[None] = []
        assert table(engine, HALF).num_rows == 1, "alone it has room"
        holder = threading.Thread(target=hold)
        holder.start()
        assert full.wait(SOON_S)
        with pytest.raises(Overloaded, match="Statements of others"):
            work()
        assert with_memory(work, Deadline(SOON_S)) == 1
        holder.join(SOON_S)
        assert len(tries) > 2


def test_who_runs_longer_is_not_stopped_for_who_is_brief(engine: Engine) -> None:
    watch, short = engine.watch, LimitExceeded("the statement needs more memory")
    with crowd(engine) as value:
        value.run("limited", "long")
        assert watch.blamed(short, "limited", 0.0) is short, "it is his own"
        assert watch.blamed(short, "admin", 30.0) is short, "he took it himself"
        assert isinstance(watch.blamed(short, "admin", 0.0), Overloaded)
        time.sleep(0.1)
        assert not value.ended


def test_memory_that_others_hold_is_waited_for_until_the_deadline() -> None:
    tries: list[None] = []

    def work() -> None:
        tries.append(None)
        raise Overloaded("held", retry_after_s=1, memory=True)

    with pytest.raises(DeadlineExceeded):
        with_memory(work, Deadline(0.2))
    assert 1 < len(tries) < 5


def test_what_is_overloaded_otherwise_is_not_tried_again() -> None:
    tries: list[None] = []

    def work() -> None:
        tries.append(None)
        raise Overloaded("too many wait", retry_after_s=1)

    with pytest.raises(Overloaded):
        with_memory(work, Deadline(SOON_S))
    assert len(tries) == 1


def test_a_full_engine_is_not_a_broken_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was ended for that, with everybody's statements."""
    full = []
    with ExitStack() as stack:
        engine = Engine(
            storage_roots=[], spill_dir=tmp_path, memory_limit_bytes=256 * MB, threads=2
        )
        stack.callback(engine.close)
        ask = engine._ask

        def counting(sql: str, argument: str) -> tuple[str, ...]:
            try:
                return ask(sql, argument)
            except (LimitExceeded, Overloaded):
                full.append(sql)
                raise

        monkeypatch.setattr(engine, "_ask", counting)
        until = time.monotonic() + SOON_S
        while not full:
            assert time.monotonic() < until
            with crowd(engine) as value:
                for number in range(16):
                    value.run("limited", str(number), GREEDY)
                while not full and any(thread.is_alive() for thread in value.threads):
                    assert engine.healthy()


def test_a_long_call_gives_way_to_short_ones_where_its_thread_ends_by_that(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of gRPC's, or of a pool that lives on, would be slow for all who come after."""
    if os.getpriority(os.PRIO_PROCESS, 0) > 5:
        pytest.skip("these tests run at a low priority themselves")
    monkeypatch.setattr(running, "_LONG_S", 0.2)
    before = os.getpriority(os.PRIO_PROCESS, 0)
    priorities: dict[str, int] = {}

    def run(owner: str) -> None:
        with suppress(FederationError):
            table(engine, LONG, deadline=stop, owner=owner)
        priorities[owner] = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    stop, pool = Deadline(60), ThreadPool()
    with closing(pool), ThreadPoolExecutor(2) as living:
        ending = living.submit(pool.run, lambda: run("ending"), Deadline(SOON_S))
        lasting = living.submit(run, "lasting")
        try:
            until = time.monotonic() + SOON_S
            while set(engine.watch.long()) != {"ending", "lasting"}:
                assert time.monotonic() < until
                time.sleep(0.05)
        finally:
            stop.cancellation.request()
        ending.result(SOON_S)
        lasting.result(SOON_S)
    assert priorities["lasting"] == before < priorities["ending"]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads /proc")
def test_the_threads_of_the_engine_give_way(tmp_path: Path) -> None:
    if os.getpriority(os.PRIO_PROCESS, 0) > 5:
        pytest.skip("these tests run at a low priority themselves")

    def threads() -> set[int]:
        return {int(path.name) for path in Path("/proc/self/task").iterdir()}

    def low(threads: set[int]) -> int:
        own, count = os.getpriority(os.PRIO_PROCESS, 0), 0
        for thread in threads:
            with suppress(ProcessLookupError):  # an idle one of another test ended just now
                count += os.getpriority(os.PRIO_PROCESS, thread) > own
        return count

    before = threads()
    with closing(Engine(storage_roots=[str(tmp_path)], spill_dir=tmp_path, threads=5)):
        assert low(threads() - before) >= 4
