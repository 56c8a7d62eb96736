"""The demo's ledger and its two comparisons: every row at the end, the count of every answer meanwhile."""

from __future__ import annotations

import json
import random

import pytest

from thermocline.demo.feeds import FEEDS, DemoFeed
from thermocline.demo.ledger import Difference, Ledger, digest_event
from thermocline.demo.observer import SETTLE_S, CountCheck, ObservedAnswer, PartitionView


def ledger(*offsets: int) -> Ledger:
    value = Ledger()
    for offset in offsets:
        value.acknowledged(0, offset, "good", offset * 7)
    return value


def answer(rows: int, end: int, at: float = 0.0) -> ObservedAnswer:
    return ObservedAnswer((PartitionView(0, 0, end, 0, rows),), rows, None, None, 1.0, at)


def test_rows_below_an_end_are_counted_whatever_order_they_came_in() -> None:
    value = ledger(5, 1, 9, 3)
    value.acknowledged(0, 4, "tombstone", 0)
    value.acknowledged(1, 0, "bad", 1)
    assert [value.rows_below({0: end}) for end in (0, 1, 2, 9, 10)] == [0, 0, 1, 3, 4]
    assert value.rows_below({0: 100, 1: 100, 2: 100}) == value.rows == 5
    assert (value.tombstones, value.bad) == (1, 1)


def test_each_difference_is_named() -> None:
    value = ledger(0, 1, 2, 3)
    assert value.differences((0, n, n * 7) for n in range(4)) == []
    inputs = [(0, 0, 0), (0, 1, 8), (0, 3, 21), (0, 3, 21), (0, 9, 1)]
    assert value.differences(inputs) == [
        Difference("changed", 0, 1),
        Difference("missing", 0, 2),
        Difference("doubled", 0, 3),
        Difference("surplus", 0, 9),
    ]


def test_an_answer_waits_for_acknowledgements_on_their_way() -> None:
    value = ledger(0, 1)
    check = CountCheck(value)
    check.add(answer(rows=3, end=3))
    check.settle(now=1.0)
    assert (check.checked, check.off_by) == (0, 0)
    value.acknowledged(0, 2, "good", 14)
    value.acknowledged(0, 3, "good", 21)  # above the cut's end
    check.settle(now=1.1)
    assert (check.checked, check.off_by) == (1, 0)


def test_a_row_too_many_is_off_once_acknowledgements_had_their_time() -> None:
    check = CountCheck(ledger(0, 1))
    check.add(answer(rows=3, end=3))
    check.settle(now=SETTLE_S + 0.1)
    assert (check.checked, check.off_by) == (1, 1)


def test_a_missing_row_is_off_at_once_and_stays_so() -> None:
    check = CountCheck(ledger(0, 1, 2))
    check.add(answer(rows=2, end=3))
    check.settle(now=0.0)
    check.add(answer(rows=3, end=3))
    check.settle(now=0.1)
    assert (check.checked, check.off_by) == (2, -1)


@pytest.mark.parametrize("feed", FEEDS, ids=lambda feed: feed.topic)
def test_events_have_the_columns_of_their_table(feed: DemoFeed) -> None:
    rng = random.Random(7)
    events = [feed.make(rng, 1_700_000_000_000) for _ in range(5_000)]
    assert all(list(event) == list(feed.columns) for event in events)
    assert {feed.partition_of(event) for event in events} == set(range(feed.partitions))
    assert all(feed.later_of(event) for event in events)
    assert feed.later not in feed.columns
    late = [event for event in events if int(str(event["ts"])) < 1_700_000_000_000]
    assert 0.005 < len(late) / len(events) < 0.1
    # What comes back from SQL hashes as what was sent.
    assert digest_event(json.loads(json.dumps(events[0]))) == digest_event(events[0])
