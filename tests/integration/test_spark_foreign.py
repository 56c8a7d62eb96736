"""What other writers may do to a bound table between any two steps: the right answer, or the named refusal."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from connectors.spark.metadata import identifier
from connectors.spark.publish.target import SparkTieringTarget
from planner.errors import ForeignCommit, TieringConflict, WatermarkMissing
from planner.ports import Staged
from planner.seam.binding import MIRROR
from planner.seam.snapshots import TAG
from tests.fixtures.spark import BoundTable, SparkLake
from tests.harness.generated_log import GeneratedLog, Row, expected_rows

pytestmark = pytest.mark.spark

TIERED = expected_rows(100, 100)
COPY, MERGE = "copy-on-write", "merge-on-read"
#: A row of ``TIERED``.
GONE: Row = (0, 50, "host-0-50", 500)


@pytest.fixture
def tiered(lake: SparkLake, request: pytest.FixtureRequest) -> BoundTable:
    """A table with rows below watermark (100, 100); foreign SQL writes it in the mode asked for."""
    mode = getattr(request, "param", COPY)
    modes = {f"write.{kind}.mode": mode for kind in ("delete", "update", "merge")}
    table = lake.create(0, 0, properties=modes)
    table.tier(100, 100)
    return table


def delete(table: BoundTable) -> None:
    table.sql("DELETE FROM {t} WHERE kafka_partition = 0 AND kafka_offset = 50")


def update(table: BoundTable) -> None:
    table.sql("UPDATE {t} SET host = 'erased' WHERE kafka_partition = 0 AND kafka_offset = 50")


def merge_update(table: BoundTable) -> None:
    table.sql(
        "MERGE INTO {t} t USING (SELECT 0 p, CAST(50 AS BIGINT) o) s"
        " ON t.kafka_partition = s.p AND t.kafka_offset = s.o"
        " WHEN MATCHED THEN UPDATE SET host = 'erased'"
    )


def rewrite_manifests(table: BoundTable) -> None:
    table.call("rewrite_manifests")


def expire(table: BoundTable) -> None:
    table.expire_to_one()


def compact_and_expire(table: BoundTable) -> None:
    table.compact()
    table.expire_to_one()


def compact_around_a_delete(table: BoundTable) -> None:
    table.compact()
    delete(table)
    table.compact()


def maintain(table: BoundTable) -> None:
    """What is routine: with no publish between, the watermark's snapshot is kept by its tag alone."""
    delete(table)
    table.compact()
    table.expire_to_one()


def set_property(table: BoundTable) -> None:
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('owner.note'='x')")


def insert(table: BoundTable) -> None:
    table.sql(
        "INSERT INTO {t} VALUES (0, CAST(7000 AS BIGINT), TIMESTAMP '2026-01-01 00:00:00', 'mine', 1)"
    )


def move_up(table: BoundTable) -> None:
    table.sql(
        "UPDATE {t} SET kafka_offset = 150 WHERE kafka_partition = 0 AND kafka_offset = 50"
    )


def without(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row != GONE]


def erased(rows: list[Row]) -> list[Row]:
    return sorted((0, 50, "erased", 500) if row == GONE else row for row in rows)


def same(rows: list[Row]) -> list[Row]:
    return rows


Move = tuple[str, Callable[[BoundTable], None], Callable[[list[Row]], list[Row]]]
PASSING: list[Move] = [
    (COPY, BoundTable.compact, same),
    (COPY, expire, same),
    (COPY, rewrite_manifests, same),
    (COPY, set_property, same),
    (COPY, compact_and_expire, same),
    *(
        (mode, *move)
        for mode in (COPY, MERGE)
        for move in (
            (compact_around_a_delete, without),
            (maintain, without),
            (delete, without),
            (update, erased),
            (merge_update, erased),
        )
    ),
]
#: A soak has all at both moments. These do what the others do, and the contract of tiering targets has a compaction
#: and a DELETE by itself; what lands while a commit is under way is below.
AT_PUBLISH = {(COPY, rewrite_manifests), (COPY, maintain), (COPY, merge_update)}
BETWEEN_ROUNDS = {(MERGE, compact_around_a_delete), (MERGE, maintain)}


