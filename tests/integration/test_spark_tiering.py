"""Tiering on real Spark and Iceberg: what a round does, and what becomes of failures inside it."""

from __future__ import annotations

import gc
import threading
import time
from pathlib import Path

import pytest

from connectors.jobs.round import tier_once
from connectors.spark.metadata import identifier
from connectors.spark.publish.publish import _AncestryCheck
from planner.errors import (
    InternalError,
    LogUnavailable,
    SnapshotExpired,
    TieringConflict,
    UndecodableRecord,
    UnknownTable,
)
from planner.seam.binding import MIRROR
from planner.seam.snapshots import TAG
from planner.seam.watermark import SUMMARY_KEY, parse_watermark
from tests.fixtures.spark import BUDGET, BoundTable, SparkLake
from tests.harness.generated_log import (
    GeneratedLog,
    expected_outcomes,
    expected_rows,
    open_decoder_with_bad,
)

pytestmark = pytest.mark.spark


def test_a_round_with_nothing_new_commits_nothing(flows: BoundTable) -> None:
    flows.tier(100, 100)
    before = flows.state()
    result = flows.tier(100, 100)
    assert not result.published
    assert flows.state() == before


def test_staged_rows_are_invisible_until_published(flows: BoundTable) -> None:
    flows.tier(100, 100)
    target, staged = flows.stage(GeneratedLog((300, 200)))
    assert flows.rows() == expected_rows(100, 100)
    assert flows.watermark() == {0: 100, 1: 100}
    assert len(flows.branches()) == 1
    target.publish(staged)
    assert flows.rows() == expected_rows(300, 200)
    assert flows.branches() == []


def test_staging_never_reaches_the_main_branch_of_a_table_without_wap(
    flows: BoundTable,
) -> None:
    flows.sql("ALTER TABLE {t} UNSET TBLPROPERTIES ('write.wap.enabled')")
    _, _staged = flows.stage(GeneratedLog((300, 200)))
    assert flows.rows() == []


def test_tag_mirror_and_summary_hold_the_same_text(flows: BoundTable) -> None:
    for end in (50, 120):
        result = flows.tier(end, end)
        state = flows.state()
        head = state.history.snapshots[state.head or 0]
        text = head.summary[SUMMARY_KEY]
        assert state.refs[TAG] == head.snapshot_id
        assert state.properties[MIRROR] == text
        assert parse_watermark(text) == result.watermark
        assert head.operation == "append"
        assert result.watermark.prev_snapshot_id == head.parent_id
    assert flows.java().refs()[TAG].maxRefAgeMs() == 2**63 - 1


def test_a_wide_watermark_is_compressed_and_read_back(lake: SparkLake) -> None:
    flows = lake.create()
    flows.tier(*([2] * 1_200))
    assert flows.state().properties[MIRROR].startswith("z:")
    assert flows.watermark() == dict.fromkeys(range(1_200), 2)


def test_nothing_of_a_publish_stays_in_the_driver(flows: BoundTable) -> None:
    """Java's transaction held its check and the check the transaction: every publish left a table's metadata."""
    gateway = flows.session.sparkContext._gateway
    assert gateway is not None

    def checks() -> list[object]:
        items = list(gateway.gateway_property.pool.dict.values())
        return [result for result in items if isinstance(result, _AncestryCheck)]

    flows.tier(100, 100)
    target, late = flows.stage(GeneratedLog((200, 200)))
    flows.tier(150, 150)
    with pytest.raises(TieringConflict):
        target.publish(late)
    until = time.monotonic() + 60
    while checks():
        assert time.monotonic() < until, (
            "Java still holds the check of a transaction that ended"
        )
        gc.collect()
        gateway.jvm.java.lang.System.gc()
        time.sleep(0.05)


def test_counts_stay_exact_when_a_task_fails_and_is_tried_again(
    flows: BoundTable, tmp_path: Path
) -> None:
    log = GeneratedLog((5_000, 3_000), fail_once=tmp_path / "failed")
    result = tier_once(log, flows.target(log), BUDGET)
    assert (tmp_path / "failed").exists()
    assert result.outcomes == expected_outcomes(5_000, 3_000)
    assert flows.rows() == expected_rows(5_000, 3_000)


def test_counts_stay_exact_across_a_shuffle(lake: SparkLake, tmp_path: Path) -> None:
    flows = lake.create(
        0,
        0,
        partition_by=["bucket(4, host)"],
        properties={"write.distribution-mode": "hash"},
    )
    log = GeneratedLog((5_000, 3_000), fail_once=tmp_path / "failed")
    result = tier_once(log, flows.target(log), BUDGET)
    assert (tmp_path / "failed").exists()
    assert result.outcomes == expected_outcomes(5_000, 3_000)
    assert flows.rows() == expected_rows(5_000, 3_000)
    files = flows.sql("SELECT DISTINCT partition FROM {t}.files")
    assert len(files) == 4


