"""Checks a table's metadata: the chain of watermarks, the tag, the mirror, the counts.

Needs no row and no log. Works on the retained ancestry of one head; expired snapshots cannot be checked.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from planner.offsets import OffsetVector
from planner.seam.snapshots import History, Snapshot, live_rows
from planner.seam.watermark import Watermark, readable_watermark
from planner.verification.findings import Fault, Kind


@dataclass(frozen=True, slots=True)
class Carrier:
    """A snapshot of the ancestry whose summary carries a watermark."""

    snapshot: Snapshot
    watermark: Watermark

    @property
    def replaces_all(self) -> bool:
        """Whether all rows of the snapshot are those that it added: of a keyed table's rebuild, or its first publish."""
        added = self.snapshot.count("added-records") or 0
        return bool(self.watermark.key) and live_rows(self.snapshot) == added


def carriers(history: History, head: int) -> tuple[Carrier, ...]:
    """Return the readable carriers of the ancestry, newest first. A text on a ``replace`` is a copy."""
    return tuple(
        Carrier(snapshot, mark)
        for snapshot in history.line(head)
        if snapshot.operation != "replace"
        and (mark := readable_watermark(snapshot.watermark_text)) is not None
    )


def tierings(chain: Sequence[Carrier]) -> tuple[Carrier, ...]:
    """Return those of ``carriers``, newest first, that may have tiered a row of the first: none before one that replaced all."""
    for count, carrier in enumerate(chain, 1):
        if carrier.replaces_all:
            return tuple(chain[:count])
    return tuple(chain)


def check_chain(history: History, head: int) -> tuple[Fault, ...]:
    """Check every link of the chain, and that tag and mirror agree with its newest link."""
    unreadable = (
        Fault(Kind.CHAIN, f"the watermark text of snapshot {at} cannot be read", snapshot_id=at)
        for snapshot in history.line(head)
        if (text := snapshot.watermark_text) is not None and readable_watermark(text) is None
        for at in (snapshot.snapshot_id,)
    )
    chain = carriers(history, head)
    links = itertools.starmap(_check_link, itertools.pairwise(chain))
    counts = map(_check_counts, chain)
    return (
        *unreadable,
        *_check_pointers(history, chain),
        *itertools.chain.from_iterable((*links, *counts)),
    )


def start_since(
    history: History, head: int, written_ms: Mapping[int, int], since_ms: int
) -> OffsetVector | None:
    """Return where the watermark stood at ``since_ms`` (milliseconds since 1970), by the retained ancestry.

    None when the ancestry does not reach back that far: as far as it shows, everything was tiered since.
    """
    for carrier in carriers(history, head):
        if written_ms[carrier.snapshot.snapshot_id] <= since_ms:
            return carrier.watermark.next
    return None


def foreign_changes(history: History, head: int) -> tuple[Snapshot, ...]:
    """Return the retained snapshots of other writers that removed or replaced rows, newest first."""
    return tuple(
        snapshot
        for snapshot in history.line(head)
        if snapshot.operation in ("overwrite", "delete") and snapshot.watermark_text is None
    )


def decisions(mark: Watermark) -> tuple[str, ...]:
    """Return the repairs by people that the watermark text records."""
    return (
        *(
            f"gap accepted: partition {gap.partition}, offsets {gap.start} to {gap.stop - 1} were lost"
            for gap in mark.gaps
        ),
        *(f"foreign snapshot {snapshot_id} accepted" for snapshot_id in mark.accepted),
        *(
            f"record skipped: partition {skip.partition}, offset {skip.offset}"
            f"{': ' if skip.reason else ''}{skip.reason}"
            for skip in mark.skips
        ),
    )