def moves(always: Collection[tuple[str, Callable[[BoundTable], None]]]) -> list[Any]:
    return [
        pytest.param(*move, marks=() if move[:2] in always else pytest.mark.soak)
        for move in PASSING
    ]


@pytest.mark.parametrize(("tiered", "move", "left"), moves(AT_PUBLISH), indirect=["tiered"])
def test_moves_below_the_watermark_pass_between_stage_and_publish(
    tiered: BoundTable,
    move: Callable[[BoundTable], None],
    left: Callable[[list[Row]], list[Row]],
) -> None:
    target, staged = tiered.stage(GeneratedLog((300, 200)))
    move(tiered)
    target.publish(staged)
    assert tiered.rows() == left(expected_rows(300, 200))
    assert tiered.watermark() == {0: 300, 1: 200}
    # The files survive the expiry of everything but the head.
    tiered.expire_to_one()
    assert tiered.rows() == left(expected_rows(300, 200))
    tiered.tier(310, 200)
    assert tiered.rows() == left(expected_rows(310, 200))


@pytest.mark.parametrize(("tiered", "move", "left"), moves(BETWEEN_ROUNDS), indirect=["tiered"])
def test_moves_below_the_watermark_pass_between_two_rounds(
    tiered: BoundTable,
    move: Callable[[BoundTable], None],
    left: Callable[[list[Row]], list[Row]],
) -> None:
    move(tiered)
    assert tiered.watermark() == {0: 100, 1: 100}
    assert tiered.rows() == left(TIERED)
    tiered.tier(300, 200)
    assert tiered.rows() == left(expected_rows(300, 200))


@pytest.mark.parametrize(
    ("tiered", "move"),
    [
        (COPY, insert),
        pytest.param(COPY, move_up, marks=pytest.mark.soak),
        (MERGE, move_up),
    ],
    indirect=["tiered"],
)
def test_foreign_rows_above_the_watermark_are_refused_at_either_step(
    tiered: BoundTable, move: Callable[[BoundTable], None]
) -> None:
    target, staged = tiered.stage(GeneratedLog((300, 200)))
    move(tiered)
    before = tiered.state()
    with pytest.raises(ForeignCommit) as caught:
        target.publish(staged)
    assert caught.value.facts["snapshot_id"] == before.head
    assert tiered.state() == before
    target.discard(staged)
    with pytest.raises(ForeignCommit):
        tiered.tier(300, 200)
    tiered.call("rollback_to_snapshot", f"snapshot_id => {before.refs['thermocline']}")
    tiered.tier(300, 200)
    assert tiered.rows() == expected_rows(300, 200)


@pytest.mark.soak  # contract/test_tiering_target.py has it over Spark, too
def test_a_rollback_between_stage_and_publish_is_a_conflict(flows: BoundTable) -> None:
    flows.tier(100, 100)
    older = flows.state().head
    flows.tier(200, 150)
    target, staged = flows.stage(GeneratedLog((300, 200)))
    flows.call("rollback_to_snapshot", f"snapshot_id => {older}")
    with pytest.raises(TieringConflict):
        target.publish(staged)
    target.discard(staged)
    # The watermark went back with the rows, so they are tiered again from there.
    assert flows.watermark() == {0: 100, 1: 100}
    flows.tier(300, 200)
    assert flows.rows() == expected_rows(300, 200)


def merge_copies(table: BoundTable) -> None:
    """Delete a row and insert 20 that are there already; most of the file's rows were deleted before."""
    table.sql("DELETE FROM {t} WHERE kafka_partition = 0 AND kafka_offset < 40")
    columns = ("kafka_partition", "kafka_offset", "kafka_timestamp", "host", "bytes")
    table.sql(
        "MERGE INTO {t} t USING (SELECT *, kafka_offset = 45 AS gone FROM {t}"
        " WHERE kafka_partition = 0 AND kafka_offset BETWEEN 45 AND 65) s"
        " ON s.gone AND t.kafka_partition = s.kafka_partition AND t.kafka_offset = s.kafka_offset"
        " WHEN MATCHED THEN DELETE"
        f" WHEN NOT MATCHED THEN INSERT ({', '.join(columns)})"
        f" VALUES ({', '.join(f's.{name}' for name in columns)})"
    )


