"""When rows are too old: the boundary that a table's properties ask for, and what is refused by name."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
import pytest

from planner.errors import BadBinding
from planner.maintenance.facts import MAIN, MaintenanceFacts, SnapshotRef
from planner.maintenance.retention import aged, due_boundary
from planner.maintenance.steps import RowExpiry, Situation, plan_upkeep
from planner.schema import Column, TableSchema
from planner.seam.binding import decoding_key
from planner.seam.boundary import RetentionBoundary
from planner.seam.snapshots import History, Snapshot
from planner.seam.watermark import LastPublish, Outcomes, era_after
from planner.tiering.layout import PartitionTerm
from tests.harness.builders import BINDING, FLOWS, schema, watermark

DAY_MS = 86_400_000
#: 2026-11-28, a quarter past four in the afternoon.
NOW_MS = int(dt.datetime(2026, 11, 28, 16, 15, tzinfo=dt.UTC).timestamp()) * 1000
AT = Column(9, "at", pa.timestamp("us"))
ON = Column(10, "on", pa.date32())
SCHEMA = schema(AT, ON, Column(11, "n", pa.int64()))
GRACE_S = 7_200


def facts(
    days: object = 30,
    column: str | None = None,
    *transforms: str,
    boundary: RetentionBoundary | None = None,
    columns: TableSchema = SCHEMA,
    properties: Mapping[str, str] | None = None,
) -> MaintenanceFacts:
    values = {"thermocline.retention_days": str(days), "thermocline.retention_column": column}
    own = {key: value for key, value in values.items() if value is not None}
    source = next((each.field_id for each in columns.columns if each.name == column), 3)
    head = Snapshot(1, None, 1, "append", {"total-records": "7"})
    return MaintenanceFacts(
        table=FLOWS,
        head=1,
        history=History({1: head}),
        committed_ms={1: NOW_MS},
        properties=own | dict(properties or {}),
        refs={MAIN: SnapshotRef(1, is_branch=True)},
        log=((NOW_MS, 1),),
        schema=columns,
        terms=tuple(PartitionTerm(f"p{each}", source, each) for each in transforms),
        boundary=boundary,
    )


def due(of: MaintenanceFacts, now_ms: int = NOW_MS) -> str | None:
    boundary = due_boundary(of, GRACE_S, now_ms)
    return None if boundary is None else f"{boundary.field_id} {boundary.text}"


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (facts(30), "3 2026-10-29"),
        (facts(1), "3 2026-11-27"),
        (facts(30, "at"), "9 2026-10-29"),
        (facts(30, "on"), "10 2026-10-29"),
        # Whole partitions go; an hour's is within a day, and a bucket tells no time.
        (facts(30, "at", "day"), "9 2026-10-29"),
        (facts(30, "at", "hour", "bucket[16]"), "9 2026-10-29"),
        (facts(30, "at", "month"), "9 2026-10-01"),
        (facts(400, "at", "year", "day"), "9 2025-01-01"),
        # Of another column.
        (facts(30, None, "month"), "3 2026-10-01"),
        (replace(facts(30, "at"), terms=(PartitionTerm("m", 3, "month"),)), "9 2026-10-29"),
        # Longer than there are days since 1970.
        (facts(10**12), None),
        (facts("30", "at", boundary=RetentionBoundary(9, 0)), "9 2026-10-29"),
        (replace(facts(), properties={}), None),
        (replace(facts(), properties={"thermocline.retention_column": "at"}), None),
    ],
)
def test_the_boundary_is_the_begin_of_a_day_or_of_a_partition(
    of: MaintenanceFacts, expected: str | None
) -> None:
    assert due(of) == expected


def test_it_moves_once_a_day_and_never_back() -> None:
    boundary = due_boundary(facts(30), GRACE_S, NOW_MS)
    there = facts(30, boundary=boundary)
    assert due(there) is None
    assert due(there, NOW_MS + 7 * 3_600_000) is None
    assert due(there, NOW_MS + 8 * 3_600_000) == "3 2026-10-30"
    # More days, or a clock that was set back.
    assert due(facts(60, boundary=boundary)) is None
    assert due(there, NOW_MS - DAY_MS) is None
    assert due(facts(29, boundary=boundary)) == "3 2026-10-30"


@pytest.mark.parametrize(
    ("of", "message"),
    [
        (
            facts("soon"),
            "lake.net.flows: property thermocline.retention_days is 'soon'; it must be a whole number above 0.",
        ),
        (
            facts(30, "gone"),
            "lake.net.flows: rows age out by column gone, which the table does not have; set thermocline.retention_column "
            "to one of its times.",
        ),
        (
            facts(30, "n"),
            "lake.net.flows: rows age out by column n, which is long; set thermocline.retention_column to one of type "
            "date, timestamp or timestamptz.",
        ),
        (
            facts(1, properties={"thermocline.maintain.pin_grace_s": "86401"}),
            "lake.net.flows: property thermocline.retention_days is 1, and thermocline.maintain.pin_grace_s promises what was "
            "current for 86,401 s, which is longer; lower that, or keep rows for more days.",
        ),
        (
            facts(30, "at", boundary=RetentionBoundary(3, 0)),
            "lake.net.flows: rows age out by column at, and those before 1970-01-01 did by column kafka_timestamp; late "
            "records of these would come back. Set thermocline.retention_column back, or remove thermocline.retention_days.",
        ),
        (
            facts(30, "at", boundary=RetentionBoundary(77, 0)),
            "lake.net.flows: rows before 1970-01-01 aged out by a column that was dropped (field id 77), and no other takes over "
            "from it; remove thermocline.retention_days.",
        ),
    ],
)
def test_what_does_not_fit_is_refused_by_name(of: MaintenanceFacts, message: str) -> None:
    with pytest.raises(BadBinding) as refused:
        plan_upkeep(of, Situation(NOW_MS))
    assert refused.value.message == message


def test_it_comes_first_and_in_any_loop_but_not_where_maintenance_is_off() -> None:
    """The properties are new, so no upgrade begins to delete rows."""
    [step, *_] = plan_upkeep(facts(30, "at"), Situation(NOW_MS)).steps
    assert isinstance(step, RowExpiry)
    assert (step.reason, step.column) == ("rows before 2026-10-29 in at", AT)
    off = facts(30, properties={"thermocline.maintain.mode": "off"})
    assert plan_upkeep(off, Situation(NOW_MS, by_command=True)).steps == ()
    present = facts(30, boundary=due_boundary(facts(30), GRACE_S, NOW_MS))
    assert RowExpiry not in map(type, plan_upkeep(present, Situation(NOW_MS)).steps)


def test_its_commit_is_no_publish_and_begins_an_era() -> None:
    boundary, last = RetentionBoundary(3, 5), LastPublish(9, 1, Outcomes(rows=7))
    before = watermark(10, outcomes=Outcomes(rows=7), decoding="before", era="its own")
    after = aged(before, boundary, last, SCHEMA, BINDING, ("run-2", 4))
    assert after.same_position(before)
    assert (after.run, after.prev_snapshot_id, after.boundary) == ("run-2", 4, boundary)
    assert (after.outcomes, after.publish) == (Outcomes(), last)
    assert after.shape == before.shape
    key = decoding_key(SCHEMA, BINDING.under(after))
    assert after.decoding == key
    assert after.era not in (before.era, era_after(before, key))
    # A publish on it carries the era on.
    assert era_after(replace(after, next=watermark(20).next), key) == after.era
