"""What is asked of the engine before a statement runs ends by the deadline of whom the thread works for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import duckdb
import pytest

from planner.errors import DeadlineExceeded
from proxy.engine.running import EngineCall, Watch, working_for
from proxy.session import Deadline

ENDLESS = "SELECT count(*) FROM range(4000000000) a, range(1000) b"


@pytest.fixture
def watch() -> Iterator[Watch]:
    made = Watch()
    yield made
    made.close()


def test_planning_is_under_the_watchdog_and_interrupted(watch: Watch) -> None:
    expected: list[tuple[float, str | None]] = []

    @contextlib.contextmanager
    def expecting(left_s: float, user: str | None) -> Iterator[None]:
        expected.append((left_s, user))
        yield

    watch.expecting = expecting
    with duckdb.connect() as connection:
        call = EngineCall(connection, watch)
        assert call.call(lambda cursor: cursor.execute("SELECT 7").fetchall()) == [(7,)]
        assert expected == []
        with (
            working_for(Deadline(0.05), "ada"),
            pytest.raises(DeadlineExceeded, match=r"ran longer than 0\.05 s;"),
        ):
            EngineCall(connection, watch).call(
                lambda cursor: cursor.execute(ENDLESS).fetchall()
            )
        [(left_s, user)] = expected
        assert left_s <= 0.05
        assert user == "ada"


def test_a_call_that_begins_too_late_is_refused_with_the_limit_of_its_session(
    watch: Watch,
) -> None:
    deadline = Deadline(60)
    deadline.end_s -= 61
    with (
        duckdb.connect() as connection,
        working_for(deadline, None),
        pytest.raises(DeadlineExceeded, match=r"ran longer than 60 s;"),
    ):
        EngineCall(connection, watch).call(lambda cursor: cursor.execute("SELECT 7"))