#: How a DELETE and a MERGE write, by format version.
OVER_DELETES: list[Any] = [
    ("2", MERGE, COPY),
    pytest.param(("2", MERGE, MERGE), marks=pytest.mark.soak),
    ("3", MERGE, MERGE),
    pytest.param(("3", MERGE, COPY), marks=pytest.mark.soak),
]


@pytest.fixture
def over_deletes(lake: SparkLake, request: pytest.FixtureRequest) -> BoundTable:
    version, deletes, merges = request.param
    table = lake.create(
        0, 0, properties={"write.delete.mode": deletes, "write.merge.mode": merges}
    )
    table.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ('format-version'='{version}')")
    table.tier(100, 100)
    return table


@pytest.mark.parametrize("over_deletes", OVER_DELETES, indirect=True)
def test_a_merge_that_adds_rows_over_row_deletes_is_refused_by_readers_and_tierers(
    over_deletes: BoundTable,
) -> None:
    target, staged = over_deletes.stage(GeneratedLog((300, 200)))
    merge_copies(over_deletes)
    before = over_deletes.state()
    for refused in (
        lambda: over_deletes.watermark(),
        lambda: target.publish(staged),
        lambda: over_deletes.tier(300, 200),
    ):
        with pytest.raises(ForeignCommit, match=r"added \d+ rows but removed"):
            refused()
    assert over_deletes.state() == before


@pytest.mark.parametrize(
    "over_deletes",
    [pytest.param(OVER_DELETES[0], marks=pytest.mark.soak), OVER_DELETES[2]],
    indirect=True,
)
def test_a_merge_that_adds_no_rows_over_row_deletes_passes(over_deletes: BoundTable) -> None:
    target, staged = over_deletes.stage(GeneratedLog((300, 200)))
    over_deletes.sql("DELETE FROM {t} WHERE kafka_partition = 0 AND kafka_offset < 40")
    merge_update(over_deletes)
    left = [row for row in erased(TIERED) if row[0] != 0 or row[1] >= 40]
    assert over_deletes.watermark() == {0: 100, 1: 100}
    assert over_deletes.rows() == left
    target.publish(staged)
    assert over_deletes.watermark() == {0: 300, 1: 200}


def test_a_copied_watermark_is_refused_by_readers_and_tierers(flows: BoundTable) -> None:
    flows.tier(100, 100)
    target, staged = flows.stage(GeneratedLog((300, 200)))
    text = flows.state().properties[MIRROR]
    rows = flows.session.table(identifier(flows.name)).limit(5)
    copying = rows.writeTo(identifier(flows.name)).option(f"snapshot-property.{MIRROR}", text)
    copying.append()
    for refused in (lambda: flows.watermark(), lambda: target.publish(staged)):
        with pytest.raises(ForeignCommit, match="under a watermark copied from another commit"):
            refused()


def test_a_rollback_hidden_by_expiry_is_a_rollback(flows: BoundTable) -> None:
    flows.tier(100, 100)
    flows.compact()
    older = flows.state().head
    flows.tier(200, 150)
    target, staged = flows.stage(GeneratedLog((300, 200)))
    flows.call("rollback_to_snapshot", f"snapshot_id => {older}")
    flows.expire_to_one()
    # Head is a compaction whose watermark expired, and the tag names rows that were rolled back. The metadata file
    # from before the expiry tells.
    with pytest.raises(TieringConflict):
        target.publish(staged)
    target.discard(staged)
    assert flows.rows() == expected_rows(100, 100)
    assert flows.watermark() == {0: 100, 1: 100}
    flows.tier(300, 200)
    assert flows.rows() == expected_rows(300, 200)


def test_without_older_metadata_files_a_hidden_rollback_is_refused(flows: BoundTable) -> None:
    flows.tier(100, 100)
    older = flows.state().head
    flows.tier(200, 150)
    target, staged = flows.stage(GeneratedLog((300, 200)))
    flows.call("rollback_to_snapshot", f"snapshot_id => {older}")
    flows.compact()
    flows.expire_to_one()
    for entry in flows.store._catalogs.load(flows.name).metadata.metadata_log:
        Path(entry.metadata_file.removeprefix("file:")).unlink(missing_ok=True)
    with pytest.raises(WatermarkMissing):
        target.publish(staged)
    with pytest.raises(WatermarkMissing):
        flows.watermark()


