"""A follower's rounds: handed on whole, once, in spite of what happens to its server."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from connectors.flight_server import NotLetIn
from planner.errors import FederationError, LogUnavailable, StalePlan, TailGap
from thermocline import follower

ROWS = pa.schema([("n", pa.int64())])


@dataclass
class ScriptedServer:
    """Counts up, two rows a round; position ``n`` means everything below n was read. Fails as told, in order."""

    failures: list[tuple[str, FederationError] | None]
    statements: list[str] = field(default_factory=list)
    connections: int = 0

    @contextlib.contextmanager
    def connect(self) -> Iterator[Any]:
        self.connections += 1
        yield self

    def follow(self, sql: str, after: str) -> ScriptedServer:
        assert sql == "SELECT n"
        self.statements.append(after)
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None and failure[0] == "plan":
            raise failure[1]
        self._failure = failure
        self.position = str(int(after) + 2)
        return self

    @contextlib.contextmanager
    def read(self) -> Iterator[ScriptedServer]:
        yield self

    @property
    def schema(self) -> pa.Schema:
        return ROWS

    def batches(self) -> Generator[pa.RecordBatch, None, None]:
        first = int(self.statements[-1])
        yield pa.record_batch([[first]], schema=ROWS)
        if self._failure is not None:
            raise self._failure[1]
        yield pa.record_batch([[first + 1]], schema=ROWS)


def followed(server: ScriptedServer, count: int) -> tuple[list[int], list[str], list[float]]:
    """Rows of the first ``count`` rounds, what was told, and the waits."""
    report: list[str] = []
    waits: list[float] = []
    counts: list[int] = []
    going = follower.rounds(
        server.connect,
        "SELECT n",
        "0",
        wait=waits.append,
        interval_s=9.0,
        report=lambda error: report.append(error.message),
    )
    for _ in range(count):
        answer = next(going)
        counts += [row["n"] for batch in answer.batches for row in batch.to_pylist()]
    going.close()
    return counts, report, waits


def test_a_round_that_fails_halfway_is_asked_again_and_nothing_of_it_was_handed_on() -> None:
    server = ScriptedServer([None, ("rows", LogUnavailable("away.")), None])
    result, report, _ = followed(server, 3)
    assert result == [0, 1, 2, 3, 4, 5]
    assert server.statements == ["0", "2", "2", "4"]
    assert report == ["away."]
    assert server.connections == 2


def test_an_outage_is_told_once_and_waited_for_longer_each_time() -> None:
    away = ("plan", LogUnavailable("away."))
    server = ScriptedServer([away] * 7 + [None, ("plan", StalePlan("stale.")), None])
    result, report, waits = followed(server, 2)
    assert result == [0, 1, 2, 3]
    assert report == ["away.", "stale."]
    assert waits == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 9.0, 0.2]


def test_a_token_of_before_the_restart_is_replaced_once() -> None:
    out = ("plan", NotLetIn("who?"))
    assert followed(ScriptedServer([None, out, None]), 2)[0] == [0, 1, 2, 3]
    with pytest.raises(NotLetIn):
        followed(ScriptedServer([None, out, out]), 2)
    with pytest.raises(NotLetIn):
        followed(ScriptedServer([out]), 1)


def test_what_waiting_does_not_mend_ends_it() -> None:
    with pytest.raises(TailGap):
        followed(ScriptedServer([("rows", TailGap("gap."))]), 1)
