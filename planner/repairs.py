"""Decisions of a person about a table that refuses to answer, each as the watermark that records it.

Five decisions, each a watermark on top of the newest head, committed by compare-and-set without rows:

- ``accept_gap``: the log starts above the watermark. The lost offsets are given up, the watermark moves to the
  log start.
- ``skip_record``: a record does not decode. It is given up; the watermark stays, and reader and tierer leave
  the record out from this snapshot on.
- ``accept_foreign``: another writer added rows above the watermark. They stay in answers.
- ``accept_shape``: rows were tiered under another way to decode. They stay, and tiering goes on with today's.
- ``accept_schemas``: the schema registry has other schemas under ids that were tiered. Rows stay, ids mean these from now on.

They run against the state that the commit builds on, so no decision rests on an outdated state.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from planner.errors import BadParameter, ForeignCommit, TieringConflict
from planner.evolution.ledger import SchemaLedger
from planner.names import TableName, shell_word
from planner.offsets import OffsetRange, OffsetVector
from planner.seam.cut import LogBounds, Pin, check_log
from planner.seam.formats import AvroFormat
from planner.seam.resolver import foreign_commits, resolve
from planner.seam.snapshots import History
from planner.seam.watermark import LastPublish, Outcomes, Skip, Watermark

#: Every pin carries them all. With more, correct the producer or use error policy ``skip``.
MAX_SKIPS = 1_000

MAX_REASON_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class AddedRows:
    """What one snapshot added: ``next`` is 1 + the greatest offset per partition, among rows that have one."""

    rows: int
    next: OffsetVector
    without_offset: int


def lost_ranges(mark: Watermark, bounds: LogBounds) -> tuple[OffsetRange, ...]:
    """Return the offsets that retention took before they were tiered, by partition."""
    return tuple(
        OffsetRange(each.partition, mark.offset(each.partition), each.log_start)
        for each in bounds.partitions
        if each.log_start > mark.offset(each.partition)
    )


def accept_gap(
    pin: Pin, bounds: LogBounds, expected: Sequence[OffsetRange], *, run: str
) -> Watermark:
    """Return the watermark without the lost ranges, which must be those that the person saw.

    Raises:
        BadParameter: there is no gap.
        TieringConflict: the gap is not the one that the person saw. Look again.
        ClusterChanged, TopicRecreated, LogTruncated: no gap, another log.
    """
    mark = _bound(pin)
    lost = lost_ranges(mark, bounds)
    moved = {item.partition: item.stop for item in lost}
    after = replace(
        decided(mark, pin.snapshot_id, run),
        next=OffsetVector.of((mark.next.as_dict() | moved).items()),
        epochs=OffsetVector.of((mark.epochs.as_dict() | bounds.epochs.as_dict()).items()),
        gaps=(*mark.gaps, *lost),
    )
    # With the old epochs: the measurement must not be older than the tiered records.
    check_log(pin.table, replace(after, epochs=mark.epochs), bounds)
    if not lost:
        raise BadParameter(
            f"{pin.table}: there is no gap: the log still holds every offset from the watermark on.",
            table=str(pin.table),
        )
    if lost != tuple(expected):
        raise TieringConflict(
            f"{pin.table}: the gap is not the one that was shown any more; nothing was changed, look again.",
            table=str(pin.table),
        )
    return after


def skip_record(pin: Pin, bounds: LogBounds, skips: Collection[Skip], *, run: str) -> Watermark:
    """Return the watermark that gives records up.

    The caller decides whether they should be; here, each must be untiered and in the log.

    Raises:
        BadParameter: a record is below the watermark or not in the log, is skipped already, or there would be too many.
        ClusterChanged, TopicRecreated, TailGap, LogTruncated: as ``check_log``.
    """
    mark = _bound(pin)
    untiered = {item.partition: item for item in check_log(pin.table, mark, bounds)}
    skipped = {*mark.skipped}
    for skip in skips:
        where = f"{pin.table}: partition {skip.partition}, offset {skip.offset}"
        tail = untiered.get(skip.partition)
        if (skip.partition, skip.offset) in skipped:
            raise BadParameter(f"{where} is skipped already.", table=str(pin.table))
        if skip.offset < mark.offset(skip.partition):
            raise BadParameter(
                f"{where} is below the watermark {mark.offset(skip.partition)}, it was tiered; a row of cold is "
                f"removed with DELETE.",
                table=str(pin.table),
            )
        if tail is None or skip.offset not in tail:
            raise BadParameter(f"{where} is not in the log.", table=str(pin.table))
    if len(skipped) + len(skips) > MAX_SKIPS:
        raise BadParameter(
            f"{pin.table}: {len(skipped) + len(skips)} skipped records are more than {MAX_SKIPS}; choose error "
            f"policy null or skip for the table, or correct its producer.",
            table=str(pin.table),
        )
    return _with_skips(
        decided(mark, pin.snapshot_id, run), pin, tuple(sorted({*mark.skips, *skips}))
    )


def accept_shape(pin: Pin, expected: Pin, *, run: str) -> Watermark:
    """Return the watermark under which tiering goes on with the binding's shape. Rows of cold stay as they are.

    ``expected`` is what the person looked at.

    Raises:
        BadParameter: the table is not bound, or its rows have the binding's shape.
        TieringConflict: the binding has another shape than the person looked at.
    """
    mark, binding = _bound(pin), pin.binding
    if _shapes(pin) != _shapes(expected):
        raise TieringConflict(
            f"{pin.table}: the shape of its rows or of its binding is not the one that was shown any more; nothing was "
            f"changed, look again.",
            table=str(pin.table),
        )
    if binding is None or binding.gives_rows_of(mark.shape, pin.schema):
        raise BadParameter(
            f"{pin.table}: rows below the watermark were decoded with the binding's shape, {mark.shape}; there is nothing to "
            f"accept.",
            table=str(pin.table),
        )
    return replace(decided(mark, pin.snapshot_id, run), shape=binding.shape)


def accept_schemas(
    pin: Pin, fingerprints: Mapping[int, str], *, run: str
) -> tuple[Watermark, SchemaLedger]:
    """Return the watermark and the ledger under which ids mean what the registry says today. Rows of cold stay as they are.

    ``fingerprints`` are today's, of the ids in the ledger. Those that mean something else are in no ledger then, so
    the table takes up their schemas as those of new ids.

    Raises:
        BadParameter: the table is not bound, its records are not Avro, no id means something else, or its rows were
            decoded with another shape than the binding's.
    """
    mark, binding = _bound(pin), pin.binding
    if binding is None or not isinstance(binding.format, AvroFormat):
        raise BadParameter(
            f"{pin.table}: its records are not Avro, so it has no schemas of writers.",
            table=str(pin.table),
        )
    ledger = binding.format.ledger
    changed = ledger.changed(fingerprints)
    if ledger.fingerprints and not changed:
        raise BadParameter(
            f"{pin.table}: the registry has the schemas of before under all ids of the ledger; there is nothing to accept.",
            table=str(pin.table),
        )
    if not binding.gives_rows_of(mark.shape, pin.schema):
        raise BadParameter(
            f"{pin.table}: rows below the watermark were decoded with another shape than the binding's; restore the table "
            f"properties, or run `thermocline shape accept {shell_word(pin.table)}`, first.",
            table=str(pin.table),
        )
    same = {at: each for at, each in ledger.fingerprints.items() if at not in changed}
    after = SchemaLedger(same, ledger.era + 1)
    binding = replace(binding, format=replace(binding.format, ledger=after))
    return replace(decided(mark, pin.snapshot_id, run), shape=binding.shape), after


def _shapes(pin: Pin) -> tuple[str | None, str | None]:
    """Return the shape of the rows and the one that the binding asks for."""
    mark, binding = pin.watermark, pin.binding
    return (None if mark is None else mark.shape, None if binding is None else binding.shape)


def accept_foreign(
    table: TableName,
    history: History,
    head: int,
    accepted: Collection[int],
    added: Mapping[int, AddedRows | None],
    *,
    run: str,
) -> Watermark:
    """Return the watermark under which the foreign snapshots' rows stay.

    ``added`` has the offsets that each accepted snapshot added; None where they cannot be known.

    Raises:
        BadParameter: a snapshot is not one that is refused.
        ForeignCommit: a row's offset is at or above the watermark, where the tail has it too; or another
            foreign snapshot lies above the watermark and is not accepted.
        WatermarkMissing, WatermarkUnreadable: as ``resolve``.
    """
    refused = foreign_commits(history, head, table=str(table))
    for snapshot_id in accepted:
        if snapshot_id not in refused:
            raise BadParameter(
                f"{table}: snapshot {snapshot_id} needs no acceptance; refused are "
                f"{', '.join(map(str, refused)) or 'none'}.",
                table=str(table),
                snapshot_id=snapshot_id,
            )
        if not history.snapshots[snapshot_id].is_retained:
            raise ForeignCommit(
                f"{table}: snapshot {snapshot_id} was expired since, so nobody can say what it added; look at the rows, "
                f"and say what they cover with `thermocline covers {shell_word(table)}`.",
                table=str(table),
                snapshot_id=snapshot_id,
            )
    mark = resolve(history, head, table=str(table), accepted=frozenset(accepted))
    for snapshot_id in accepted:
        _check_not_doubled(table, mark, snapshot_id, added[snapshot_id])
    return replace(decided(mark, head, run), accepted=(*mark.accepted, *sorted(accepted)))


def _check_not_doubled(
    table: TableName, mark: Watermark, snapshot_id: int, added: AddedRows | None
) -> None:
    facts = {"table": str(table), "snapshot_id": snapshot_id}
    if added is None:
        raise ForeignCommit(
            f"{table}: which offsets the rows of snapshot {snapshot_id} have cannot be read, so nobody can say "
            f"whether the tail has them too; roll the table back to the snapshot before it.",
            **facts,
        )
    for partition, following in added.next:
        if following > mark.offset(partition):
            raise ForeignCommit(
                f"{table}: snapshot {snapshot_id} has a row of partition {partition}, offset {following - 1}, and "
                f"the watermark is {mark.offset(partition)}: the tail has that record too, so every answer would "
                f"double it; roll the table back to the snapshot before it.",
                **facts,
                partition=partition,
                offset=following - 1,
            )


def _bound(pin: Pin) -> Watermark:
    if pin.watermark is None or pin.binding is None:
        what = f"{pin.table}: the table is not bound to a topic."
        raise BadParameter(what, table=str(pin.table))
    return pin.watermark


def decided(mark: Watermark, head: int | None, run: str) -> Watermark:
    """Start the next watermark: a commit of no rows on ``head``. A keyed table's deletes are as old as they were."""
    publish = mark.publish
    if publish is None and mark.mode == "upsert" and mark.published_s is not None:
        publish = LastPublish(int(mark.published_s * 1000), None, mark.outcomes)
    return replace(mark, run=run, prev_snapshot_id=head, outcomes=Outcomes(), publish=publish)


def _with_skips(after: Watermark, pin: Pin, skips: tuple[Skip, ...]) -> Watermark:
    """Change the shape with the skips, if it was the binding's: another shape stays different."""
    if pin.binding is None or not pin.binding.gives_rows_of(after.shape, pin.schema):
        raise BadParameter(
            f"{pin.table}: rows below the watermark were decoded with another shape than the binding's; restore "
            f"the table properties, or run `thermocline shape accept {shell_word(pin.table)}`, first.",
            table=str(pin.table),
        )
    after = replace(after, skips=skips)
    return replace(after, shape=replace(pin.binding, skips=after.skipped).shape)
