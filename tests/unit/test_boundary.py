"""The boundary of retention: which rows are too old, and what knows of it."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace

import pyarrow as pa
import pytest

from connectors.decoding.registry import decoder_for
from planner.errors import CutExpired, TieringConflict, WatermarkUnreadable
from planner.schema import RAW_SCHEMA, Column
from planner.seam.binding import decoding_key, parse_binding
from planner.seam.boundary import RetentionBoundary, time_us
from planner.seam.cut import cold_cut, plan_cut
from planner.seam.snapshots import History
from planner.seam.time_travel import (
    CutEntry,
    check_not_expired,
    decodes_as,
    format_cut,
    parse_cut,
)
from planner.seam.watermark import (
    Outcomes,
    Watermark,
    era_after,
    format_watermark,
    parse_watermark,
)
from planner.tiering.plan import TieringBudget, plan_tiering
from planner.tiering.publish import check_publish
from planner.verification.chain import check_chain
from tests.harness.builders import BINDING, FLOWS, bounds, pin, schema, snapshot, watermark
from tests.harness.builders import BINDING as BOUND

DAY_US = 86_400_000_000
#: Of ``kafka_timestamp``: its field id in the tests' schema is 3.
BOUNDARY = RetentionBoundary(3, 10 * DAY_US)


def times(kind: pa.DataType, *values: dt.datetime | None) -> tuple[pa.Table, RetentionBoundary]:
    column = pa.array(values, pa.timestamp("us")).cast(kind)
    return pa.table({"at": column}), RetentionBoundary(9, 10 * DAY_US)


@pytest.mark.parametrize(
    "kind", [pa.timestamp("us"), pa.timestamp("us", tz="UTC"), pa.date32()], ids=str
)
def test_rows_before_it_are_too_old_and_null_never_is(kind: pa.DataType) -> None:
    day = dt.datetime(1970, 1, 11)
    before = day - dt.timedelta(days=1)
    rows, boundary = times(kind, before, day, None, day + dt.timedelta(days=1), before)
    old = boundary.expired(rows, schema(Column(9, "at", kind)))
    assert old is not None
    assert old.to_pylist() == [True, False, False, False, True]


def test_a_date_that_begins_before_it_is_too_old_whole() -> None:
    rows, _ = times(pa.date32(), dt.datetime(1970, 1, 11), dt.datetime(1970, 1, 12))
    noon = RetentionBoundary(9, 10 * DAY_US + DAY_US // 2)
    old = noon.expired(rows, schema(Column(9, "at", pa.date32())))
    assert old is not None
    assert old.to_pylist() == [True, False]


def test_a_column_that_was_dropped_or_holds_no_times_makes_no_row_too_old() -> None:
    rows, boundary = times(pa.timestamp("us"), dt.datetime(1970, 1, 1))
    assert boundary.expired(rows, schema()) is None
    assert boundary.expired(rows, schema(Column(9, "at", pa.int64()))) is None


def test_it_only_goes_on_and_by_one_column() -> None:
    assert BOUNDARY.is_after(None)
    assert BOUNDARY.is_after(RetentionBoundary(3, 9 * DAY_US))
    assert not BOUNDARY.is_after(BOUNDARY)
    assert not BOUNDARY.is_after(RetentionBoundary(3, 11 * DAY_US))
    assert not BOUNDARY.is_after(RetentionBoundary(4, 9 * DAY_US))


# --- the text ---


def test_it_makes_version_3_which_older_programs_refuse() -> None:
    value = watermark(5, boundary=BOUNDARY)
    document = json.loads(format_watermark(value))
    assert (document["v"], document["boundary"], document["skips"]) == (3, [3, 10 * DAY_US], [])
    assert parse_watermark(format_watermark(value)) == value
    # A table without one is written as before.
    assert json.loads(format_watermark(watermark(5)))["v"] == 1


@pytest.mark.parametrize("entry", [None, [], [3], [3, "0"], [3, 1, 2], {"3": 1}])
def test_a_damaged_one_is_refused_and_not_left_out(entry: object) -> None:
    document = json.loads(format_watermark(watermark(5, boundary=BOUNDARY)))
    text = json.dumps(document | {"boundary": entry})
    with pytest.raises(WatermarkUnreadable, match="malformed"):
        parse_watermark(text)
    del document["boundary"]
    with pytest.raises(WatermarkUnreadable, match="malformed"):
        parse_watermark(json.dumps(document))


def test_commits_without_rows_carry_it_on() -> None:
    from planner.seam.watermark import LastPublish

    after = watermark(5, boundary=BOUNDARY).renewed(
        LastPublish(0, None, Outcomes()), run="r", head=2
    )
    assert after.boundary == BOUNDARY


# --- decoding ---


def raw(*ms: int | None) -> pa.RecordBatch:
    """Records of partition 0, each with the value ``{}``, of these times."""
    columns = {
        "kafka_partition": [0] * len(ms),
        "kafka_offset": list(range(len(ms))),
        "kafka_timestamp": [None if at is None else at * 1000 for at in ms],
        "kafka_value": [b"{}"] * len(ms),
    }
    arrays = [
        pa.array(columns.get(field.name, [None] * len(ms)), field.type) for field in RAW_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=RAW_SCHEMA)


def test_records_before_it_are_an_outcome_of_their_own() -> None:
    binding = BINDING.under(watermark(0, boundary=BOUNDARY))
    limit = 10 * DAY_US // 1000
    batch = raw(limit - 1, limit, None, 0)
    decoded = decoder_for(str(FLOWS), schema(), binding).decode(batch)
    assert decoded.rows.column("kafka_offset").to_pylist() == [1, 2]
    assert decoded.outcomes == Outcomes(rows=2, expired=2)
    assert decoded.outcomes.bad == 0
    assert decoded.outcomes.texts == ["2 rows", "0 skipped", "0 tombstones", "2 expired"]
    # Without one it is the same decoder as ever.
    assert decoder_for(str(FLOWS), schema(), BINDING).decode(batch).outcomes == Outcomes(rows=4)


def test_another_boundary_is_another_decoding_and_another_era() -> None:
    bound = BINDING.under(watermark(5, boundary=BOUNDARY))
    assert decoding_key(schema(), bound) != decoding_key(schema(), BINDING)
    assert bound.shape == BINDING.shape  # nobody has to accept it
    before, after = watermark(5), watermark(5, boundary=BOUNDARY)
    assert era_after(before, "key") != era_after(after, "key")
    assert bound.under(None) == BINDING


# --- who goes by it ---


def moved(mark: Watermark) -> Watermark:
    """What maintenance writes at the same offsets."""
    key = decoding_key(schema(), BINDING.under(replace(mark, boundary=BOUNDARY)))
    after = replace(mark, boundary=BOUNDARY, run="moved")
    return replace(after, decoding=key, era=era_after(after, key))


def test_a_publish_that_was_planned_before_it_moved_is_refused() -> None:
    """Its rows were decoded by the earlier boundary: some may be too old by now."""
    plan = plan_tiering(pin(10), bounds((0, 20)), TieringBudget())
    history = History({1: snapshot(1, None, mark=moved(watermark(10)))}, tagged_id=1)
    with pytest.raises(TieringConflict):
        check_publish(plan, history, 1)


def entry_of(mark: Watermark, end: int) -> CutEntry:
    """The text of a cut of a table that stands on ``mark``, read back."""
    bound = replace(pin(10), watermark=mark, binding=BOUND.under(mark))
    cut = plan_cut(bound, bounds((0, end)))
    [entry] = parse_cut(format_cut({(FLOWS, None): cut})).tables
    return entry


@pytest.mark.parametrize("end", [10, 20])
def test_a_cut_is_answered_by_snapshots_of_its_own_boundary_alone(end: int) -> None:
    before = watermark(10)
    after = moved(before)
    pins = [replace(pin(10), watermark=m, binding=BOUND.under(m)) for m in (before, after)]
    # Also one of before that has all offsets of the cut: its cold rows are others.
    assert [decodes_as(entry_of(before, end), each) for each in pins] == [True, False]
    assert [decodes_as(entry_of(after, end), each) for each in pins] == [False, True]


def test_a_moment_before_it_is_expired() -> None:
    mark = watermark(10, boundary=BOUNDARY)
    cut = cold_cut(replace(pin(10), watermark=mark, binding=BOUND.under(mark)))
    check_not_expired(cut, 10 * DAY_US + 1)
    check_not_expired(cold_cut(pin(10)), 0)
    check_not_expired(cold_cut(pin(10, binding=None)), 0)
    with pytest.raises(CutExpired) as refused:
        check_not_expired(cut, 10 * DAY_US)
    assert refused.value.message == (
        f"{FLOWS}: the cut cannot be read any more: the table's retention removed the rows of that time. Take a new one with "
        f"thermocline_cut()."
    )


def test_a_boundary_that_goes_back_is_a_fault_of_the_chain() -> None:
    def messages(*marks: Watermark) -> list[str]:
        line = {
            number: snapshot(
                number,
                number - 1 or None,
                mark=replace(mark, prev_snapshot_id=number - 1 or None, run=f"run-{number}"),
            )
            for number, mark in enumerate(marks, 1)
        }
        text = line[len(marks)].watermark_text
        return [
            fault.message for fault in check_chain(History(line, len(marks), text), len(marks))
        ]

    first = watermark(10)
    later = replace(BOUNDARY, before_us=11 * DAY_US)
    assert messages(first, moved(first), replace(first, boundary=later)) == []
    back = "the watermark of snapshot 3 takes the boundary of retention back, so rows that expired may come again"
    assert messages(first, moved(first), first) == [back]
    assert messages(first, replace(first, boundary=later), moved(first)) == [back]


def test_retention_keys_are_known_row_keys() -> None:
    properties = {
        "thermocline.topic": "flows",
        "thermocline.retention_days": "30",
        "thermocline.retention_column": "kafka_timestamp",
    }
    assert parse_binding(FLOWS, properties) == BINDING


@pytest.mark.parametrize(
    ("value", "us"),
    [
        (pa.scalar(10, pa.int32()).cast(pa.date32()), 10 * DAY_US),
        (pa.scalar(7, pa.timestamp("us")), 7),
        (pa.scalar(7, pa.timestamp("us", "UTC")), 7),
        (pa.scalar(None, pa.timestamp("us", "UTC")), None),
    ],
)
def test_a_time_is_microseconds(value: pa.Scalar, us: int | None) -> None:
    assert time_us(value) == us


def test_people_are_told_a_day_where_it_is_the_start_of_one() -> None:
    assert RetentionBoundary(3, 10 * DAY_US).text == "1970-01-11"
    assert RetentionBoundary(3, 10 * DAY_US + 1).text == "1970-01-11T00:00:00.000001+00:00"
