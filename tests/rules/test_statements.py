"""The rules of docs/seam-rules.md as a statement meets them: real statements over the doubles."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from connectors.decoding.registry import decoder_for
from connectors.repairs import Repairs
from planner.errors import (
    FederationError,
    LogTruncated,
    LogUnavailable,
    OffsetsExpired,
    TailGap,
    TopicRecreated,
    UndecodableRecord,
)
from planner.names import TableName
from planner.seam.watermark import Skip
from proxy.engine.engine import Engine
from proxy.engine.result import Result
from proxy.tail.budget import TailLimits
from tests.doubles.amending import MemoryRepairCommitter
from tests.harness.flows import PLACES, places, tier, write, written
from tests.harness.lake import FLOWS, TABLES, Lake
from tests.harness.records import BAD, GOOD, TOMBSTONE
from tests.harness.serving import serve


def once(step: str, action: Callable[[], object]) -> Callable[[str], None]:
    """Act before the first ``step``, and leave alone what the action does itself."""
    left = [action]

    def before(reached: str) -> None:
        if reached == step and left:
            left.pop()()

    return before


# T4


@pytest.mark.parametrize("step", ["pin", "measure"])
def test_a_tier_commit_before_the_cut_is_made_neither_doubles_nor_drops(
    lake_in_memory: Lake, step: str
) -> None:
    def commit() -> None:
        write(lake_in_memory, 0, 2)
        tier(lake_in_memory)

    lake_in_memory.before = once(step, commit)
    assert places(lake_in_memory.ask(PLACES)) == written(lake_in_memory)


@pytest.mark.parametrize("step", ["batch", "scan"])
def test_a_tier_commit_after_the_cut_was_made_changes_nothing_in_it(
    lake_in_memory: Lake, step: str
) -> None:
    expected = written(lake_in_memory)

    def commit() -> None:
        write(lake_in_memory, 0, 2)
        tier(lake_in_memory)
        lake_in_memory.board.refresh(FLOWS)

    lake_in_memory.before = once(step, commit)
    assert places(lake_in_memory.ask(PLACES)) == expected
    assert places(lake_in_memory.ask(PLACES)) == written(lake_in_memory)


def test_a_count_is_answered_without_the_engine_while_there_is_no_tail_and_only_then(
    lake_in_memory: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier(lake_in_memory)
    lake_in_memory.board.refresh(FLOWS)
    counted, run = 'SELECT count(*) AS "N n" FROM flows{}', Engine.run
    by_engine = lake_in_memory.ask(counted.format(" WHERE true"))
    statements: list[object] = []

    def noting(*inputs: Any, **options: Any) -> Result:
        statements.append(inputs)
        return run(*inputs, **options)

    monkeypatch.setattr(Engine, "run", noting)
    answer = lake_in_memory.ask(counted.format(""))
    assert statements == []
    assert answer.equals(by_engine, check_metadata=True)
    assert answer.column(0).to_pylist() == [sum(written(lake_in_memory).values())]
    write(lake_in_memory, 0, 2)
    assert lake_in_memory.ask(counted.format("")).column(0).to_pylist() == [
        sum(written(lake_in_memory).values())
    ]
    assert len(statements) == 1


def test_a_ticket_stands_on_the_snapshot_it_names(lake_in_memory: Lake) -> None:
    ticket, _ = lake_in_memory.plan(PLACES)
    expected = written(lake_in_memory)
    tier(lake_in_memory)
    lake_in_memory.compact(FLOWS)
    lake_in_memory.board.refresh(FLOWS)
    assert places(lake_in_memory.open(ticket)) == expected


# T8


def test_a_tail_compacted_between_two_statements_neither_fails_nor_doubles(
    lake_in_memory: Lake,
) -> None:
    topic = lake_in_memory.topics["flows"]
    for number in range(12):  # numbers divisible by 4 share a key
        write(lake_in_memory, number % 2, 1)
    assert places(lake_in_memory.ask(PLACES)) == written(lake_in_memory)
    for partition in (0, 1):
        lake_in_memory.compact_log(topic, partition)
    write(lake_in_memory, 0, 2)
    gone = {
        (partition, offset)
        for partition, slots in enumerate(topic.partitions)
        for offset, slot in enumerate(slots)
        if slot.compacted
    }
    assert gone
    for _ in range(2):
        answer = places(lake_in_memory.ask(PLACES))
        assert max(answer.values()) == 1
        assert (
            written(lake_in_memory).keys() - gone
            <= answer.keys()
            <= written(lake_in_memory).keys()
        )
        lake_in_memory.stop_server()
        lake_in_memory.start_server()


def test_a_compacted_tail_is_measured_by_its_rows_not_by_its_offsets(
    lake_in_memory: Lake,
) -> None:
    topic = lake_in_memory.topics["flows"]
    write(lake_in_memory, 1, 40)
    lake_in_memory.compact_log(topic, 1)
    left = sum(not slot.compacted for slot in topic.partitions[1])
    limits = TailLimits(left + 5, 1 << 30, 5)
    assert left + 5 < len(topic.partitions[1])
    lake_in_memory.stop_server()
    lake_in_memory.board, lake_in_memory.tails, lake_in_memory.statements = serve(
        lake_in_memory.store, lake_in_memory.log, limits
    )
    assert sum(places(lake_in_memory.ask(PLACES)).values()) == left + 5


# T10 and T11


def refused(lake_in_memory: Lake, kind: type[FederationError], *words: str) -> None:
    """Refused again and again, also by a server that knows nothing yet."""
    for _ in range(2):
        with pytest.raises(kind) as caught:
            lake_in_memory.ask(PLACES)
        for word in ("lake.net.flows", *words):
            assert word in caught.value.message
        lake_in_memory.stop_server()
        lake_in_memory.start_server()


def test_records_removed_before_they_were_tiered_are_named(lake_in_memory: Lake) -> None:
    lake_in_memory.retain(lake_in_memory.topics["flows"], 0, 4)
    refused(lake_in_memory, TailGap, "flows/0", "1 offsets were removed")


def test_an_old_pin_is_renewed_when_retention_went_past_it(lake_in_memory: Lake) -> None:
    lake_in_memory.ask(PLACES)
    tier(lake_in_memory)
    lake_in_memory.retain(lake_in_memory.topics["flows"], 0, 5)
    assert places(lake_in_memory.ask(PLACES)) == written(lake_in_memory)


def test_records_removed_between_plan_and_read_are_an_error(lake_in_memory: Lake) -> None:
    ticket, _ = lake_in_memory.plan(PLACES)
    lake_in_memory.retain(lake_in_memory.topics["flows"], 0, 4)
    with pytest.raises(OffsetsExpired, match="the log starts at 4 now"):
        lake_in_memory.open(ticket)


def test_records_removed_while_they_are_read_are_an_error(lake_in_memory: Lake) -> None:
    write(lake_in_memory, 0, 9)
    ticket, _ = lake_in_memory.plan(PLACES)
    batches = itertools.count(1)

    def before(step: str) -> None:
        if step == "batch" and next(batches) == 2:
            lake_in_memory.retain(lake_in_memory.topics["flows"], 0, 12)

    lake_in_memory.before = before
    with pytest.raises(OffsetsExpired):
        lake_in_memory.open(ticket)


@pytest.mark.parametrize("again", [1, 5, 9], ids=["fewer", "as many", "more"])
def test_a_topic_created_again_is_refused_whatever_it_holds(
    lake_in_memory: Lake, again: int
) -> None:
    ticket, _ = lake_in_memory.plan(PLACES)
    lake_in_memory.recreate_topic("flows", 2)
    write(lake_in_memory, 0, again)
    write(lake_in_memory, 1, again)
    refused(lake_in_memory, TopicRecreated, "deleted and created again")
    with pytest.raises(TopicRecreated):
        lake_in_memory.open(ticket)


def test_a_log_that_lost_what_is_cold_is_refused(lake_in_memory: Lake) -> None:
    tier(lake_in_memory)
    lake_in_memory.truncate(lake_in_memory.topics["flows"], 0, 3)
    refused(lake_in_memory, LogTruncated, "cold data ends at offset 5 but the log ends at 3")


# T12


def test_a_partition_born_after_the_watermark_is_read_from_its_first_record(
    lake_in_memory: Lake,
) -> None:
    for partition in (2, 3):
        lake_in_memory.add_partition(lake_in_memory.topics["flows"])
        write(lake_in_memory, partition, 2)
        assert places(lake_in_memory.ask(PLACES)) == written(lake_in_memory)
    tier(lake_in_memory)
    lake_in_memory.board.refresh(FLOWS)
    assert places(lake_in_memory.ask(PLACES)) == written(lake_in_memory)


def test_a_loss_in_a_new_partition_is_a_gap(lake_in_memory: Lake) -> None:
    lake_in_memory.add_partition(lake_in_memory.topics["flows"])
    write(lake_in_memory, 2, 3)
    lake_in_memory.retain(lake_in_memory.topics["flows"], 2, 1)
    refused(lake_in_memory, TailGap, "flows/2", "cold data ends at offset 0")


# T14


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_value_is_the_same_before_and_after_it_is_tiered(
    lake_in_memory: Lake, table: TableName
) -> None:
    topic = lake_in_memory.topics[TABLES[table][0].topic]
    for number in range(90):
        lake_in_memory.produce(
            topic, number % 2, (GOOD, GOOD, BAD, GOOD, TOMBSTONE)[number % 5]
        )
    whole = f"SELECT * FROM {table.name} ORDER BY kafka_partition, kafka_offset"
    hot = lake_in_memory.ask(whole)
    lake_in_memory.publish(
        lake_in_memory.stage(table, *lake_in_memory.plan_tiering(table, 1000))
    )
    lake_in_memory.board.refresh(table)
    cold = lake_in_memory.ask(whole)
    assert lake_in_memory.ask(f'SELECT * FROM "{table.name}$tail"').num_rows == 0
    assert cold.schema.equals(hot.schema)
    assert list(map(repr, cold.to_pylist())) == list(map(repr, hot.to_pylist()))
    assert cold.num_rows > 50


def test_a_changed_error_policy_decodes_the_tail_again(lake_in_memory: Lake) -> None:
    write(lake_in_memory, 0, 1, BAD)
    assert places(lake_in_memory.ask(PLACES)) == written(lake_in_memory) - Counter([(0, 5)])
    lake_in_memory.store.set_properties(FLOWS, {"thermocline.on_error": "fail"})
    lake_in_memory.board.refresh(FLOWS)
    with pytest.raises(UndecodableRecord, match="partition 0, offset 5"):
        lake_in_memory.ask(PLACES)


def test_a_skipped_record_is_in_no_answer_after_the_decision(lake_in_memory: Lake) -> None:
    before, _ = lake_in_memory.plan(PLACES)
    assert places(lake_in_memory.ask(PLACES)) == written(
        lake_in_memory
    )  # the tail holds the record
    ways_out = Repairs(MemoryRepairCommitter(lake_in_memory.store), lake_in_memory.log)
    ways_out.skip(FLOWS, [Skip(0, 4)], decoder_for, force=True)
    lake_in_memory.board.refresh(FLOWS)
    left = written(lake_in_memory) - Counter([(0, 4)])
    assert places(lake_in_memory.ask(PLACES)) == left
    assert places(lake_in_memory.open(before)) == written(
        lake_in_memory
    )  # a ticket keeps its pin
    target, plan = lake_in_memory.plan_tiering(FLOWS, 1000)
    target.publish(target.stage(plan))
    lake_in_memory.board.refresh(FLOWS)
    assert places(lake_in_memory.ask(PLACES)) == left
    seam = lake_in_memory.ask(
        'SELECT kafka_partition, skipped_records FROM "flows$seam" ORDER BY 1'
    )
    assert seam["skipped_records"].to_pylist() == [1, 0]


def test_a_column_added_shows_in_the_tail_and_stays_null_in_what_was_tiered_before(
    lake_in_memory: Lake,
) -> None:
    lake_in_memory.ask(PLACES)
    schema = lake_in_memory.store.facts(FLOWS).schema
    extra = type(schema.columns[0])(len(schema.columns) + 1, "extra", pa.int64())
    lake_in_memory.store.set_columns(FLOWS, lambda value: (*value, extra))
    lake_in_memory.board.refresh(FLOWS)
    answer = lake_in_memory.ask(
        "SELECT kafka_partition, kafka_offset, extra FROM flows ORDER BY ALL"
    )
    assert answer["extra"].to_pylist() == [None, None, None, 1, 1, 1]


# T20


def test_a_rollback_takes_the_watermark_back_and_the_log_gives_the_rows(
    lake_in_memory: Lake,
) -> None:
    before = lake_in_memory.store.facts(FLOWS).head
    assert before is not None
    tier(lake_in_memory)
    lake_in_memory.board.refresh(FLOWS)
    assert lake_in_memory.ask('SELECT * FROM "flows$tail"').num_rows == 0
    lake_in_memory.store.rollback(FLOWS, before)
    lake_in_memory.board.refresh(FLOWS)
    assert places(lake_in_memory.ask(PLACES)) == written(lake_in_memory)
    assert lake_in_memory.ask('SELECT * FROM "flows$tail"').num_rows == 3


# T22

TWICE = {
    "self-join": "SELECT (SELECT count(*) FROM flows), count(*) FROM flows",
    "CTE": "WITH c AS (SELECT * FROM flows) SELECT (SELECT count(*) FROM c), count(*) FROM c",
    "both sides": 'SELECT (SELECT count(*) FROM flows), count(*) FROM (FROM "flows$cold" '
    'UNION ALL FROM "flows$tail")',
}


@pytest.mark.parametrize("sql", TWICE.values(), ids=TWICE.keys())
@pytest.mark.parametrize("step", ["measure", "batch", "scan"])
def test_a_table_named_twice_is_seen_at_one_moment(
    lake_in_memory: Lake, sql: str, step: str
) -> None:
    def before(reached: str) -> None:
        if reached == step:
            write(lake_in_memory, 0, 1)

    lake_in_memory.before = before
    for _ in range(3):
        (row,) = lake_in_memory.ask(sql).to_pylist()
        first, second = row.values()
        assert first == second >= 6


def test_rows_written_after_the_plan_are_not_in_its_answer(lake_in_memory: Lake) -> None:
    ticket, _ = lake_in_memory.plan(PLACES)
    expected = written(lake_in_memory)
    write(lake_in_memory, 0, 3)
    assert places(lake_in_memory.open(ticket)) == expected


def test_rows_another_statement_fetched_meanwhile_are_not_in_the_answer(
    lake_in_memory: Lake,
) -> None:
    ticket, _ = lake_in_memory.plan(PLACES)
    expected = written(lake_in_memory)
    write(lake_in_memory, 0, 3)
    assert places(lake_in_memory.ask(PLACES)) == written(lake_in_memory)
    assert places(lake_in_memory.open(ticket)) == expected


# T23


def test_all_topics_of_a_statement_are_measured_in_one_round(lake_in_memory: Lake) -> None:
    """A transaction over two topics that commits while a statement plans is seen whole or not at all."""
    lake_in_memory.transactions.append((lake_in_memory.log.begin(), []))
    for name in ("flows", "hosts"):
        lake_in_memory.produce(lake_in_memory.topics[name], 0, GOOD, 0)
    rounds = itertools.count(1)

    def before(step: str) -> None:
        if step == "measure" and next(rounds) == 2:
            lake_in_memory.end_transaction(0, commit=True)

    lake_in_memory.before = before
    both = "SELECT (SELECT count(*) FROM flows) AS flows, (SELECT count(*) FROM hosts) AS hosts"
    assert lake_in_memory.ask(both).to_pylist() == [{"flows": 6, "hosts": 0}]
    assert lake_in_memory.ask(both).to_pylist() == [{"flows": 7, "hosts": 1}]


# T26


def test_a_tail_that_cannot_be_read_to_its_end_fails_the_statement_and_leaves_nothing(
    lake_in_memory: Lake,
) -> None:
    assert places(lake_in_memory.ask(PLACES)) == written(lake_in_memory)
    write(lake_in_memory, 0, 9)
    batches = itertools.count(1)

    def before(step: str) -> None:
        if step == "batch" and next(batches) == 3:
            lake_in_memory.log.stop()

    lake_in_memory.before = before
    with pytest.raises(LogUnavailable):
        lake_in_memory.ask(PLACES)
    lake_in_memory.log.start()
    assert places(lake_in_memory.ask(PLACES)) == written(lake_in_memory)