@pytest.mark.parametrize(
    "mode", ["none", pytest.param("hash", marks=pytest.mark.soak), "range"]
)
def test_partitions_and_local_sort_order_are_respected(lake: SparkLake, mode: str) -> None:
    flows = lake.create(
        0,
        0,
        partition_by=["kafka_partition"],
        sort_by=["host desc"],
        properties={"write.distribution-mode": mode},
    )
    flows.tier(900, 800)
    assert flows.rows() == expected_rows(900, 800)
    paths = [row[0] for row in flows.sql("SELECT file_path FROM {t}.files")]
    assert len(paths) == 2
    for path in paths:
        hosts = [row[0] for row in flows.session.read.parquet(path).select("host").collect()]
        assert hosts == sorted(hosts, reverse=True)


def test_an_executors_error_reaches_the_caller_as_itself(flows: BoundTable) -> None:
    log = GeneratedLog((50, 50))
    target = flows.target(log, decoder=open_decoder_with_bad(0, 5))
    with pytest.raises(
        UndecodableRecord, match=r"^flows/0: offset 5 does not decode\.$"
    ) as caught:
        tier_once(log, target, BUDGET)
    assert caught.value.facts == {"partition": 0, "offset": 5}
    assert flows.rows() == []
    assert flows.branches() == []


def test_a_task_that_keeps_failing_fails_the_round(flows: BoundTable) -> None:
    log = GeneratedLog((5_000, 0), broken=True)
    with pytest.raises(LogUnavailable, match="went away for good"):
        tier_once(log, flows.target(log), BUDGET)
    assert flows.watermark() == {0: 0, 1: 0}
    assert flows.branches() == []


def test_a_bug_in_an_executor_shows_no_path_to_the_caller(flows: BoundTable) -> None:
    log = GeneratedLog((5_000, 0), fail_once=Path("/proc/never/made"))
    with pytest.raises(InternalError) as caught:
        tier_once(log, flows.target(log), BUDGET)
    assert (
        caught.value.message
        == f"{flows.name}: tiering failed inside Spark; its log has the rest."
    )


def test_a_schema_changed_meanwhile_is_a_conflict_at_either_step(flows: BoundTable) -> None:
    log = GeneratedLog((300, 200))
    target, staged = flows.stage(log)
    flows.sql("ALTER TABLE {t} ADD COLUMN note string")
    with pytest.raises(TieringConflict, match="schema changed"):
        target.publish(staged)
    with pytest.raises(TieringConflict, match="schema changed"):
        target.stage(staged.plan)
    target.discard(staged)
    assert flows.branches() == []
    assert flows.rows() == []


def test_a_table_dropped_meanwhile_is_unknown(flows: BoundTable) -> None:
    target, staged = flows.stage(GeneratedLog((300, 200)))
    flows.sql("DROP TABLE {t}")
    with pytest.raises(UnknownTable, match="no such table"):
        target.publish(staged)
    target.discard(staged)


def test_a_removed_stage_branch_means_to_stage_again(flows: BoundTable) -> None:
    target, staged = flows.stage(GeneratedLog((300, 200)))
    target.discard(staged)
    with pytest.raises(SnapshotExpired, match="stage them again"):
        target.publish(staged)
    assert flows.rows() == []
    assert flows.watermark() == {0: 0, 1: 0}


def test_a_branch_removed_while_it_is_written_is_made_again(
    flows: BoundTable, tmp_path: Path
) -> None:
    flows.tier(100, 100)
    log = GeneratedLog((1_500, 100), gate=tmp_path / "gate")
    dropped: list[str] = []

    def remove() -> None:
        while not (tmp_path / "gate").exists():
            time.sleep(0.01)
        dropped.extend(flows.target(log).drop_stale(older_than_s=-1))
        (tmp_path / "gate").unlink()

    other = threading.Thread(target=remove, daemon=True)
    other.start()
    tier_once(log, flows.target(log), BUDGET)
    other.join(10)
    assert len(dropped) == 1
    assert flows.rows() == expected_rows(1_500, 100)
    assert flows.branches() == []


def test_a_table_of_format_version_3_is_tiered(flows: BoundTable) -> None:
    flows.sql("ALTER TABLE {t} SET TBLPROPERTIES ('format-version'='3')")
    flows.tier(300, 200)
    flows.sql("DELETE FROM {t} WHERE kafka_offset = 15")
    flows.compact()
    flows.tier(400, 200)
    assert flows.rows() == [row for row in expected_rows(400, 200) if row[1] != 15]
    ids = [row[0] for row in flows.sql("SELECT _row_id FROM {t}")]
    assert len(set(ids)) == len(ids) == len(flows.rows())


def test_only_branches_of_dead_tierers_are_stale(flows: BoundTable) -> None:
    target, staged = flows.stage(GeneratedLog((300, 200)))
    flows.sql("ALTER TABLE {t} CREATE BRANCH tc_stage_of_somebody_else")
    assert target.drop_stale(older_than_s=3600) == ()
    an_hour_later = flows.target(GeneratedLog((300, 200)))
    dropped = an_hour_later.drop_stale(older_than_s=3600, clock=lambda: time.time() + 3_700)
    assert dropped == (f"tc_stage_{staged.reference}",)
    assert flows.branches() == ["tc_stage_of_somebody_else"]


def test_a_table_is_named_to_spark_with_its_quotes_doubled(flows: BoundTable) -> None:
    assert identifier(flows.name).startswith("`lake`.`net`.`flows_")
    assert identifier(flows.name, "b`c").endswith(".`branch_b``c`")
