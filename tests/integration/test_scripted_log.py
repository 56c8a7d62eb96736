"""Reading log shapes that a real broker cannot be made to produce on demand (docs/internals/seam.md)."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from connectors.kafka.admin import Admin
from connectors.kafka.log import KafkaLog
from planner.errors import LogTruncated, LogUnavailable, OffsetsExpired, TailGap
from planner.offsets import OffsetRange, OffsetVector
from planner.ports import TopicSource
from planner.seam.cut import check_log
from tests.fixtures.fake_broker import TOPIC, FakeBroker, Script
from tests.harness.builders import FLOWS, watermark

PRODUCER = 7


@pytest.fixture
def log(fake_broker: FakeBroker) -> Iterator[KafkaLog]:
    with KafkaLog({"bootstrap.servers": fake_broker.bootstrap}, measure_timeout_s=2) as log:
        yield log


@pytest.fixture
def script(fake_broker: FakeBroker) -> Script:
    return fake_broker.script


def offsets(log: KafkaLog, start: int, stop: int, *, timeout_s: float = 5) -> list[int]:
    batches = log.fetch(TopicSource(TOPIC), [OffsetRange(0, start, stop)], timeout_s=timeout_s)
    return [offset for batch in batches for offset in batch.column("kafka_offset").to_pylist()]


def test_a_batch_that_ends_beyond_its_last_record_is_read_to_its_end(
    log: KafkaLog, script: Script
) -> None:
    script.add(0, [(0, b"a"), (2, b"b")], last=9)
    assert offsets(log, 0, 10) == [0, 2]


def test_an_empty_retained_batch_at_the_end_is_passed(log: KafkaLog, script: Script) -> None:
    script.add(0, [(0, b"a"), (1, b"b")])
    script.add(2, [], last=5)
    assert offsets(log, 0, 6) == [0, 1]


def test_no_bytes_before_the_end_fail_at_the_deadline_and_name_where_it_stopped(
    log: KafkaLog, script: Script
) -> None:
    script.add(0, [(0, b"a"), (1, b"b")])
    script.stable_end = 6
    began = time.monotonic()
    with pytest.raises(LogUnavailable, match="target unreachable") as caught:
        offsets(log, 0, 6, timeout_s=1)
    assert 0.9 < time.monotonic() - began < 3
    assert caught.value.message == (
        f"{TOPIC}/0: target unreachable: records up to offset 6 must be read, nothing beyond 2 arrived in "
        f"time; retry when the partition's leader answers."
    )


def test_a_start_inside_a_hole_reads_what_comes_after_it(log: KafkaLog, script: Script) -> None:
    script.add(0, [(0, b"a")])
    script.add(5, [(5, b"b"), (6, b"c")])
    assert offsets(log, 3, 7) == [5, 6]


def test_a_stop_inside_a_hole_drops_what_comes_after_it(log: KafkaLog, script: Script) -> None:
    script.add(0, [(0, b"a")])
    script.add(5, [(5, b"b"), (6, b"c")])
    assert offsets(log, 0, 3) == [0]
    assert offsets(log, 1, 5) == []
    assert offsets(log, 1, 6) == [5]


def test_aborted_records_are_dropped_and_the_marker_at_the_end_is_passed(
    log: KafkaLog, script: Script
) -> None:
    script.add(0, [(0, b"t0"), (1, b"t1")], producer_id=PRODUCER)
    script.add(2, [], producer_id=PRODUCER, control=1)
    script.add(3, [(3, b"gone"), (4, b"gone")], producer_id=PRODUCER)
    script.add(5, [], producer_id=PRODUCER, control=0)
    script.aborted = [(PRODUCER, 3)]
    assert offsets(log, 0, 6) == [0, 1]


def test_an_open_transaction_at_the_tail_ends_the_log_at_the_last_stable_offset(
    log: KafkaLog, script: Script
) -> None:
    script.add(0, [(0, b"a"), (1, b"b")])
    script.high_watermark = 9
    assert log.measure([TOPIC])[TOPIC].partitions[0].log_end == 2
    assert offsets(log, 0, 2) == [0, 1]


def test_an_open_transaction_whose_records_were_removed_leaves_a_gap_and_brokers_that_answer(
    log: KafkaLog, script: Script
) -> None:
    """DeleteRecords takes what an open transaction keeps the last stable offset at: it stays where it was."""
    script.add(0, [(offset, b"a") for offset in range(10)])
    script.high_watermark = 30
    script.log_start = 22
    began = time.monotonic()
    measured = log.measure([TOPIC])[TOPIC]
    assert time.monotonic() - began < 1.5
    assert [(partition.log_start, partition.log_end) for partition in measured.partitions] == [
        (22, 22)
    ]
    marked = watermark(
        10, topic=TOPIC, topic_id=measured.topic_id, cluster_id=measured.cluster_id
    )
    with pytest.raises(TailGap, match="ends at offset 10 but the log starts at 22; 12 offsets"):
        check_log(FLOWS, marked, measured)
    # Given up, the rest is read from the log start on, whatever the transaction comes to.
    after = replace(marked, next=OffsetVector.of([(0, 22)]))
    assert [len(item) for item in check_log(FLOWS, after, measured)] == [0]
    script.add(22, [(offset, b"b") for offset in range(22, 30)])
    (item,) = check_log(FLOWS, after, log.measure([TOPIC])[TOPIC])
    assert (item.start, item.stop) == (22, 30)


def test_a_log_start_that_moved_while_the_end_was_told_is_asked_for_again(
    log: KafkaLog, script: Script
) -> None:
    script.add(0, [(offset, b"a") for offset in range(30)])
    script.log_start = 22
    script.stale_ends = [10]
    (bounds,) = log.measure([TOPIC])[TOPIC].partitions
    assert (bounds.log_start, bounds.log_end) == (22, 30)


def test_later_offsets_than_asked_are_a_gap_when_the_log_start_has_moved(
    log: KafkaLog, script: Script
) -> None:
    script.add(0, [(offset, b"a") for offset in range(5)])
    script.add(5, [(offset, b"b") for offset in range(5, 8)])
    assert offsets(log, 0, 8) == [*range(8)]
    script.skip_below = 5
    batches = log.fetch(TopicSource(TOPIC), [OffsetRange(0, 0, 8)], timeout_s=5)
    assert next(batches).column("kafka_offset").to_pylist() == [5, 6, 7]
    script.log_start = 5
    with pytest.raises(OffsetsExpired, match="the log starts at 5 now"):
        next(batches)


def test_an_expired_start_is_an_error_and_never_a_jump(log: KafkaLog, script: Script) -> None:
    script.add(0, [(offset, b"a") for offset in range(8)])
    script.log_start = 5
    with pytest.raises(OffsetsExpired, match="offsets 0 to 8"):
        offsets(log, 0, 8)


def test_a_broker_that_refuses_what_the_log_holds_is_an_error_and_never_a_jump(
    log: KafkaLog, script: Script
) -> None:
    script.add(0, [(offset, b"a") for offset in range(8)])
    script.refuse_below = 5
    with pytest.raises(LogUnavailable, match="refuses offsets that the log holds"):
        offsets(log, 0, 8)


def test_answers_cut_in_half_are_asked_for_again(log: KafkaLog, script: Script) -> None:
    script.add(0, [(0, b"a"), (1, b"b")])
    script.break_fetches = 2
    # librdkafka looks at a broken connection once a second.
    assert offsets(log, 0, 2, timeout_s=20) == [0, 1]
    assert script.break_fetches == 0


def test_answers_that_stay_cut_in_half_fail_at_the_deadline(
    log: KafkaLog, script: Script
) -> None:
    script.add(0, [(0, b"a"), (1, b"b")])
    script.break_fetches = 10_000
    with pytest.raises(LogUnavailable, match="nothing beyond 0 arrived"):
        offsets(log, 0, 2, timeout_s=1)


def test_slow_answers_inside_the_deadline_are_waited_for(log: KafkaLog, script: Script) -> None:
    script.add(0, [(0, b"a"), (1, b"b")])
    script.fetch_delay_s = 0.7
    assert offsets(log, 0, 2) == [0, 1]


def test_a_damaged_batch_is_an_error_and_never_skipped(log: KafkaLog, script: Script) -> None:
    script.add(0, [(0, b"a")])
    script.add(1, [(1, b"b")])
    first, last, value = script.batches[0]
    script.batches[0] = (first, last, value[:-2] + b"x" + value[-1:])
    with pytest.raises(LogUnavailable):
        offsets(log, 0, 2, timeout_s=2)


def test_a_lagging_replicas_end_is_asked_for_again(log: KafkaLog, script: Script) -> None:
    script.add(0, [(offset, b"a") for offset in range(8)])
    assert log.measure([TOPIC])[TOPIC].partitions[0].log_end == 8
    script.stale_ends = [3, 5]
    assert log.measure([TOPIC])[TOPIC].partitions[0].log_end == 8
    assert script.stale_ends == []


def test_an_end_that_stays_below_one_seen_before_is_an_error(
    log: KafkaLog, script: Script
) -> None:
    script.add(0, [(offset, b"a") for offset in range(8)])
    log.measure([TOPIC])
    script.stable_end = 3
    with pytest.raises(LogUnavailable, match=r"ends at offset 3, but it ended at 8 before"):
        log.measure([TOPIC])


def test_an_end_below_one_seen_before_is_where_the_log_of_a_newer_leader_ends(
    log: KafkaLog, script: Script
) -> None:
    _lead(log, script)
    script.stable_end = 3
    [partition] = log.measure([TOPIC])[TOPIC].partitions
    assert (partition.log_end, partition.leader_epoch) == (3, 2)


def test_a_last_round_without_an_answer_hides_no_stale_replica(
    log: KafkaLog, script: Script
) -> None:
    script.add(0, [(offset, b"a") for offset in range(8)])
    log.measure([TOPIC])
    script.stale_ends, script.stable_end = [3], -1
    with pytest.raises(LogUnavailable, match="ended at 8 before"):
        log.measure([TOPIC])


def _lead(log: KafkaLog, script: Script) -> None:
    """Let eight records be measured, then another leader answer."""
    script.add(0, [(offset, b"a") for offset in range(8)])
    script.leader_epoch = 1
    log.measure([TOPIC])
    script.leader_epoch = 2


def test_nothing_is_kept_of_a_topic_that_was_described(fake_broker: FakeBroker) -> None:
    """A client that does, does so for each statement."""
    admin = Admin({"bootstrap.servers": fake_broker.bootstrap})
    for _ in range(20):
        (reply,) = admin.described([TOPIC], 5.0).result(30)
        until = time.monotonic() + 30
        # Held by what was told, and by the call that counts.
        while (references := sys.getrefcount(reply.topic_id)) != 2:
            assert time.monotonic() < until, references
            time.sleep(0.001)
        time.sleep(0.001)
        references = sys.getrefcount(reply.topic_id)
        assert references == 2
        assert str(reply.topic_id)


def test_an_offset_that_is_none_is_no_answer(log: KafkaLog, script: Script) -> None:
    """Neither an empty log nor one that lost records. On a busy machine the last round may have no answer at all."""
    script.log_start = script.stable_end = -1
    with pytest.raises(LogUnavailable, match=r"no offset was told|_TIMED_OUT"):
        log.measure([TOPIC])


def test_a_stop_that_the_log_lost_is_truncation_and_not_a_missing_answer(
    fake_broker: FakeBroker, script: Script
) -> None:
    script.add(0, [(offset, b"a") for offset in range(8)])
    script.stable_end = script.high_watermark = 3
    with KafkaLog({"bootstrap.servers": fake_broker.bootstrap}) as fresh:
        began = time.monotonic()
        with pytest.raises(LogTruncated, match="it ends at 3"):
            offsets(fresh, 4, 8, timeout_s=20)
        assert time.monotonic() - began < 5


def test_a_silent_topic_costs_no_request(log: KafkaLog, script: Script) -> None:
    script.add(0, [(0, b"a")])
    end = log.measure([TOPIC])[TOPIC].partitions[0].log_end
    before = len(script.requests)
    assert offsets(log, end, end) == []
    assert len(script.requests) == before


def test_consumers_are_used_again(log: KafkaLog, fake_broker: FakeBroker) -> None:
    fake_broker.script.add(0, [(0, b"a"), (1, b"b")])
    assert offsets(log, 0, 2) == [0, 1]
    connections = fake_broker.connections
    for _ in range(20):
        assert offsets(log, 1, 2) == [1]
    assert fake_broker.connections == connections
