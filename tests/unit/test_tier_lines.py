"""What a tierer tells: its lines and its metrics."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from prometheus_client import generate_latest

from connectors.jobs import events
from connectors.jobs.round import RoundResult
from planner.errors import (
    CatalogUnavailable,
    SchemaRegistryUnavailable,
    TailGap,
    TieringConflict,
)
from planner.evolution.changes import AddColumn, MakeOptional
from planner.seam.binding import Binding
from planner.seam.watermark import Outcomes
from planner.tiering.plan import TieringBudget, plan_tiering
from planner.tiering.schedule import Backfill
from planner.tiering.triggers import Lag, Trigger
from tests.harness.builders import FLOWS, bounds, pin, watermark
from thermocline.tiering.console import Lines, progress
from thermocline.tiering.metrics import TieringMetrics

DONE = RoundResult(
    plan=plan_tiering(pin(0), bounds((0, 2000)), TieringBudget()),
    watermark=watermark(2000),
    published=True,
    outcomes=Outcomes(rows=1990, skipped=7, tombstones=3),
    lag=5,
    stage_s=2.0,
    publish_s=0.12,
)
BUDGET = Binding("flows", max_tail_rows=100)


def test_a_publish_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines(bars=False)
    lines(events.RoundPublished(FLOWS, DONE, Trigger("bytes", 1.0), None))
    lines(events.RoundPublished(FLOWS, DONE, Trigger("pressure", 2.0), Backfill(2000, 5, 1.0)))
    reply = capsys.readouterr()
    first, second = (line.partition(" ")[2] for line in reply.out.splitlines())
    assert first == (
        "lake.net.flows: published 1,990 rows, 7 skipped, 3 tombstones; 1,000 records/s, publish 120 ms, lag 5; "
        "by bytes"
    )
    assert second.endswith("; by pressure; backfill 100 %, 0 s left")
    assert reply.err == ""


@pytest.mark.parametrize(
    ("backfill", "text"),
    [
        (Backfill(0, 10, 1.0), "0 %, time unknown"),
        (Backfill(10, 10, 60.0), "50 %, 60 s left"),
        (Backfill(10, 10, 600.0), "50 %, 10 min left"),
        (Backfill(1, 9, 3600.0), "10 %, 9.0 h left"),
        (Backfill(9, 0, 3600.0), "100 %, done"),
    ],
)
def test_a_backfill_says_how_far_it_is(backfill: Backfill, text: str) -> None:
    assert progress(backfill) == text


def test_a_tail_above_its_budget_is_told_when_it_begins_and_when_it_ends(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = Lines(bars=False)
    for rows in (99, 101, 102, 100, 50):
        lines(events.TableMeasured(FLOWS, Lag(rows=rows), BUDGET))
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("lake.net.flows: 101 rows wait, more than the table's tail budget")
    assert second == "lake.net.flows: its tail is within the budget again"


def test_failures_name_their_class_and_the_next_try(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines(bars=False)
    lines(events.TableFailed(FLOWS, TailGap("lake.net.flows: a gap."), 4.0))
    lines(events.TableFailed(FLOWS, CatalogUnavailable("no answer."), 8.0))
    lines(events.TableFailed(None, CatalogUnavailable("lake: no answer."), 8.0))
    lines(events.TableFailed(FLOWS, TailGap("lake.net.flows: a gap."), 8.0, 2, 4.2, False))
    lines(events.TableFailed(FLOWS, TailGap("lake.net.flows: a gap."), 300.0, 9, 512.0))
    lines(events.RoundRefused(FLOWS, TieringConflict("lake.net.flows: plan again.")))
    lines(
        events.TableEvolved(FLOWS, (AddColumn(("note",), pa.string()), MakeOptional(("id",))))
    )
    lines(events.TableEvolved(FLOWS, ()))
    lines(events.SchemasNotFollowed(FLOWS, SchemaRegistryUnavailable("no registry answers.")))
    lines(events.TableRecovered(FLOWS))
    lines(events.TableRemoved(FLOWS))
    output = re.sub(r"^\d\d:\d\d:\d\d ", "", capsys.readouterr().err, flags=re.MULTILINE)
    assert output.splitlines() == [
        "TailGap: lake.net.flows: a gap. (next try in 4 s)",
        "CatalogUnavailable: lake.net.flows: no answer. (next try in 8 s)",
        "CatalogUnavailable: lake: no answer. (next try in 8 s)",
        "TailGap: lake.net.flows: a gap. (9 tries in 8m 32s; next try in 300 s)",
        "lake.net.flows: plan again.",
        "lake.net.flows: took up new schemas of its topic: add note string, make id optional",
        "lake.net.flows: took up new schemas of its topic: no column changes",
        "SchemaRegistryUnavailable: lake.net.flows: no registry answers. (new schemas wait; it is tiered all the same)",
        "lake.net.flows: works again",
        "lake.net.flows: is not there any more",
    ]


def test_a_terminal_gets_a_bar_until_the_table_is_level() -> None:
    lines = Lines(bars=True)
    with lines.progress:
        lines(events.RoundPublished(FLOWS, DONE, Trigger("bytes", 1.0), Backfill(25, 75, 1.0)))
        [bar] = lines.progress.tasks
        assert (bar.completed, bar.total, bar.fields["left"]) == (25, 100, "3 s left")
        lines(events.RoundPublished(FLOWS, DONE, Trigger("bytes", 1.0), Backfill(100, 0, 1.0)))
        assert lines.progress.tasks == []


def test_metrics_hold_all_that_was_told() -> None:
    metrics = TieringMetrics()
    metrics(
        events.TableMeasured(
            FLOWS, Lag(rows=9, log_bytes=900.0, age_s=3.0, headroom_rows=4), BUDGET
        )
    )
    metrics(events.RoundPublished(FLOWS, DONE, Trigger("age", 1.0), None))
    metrics(events.RoundRefused(FLOWS, TieringConflict("x")))
    metrics(events.TableFailed(FLOWS, TailGap("x"), 1.0))
    metrics(events.TableFailed(FLOWS, TailGap("x"), 2.0, 2, 1.5, is_first=False))
    metrics(events.TableFailed(None, CatalogUnavailable("x"), 1.0))
    decoded = generate_latest(metrics.registry).decode()
    for line in (
        'thermocline_tier_lag_rows{table="lake.net.flows"} 5.0',
        'thermocline_tier_lag_bytes{table="lake.net.flows"} 900.0',
        'thermocline_tier_lag_seconds{table="lake.net.flows"} 3.0',
        'thermocline_tier_retention_headroom_seconds{table="lake.net.flows"} +Inf',
        'thermocline_tier_retention_headroom_rows{table="lake.net.flows"} 4.0',
        'thermocline_tier_publish_seconds_count{table="lake.net.flows"} 1.0',
        'thermocline_tier_publishes_total{table="lake.net.flows",trigger="age"} 1.0',
        'thermocline_tier_records_total{outcome="rows",table="lake.net.flows"} 1990.0',
        'thermocline_tier_records_total{outcome="skipped",table="lake.net.flows"} 7.0',
        'thermocline_tier_refused_publishes_total{error="TieringConflict",table="lake.net.flows"} 1.0',
        'thermocline_tier_failures_total{error="TailGap",table="lake.net.flows"} 2.0',
        'thermocline_tier_failures_total{error="CatalogUnavailable",table=""} 1.0',
        'thermocline_tier_failing{table="lake.net.flows"} 1.0',
        'thermocline_tier_failing_seconds{table="lake.net.flows"} 1.5',
    ):
        assert line in decoded.splitlines()
    metrics(events.TableRecovered(FLOWS))
    decoded = generate_latest(metrics.registry).decode()
    assert 'thermocline_tier_failing{table="lake.net.flows"} 0.0' in decoded
    assert 'thermocline_tier_failing_seconds{table="lake.net.flows"} 0.0' in decoded
    metrics(events.TableRemoved(FLOWS))
    assert "thermocline_tier_lag_rows{" not in generate_latest(metrics.registry).decode()