def test_an_expiry_of_staged_files_only_takes_dead_ones(flows: BoundTable) -> None:
    flows.tier(100, 100)
    target, dead = flows.stage(GeneratedLog((250, 150)))
    _, staged = flows.stage(GeneratedLog((300, 200)))
    target.discard(dead)
    flows.expire_to_one()
    target.publish(staged)
    flows.expire_to_one()
    assert flows.rows() == expected_rows(300, 200)


@pytest.fixture
def during_commit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Callable[[Callable[[], None]], None]]:
    """Do something while the next publish stands between building its transaction and committing it."""
    marker = tmp_path / "hit"
    monkeypatch.setenv("THERMOCLINE_FAILPOINT", "before_commit:barrier")
    monkeypatch.setenv("THERMOCLINE_FAILPOINT_FILE", str(marker))
    threads: list[threading.Thread] = []

    def at_the_barrier(move: Callable[[], None]) -> None:
        def run() -> None:
            while not marker.exists():
                time.sleep(0.01)
            try:
                move()
            finally:
                Path(f"{marker}.release").touch()

        threads.append(threading.Thread(target=run, daemon=True))
        threads[-1].start()

    yield at_the_barrier
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    ("tiered", "move", "left"),
    [
        (COPY, set_property, same),
        (COPY, compact_and_expire, same),
        pytest.param(COPY, BoundTable.compact, same, marks=pytest.mark.soak),
        pytest.param(COPY, expire, same, marks=pytest.mark.soak),
        (MERGE, update, erased),
    ],
    indirect=["tiered"],
)
def test_a_commit_that_lands_while_ours_is_under_way_passes_if_it_would_before(
    tiered: BoundTable,
    during_commit: Callable[[Callable[[], None]], None],
    move: Callable[[BoundTable], None],
    left: Callable[[list[Row]], list[Row]],
) -> None:
    target, staged = tiered.stage(GeneratedLog((300, 200)))
    during_commit(lambda: move(tiered))
    mark = target.publish(staged)
    assert tiered.rows() == left(expected_rows(300, 200))
    state = tiered.state()
    head = state.history.snapshots[state.head or 0]
    # The text names the head it was really built on.
    assert mark.prev_snapshot_id == head.parent_id
    assert head.watermark_text == state.properties[MIRROR]
    assert state.refs[TAG] == state.head


@pytest.mark.parametrize("move", [insert, pytest.param(move_up, marks=pytest.mark.soak)])
def test_a_foreign_commit_that_lands_while_ours_is_under_way_is_refused(
    tiered: BoundTable,
    during_commit: Callable[[Callable[[], None]], None],
    move: Callable[[BoundTable], None],
) -> None:
    target, staged = tiered.stage(GeneratedLog((300, 200)))
    during_commit(lambda: move(tiered))
    with pytest.raises(ForeignCommit):
        target.publish(staged)
    assert tiered.state().properties[MIRROR] != ""
    assert all(row[1] != 250 for row in tiered.rows())


def test_another_tierer_that_lands_while_ours_is_under_way_wins(
    flows: BoundTable, during_commit: Callable[[Callable[[], None]], None]
) -> None:
    other, first = flows.stage(GeneratedLog((120, 110)))
    target, staged = flows.stage(GeneratedLog((300, 200)))
    during_commit(lambda: _publish_past_barrier(other, first))
    with pytest.raises(TieringConflict):
        target.publish(staged)
    assert flows.rows() == expected_rows(120, 110)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("ADD COLUMN note string", "schema changed"),
        ("SET TBLPROPERTIES ('thermocline.on_error' = 'skip')", "binding changed"),
    ],
)
def test_a_change_of_what_rows_are_decoded_for_while_ours_is_under_way_is_a_conflict(
    flows: BoundTable,
    during_commit: Callable[[Callable[[], None]], None],
    change: str,
    sentence: str,
) -> None:
    target, staged = flows.stage(GeneratedLog((300, 200)))

    def alter() -> None:
        flows.sql(f"ALTER TABLE {{t}} {change}")

    during_commit(alter)
    with pytest.raises(TieringConflict, match=sentence):
        target.publish(staged)
    assert flows.rows() == []


def _publish_past_barrier(target: SparkTieringTarget, staged: Staged) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("THERMOCLINE_FAILPOINT")
        target.publish(staged)
