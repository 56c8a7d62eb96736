"""Makes a pin from one metadata file of a table. Shared by every cold store; no I/O of its own.

Expiry takes a snapshot out of the newest metadata file. Older files stay, a hundred by default, and have each snapshot
with its summary and its parent (Iceberg spec, "Table Metadata": metadata-log).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from planner.errors import WatermarkMissing
from planner.names import TableName
from planner.offsets import OffsetVector
from planner.schema import TableSchema, check_federated
from planner.seam.binding import Binding, check_keyed, check_mode, parse_binding, promised_s
from planner.seam.cut import Pin
from planner.seam.resolver import (
    base_snapshot,
    base_watermark,
    broken_at,
    doubted_keys,
    line_above,
    needs_growth,
    needs_statistics,
    resolve,
)
from planner.seam.snapshots import History, Snapshot, growth_at_most
from planner.seam.watermark import Watermark

#: Iceberg's own table property for a description of the table.
COMMENT = "comment"


@dataclass(frozen=True, slots=True)
class TableFacts:
    """One metadata file, read once. ``head`` is the current snapshot, None when there is none."""

    table: TableName
    table_uuid: str
    metadata_location: str
    head: int | None
    schema: TableSchema
    properties: Mapping[str, str]
    history: History


class Evidence(Protocol):
    """Looks up the facts of a table that the resolver needs and its metadata file lacks."""

    def added_next(self, snapshot_id: int) -> OffsetVector | None:
        """Return 1 + the greatest offset per partition among the rows a retained snapshot added.

        None when a row has none, or it cannot be known.
        """

    def live_rows(self, snapshot_id: int) -> int | None:
        """Count the rows of a retained snapshot, row deletes applied; None when it cannot be known."""

    def single_keys(self, snapshot_id: int, key: tuple[int, ...]) -> bool | None:
        """Return whether each key, of columns by their ids, has one row in a retained snapshot, row deletes applied.

        None when it cannot be known.
        """

    def reach(self, snapshot_id: int, below: OffsetVector) -> OffsetVector | None:
        """Return 1 + the greatest offset per partition among all rows of a retained snapshot, or more.

        Exact where it is not ``below``. None when a row has none, or it cannot be known.
        """

    def earlier(self, snapshot_id: int) -> Mapping[int, Snapshot]:
        """Return a snapshot and its ancestors, down to a watermark, from older metadata files.

        Empty where they do not reach back to it.
        """


def decide_pin(facts: TableFacts, evidence: Evidence) -> Pin:
    """Bind, check and resolve.

    Raises:
        BadBinding, UnsupportedType: as ``parse_binding``, ``check_federated``, ``check_keyed`` and ``check_mode``.
        WatermarkMissing, WatermarkUnreadable, ForeignCommit: as ``resolve``.
    """
    pin = Pin(
        table=facts.table,
        table_uuid=facts.table_uuid,
        metadata_location=facts.metadata_location,
        snapshot_id=facts.head,
        schema=facts.schema,
        comment=facts.properties.get(COMMENT) or None,
    )
    binding = parse_binding(facts.table, facts.properties)
    if binding is None:
        return pin
    check_federated(facts.table, facts.schema)
    check_keyed(str(facts.table), facts.schema, binding)
    if facts.head is None:
        raise WatermarkMissing(
            f"{facts.table}: the table is bound to topic {binding.topic} but has no snapshot, so it has no first "
            f"watermark; create it with `thermocline create`.",
            table=str(facts.table),
            topic=binding.topic,
        )
    history = with_statistics(facts.history, facts.head, evidence)
    mark = resolve(history, facts.head, table=str(facts.table))
    check_mode(str(facts.table), binding, mark.mode)
    return replace(
        pin,
        schema=with_units(facts.schema, binding),
        binding=replace(binding.under(mark), table_uuid=facts.table_uuid),
        watermark=replace(
            mark, kafka=binding.kafka, published_s=_published_s(history, facts.head, mark)
        ),
        grace_s=promised_s(facts.properties),
    )


def _published_s(history: History, head: int, mark: Watermark) -> float | None:
    """Return when the log was last published up to its end; 0.0 where nothing tells."""
    if mark.prev_snapshot_id is None:
        return None
    if mark.whole_ms is not None:
        return mark.whole_ms / 1000
    if mark.publish is not None:
        return mark.publish.committed_ms / 1000
    carrier = base_snapshot(history, head)
    return 0.0 if carrier is None else carrier.committed_ms / 1000


def with_statistics(history: History, head: int, evidence: Evidence) -> History:
    """Look up the facts that the resolver needs of the snapshots above the watermark of ``head``."""
    history = _completed(history, head, evidence)
    for snapshot_id in needs_statistics(history, head):
        history = _noted(
            history, snapshot_id, added_next=_added_next(history, snapshot_id, head, evidence)
        )
    for snapshot_id in needs_growth(history, head):
        history = _noted(
            history, snapshot_id, growth=_growth(history, snapshot_id, head, evidence)
        )
    return _with_keys(history, head, evidence)


def _with_keys(history: History, head: int, evidence: Evidence) -> History:
    """Look up after which snapshots each key of a keyed table has one row: where it has, no earlier one is looked at."""
    doubted = doubted_keys(history, head)
    mark = base_watermark(history, head) if doubted else None
    if mark is None or mark.mode == "append":
        return history
    above = line_above(history, head)
    single = None
    for snapshot_id in doubted:
        if not single:
            at = [snapshot.snapshot_id for snapshot in above].index(snapshot_id)
            # Of one that was expired, the oldest that is left above it.
            left = [snapshot for snapshot in above[: at + 1] if snapshot.is_retained][-1]
            single = evidence.single_keys(left.snapshot_id, mark.key)
        history = _noted(history, snapshot_id, single_keys=single)
    return history


def _completed(history: History, head: int, evidence: Evidence) -> History:
    """Add the expired ancestors of ``head``, as far as older metadata files have them."""
    oldest = broken_at(history, head)
    while oldest is not None:
        older = evidence.earlier(oldest)
        expired = {key: replace(each, is_retained=False) for key, each in older.items()}
        snapshots = {**expired, **history.snapshots}
        if oldest in older:
            snapshots[oldest] = replace(snapshots[oldest], parent_id=older[oldest].parent_id)
        history = replace(history, snapshots=snapshots)
        before, oldest = oldest, broken_at(history, head)
        if oldest == before:
            break
    return history


def _added_next(
    history: History, snapshot_id: int, head: int, evidence: Evidence
) -> OffsetVector | None:
    if history.snapshots[snapshot_id].is_retained:
        return evidence.added_next(snapshot_id)
    # Its files may be gone. The rest of its rows is in the oldest snapshot retained above it.
    mark = base_watermark(history, head)
    oldest = [snapshot for snapshot in line_above(history, head) if snapshot.is_retained][-1]
    return None if mark is None else evidence.reach(oldest.snapshot_id, mark.next)


def _growth(history: History, snapshot_id: int, head: int, evidence: Evidence) -> int | None:
    """Return the rows a snapshot added to the one it was built on; a bound where one of them is expired."""
    snapshot = history.snapshots[snapshot_id]
    parent = history.snapshots.get(snapshot.parent_id or 0)
    if not snapshot.is_retained or parent is None or not parent.is_retained:
        return _growth_at_most(history, snapshot_id, head, evidence)
    before, after = evidence.live_rows(parent.snapshot_id), evidence.live_rows(snapshot_id)
    return None if after is None or before is None else after - before


def _growth_at_most(
    history: History, snapshot_id: int, head: int, evidence: Evidence
) -> int | None:
    """Bound the growth of an expired snapshot by the snapshots retained around it."""
    above = line_above(history, head)
    at = [snapshot.snapshot_id for snapshot in above].index(snapshot_id)
    carrier = base_snapshot(history, head)
    first = max(index for index, snapshot in enumerate(above[: at + 1]) if snapshot.is_retained)
    if carrier is None or not carrier.is_retained:
        return None
    before = evidence.live_rows(carrier.snapshot_id)
    after = evidence.live_rows(above[first].snapshot_id)
    if before is None or after is None:
        return None
    others = [snapshot for snapshot in above[first:] if snapshot.snapshot_id != snapshot_id]
    bound = growth_at_most(above[at], others, after - before)
    return None if bound is None or bound > 0 else bound


def _noted(history: History, snapshot_id: int, **facts: object) -> History:
    snapshot = replace(history.snapshots[snapshot_id], **facts)  # type: ignore[arg-type]
    return replace(history, snapshots={**history.snapshots, snapshot_id: snapshot})


def with_units(schema: TableSchema, binding: Binding) -> TableSchema:
    units = dict(binding.format.epoch_units)
    columns = (replace(each, epoch_unit=units.get(each.field_id)) for each in schema.columns)
    return replace(schema, columns=tuple(columns))


def earlier_line(
    snapshot_id: int, older: Iterable[Mapping[int, Snapshot]]
) -> Mapping[int, Snapshot]:
    """Return a snapshot and its ancestors, down to one with a watermark text or as far as the files reach.

    ``older`` are the snapshots of each older metadata file, newest file first; no more files are read than needed.
    """
    line: dict[int, Snapshot] = {}
    deepest = snapshot_id
    for snapshots in older:
        if deepest in line and deepest not in snapshots:
            # The file and all older ones are from before its commit.
            break
        while (snapshot := snapshots.get(deepest)) is not None:
            line[deepest] = snapshot
            if deepest != snapshot_id and snapshot.carries_watermark:
                return line
            # pyiceberg's expiry removes the parent id of the snapshot it leaves; an older file has it.
            if snapshot.parent_id is None:
                break
            deepest = snapshot.parent_id
    return line
