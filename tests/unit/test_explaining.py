"""EXPLAIN: rows that say what is read of each side, and why."""

from __future__ import annotations

from typing import Any

import pytest

from planner.errors import UnsupportedStatement
from planner.explain import EXPLAIN_SCHEMA, TableReport, explanation
from planner.names import Side
from planner.ports import ColdTotals
from planner.reading.needs import StatementNeeds
from planner.reading.plan import plan_read
from planner.seam.cut import TableCut, cold_cut, plan_cut
from planner.seam.incremental import After, narrow, parse_after
from planner.seam.time_travel import cut_until
from planner.sql_text import explained
from planner.statement.references import AtClause, ResolvedTable
from tests.harness.builders import FLOWS, bounds, pin, vector


@pytest.mark.parametrize(
    ("sql", "inner"),
    [
        ("EXPLAIN SELECT 1", "SELECT 1"),
        ("  explain\n(SELECT 1)", None),
        ("EXPLAIN", ""),
        ("explain from t", "from t"),
        ("SELECT 1", None),
        ("EXPLAINED", None),
        ("-- EXPLAIN\nSELECT 1", None),
    ],
)
def test_the_statement_behind_explain_is_found(sql: str, inner: str | None) -> None:
    if "(" in sql:
        with pytest.raises(UnsupportedStatement):
            explained(sql)
    else:
        assert explained(sql) == inner


def test_options_are_refused() -> None:
    for sql in ("EXPLAIN ANALYZE SELECT 1", "EXPLAIN (FORMAT JSON) SELECT 1"):
        with pytest.raises(UnsupportedStatement, match="takes no options here"):
            explained(sql)


NEEDS = StatementNeeds()


def rows(
    cut: TableCut,
    side: Side = Side.BOTH,
    report: TableReport | None = None,
    needs: StatementNeeds = NEEDS,
) -> list[dict[str, Any]]:
    table = ResolvedTable(FLOWS, side)
    read = plan_read(needs, table, cut, is_open=True)
    batch = explanation({table: read}, {} if report is None else {table: report})
    assert batch.schema == EXPLAIN_SCHEMA
    return batch.to_pylist()


def test_both_sides_of_a_bound_table_are_told() -> None:
    cut = plan_cut(pin(10, 20), bounds((3, 15), (5, 20)))
    observed = TableReport(1.5, {0: 3, 1: 5}, ColdTotals(25, 2, 4096), 1)
    cold, tail = rows(cut, report=observed)
    assert (cold["table"], cold["side"], cold["why"]) == (
        "lake.net.flows",
        "cold",
        "offsets below the watermark are in Iceberg",
    )
    assert (cold["records"], cold["files"], cold["bytes"], cold["files_to_read"]) == (
        25,
        2,
        4096,
        1,
    )
    assert (cold["snapshot_id"], cold["metadata_age_s"], cold["partitions"]) == (1, 1.5, 2)
    assert tail["why"] == "offsets from the watermark to the log's end are in Kafka only"
    assert (tail["topic"], tail["partitions"], tail["offsets"]) == ("flows", 1, 5)
    assert tail["ranges"] == [{"partition": 0, "log_start": 3, "start": 10, "stop": 15}]


def why(cut: TableCut, side: Side = Side.BOTH, **facts: Any) -> list[str]:
    return [row["why"] for row in rows(cut, side, **facts)]


def test_a_side_that_is_not_read_says_so() -> None:
    assert why(plan_cut(pin(0), bounds((0, 4))))[0] == (
        "nothing is tiered yet: no offset is below the watermark"
    )
    tiered = plan_cut(pin(4), bounds((0, 4)))
    assert why(tiered)[1] == "skipped: nothing lies above the watermark"
    assert why(tiered, report=TableReport(files_to_read=0))[0] == (
        "skipped: no file can hold a row the statement asks for"
    )
    assert why(tiered, needs=StatementNeeds(count_only=True))[0] == (
        "counted from the list of manifests: no file is read"
    )
    assert why(tiered, needs=StatementNeeds(extremes=frozenset(["kafka_offset"])))[0] == (
        "min and max by statistics of files: no file is read"
    )
    assert why(tiered, Side.COLD) == ["offsets below the watermark are in Iceberg"]
    assert len(why(tiered, Side.TAIL)) == 1
    assert why(tiered, Side.SEAM) == ["facts of the cut; no record is read"]


def test_tables_without_a_log_or_a_snapshot() -> None:
    plain = pin(binding=None)
    assert why(plan_cut(plain, None)) == ["the pinned snapshot, whole"]
    assert why(cold_cut(pin(3)), Side.COLD) == ["offsets below the watermark are in Iceberg"]
    cold = cold_cut(plain)
    object.__setattr__(cold.cold, "snapshot_id", None)
    assert why(cold) == ["the table never had a snapshot: no rows"]


def test_a_follower_is_told_what_is_left_out() -> None:
    cut = plan_cut(pin(10), bounds((0, 15)))
    assert why(narrow(cut, After(start="now"))) == [
        "skipped: what is below the watermark was answered before",
        "skipped: nothing lies above the watermark that was not answered before",
    ]
    both = narrow(cut, parse_after("beginning"))
    assert [text.endswith("; those answered before are left out") for text in why(both)] == [
        True,
        True,
    ]
    assert rows(both)[1]["ranges"][0]["log_start"] is None


def test_the_past_is_told_with_what_chose_it() -> None:
    value = cut_until(pin(10, 10), vector(4, 15), bounds((0, 20), (0, 20)))
    at = AtClause("VERSION", '{"value":{"value":3}}')
    result = ResolvedTable(FLOWS, at=at)
    observed = {result: TableReport(contract="AT (VERSION => 3)", log_age_s=2.5)}
    read = plan_read(NEEDS, result, value, is_open=True)
    cold, tail = explanation({result: read}, observed).to_pylist()
    assert cold["table"] == tail["table"] == "lake.net.flows AT (VERSION => 3)"
    assert cold["contract"] == tail["contract"] == "AT (VERSION => 3)"
    assert (cold["log_age_s"], tail["log_age_s"]) == (None, 2.5)
    assert cold["why"].endswith("; those above the cut's end are left out")
    assert [(span["start"], span["stop"]) for span in cold["ranges"]] == [(0, 4), (0, 10)]
    assert tail["why"] == "offsets from the watermark to the cut's end are in Kafka only"
    below = cut_until(pin(10), vector(4), None)
    assert why(below)[1] == "skipped: the cut ends at the watermark or below"


def test_of_a_table_without_a_topic_a_contract_for_the_tail_reads_all() -> None:
    plain = cold_cut(pin(binding=None))
    table = ResolvedTable(FLOWS, Side.TAIL, by_contract=True)
    read = plan_read(NEEDS, table, plain, is_open=True)
    [row] = explanation({table: read}, {}).to_pylist()
    assert (row["table"], row["side"]) == ("lake.net.flows", "cold")
    assert row["why"] == "the pinned snapshot, whole"
