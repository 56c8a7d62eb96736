"""Users who share one engine: who gives way, and whose statement ends where memory is short."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from planner.errors import FederationError, LimitExceeded, Overloaded
from proxy.deadline import Deadline
from proxy.engine.engine import Engine
from tests.contract.engine import LONG, table

SOON_S = 60.0
MB = 1 << 20
#: It keeps all it reads in memory, and cannot spill that.
GREEDY = "SELECT list(i) FROM range(20000000) t(i)"


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
        return len(self._engine._watch._calls)


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
        assert engine.relieve()
        assert _wait(value, 1) == ["second"]
        assert isinstance(value.ended[0][1], LimitExceeded)


def test_where_it_is_very_short_who_runs_most_loses_all(engine: Engine) -> None:
    assert not engine.relieve_owner()
    with crowd(engine) as value:
        value.run("admin", "of another")
        value.run("limited", "first")
        value.run("limited", "second")
        assert engine.relieve_owner()
        assert _wait(value, 2) == ["first", "second"]


def test_who_finds_no_memory_because_of_another_may_try_again(engine: Engine) -> None:
    watch = engine._watch
    with crowd(engine) as value:
        for number in range(4):
            value.run("limited", str(number))
        assert not watch.relieve_for("limited")
        running = next(iter(watch._calls))
        running.owner, short = "admin", LimitExceeded("the statement needs more memory")
        assert running._for_want_of_memory(short) is short, "three are not several times one"
        running.owner = "limited"
        stranger = type(running)(running._cursor, watch, None, None)
        stranger.owner = "admin"
        assert isinstance(stranger._for_want_of_memory(short), Overloaded)
        assert _wait(value, 1) == ["3"]


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
            except LimitExceeded:
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


def test_a_long_call_gives_way_to_short_ones(engine: Engine) -> None:
    if os.getpriority(os.PRIO_PROCESS, 0) > 5:
        pytest.skip("these tests run at a low priority themselves")
    with crowd(engine) as value:
        value.run("limited", "long")
        thread = value.threads[0].native_id
        assert thread is not None
        before = os.getpriority(os.PRIO_PROCESS, thread)
        until = time.monotonic() + SOON_S
        while os.getpriority(os.PRIO_PROCESS, thread) == before:
            assert time.monotonic() < until
            time.sleep(0.05)
        assert os.getpriority(os.PRIO_PROCESS, 0) == before
        while set(engine.long()) != {"limited"}:
            assert time.monotonic() < until
            time.sleep(0.05)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads /proc")
def test_the_threads_of_the_engine_give_way(tmp_path: Path) -> None:
    if os.getpriority(os.PRIO_PROCESS, 0) > 5:
        pytest.skip("these tests run at a low priority themselves")

    def low() -> int:
        own = os.getpriority(os.PRIO_PROCESS, 0)
        threads = [int(path.name) for path in Path("/proc/self/task").iterdir()]
        return sum(os.getpriority(os.PRIO_PROCESS, thread) > own for thread in threads)

    before = low()
    with closing(Engine(storage_roots=[str(tmp_path)], spill_dir=tmp_path, threads=5)):
        assert low() >= before + 4
