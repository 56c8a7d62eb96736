"""Takes a person's word for what a table covers: the way out where no watermark can be proven.

The log and people's earlier decisions come from the tag or the mirror property, never from a guess. So do the offsets,
unless a person names lower ones: after a rollback, or to read the top rows from the log again. Skipped records and
accepted gaps are carried over from every line of the table's history.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from planner.errors import BadParameter, ForeignCommit, WatermarkMissing
from planner.names import TableName
from planner.offsets import OffsetVector
from planner.repairs import decided
from planner.seam.boundary import RetentionBoundary
from planner.seam.resolver import base_watermark, foreign_commits, resolve
from planner.seam.snapshots import History
from planner.seam.watermark import Watermark, readable_watermark


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


@dataclass(frozen=True, slots=True)
class RowsOfHead:
    """The rows of a table's head, for a person who says what it covers.

    ``oldest_us``: by field id the earliest time of each column that ``boundaries`` name, microseconds since 1970 UTC; absent
    where no row has one.
    """

    head: int | None
    partitions: tuple[PartitionRows, ...]
    without_offset: int
    oldest_us: Mapping[int, int] = field(default_factory=dict)


def cover(
    table: TableName,
    history: History,
    head: int,
    rows: RowsOfHead,
    named: Mapping[int, int],
    *,
    run: str,
) -> Watermark:
    """Return the watermark that makes ``head`` hold everything below it.

    ``named`` are offsets that a person named, of all partitions or of none; without, they are the tag's and the
    mirror's, if these agree. The boundary of retention is that of the head's own line. Where expiry hid that, it is the latest
    of tag and mirror that no row is before: rows of the table stay, and none that aged out of it comes back.

    Raises:
        BadParameter: the table's watermark is known; or ``named`` lies above what was ever covered, or names some
            partitions and not the others: after a hidden rollback the tag lies above the truth for those.
        WatermarkMissing: neither tag nor mirror holds a watermark, or they disagree and nothing was named.
        ForeignCommit: a row lies at or above the watermark, where the tail has it too; or the table is refused for
            a snapshot that can be accepted or rolled back.
    """
    below = _below_foreign(table, history, head)
    base, limits = _bases(table, history)
    boundary = _boundary(history, rows.oldest_us) if below is None else below.boundary
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
    for item in rows.partitions:
        if item.highest >= following.get(item.partition, 0):
            raise ForeignCommit(
                f"{table}: there is a row of partition {item.partition}, offset {item.highest}, and the watermark "
                f"would be {following.get(item.partition, 0)}: the tail has that record too, so every answer would "
                f"double it; delete such rows first.",
                table=str(table),
                partition=item.partition,
                offset=item.highest,
            )
    after = replace(decided(base, head, run), next=OffsetVector.of(following.items()))
    if boundary != base.boundary:
        # Other rows than those of the era that ``base`` is of.
        after = replace(after, boundary=boundary, decoding="", era="")
    return after


def _below_foreign(table: TableName, history: History, head: int) -> Watermark | None:
    """Return the watermark below the expired foreign commits for which ``head`` is refused; None: no watermark is known.

    Raises:
        BadParameter: nothing is refused.
        ForeignCommit: one of them is retained.
    """
    try:
        resolve(history, head, table=str(table))
    except WatermarkMissing:
        return None
    except ForeignCommit:
        refused = foreign_commits(history, head, table=str(table))
        if any(history.snapshots[snapshot_id].is_retained for snapshot_id in refused):
            raise
        return base_watermark(history, head)
    raise BadParameter(
        f"{table}: what it covers is known: its watermark stands. Nothing was changed.",
        table=str(table),
    )


def _bases(
    table: TableName, history: History
) -> tuple[Watermark, Mapping[int, tuple[int, int]]]:
    """Return a watermark to start from, and by partition the least and greatest offset that tag and mirror say."""
    marks = _last_marks(history)
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
    said = {at: [mark.offset(at) for mark in marks] for at in sorted(partitions)}
    return base, {partition: (min(each), max(each)) for partition, each in said.items()}


def _last_marks(history: History) -> list[Watermark]:
    """Return the watermarks of tag and mirror, as far as they can be read."""
    texts = (None if history.tagged is None else history.tagged.watermark_text, history.mirror)
    return [mark for text in texts if (mark := readable_watermark(text)) is not None]


def boundaries(history: History) -> tuple[RetentionBoundary, ...]:
    """Return the boundaries of retention that tag and mirror say, the tag's first."""
    marks = _last_marks(history)
    return tuple(mark.boundary for mark in marks if mark.boundary is not None)


def _boundary(history: History, oldest_us: Mapping[int, int]) -> RetentionBoundary | None:
    said = boundaries(history)
    if not said:
        return None
    latest = max(
        (each for each in said if each.field_id == said[0].field_id),
        key=lambda each: each.before_us,
    )
    # The line's own boundary is no later than its oldest row, which that would have deleted.
    oldest = oldest_us.get(latest.field_id, latest.before_us)
    return replace(latest, before_us=min(latest.before_us, oldest))
