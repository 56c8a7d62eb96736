"""What is decided of a keyed table's cuts: which rows are read, which moments are answered, which history is believed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from planner.errors import (
    CutExpired,
    ForeignCommit,
    NotForKeyedTables,
    ShapeMismatch,
    WatermarkMissing,
)
from planner.explain import explanation
from planner.names import KAFKA_OFFSET, KAFKA_OP, KAFKA_PARTITION, Side
from planner.offsets import OffsetRange, OffsetVector
from planner.reading.filters import Condition
from planner.reading.needs import StatementNeeds
from planner.reading.plan import ColdMode, plan_read, plan_rows
from planner.seam.cut import Increment, TableCut, cold_cut, plan_cut
from planner.seam.incremental import narrow, parse_after
from planner.seam.resolver import doubted_keys, foreign_commits, resolve
from planner.seam.snapshots import History, Snapshot
from planner.seam.time_travel import cut_until
from planner.seam.watermark import Outcomes, format_watermark
from planner.statement.references import ResolvedTable
from tests.harness.builders import FLOWS, bounds, pin, snapshot, vector, watermark
from tests.harness.keyed import BINDING, SCHEMA, UPSERT

PIN = replace(
    pin(10, 20),
    schema=SCHEMA,
    binding=replace(BINDING, topic="flows"),
    watermark=watermark(10, 20, key=UPSERT.key, shape=BINDING.shape),
)
CUT = plan_cut(PIN, bounds((0, 15), (5, 20), (0, 4)))
TAIL = (OffsetRange(0, 10, 15), OffsetRange(2, 0, 4))
ONE_PARTITION = ((Condition(KAFKA_PARTITION, "=", (pa.scalar(1, pa.int32()),)),),)
NEEDS = StatementNeeds(columns=frozenset({"n"}), any_rows=3, plain_scan=True, count_only=True)


def test_all_changes_are_read_and_no_number_of_rows_is_known() -> None:
    table = ResolvedTable(FLOWS)
    needs = replace(NEEDS, shared=frozenset({table}))
    read = plan_read(needs, table, CUT, is_open=True, rows=ONE_PARTITION)
    assert (read.cold, read.tail, read.key) == (ColdMode.WHOLE, TAIL, ("id", "region"))
    assert (read.any_rows, read.is_divisible) == (None, False)
    assert read.columns.names == ("n",)
    assert read.cold_names == ("n", "id", "region", KAFKA_PARTITION)
    assert read.tail_names == ("n", "id", "region", KAFKA_PARTITION, KAFKA_OFFSET, KAFKA_OP)
    hidden = plan_read(needs, table, CUT, is_open=False, rows=ONE_PARTITION)
    assert (hidden.cold_names, hidden.tail_names) == (None, None)


def test_a_snapshot_alone_has_one_row_of_each_key() -> None:
    for side, cut in ((Side.COLD, CUT), (Side.BOTH, cold_cut(PIN))):
        read = plan_read(NEEDS, ResolvedTable(FLOWS, side), cut, is_open=True)
        assert (read.cold, read.tail, read.key) == (ColdMode.COUNTED, (), ())
        assert (read.any_rows, read.is_divisible) == (3, True)
        assert read.cold_names == read.tail_names == ("n",)
    tail = plan_read(NEEDS, ResolvedTable(FLOWS, Side.TAIL), CUT, is_open=True)
    assert (tail.cold, tail.tail) == (ColdMode.NONE, TAIL)


def test_a_part_of_its_rows_is_refused() -> None:
    increment = replace(CUT, increment=Increment(OffsetVector()))
    for cut, records_only in ((CUT, True), (replace(CUT, until=vector(4)), False)):
        with pytest.raises(
            NotForKeyedTables, match=r"^lake\.net\.flows: a part of its rows by their"
        ):
            plan_rows(Side.BOTH, cut, records_only=records_only)
    assert plan_rows(Side.BOTH, increment).tail == TAIL
    with pytest.raises(NotForKeyedTables, match=r"^lake\.net\.flows: following is not for a"):
        narrow(CUT, parse_after("now"))
    assert narrow(
        replace(cold_cut(replace(PIN, binding=None, watermark=None))), parse_after("now")
    )


def test_a_cut_below_the_watermark_is_expired() -> None:
    log = bounds((0, 15), (5, 30))
    assert cut_until(PIN, vector(10, 25), log).new_hot == (OffsetRange(1, 20, 25),)
    for end in (vector(9, 25), vector(12), vector(12, 19)):
        with pytest.raises(CutExpired) as caught:
            cut_until(PIN, end, log)
        assert caught.value.message == (
            "lake.net.flows: the cut cannot be read any more: the table is keyed, and what it holds has newer rows, or none, "
            "of keys that had others then. Take a new one with thermocline_cut()."
        )


def test_keys_that_are_read_in_another_way_are_refused_but_not_the_snapshot() -> None:
    """Rows are one for each key as it was read, and a tail would have others."""
    other = replace(UPSERT, key=(4,))
    changed = replace(PIN, binding=replace(PIN.binding, upsert=other))  # type: ignore[type-var]
    assert cold_cut(changed).cold == cold_cut(PIN).cold
    log = bounds((0, 15), (5, 20))
    for cut in (
        lambda: plan_cut(changed, log),
        lambda: cut_until(changed, vector(15, 20), log),
    ):
        with pytest.raises(ShapeMismatch) as caught:
            cut()
        assert "format, envelope or how keys are read changed); restore" in caught.value.message
        assert caught.value.message.endswith("with `thermocline rebuild lake.net.flows`.")


def why(cut: TableCut, side: str) -> str:
    table = ResolvedTable(FLOWS)
    rows = explanation({table: plan_read(NEEDS, table, cut, is_open=True)}, {}).to_pylist()
    [text] = [row["why"] for row in rows if row["side"] == side]
    return str(text)


def test_it_is_explained_that_changes_decide() -> None:
    assert why(CUT, "cold").endswith("of keys with a change in the tail, that decides")
    assert why(CUT, "tail") == (
        "offsets from the watermark to the log's end are in Kafka only; the newest change of each key is its row, or deletes it"
    )


# --- which history is believed ---

MARK = watermark(10, 20, key=UPSERT.key)


def ours(snapshot_id: int, parent_id: int | None, operation: str, **counts: Any) -> Snapshot:
    outcomes = Outcomes(rows=counts.pop("rows", 0), superseded=7, deletes=2)
    mark = replace(MARK, prev_snapshot_id=parent_id, outcomes=outcomes)
    return snapshot(snapshot_id, parent_id, operation, mark=mark, **counts)


def history(*snapshots: Snapshot, **facts: Any) -> History:
    return History({each.snapshot_id: each for each in snapshots}, **facts)


def test_a_publish_carries_its_text_by_the_rows_that_it_appended() -> None:
    """Superseded changes and deletes are no rows: counted as such, the text would look like a copy."""
    base = ours(1, None, "append", total_records=30)
    for operation, counts in (
        ("overwrite", {"rows": 3, "added_records": 3, "added_position_deletes": 2}),
        ("append", {"rows": 3, "added_records": 3}),
        ("delete", {"rows": 0, "added_position_deletes": 2}),
    ):
        head = ours(2, 1, operation, **counts)
        mark = resolve(history(base, head), 2, table="t")
        assert (mark.outcomes.rows, mark.prev_snapshot_id) == (counts["rows"], 1)
    copied = ours(2, 1, "append", rows=4, added_records=3)
    with pytest.raises(ForeignCommit, match="under a watermark copied"):
        resolve(history(base, copied), 2, table="t")


def test_equality_deletes_of_another_writer_are_refused() -> None:
    base = ours(1, None, "append", total_records=30)
    head = snapshot(2, 1, "delete", added_equality_deletes=1)
    assert foreign_commits(history(base, head), 2, table="t") == (2,)
    with pytest.raises(
        ForeignCommit, match="added equality deletes, after which no summary says"
    ):
        resolve(history(base, head), 2, table="t")
    append = snapshot(1, None, mark=watermark(10, 20), total_records=30)
    assert resolve(history(append, head), 2, table="t").mode == "append"


@pytest.mark.parametrize(
    ("counts", "is_believed"),
    [
        ({"total_records": 31, "total_position_deletes": 1}, True),
        # A compaction, or a rollback over an update of one row: live rows are as many.
        ({"total_records": 30, "total_position_deletes": 0}, False),
        # A foreign DELETE, or a rollback over a delete.
        ({"total_records": 31, "total_position_deletes": 2}, False),
        ({"total_records": 31, "total_position_deletes": 0}, False),
        ({}, False),
    ],
)
def test_of_a_broken_chain_the_tag_counts_where_nothing_changed(
    counts: dict[str, int], is_believed: bool
) -> None:
    base = ours(1, None, "append", total_records=31, total_position_deletes=1)
    head = replace(snapshot(4, 3, "replace", **counts), single_keys=True)  # type: ignore[arg-type]
    text = base.watermark_text
    assert text is not None
    value = history(base, head, tagged_id=1, mirror=text)
    if is_believed:
        assert format_watermark(resolve(value, 4, table="t")) == text
        return
    with pytest.raises(WatermarkMissing, match="rows were added or removed by snapshots that"):
        resolve(value, 4, table="t")


# --- other writers that give a key two rows ---

REWROTE = replace(
    snapshot(2, 1, "overwrite", added_records=3, deleted_records=3, total_delete_files=0),
    added_next=vector(7),
)


@pytest.mark.parametrize(
    ("single", "why"),
    [
        (False, "a key has two rows since"),
        (None, "whether a key has two rows since is not known"),
    ],
)
def test_rows_that_another_writer_gave_one_key_are_refused(
    single: bool | None, why: str
) -> None:
    base = ours(1, None, "append", total_records=30)
    value = history(base, replace(REWROTE, single_keys=single))
    with pytest.raises(ForeignCommit) as caught:
        resolve(value, 2, table="t")
    assert caught.value.message == (
        f"t: snapshot 2 was committed by another writer above the watermark and {why}; roll the table back to a snapshot "
        f"before it, and write such rows to the topic; where none is left, create the table again from its topic."
    )
    passes = history(base, replace(REWROTE, single_keys=True))
    assert resolve(passes, 2, table="t").mode == "upsert"
    append = snapshot(1, None, mark=watermark(10, 20), total_records=30)
    assert resolve(history(append, REWROTE), 2, table="t").mode == "append"


def test_rows_may_have_one_key_where_other_writers_rewrote_some_or_expired() -> None:
    base = ours(1, None, "append", total_records=30)
    deleted = snapshot(3, 2, "delete", added_position_deletes=1)
    emptied = snapshot(4, 3, "overwrite", added_records=0, deleted_records=9)
    again = replace(REWROTE, snapshot_id=5, parent_id=4)
    line = history(base, REWROTE, deleted, emptied, again)
    assert doubted_keys(line, 5) == (5, 2)
    assert doubted_keys(line, 4) == (2,)
    assert doubted_keys(history(base, replace(deleted, parent_id=1)), 3) == ()
    assert doubted_keys(history(base, deleted, emptied), 4) == (3,)


def test_an_expired_writer_that_may_have_doubled_a_key_is_not_believed() -> None:
    base = ours(1, None, "append", total_records=31, total_position_deletes=1)
    head = snapshot(4, 3, "replace", total_records=31, total_position_deletes=1)
    for single in (None, False):
        value = history(
            base,
            replace(head, single_keys=single),
            tagged_id=1,
            mirror=base.watermark_text,
        )
        with pytest.raises(WatermarkMissing) as caught:
            resolve(value, 4, table="t")
        assert caught.value.message == (
            "t: snapshots between 4 and its watermark were expired, and after snapshots that expired a key may have two rows; "
            "roll back to a snapshot that carries a watermark, or create the table again from its topic."
        )
