"""Takes a person's word for what a table covers: the way out where no watermark can be proven.

The log and people's earlier decisions come from the tag or the mirror property, never from a guess. So do the offsets,
unless a person names lower ones: after a rollback, or to read the top rows from the log again. Skipped records and
accepted gaps are carried over from every line of the table's history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from planner.errors import (
    BadParameter,
    ForeignCommit,
    WatermarkMissing,
)
from planner.names import TableName
from planner.offsets import OffsetVector
from planner.resolver import foreign_commits, resolve
from planner.snapshots import History
from planner.watermark import Outcomes, Watermark, readable_watermark


@dataclass(frozen=True, slots=True)
class PartitionRows:
    """A table's rows of one partition: lowest and highest offset, number of rows, number of distinct offsets."""

    partition: int
    lowest: int
    highest: int
    rows: int
    distinct: int

    @property
    def doubled(self) -> int:
        return self.rows - self.distinct

    @property
    def holes(self) -> int:
        """Offsets between lowest and highest that have no row."""
        return self.highest - self.lowest + 1 - self.distinct


def cover(
    table: TableName,
    history: History,
    head: int,
    rows: Sequence[PartitionRows],
    named: Mapping[int, int],
    *,
    run: str,
) -> Watermark:
    """Return the watermark that makes ``head`` hold everything below it.

    ``named`` are offsets that a person named, of all partitions or of none; without, they are the tag's and the
    mirror's, if these agree.

    Raises:
        BadParameter: the table's watermark is known; or ``named`` lies above what was ever covered, or names some
            partitions and not the others: after a hidden rollback the tag lies above the truth for those.
        WatermarkMissing: neither tag nor mirror holds a watermark, or they disagree and nothing was named.
        ForeignCommit: a row lies at or above the watermark, where the tail has it too; or the table is refused for
            a snapshot that can be accepted or rolled back.
    """
    _check_nobody_knows(table, history, head)
    base, limits = _bases(table, history)
    following = base.next.as_dict() | dict(named)
    for partition, offset in named.items():
        most = limits.get(partition, (0, 0))[1]
        if offset > most:
            raise BadParameter(
                f"{table}: offset {offset} of partition {partition} was never covered, at most {most} was.",
                table=str(table),
                partition=partition,
            )
    missing = sorted(limits.keys() - named.keys())
    if named and missing:
        raise BadParameter(
            f"{table}: nothing was said of partitions {', '.join(map(str, missing))}; name the first offset that the "
            f"table does not cover of each partition: --next {missing[0]}=OFFSET.",
            table=str(table),
            partition=missing[0],
        )
    for partition, (least, most) in limits.items():
        if least != most and partition not in named:
            raise WatermarkMissing(
                f"{table}: the tag and the mirror property disagree on partition {partition} ({least} and {most}); "
                f"name the first offset that the table does not cover: --next {partition}=OFFSET.",
                table=str(table),
                partition=partition,
            )
    for item in rows:
        if item.highest >= following.get(item.partition, 0):
            raise ForeignCommit(
                f"{table}: there is a row of partition {item.partition}, offset {item.highest}, and the watermark "
                f"would be {following.get(item.partition, 0)}: the tail has that record too, so every answer would "
                f"double it; delete such rows first.",
                table=str(table),
                partition=item.partition,
                offset=item.highest,
            )
    return replace(
        base,
        next=OffsetVector.of(following.items()),
        run=run,
        prev_snapshot_id=head,
        outcomes=Outcomes(),
    )


def _check_nobody_knows(table: TableName, history: History, head: int) -> None:
    try:
        resolve(history, head, table=str(table))
    except WatermarkMissing:
        return
    except ForeignCommit:
        refused = foreign_commits(history, head, table=str(table))
        if any(history.snapshots[snapshot_id].is_retained for snapshot_id in refused):
            raise
        return
    raise BadParameter(
        f"{table}: what it covers is known: its watermark stands. Nothing was changed.",
        table=str(table),
    )


def _bases(
    table: TableName, history: History
) -> tuple[Watermark, Mapping[int, tuple[int, int]]]:
    """Return a watermark to start from, and by partition the least and greatest offset that tag and mirror say."""
    tagged = None if history.tagged_id is None else history.snapshots.get(history.tagged_id)
    texts = (None if tagged is None else tagged.watermark_text, history.mirror)
    marks = [mark for text in texts if (mark := readable_watermark(text)) is not None]
    if not marks:
        raise WatermarkMissing(
            f"{table}: neither the tag nor the mirror property holds a watermark that can be read, so nobody can say "
            f"which log its rows come from; bind a new table.",
            table=str(table),
        )
    base = marks[0]
    if any(mark.log != base.log for mark in marks):
        raise WatermarkMissing(
            f"{table}: the tag and the mirror property name different logs; bind a new table.",
            table=str(table),
        )
    partitions = {partition for mark in marks for partition, _ in mark.next}
    return base, {
        partition: (
            min(mark.offset(partition) for mark in marks),
            max(mark.offset(partition) for mark in marks),
        )
        for partition in sorted(partitions)
    }