def _check_pointers(history: History, chain: Sequence[Carrier]) -> Iterator[Fault]:
    if not chain:
        return
    newest = chain[0].snapshot
    after_rollback = "after a rollback the next publish sets it right"
    if history.tagged_id != newest.snapshot_id:
        tag = "is missing" if history.tagged_id is None else f"is on {history.tagged_id}"
        yield Fault(
            Kind.TAG,
            f"the newest watermark is in snapshot {newest.snapshot_id}, the tag {tag}; {after_rollback}",
            snapshot_id=newest.snapshot_id,
        )
    if history.mirror != newest.watermark_text:
        at = newest.snapshot_id
        what = (
            f"is missing, snapshot {at} has the watermark"
            if history.mirror is None
            else f"is not the watermark of snapshot {at}{_moved(history.mirror, chain[0])}"
        )
        yield Fault(
            Kind.MIRROR, f"the mirror property {what}; {after_rollback}", snapshot_id=at
        )


def _moved(mirror: str, newest: Carrier) -> str:
    """Name the first partition in which a mirror text differs from the newest carrier's."""
    mark = readable_watermark(mirror)
    if mark is None:
        return ""
    mirrored, true = mark.next.as_dict(), newest.watermark.next.as_dict()
    for partition in sorted(mirrored.keys() | true.keys()):
        if mirrored.get(partition) != true.get(partition):
            return f" (partition {partition}: {mirrored.get(partition)} instead of {true.get(partition)})"
    return ""


def _check_link(newer: Carrier, older: Carrier) -> Iterator[Fault]:
    at = newer.snapshot.snapshot_id

    def wrong(why: str) -> Fault:
        return Fault(Kind.CHAIN, f"the watermark of snapshot {at} {why}", snapshot_id=at)

    mark, before = newer.watermark, older.watermark
    if mark.log != before.log:
        yield wrong(f"names another log than that of {older.snapshot.snapshot_id} before it")
        return
    if mark.run == before.run:
        yield wrong(
            f"was copied: snapshot {older.snapshot.snapshot_id} before it has the same run"
        )
    if mark.prev_snapshot_id is not None and mark.prev_snapshot_id != newer.snapshot.parent_id:
        yield wrong(
            f"was written on snapshot {mark.prev_snapshot_id}, but lies on {newer.snapshot.parent_id}"
        )
    for partition, offset in before.next:
        if mark.offset(partition) < offset:
            yield wrong(
                f"goes back in partition {partition}, from {offset} to {mark.offset(partition)}"
            )
    advanced = sum(offset - before.offset(partition) for partition, offset in mark.next)
    # A rebuild reads the whole log again.
    if mark.outcomes.records > advanced and not newer.replaces_all:
        yield wrong(
            f"counts {mark.outcomes.records} records in {advanced} offsets more than snapshot "
            f"{older.snapshot.snapshot_id}"
        )
    if not (
        set(before.accepted) <= set(mark.accepted)
        and set(before.gaps) <= set(mark.gaps)
        and set(before.skips) <= set(mark.skips)
    ):
        yield wrong("forgets a gap, a skip or a foreign snapshot that was accepted before")
    if mark.boundary != before.boundary and not _is_later(mark, before):
        yield wrong("takes the boundary of retention back, so rows that expired may come again")


def _is_later(mark: Watermark, before: Watermark) -> bool:
    return mark.boundary is not None and mark.boundary.is_after(before.boundary)


def _check_counts(carrier: Carrier) -> Iterator[Fault]:
    added = carrier.snapshot.count("added-records") or 0
    if carrier.snapshot.operation != "append" and not carrier.watermark.key:
        # Retention writes what is left of a file anew, and adds no row.
        added = max(0, added - (carrier.snapshot.count("deleted-records") or 0))
    rows = carrier.watermark.outcomes.rows
    if added != rows:
        at = carrier.snapshot.snapshot_id
        yield Fault(
            Kind.COUNT,
            f"snapshot {at} added {added} rows, its watermark text counts {rows}",
            rows=abs(added - rows),
            snapshot_id=at,
        )
