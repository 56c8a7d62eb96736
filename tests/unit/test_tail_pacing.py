"""When a follower adds and how much: the policy by itself, and a follower that goes by it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import duckdb
import pyarrow as pa
import pytest

from planner.offsets import OffsetRange
from planner.ports import Decoded
from planner.seam.watermark import Outcomes
from proxy.engine.segments import Segments
from proxy.tail.budget import OutcomeTally
from proxy.tail.follower import Follower
from proxy.tail.generations import Generation
from proxy.tail.pacing import Pace, Pacing
from proxy.tail.reader.source import DecodedBatch, TopicReader

SCHEMA = pa.schema([("kafka_partition", pa.int32()), ("kafka_offset", pa.int64())])
PACING = Pacing()
ROWS = 3 * PACING.piece_rows + 1
WAIT_S = 60.0


class Steps:
    """A reader and its subscription: a step of so many rows each time, as long as there is one."""

    def __init__(self, *rows: int) -> None:
        self._rows = list(rows)
        self._at = 0

    def follow(self, starts: Mapping[int, int], epochs: Mapping[int, int]) -> Steps:
        assert starts == {0: self._at}
        return self

    def take(
        self, timeout_s: float, expected: Sequence[OffsetRange] = ()
    ) -> DecodedBatch | None:
        if not self._rows:
            return None
        start, self._at = self._at, self._at + self._rows.pop(0)
        offsets = pa.array(range(start, self._at), pa.int64())
        rows = pa.record_batch(
            [pa.repeat(pa.scalar(0, pa.int32()), len(offsets)), offsets], schema=SCHEMA
        )
        return DecodedBatch(
            Decoded(rows, Outcomes(rows=len(rows))), (OffsetRange(0, start, self._at),)
        )

    def close(self) -> None:
        pass


@contextmanager
def follower(
    reader: Steps, is_serving: Callable[[], bool], *, pacing: Pacing = PACING
) -> Iterator[tuple[Follower, Generation, list[int]]]:
    """A follower, what it fills, and the sizes of what is added."""
    with duckdb.connect() as engine:
        generation = Generation("lake.net.flows", SCHEMA, Segments(engine, None))
        generation.add([OffsetRange(0, 0, 0)], [])
        add = generation.add
        sizes: list[int] = []

        def noted(pieces: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for piece in pieces:
                sizes.append(len(piece))
                yield piece

        def adding(
            ranges: Sequence[OffsetRange],
            pieces: Iterable[pa.RecordBatch],
            confirm: Callable[[], None],
            *others: Any,
        ) -> None:
            add(ranges, noted(pieces), confirm, *others)

        generation.add = adding  # type: ignore[method-assign, assignment]
        stepped = Follower(
            cast("TopicReader", reader),
            *(generation, OutcomeTally(), lambda *_: None, is_serving),
            pacing=pacing,
        )
        yield stepped, generation, sizes


def test_a_burst_is_added_at_once_where_nobody_is_served() -> None:
    with follower(Steps(ROWS), lambda: False) as (stepped, generation, sizes):
        assert stepped.step(0) == ROWS
        assert (generation.rows, sizes) == (ROWS, [ROWS])


def test_a_burst_is_added_in_pieces_with_pauses_while_others_are_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []
    with follower(Steps(ROWS, ROWS), lambda: True) as (stepped, generation, sizes):
        monkeypatch.setattr(stepped._wake, "wait", pauses.append)
        assert stepped.step(0) == ROWS
        assert generation.rows == ROWS
        assert sizes == [PACING.piece_rows] * 3 + [1]
        assert len(pauses) == 3
        stepped.step(0)
        assert len(pauses) == 7  # the last piece of a step owes one, too
        assert all(pause > 0 for pause in pauses)


def test_who_comes_to_wait_for_a_burst_does_not_wait_for_its_pauses() -> None:
    pacing = Pacing(pause_ratio=1e9)
    with follower(Steps(ROWS), lambda: True, pacing=pacing) as (stepped, generation, sizes):
        steps = threading.Thread(target=stepped.step, args=(0,))
        steps.start()
        while not sizes and steps.is_alive():
            steps.join(0.01)
        steps.join(0.1)
        assert steps.is_alive()
        stepped.request([OffsetRange(0, 0, ROWS)])
        steps.join(WAIT_S)
        assert not steps.is_alive()
        assert (generation.rows, sizes) == (
            ROWS,
            [PACING.piece_rows, ROWS - PACING.piece_rows],
        )


def test_what_lasts_is_no_burst() -> None:
    pace = Pace(PACING, caught_up_at_s=1000.0)
    pace.note_step(PACING.backlog_rows, 1030.0)
    assert pace.yields(1059.9, is_serving=True)
    assert not pace.yields(1059.9, is_serving=False)
    assert not pace.yields(1060.0, is_serving=True)
    pace.note_step(PACING.backlog_rows - 1, 1060.0)  # few: it has caught up
    assert pace.yields(1060.0, is_serving=True)


def test_a_demand_ends_yielding_and_gathering_until_it_is_forgotten() -> None:
    pace, ranges = Pace(PACING, caught_up_at_s=0.0), [OffsetRange(0, 0, 5)]
    assert pace.required(0.0) == ()
    assert pace.linger_s(1, 0.0, is_needed=False) == PACING.idle_linger_s
    pace.require(ranges, 10.0)
    assert pace.required(11.0) is ranges
    assert not pace.yields(11.0, is_serving=True)
    assert pace.linger_s(1, 11.0, is_needed=True) == 0.0
    assert pace.linger_s(1, 11.0, is_needed=False) == PACING.linger_s
    assert pace.required(11.1) == ()
    assert pace.yields(11.1, is_serving=True)


@pytest.mark.parametrize("rows", [None, PACING.backlog_rows])
def test_nothing_lingers_where_nothing_came_or_more_is_there(rows: int | None) -> None:
    assert Pace(PACING, caught_up_at_s=0.0).linger_s(rows, 0.0, is_needed=False) == 0.0


def test_a_pause_is_owed_for_what_was_added_while_others_came_first() -> None:
    pace = Pace(PACING, caught_up_at_s=0.0)
    pace.note_piece(0.5, yielding=True)
    assert pace.pause_debt_s == 0.5 * PACING.pause_ratio
    pace.note_piece(0.5, yielding=False)
    assert pace.pause_debt_s == 0.0


def test_a_reader_gathers_longer_the_longer_nobody_takes() -> None:
    assert PACING.reader_gather_s(1, 0.0) == PACING.gather_s
    assert PACING.reader_gather_s(1, 10.0) == 10.0 * PACING.idle_share
    assert PACING.reader_gather_s(PACING.backlog_rows, 10.0) == 0.0
    assert PACING.is_full(PACING.max_ready_rows, 0)
    assert PACING.is_full(0, PACING.max_ready_bytes)
    assert not PACING.is_full(PACING.max_ready_rows - 1, PACING.max_ready_bytes - 1)


def test_failures_are_asked_about_less_and_less_often() -> None:
    pauses = [PACING.retry_s(failures) for failures in (1, 2, 3, 4, 5, 6, 10_000)]
    assert pauses == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
