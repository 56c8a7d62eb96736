"""What follows a burst leaves time to the statements that are served, unless one of them waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import duckdb
import pyarrow as pa
import pytest

from planner.offsets import OffsetRange
from planner.ports import Decoded
from planner.watermark import Outcomes
from proxy.engine.segments import Segments
from proxy.tail import follower as following
from proxy.tail.follower import Follower
from proxy.tail.generations import Generation
from proxy.tail.reader.source import DecodedBatch
from proxy.tail.tally import OutcomeTally

SCHEMA = pa.schema([("kafka_partition", pa.int32()), ("kafka_offset", pa.int64())])
ROWS = 3 * following._PIECE_ROWS + 1
WAIT_S = 60.0


class Steps:
    """An intake and its feed: a step of so many rows each time, as long as there is one."""

    def __init__(self, *rows: int) -> None:
        self._rows = list(rows)
        self._at = 0

    def follow(self, starts: Mapping[int, int]) -> Steps:
        assert starts == {0: self._at}
        return self

    def take(self, timeout_s: float, wanted: Sequence[OffsetRange] = ()) -> DecodedBatch | None:
        if not self._rows:
            return None
        start, self._at = self._at, self._at + self._rows.pop(0)
        offsets = pa.array(range(start, self._at), pa.int64())
        rows = pa.record_batch(
            [pa.repeat(pa.scalar(0, pa.int32()), len(offsets)), offsets], schema=SCHEMA
        )
        return DecodedBatch(
            Decoded(rows, Outcomes(rows=len(rows)), ()), (OffsetRange(0, start, self._at),)
        )

    def close(self) -> None:
        pass


@contextmanager
def follower(
    intake: Steps, is_serving: Callable[[], bool]
) -> Iterator[tuple[Follower, Generation, list[int]]]:
    """A follower, what it fills, and the sizes of what is added."""
    with duckdb.connect() as engine:
        held = Generation("lake.net.flows", SCHEMA, Segments(engine, None))
        held.add([OffsetRange(0, 0, 0)], [])
        add, sizes = held.add, []

        def noted(pieces: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for piece in pieces:
                sizes.append(len(piece))
                yield piece

        held.add = lambda ranges, pieces, confirm: add(ranges, noted(pieces), confirm)  # type: ignore[method-assign]
        yield Follower(intake, held, OutcomeTally(), lambda *_: None, is_serving), held, sizes


def test_a_burst_is_added_at_once_where_nobody_is_served() -> None:
    with follower(Steps(ROWS), lambda: False) as (stepped, held, sizes):
        assert stepped.step(0) == ROWS
        assert (held.rows, sizes) == (ROWS, [ROWS])


def test_a_burst_is_added_in_pieces_with_pauses_while_others_are_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []
    with follower(Steps(ROWS, ROWS), lambda: True) as (stepped, held, sizes):
        monkeypatch.setattr(stepped._wake, "wait", pauses.append)
        assert stepped.step(0) == ROWS
        assert held.rows == ROWS
        assert sizes == [following._PIECE_ROWS] * 3 + [1]
        assert len(pauses) == 3
        stepped.step(0)
        assert len(pauses) == 7  # the last piece of a step owes one, too
        assert all(pause > 0 for pause in pauses)


def test_who_comes_to_wait_for_a_burst_does_not_wait_for_its_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(following, "_YIELDED", 1e9)
    with follower(Steps(ROWS), lambda: True) as (stepped, held, sizes):
        steps = threading.Thread(target=stepped.step, args=(0,))
        steps.start()
        while not sizes:
            steps.join(0.01)
        steps.join(0.1)
        assert steps.is_alive()
        stepped.hurry([OffsetRange(0, 0, ROWS)])
        steps.join(WAIT_S)
        assert not steps.is_alive()
        assert (held.rows, sizes) == (
            ROWS,
            [following._PIECE_ROWS, ROWS - following._PIECE_ROWS],
        )


def test_what_lasts_is_no_burst(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(following.time, "monotonic", lambda: now[0])
    pauses: list[float] = []
    with follower(Steps(ROWS, 1, ROWS, ROWS), lambda: True) as (stepped, _, sizes):
        monkeypatch.setattr(stepped._wake, "wait", pauses.append)
        stepped.step(0)
        now[0] += 2 * following._BURST_S
        stepped.step(0)  # few: it has caught up
        sizes.clear()
        stepped.step(0)
        assert len(sizes) == 4
        now[0] += 2 * following._BURST_S
        stepped.step(0)
        assert sizes[4:] == [ROWS]
