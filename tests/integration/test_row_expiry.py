"""Rows age out in one commit of real Spark and Iceberg, beside publishes and other writers, and do not come back."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from connectors import failpoints
from connectors.decoding.registry import decoder_for
from connectors.iceberg.maintenance_facts import MaintenanceReader
from connectors.jobs.round import RoundResult, tier_once
from connectors.spark.maintenance.target import SparkMaintenance
from planner.errors import TieringConflict, Unavailable
from planner.maintenance.steps import RowExpiry, StepResult
from planner.names import KAFKA_TIMESTAMP
from planner.schema import METADATA_TYPES, Column
from planner.seam.boundary import RetentionBoundary
from planner.seam.watermark import Watermark
from tests.fixtures.spark import BUDGET, BoundTable, SparkLake
from tests.harness.generated_log import (
    START,
    GeneratedLog,
    Row,
    expected_outcomes,
    expected_rows,
)
from tests.harness.maintaining import Care

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def step(second: int) -> RowExpiry:
    """Move the boundary to the time of the records at this offset."""
    at = (START - EPOCH) // dt.timedelta(microseconds=1) + second * 1_000_000
    column = Column(3, KAFKA_TIMESTAMP, METADATA_TYPES[KAFKA_TIMESTAMP])
    return RowExpiry(RetentionBoundary(3, at), column)


def expire(table: BoundTable, second: int) -> StepResult:
    return SparkMaintenance(table.session, table.name, lambda _: ()).take(step(second))


def tier(table: BoundTable, *ends: int) -> RoundResult:
    """As ``BoundTable.tier``, with the decoder of tail and tierer."""
    log = GeneratedLog(ends)
    return tier_once(
        log, table.target(log, decoder=partial(decoder_for, str(table.name))), BUDGET
    )


def mark_of(table: BoundTable) -> Watermark:
    mark = table.store.pin(table.name).watermark
    assert mark is not None
    return mark


def young(second: int, *ends: int) -> list[Row]:
    return [row for row in expected_rows(*ends) if row[1] >= second]


def test_files_go_whole_and_late_records_do_not_come_back(lake: SparkLake) -> None:
    table = lake.create(0, 0, partition_by=("kafka_partition",))
    tier(table, 100, 0)
    tier(table, 200, 0)
    before = mark_of(table)
    old = table.store.pin(table.name).snapshot_id
    done = expire(table, 100)
    assert done.files == 1
    assert table.rows() == young(100, 200)
    state, mark = table.state(), mark_of(table)
    head = state.history.snapshots[state.head or 0]
    assert (head.operation, head.parent_id) == ("delete", old)
    assert mark.same_position(before)
    assert mark.boundary == step(100).boundary
    assert mark.publish_outcomes == before.outcomes
    # The other partition's records are as old: late ones are no rows, and are counted.
    outcomes = tier(table, 200, 200).outcomes
    assert outcomes.expired == expected_outcomes(100).rows
    assert outcomes.records == expected_outcomes(200).records
    assert table.rows() == young(100, 200, 200)
    assert mark_of(table).boundary == step(100).boundary
    # What was there is there at its own snapshot, and an expiry leaves the boundary where it is.
    frame = table.session.read.option("versionAsOf", old).table(str(table.name))
    assert frame.count() == len(expected_rows(200))
    table.expire_to_one()
    assert mark_of(table).boundary == step(100).boundary


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"write.delete.mode": "merge-on-read"},
        {"write.delete.mode": "merge-on-read", "format-version": "3"},
    ],
    ids=["copies", "delete files", "vectors"],
)
def test_of_mixed_files_the_old_rows_go_beside_a_publish(
    lake: SparkLake, properties: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.create(0, 0)
    for key, value in properties.items():
        table.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ('{key}' = '{value}')")
    tier(table, 100, 100)
    tier(table, 200, 200)
    meet(monkeypatch, lambda: tier(table, 300, 300))
    done = expire(table, 150)
    assert done.files >= 2
    assert table.rows() == young(150, 300, 300)
    assert mark_of(table).boundary == step(150).boundary
    assert mark_of(table).next.as_dict() == {0: 300, 1: 300}
    assert table.branches() == []
    tier(table, 310, 310)
    assert table.rows() == young(150, 310, 310)


def meet(monkeypatch: pytest.MonkeyPatch, other: Callable[[], object]) -> None:
    """Have another writer commit once the deletion is prepared, and before it is committed."""

    def reach(point: str) -> None:
        if point == "before_expired_rows":
            other()

    monkeypatch.setattr(failpoints, "reach", reach)


def drop_branches(table: BoundTable) -> None:
    for branch in table.branches():
        table.sql(f"ALTER TABLE {{t}} DROP BRANCH `{branch}`")


@pytest.mark.parametrize("other", ["compacts", "deletes", "rolls back", "drops the branch"])
def test_another_writer_that_changes_the_files_is_first(
    lake: SparkLake, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    table = lake.create(0, 0)
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    tier(table, 100, 100)
    first = table.state().head
    tier(table, 200, 200)
    rows = expected_rows(200, 200)
    why = "another writer changed files with rows that are too old, or added some, while their deletion was prepared"
    match other:
        case "compacts":
            meet(monkeypatch, table.compact)
        case "deletes":
            # The file that it deletes from stays the same: only the head tells.
            gone = "kafka_partition = 0 AND kafka_offset = 190"
            meet(monkeypatch, partial(table.sql, f"DELETE FROM {{t}} WHERE {gone}"))
            rows = [row for row in rows if row[:2] != (0, 190)]
        case "rolls back":
            to = f"snapshot_id => {first}"
            meet(monkeypatch, partial(table.call, "rollback_to_snapshot", to))
            rows = expected_rows(100, 100)
            why = "it was rolled back while the deletion of rows that are too old was prepared"
        case "drops the branch":
            meet(monkeypatch, lambda: drop_branches(table))
            why = "the branch with the deletion of rows that are too old is gone"
    with pytest.raises(TieringConflict) as refused:
        expire(table, 50)
    assert refused.value.message == f"{table.name}: {why}; no row was deleted, plan again."
    assert table.branches() == []
    assert table.rows() == rows
    assert mark_of(table).boundary is None


def test_a_publish_with_old_rows_and_a_second_maintainer_are_first(
    lake: SparkLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.create(0, 0, partition_by=("kafka_partition",))
    tier(table, 200, 0)
    meet(monkeypatch, lambda: tier(table, 200, 200))
    with pytest.raises(
        TieringConflict, match="or added some, while their deletion was prepared"
    ):
        expire(table, 150)
    assert table.rows() == expected_rows(200, 200)
    monkeypatch.undo()
    expire(table, 150)
    with pytest.raises(TieringConflict, match="another maintainer"):
        expire(table, 150)
    with pytest.raises(TieringConflict, match="another maintainer"):
        expire(table, 100)
    assert table.rows() == young(150, 200, 200)


def test_rows_staged_by_an_earlier_boundary_are_not_published(lake: SparkLake) -> None:
    table = lake.create(0, 0)
    tier(table, 100, 0)
    target, staged = table.stage(GeneratedLog((100, 100)))
    expire(table, 50)
    with pytest.raises(TieringConflict):
        target.publish(staged)
    target.discard(staged)
    tier(table, 100, 100)
    assert table.rows() == young(50, 100, 100)


def test_a_column_that_was_renamed_since_is_the_same_and_another_of_its_name_is_not(
    lake: SparkLake,
) -> None:
    """The newest snapshot was written under the names of before."""
    table = lake.create(0, 0)
    tier(table, 100, 0)
    table.sql("ALTER TABLE {t} ADD COLUMNS (seen timestamp, noted timestamp)")
    table.sql(
        "UPDATE {t} SET seen = kafka_timestamp, noted = kafka_timestamp + INTERVAL 60 SECONDS"
    )
    for name, to in (("seen", "old"), ("noted", "seen"), ("old", "noted")):
        table.sql(f"ALTER TABLE {{t}} RENAME COLUMN {name} TO {to}")
    schema = table.store.pin(table.name).schema
    [column] = [each for each in schema.columns if each.name == "noted"]
    due = step(50)
    boundary = RetentionBoundary(column.field_id, due.boundary.before_us)
    SparkMaintenance(table.session, table.name, lambda _: ()).take(RowExpiry(boundary, column))
    assert table.rows() == young(50, 100, 0)
    # Newer than what is there: no row has a value.
    table.sql("ALTER TABLE {t} ADD COLUMNS (later timestamp)")
    [added] = [
        each for each in table.store.pin(table.name).schema.columns if each.name == "later"
    ]
    other = SparkMaintenance(table.session, table.name, lambda _: ())
    with pytest.raises(TieringConflict, match="another maintainer"):
        other.take(RowExpiry(replace(boundary, field_id=added.field_id), added))
    assert table.rows() == young(50, 100, 0)


def test_maintenance_moves_it_by_the_tables_properties(lake: SparkLake) -> None:
    """By today's clock all records of the log are 30 days old; a clock that is a day ahead removes none."""
    properties = {"thermocline.retention_days": "30"}
    table = lake.create(0, 0, properties=properties)
    tier(table, 100, 100)
    with contextlib.closing(MaintenanceReader(table.catalogs)) as reader:
        care = Care(table, reader)
        [due] = [each for each in care.steps() if isinstance(each, RowExpiry)]
        ahead = SparkMaintenance(
            table.session,
            table.name,
            care.target.neighbours,
            clock=lambda: dt.datetime.now().timestamp() + 86_400,
        )
        with pytest.raises(Unavailable, match="ahead of the store's"):
            ahead.take(due)
        assert table.rows() == expected_rows(100, 100)
        assert care.maintain()[0] is RowExpiry
        assert RowExpiry not in map(type, care.steps())
    assert table.rows() == []
    assert mark_of(table).boundary == due.boundary
