"""What is asked of the engine before a statement runs is expected to be over by its deadline."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import duckdb
import pytest

from planner.errors import DeadlineExceeded
from proxy.engine.planning import Planning, planning_until
from proxy.engine.running import Watch


def test_planning_is_under_the_watchdog_and_interrupted() -> None:
    expected: list[float] = []

    @contextlib.contextmanager
    def expecting(left_s: float) -> Iterator[None]:
        expected.append(left_s)
        yield

    watch = Watch()
    planning = Planning(watch)
    planning.expecting = expecting
    with duckdb.connect() as connection:
        assert planning.call(connection, lambda held: held.execute("SELECT 7").fetchall()) == [
            (7,)
        ]
        assert expected == []
        endless = "SELECT count(*) FROM range(4000000000) a, range(1000) b"
        with planning_until(time.monotonic() + 0.05), pytest.raises(DeadlineExceeded):
            planning.call(connection, lambda held: held.execute(endless).fetchall())
        assert len(expected) == 1
        assert expected[0] <= 0.05
        with planning_until(time.monotonic() - 1), planning.watched() as left_s:
            assert left_s == 0.001
    watch.close()
