"""Decides whether a publish of a keyed table replaces the rows it was staged to replace. Pure.

Keys are looked up in one snapshot, the base. Publishing on a later one is right only where every row is still that of the
base: a row of a key of ours that another writer added since would stay beside the new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from planner.errors import InternalError, KeyInTwoPartitions, TieringConflict, in_two_partitions
from planner.names import TableName
from planner.seam.formats import bad_property
from planner.seam.resolver import added_nothing
from planner.seam.snapshots import History, Snapshot, live_rows

DELETE_MODE = "write.delete.mode"
MERGE_ON_READ = "merge-on-read"
DELETE_GRANULARITY = "write.delete.granularity"


def check_delete_properties(table: TableName, properties: Mapping[str, str]) -> None:
    """Refuse properties under which a DELETE would rewrite data files, or name none that it deletes from.

    Raises:
        BadBinding: nothing was written.
    """
    expected = {DELETE_MODE: MERGE_ON_READ, DELETE_GRANULARITY: "file"}
    # Iceberg 1.12, "Write properties": what a table has that says nothing.
    defaults = {DELETE_MODE: "copy-on-write", DELETE_GRANULARITY: "file"}
    for key, value in expected.items():
        text = properties.get(key, defaults[key])
        if text.lower() != value:
            what = (
                f"property {key} is {text!r}; a keyed table is tiered with {value}: set it so."
            )
            raise bad_property(table, key, what)


def two_partitions(table: str, partition: int, offset: int, other: int) -> KeyInTwoPartitions:
    """Return the error of a key whose change at ``offset`` of ``partition`` is not the only one: ``other`` has one, too."""
    return in_two_partitions(
        table,
        f"the key of offset {offset} of partition {partition} has a change in partition {other}, too, so which is the newest",
        partition=partition,
        offset=offset,
        other=other,
    )


def check_rows_of(base: int, history: History, head: int, table: TableName) -> None:
    """Refuse unless ``head`` has the rows of ``base``, as far as snapshots tell: rewrites and empty commits stand between.

    Raises:
        TieringConflict: another writer changed rows, or expiry hides what was committed. Plan again.
    """
    following: int | None = head
    for snapshot in history.line(head):
        if snapshot.snapshot_id == base:
            return
        is_empty = snapshot.operation == "append" and added_nothing(history, snapshot)
        if snapshot.operation != "replace" and not is_empty:
            break
        following = snapshot.parent_id
    if following != base:
        raise TieringConflict(
            f"{table}: another writer changed rows since the keys of this tiering were looked up; nothing was changed, plan "
            f"again.",
            table=str(table),
        )


@dataclass(frozen=True, slots=True)
class RowCount:
    """Live rows that a publish leaves: ``before`` of the head, less ``hit`` rows of its keys, and ``appended``."""

    before: int
    hit: int
    appended: int

    @classmethod
    def of(
        cls, table: TableName, head: Snapshot, deletes: Snapshot | None, rows: Snapshot | None
    ) -> RowCount:
        """Count by the summaries of the head, and of the two staged snapshots, where there is one.

        Raises InternalError: a summary does not say.
        """
        before = live_rows(head)
        hit = 0 if deletes is None else removed_positions(deletes)
        appended = 0 if rows is None else rows.count("added-records")
        if before is None or appended is None:
            raise InternalError(
                f"{table}: a snapshot does not say how many rows it has; nothing was published.",
                table=str(table),
            )
        return cls(before, hit, appended)

    def check(self, table: TableName, published: Snapshot) -> None:
        """Compare with the snapshot that is about to be committed.

        Raises:
            TieringConflict: another writer rewrote delete files that the staged ones replace. Plan again.
        """
        after = live_rows(published)
        if after != self.before - self.hit + self.appended:
            raise TieringConflict(
                f"{table}: the table would have {after} rows, of {self.before} less {self.hit} replaced and {self.appended} "
                f"new ones; another writer rewrote its deletes meanwhile: nothing was changed, plan again.",
                table=str(table),
            )


def removed_positions(snapshot: Snapshot) -> int:
    """Rows that a snapshot's position deletes removed: a file or vector that replaces another counts those of both."""
    added = snapshot.count("added-position-deletes") or 0
    return added - (snapshot.count("removed-position-deletes") or 0)
