"""The demo's ledger and its two comparisons: every row at the end, the count of every answer meanwhile."""

from __future__ import annotations

import datetime as dt
import json
import random

import pytest

from thermocline.demo.feeds import FEEDS, PROCESSES, DemoFeed
from thermocline.demo.ledger import SETTLE_S, Kind, Ledger, SentRecord, digest_event, digest_row
from thermocline.demo.observer import ObservedAnswer, ObservedTable, PartitionView


def sent(partition: int, offset: int, kind: Kind = "good") -> SentRecord:
    return SentRecord(kind, partition, offset, offset * 7)


def ledger(*offsets: int) -> Ledger:
    result = Ledger()
    result.add(sent(0, offset) for offset in offsets)
    return result


def answer(rows: int, end: int, at: float = 0.0) -> ObservedAnswer:
    return ObservedAnswer((PartitionView(0, end, 0, rows),), 0, None, 1.0, at)


def test_rows_below_an_end_are_counted_whatever_order_they_came_in() -> None:
    records = ledger(5, 1, 9, 3)
    records.add([sent(0, 4, "tombstone"), sent(1, 0, "bad"), sent(1, 1, "aborted")])
    assert [records.rows_below({0: end}) for end in (0, 1, 2, 9, 10)] == [0, 0, 1, 3, 4]
    assert records.rows_below({0: 100, 1: 100, 2: 100}) == records.rows == 5
    assert records.counts == {"good": 4, "bad": 1, "tombstone": 1, "aborted": 1}


def test_each_difference_is_named() -> None:
    records = ledger(0, 1, 2, 3)
    assert records.differences((0, n, n * 7) for n in range(4)) == []
    rows = [(0, 0, 0), (0, 1, 8), (0, 3, 21), (0, 3, 21), (0, 9, 1)]
    assert records.differences(rows) == [
        (0, 1, "changed"),
        (0, 2, "missing"),
        (0, 3, "doubled"),
        (0, 9, "surplus"),
    ]


def test_an_answer_waits_for_acknowledgements_on_their_way() -> None:
    table = ObservedTable(PROCESSES, ledger(0, 1))
    table.take(answer(rows=3, end=3))
    table.settle(now=1.0)
    assert (table.checked, table.off_by) == (0, 0)
    table.ledger.add([sent(0, 2), sent(0, 3)])  # the second above the cut's end
    table.settle(now=1.1)
    assert (table.checked, table.off_by) == (1, 0)


def test_a_row_too_many_is_off_once_acknowledgements_had_their_time() -> None:
    table = ObservedTable(PROCESSES, ledger(0, 1))
    table.take(answer(rows=3, end=3))
    table.settle(now=SETTLE_S + 0.1)
    assert (table.checked, table.off_by) == (1, 1)


def test_a_missing_row_is_off_at_once_and_stays_so() -> None:
    table = ObservedTable(PROCESSES, ledger(0, 1, 2))
    table.take(answer(rows=2, end=3))
    table.settle(now=0.0)
    table.take(answer(rows=3, end=3))
    table.settle(now=0.1)
    assert (table.checked, table.off_by) == (2, -1)


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


def test_a_wrong_value_in_the_later_column_is_a_changed_row() -> None:
    event = PROCESSES.make(random.Random(7), 1_700_000_000_000)
    row = event | {
        "kafka_error": None,
        "ts": dt.datetime.fromtimestamp(int(str(event["ts"])) / 1000, dt.UTC),
    }
    right = PROCESSES.later_of(event)
    hashes = [
        digest_row(PROCESSES, row | {"signer": value}, is_later_exact=False)
        for value in (None, right, "other")
    ]
    assert hashes == [digest_event(event), digest_event(event), -1]


def test_of_avro_a_row_has_the_later_column_just_where_its_event_had_the_field() -> None:
    events = [PROCESSES.make(random.Random(7), 1_700_000_000_000) for _ in range(2)]
    rows = [
        event
        | {
            "kafka_error": None,
            "ts": dt.datetime.fromtimestamp(int(str(event["ts"])) / 1000, dt.UTC),
        }
        for event in events
    ]
    later = {PROCESSES.later: PROCESSES.later_of(events[1])}
    before, after = digest_event(events[0]), digest_event(events[1] | later)
    for added, expected in ({}, before), ({"signer": None}, before), (later, after):
        assert digest_row(PROCESSES, rows[0] | added, is_later_exact=True) == expected
    assert before != after
