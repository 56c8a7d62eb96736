"""Failures injected into the tiering target in memory; what all targets do is in ``tests/contract``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from connectors.decoding.registry import decoder_for
from connectors.jobs.round import rebuild_once, tier_once
from planner.errors import CatalogUnavailable, SchemasNeeded, TieringConflict, TopicRecreated
from planner.names import TableName
from planner.seam.binding import Binding
from planner.seam.cut import ColdSlice
from planner.tiering.plan import TieringBudget, plan_tiering
from tests.doubles.cold import MemoryColdStore
from tests.doubles.log import MemoryLog, MemoryRecord
from tests.doubles.tiering import MemoryTieringTarget
from tests.fixtures.spark import PAYLOAD, first_watermark
from tests.harness.builders import FLOWS, vector
from tests.harness.generated_log import TOPIC, GeneratedLog, expected_rows, open_decoder
from tests.harness.keyed_lake import DEVICES, KeyedLake

LOG = GeneratedLog((20, 20))


@pytest.fixture
def store() -> MemoryColdStore:
    store = MemoryColdStore()
    store.create(FLOWS, PAYLOAD, Binding(TOPIC), first_watermark(0, 0))
    return store


def failing(step: str) -> Callable[[str], None]:
    """Fail at the first time of ``step``, as a catalog whose answer is lost."""
    left = [CatalogUnavailable("lake: no answer.")]

    def fault(reached: str) -> None:
        if reached == step and left:
            raise left.pop()

    return fault


def offsets(store: MemoryColdStore) -> list[tuple[int, int]]:
    facts = store.facts(FLOWS)
    rows = store.scan(
        ColdSlice(facts.table, facts.metadata_location, facts.head, facts.schema)
    ).table
    return sorted(
        zip(rows["kafka_partition"].to_pylist(), rows["kafka_offset"].to_pylist(), strict=True)
    )


@pytest.mark.parametrize("step", ["stage", "publish", "published"])
def test_a_round_that_failed_anywhere_leaves_each_row_once(
    store: MemoryColdStore, step: str
) -> None:
    target = MemoryTieringTarget(store, FLOWS, LOG, open_decoder, fault=failing(step))
    with pytest.raises(CatalogUnavailable):
        tier_once(LOG, target, TieringBudget())
    tier_once(LOG, target, TieringBudget())
    assert offsets(store) == [row[:2] for row in expected_rows(20, 20)]


def test_a_publish_whose_answer_was_lost_may_be_asked_again(store: MemoryColdStore) -> None:
    target = MemoryTieringTarget(store, FLOWS, LOG, open_decoder, fault=failing("published"))
    staged = target.stage(
        plan_tiering(target.pin(), LOG.measure([TOPIC])[TOPIC], TieringBudget())
    )
    with pytest.raises(CatalogUnavailable):
        target.publish(staged)
    mark = target.publish(staged)
    assert store.pin(FLOWS).watermark == mark
    assert offsets(store) == [row[:2] for row in expected_rows(20, 20)]


def test_a_table_dropped_and_created_again_is_another_table(store: MemoryColdStore) -> None:
    target = MemoryTieringTarget(store, FLOWS, LOG, open_decoder)
    staged = target.stage(
        plan_tiering(target.pin(), LOG.measure([TOPIC])[TOPIC], TieringBudget())
    )
    store.drop(FLOWS)
    store.create(FLOWS, PAYLOAD, Binding(TOPIC), first_watermark(0, 0))
    with pytest.raises(TieringConflict):
        target.publish(staged)
    assert offsets(store) == []


def test_a_topic_created_again_between_plan_and_stage_is_not_staged(
    store: MemoryColdStore,
) -> None:
    flows = TableName("lake", ("net",), "other")
    log = MemoryLog()
    first = replace(
        first_watermark(0, 0), cluster_id="memory", topic_id=log.create_topic(TOPIC)
    )
    store.create(flows, PAYLOAD, Binding(TOPIC), replace(first, next=vector(0)))
    target = MemoryTieringTarget(store, flows, log, open_decoder)
    log.append(TOPIC, 0, MemoryRecord(b'{"host": "a", "bytes": 1}'))
    plan = plan_tiering(target.pin(), log.measure([TOPIC])[TOPIC], TieringBudget())
    log.delete_topic(TOPIC)
    log.create_topic(TOPIC)
    log.append(TOPIC, 0, MemoryRecord(b'{"host": "b", "bytes": 2}'))
    with pytest.raises(TopicRecreated):
        target.stage(plan)


def test_a_rebuild_goes_on_once_the_schemas_of_its_records_are_taken_up() -> None:
    lake = KeyedLake()
    lake.change((1, "eu"), "up")
    lake.tier()
    lake.change((1, "eu"), "down")
    lake.change((2, "us"), "up")
    new = [SchemasNeeded("lake.shop.devices: records have schemas that were new (ids 7).")]

    def take_up(reached: str) -> None:
        if reached == "stage" and new:
            raise new.pop()

    decoder = partial(decoder_for, str(DEVICES))
    target = MemoryTieringTarget(lake.store, DEVICES, lake.log, decoder, fault=take_up)
    result = rebuild_once(lake.log, target, 3)
    assert result.watermark.next == lake.end
    assert (result.outcomes.rows, result.outcomes.superseded) == (2, 1)
    assert new == []
    lake.stop_server()
