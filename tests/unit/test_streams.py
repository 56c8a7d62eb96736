"""Offsets of a stream, and what its batches hold."""

from __future__ import annotations

import json
from typing import Any

import pytest

from planner.errors import BadParameter, LogTruncated, TopicRecreated
from planner.offsets import OffsetRange, OffsetVector
from planner.seam.cut import TableCut, plan_cut
from planner.seam.spark_stream import (
    StreamOffset,
    StreamStart,
    batch,
    batch_since,
    check_reached,
    next_end,
    parse_offset,
)
from tests.harness.builders import bounds, pin, vector

TOPIC_ID = "topic-1"


def offset(*offsets: int) -> StreamOffset:
    return StreamOffset(TOPIC_ID, vector(*offsets))


def cut(watermark: tuple[int, ...], ends: tuple[int, ...]) -> TableCut:
    return plan_cut(pin(*watermark), bounds(*((0, end) for end in ends)))


def test_equal_offsets_have_one_text() -> None:
    one = StreamOffset("t", OffsetVector.of([(1, 7), (0, 5)]))
    assert json.dumps(one.document) == '{"v": 1, "topic": "t", "next": [[0, 5], [1, 7]]}'
    assert parse_offset(json.loads(json.dumps(one.document))) == one


@pytest.mark.parametrize("start", [StreamStart("t"), StreamStart("t", 0), StreamStart("t", 9)])
def test_a_beginning_is_read_back(start: StreamStart) -> None:
    assert parse_offset(start.document) == start


@pytest.mark.parametrize(
    "document",
    [
        None,
        {},
        {"v": 2, "topic": "t", "next": []},
        {"v": True, "topic": "t", "next": []},
        {"v": 1, "topic": 3, "next": []},
        {"v": 1, "topic": "t", "next": [[0, "1"]]},
        {"v": 1, "topic": "t", "next": [[0]]},
        {"v": 1, "topic": "t", "next": [[0, -1]]},
        {"v": 1, "topic": "t", "start": "yesterday"},
        {"v": 1, "topic": "t", "start": 10**18},
        {"v": 1, "topic": "t", "start": -(10**30)},
    ],
)
def test_another_checkpoint_is_refused(document: Any) -> None:
    with pytest.raises(BadParameter, match="start the query with a new one"):
        parse_offset(document)


@pytest.mark.parametrize("watermark", [(0, 0), (7, 0), (10, 20), (30, 40)])
def test_a_batch_is_the_same_records_wherever_the_seam_is(watermark: tuple[int, int]) -> None:
    part = batch(cut(watermark, (30, 40)), offset(5, 8), offset(20, 25))
    spans = [*part.new_cold, *part.new_hot]
    records = {(span.partition, at) for span in spans for at in range(span.start, span.stop)}
    assert records == {(0, at) for at in range(5, 20)} | {(1, at) for at in range(8, 25)}
    assert sum(map(len, spans)) == len(records)


def test_a_new_partition_is_read_from_its_beginning() -> None:
    part = batch(cut((10,), (10, 4)), offset(10), offset(10, 3))
    assert (part.new_cold, part.new_hot) == ((), (OffsetRange(1, 0, 3),))


def test_a_partition_that_its_end_does_not_name_waits() -> None:
    assert batch(cut((10,), (12, 4)), offset(10), offset(12)).new_hot == (
        OffsetRange(0, 10, 12),
    )


def test_offsets_of_another_topic_are_refused() -> None:
    other = StreamOffset("another", vector(3))
    for start, end in ((other, offset(5)), (offset(3), other)):
        with pytest.raises(TopicRecreated):
            batch(cut((10,), (12,)), start, end)
    with pytest.raises(TopicRecreated):
        batch_since(cut((10,), (12,)), StreamStart("another", 1), vector(3), offset(5))


def test_a_log_that_ends_before_a_batch_is_refused() -> None:
    with pytest.raises(LogTruncated):
        batch(cut((10,), (12,)), offset(3), offset(13))
    with pytest.raises(LogTruncated):
        check_reached(cut((10,), (12,)), offset(13))


def test_a_batch_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(BadParameter, match="ends before it begins"):
        batch(cut((10,), (12,)), offset(5), offset(4))


def test_a_limit_is_shared_out() -> None:
    end = next_end(cut((0, 0), (100, 300)), vector(0, 100), vector(0, 0), 30)
    assert end.as_dict() == {0: 10, 1: 120}


def test_offsets_without_rows_do_not_count() -> None:
    end = next_end(cut((1_000,), (1_050,)), vector(0), vector(1_000), 30)
    assert end.as_dict() == {0: 1_030}


def test_a_beginning_above_the_end_stays_there() -> None:
    assert next_end(cut((3,), (3,)), vector(), vector(5), 30).as_dict() == {0: 3}


def test_a_time_begins_at_its_first_row() -> None:
    part = batch_since(
        cut((10, 0), (20, 30)),
        StreamStart(TOPIC_ID, 1),
        OffsetVector.of([(0, 8)]),
        offset(15, 9),
    )
    assert part.new_cold == (OffsetRange(0, 8, 10),)
    assert part.new_hot == (OffsetRange(0, 10, 15),)
