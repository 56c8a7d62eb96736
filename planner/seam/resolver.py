"""Which watermark a snapshot of a bound table stands on (docs/internals/seam.md, T1 to T3, T20).

One resolver for readers, the tierer's validator, maintenance and ``verify``: what one of them refuses,
all refuse. It walks the *ancestry* of the snapshot it is given, never the list of snapshots, so rollbacks,
branches and old pins get the watermark of their own line. On the way to the first watermark:

=========  ===========================================================================================
operation  rule
=========  ===========================================================================================
replace    passes: compaction moves rows, it adds none. A watermark on it is ignored (it was copied).
delete     passes: rows below the watermark were removed.
overwrite  passes if every added row lies below the watermark found and the rows did not grow (a
           copy-on-write DELETE, an UPDATE); its ``added_next`` must be known, and its ``growth``
           where the table had row deletes: its counts then include rows that were deleted before.
           Of a keyed table each key must have one row after it, too: an UPDATE may change a key.
append     refused until accepted, unless it added no rows. A copied watermark does not count
           (``planner.seam.resolver``).
other      refused.
=========  ===========================================================================================

If another writer's expiry broke the chain, older metadata files still tell of the expired snapshots, and the same rules
hold for them (``broken_at`` names where they are needed). Where those files are gone too, the tagged snapshot's
watermark counts if tag and mirror property agree and the hidden part neither added nor removed rows of files, or
live rows. The last condition tells a compaction from a rollback whose traces are gone
(docs/decisions/0002-broken-chains-need-equal-totals.md, docs/decisions/0026-what-expiry-hides.md).

Decides which watermark texts are believed: those with which their snapshot was committed.

Other writers copy summaries: a compaction that of the snapshot before, a tool any text of its user. Every commit of
ours names the snapshot it was built on (``prev``) and moves the tag in the same commit, so copies are recognised.
"""

from __future__ import annotations

import itertools
from collections.abc import Set
from dataclasses import dataclass

from planner.errors import ForeignCommit, WatermarkMissing, WatermarkUnreadable
from planner.names import shell_word
from planner.seam.snapshots import History, Snapshot, counted_growth
from planner.seam.watermark import Watermark, parse_watermark, readable_watermark


def needs_statistics(history: History, head: int) -> tuple[int, ...]:
    """Name the ``overwrite`` snapshots whose ``added_next`` must be looked up before ``resolve``."""
    return tuple(
        snapshot.snapshot_id
        for snapshot in line_above(history, head)
        if snapshot.operation == "overwrite" and snapshot.added_next is None
    )


def needs_growth(history: History, head: int) -> tuple[int, ...]:
    """Name the ``overwrite`` snapshots whose ``growth`` must be looked up before ``resolve``."""
    return tuple(
        snapshot.snapshot_id
        for snapshot in line_above(history, head)
        if snapshot.operation == "overwrite"
        and snapshot.growth is None
        and counted_growth(snapshot) is None
    )


def doubted_keys(history: History, head: int) -> tuple[int, ...]:
    """Name the snapshots whose ``single_keys`` must be looked up before ``resolve``, newest first, if the table is keyed.

    They are those that rewrote rows, and the oldest one where expiry hid what it was built on.
    """
    above = line_above(history, head)
    return tuple(
        snapshot.snapshot_id
        for snapshot in above
        if _rewrote(snapshot)
        or (snapshot is above[-1] and snapshot.parent_id not in history.snapshots)
    )


def broken_at(history: History, head: int) -> int | None:
    """Name the oldest snapshot of ``head``'s ancestry if what it was built on was expired, up to the watermark.

    Java's expiry leaves the parent id of an expired snapshot in place, pyiceberg's takes it away: a snapshot without
    a parent may be the table's first, or not, and only an older metadata file tells.
    """
    above = line_above(history, head)
    if not above:
        return None
    parent_id = above[-1].parent_id
    return None if parent_id in history.snapshots else above[-1].snapshot_id


def line_above(history: History, head: int) -> tuple[Snapshot, ...]:
    """Return the retained ancestry of ``head`` above its watermark, newest first."""
    return tuple(
        itertools.takewhile(lambda snapshot: not carries(history, snapshot), history.line(head))
    )


def base_snapshot(history: History, head: int) -> Snapshot | None:
    """Return the snapshot whose watermark ``resolve`` takes for ``head``, if it takes one.

    It is the newest carrier in the ancestry; the tagged snapshot where expiry hid that carrier.
    """
    above = line_above(history, head)
    carrier_id = above[-1].parent_id if above else head
    return history.snapshots.get(carrier_id or 0) or history.tagged


def base_watermark(history: History, head: int) -> Watermark | None:
    """Return the watermark of ``base_snapshot``, also below foreign commits; None without a readable one."""
    carrier = base_snapshot(history, head)
    return None if carrier is None else readable_watermark(carrier.watermark_text)


def resolve(
    history: History, head: int, *, table: str, accepted: Set[int] = frozenset()
) -> Watermark:
    """Find the watermark of snapshot ``head``.

    ``accepted`` are foreign snapshots a person accepted but no watermark text lists yet.

    Raises:
        ForeignCommit: rows were added above the watermark by another writer. Not retryable: roll it back, or accept it.
        WatermarkMissing: no watermark in the ancestry, and tag and mirror do not prove one.
        WatermarkUnreadable: the text found is damaged or newer than this program.
    """
    above = line_above(history, head)
    carrier_id = above[-1].parent_id if above else head
    # Java's expiry leaves the parent id of an expired snapshot in place, pyiceberg's takes it away: with a tag,
    # a missing parent is a broken chain, and the tag must prove itself as in any other.
    if carrier_id is None and history.tagged_id is None:
        raise WatermarkMissing(
            f"{table}: no snapshot back to the table's first carries a watermark, so nobody can say which "
            f"offsets its rows cover; create it with `thermocline create`, or say what it covers with "
            f"`thermocline covers`.",
            table=table,
            snapshot_id=head,
        )
    carrier = None if carrier_id is None else history.snapshots.get(carrier_id)
    if carrier is None:
        watermark = _from_tag(history, above[-1] if above else None, head, table)
    else:
        watermark = _parsed(carrier.watermark_text or "", table)
    for snapshot in above:
        if snapshot.snapshot_id not in accepted:
            _check_passes(history, snapshot, watermark, table)
    return watermark


def foreign_commits(history: History, head: int, *, table: str) -> tuple[int, ...]:
    """Name the snapshots above the watermark of ``head`` that ``resolve`` refuses, newest first.

    Raises WatermarkMissing or WatermarkUnreadable as ``resolve``.
    """
    above = line_above(history, head)
    everything = {snapshot.snapshot_id for snapshot in above}
    watermark = resolve(history, head, table=table, accepted=everything)
    return tuple(
        snapshot.snapshot_id
        for snapshot in above
        if _why_refused(history, snapshot, watermark) is not None
    )


def _parsed(text: str, table: str) -> Watermark:
    try:
        return parse_watermark(text)
    except WatermarkUnreadable as error:
        raise WatermarkUnreadable(
            f"{table}: {error.message}", **error.facts, table=table
        ) from error


def _check_passes(
    history: History, snapshot: Snapshot, watermark: Watermark, table: str
) -> None:
    why = _why_refused(history, snapshot, watermark)
    if why is not None:
        way_out = (
            f"roll the table back to the snapshot before it, or, if its rows belong to the table, run "
            f"`thermocline accept {shell_word(table)} --snapshot {snapshot.snapshot_id}`"
            if snapshot.is_retained
            else f"it was expired since: look at the rows, and say what they cover with `thermocline covers {shell_word(table)}`"
        )
        if watermark.mode == "upsert":
            way_out = (
                "roll the table back to a snapshot before it, and write such rows to the topic; where none is left, create the "
                "table again from its topic"
            )
        raise ForeignCommit(
            f"{table}: snapshot {snapshot.snapshot_id} was committed by another writer above the watermark and "
            f"{why}; {way_out}.",
            table=table,
            snapshot_id=snapshot.snapshot_id,
            operation=snapshot.operation,
        )


def _why_refused(history: History, snapshot: Snapshot, watermark: Watermark) -> str | None:
    if watermark.mode == "upsert" and snapshot.count("added-equality-deletes"):
        return "added equality deletes, after which no summary says how many rows of a keyed table there are"
    match snapshot.operation:
        case "replace" | "delete":
            return None
        case "overwrite":
            return _why_overwrite_is_refused(snapshot, watermark)
        case "append" if added_nothing(history, snapshot):
            return None
        case "append" if snapshot.watermark_text is not None:
            return "it appended rows, under a watermark copied from another commit"
        case "append":
            return "it appended rows"
        case other:
            return f"its operation {other!r} is unknown"


def _why_overwrite_is_refused(snapshot: Snapshot, watermark: Watermark) -> str | None:
    if snapshot.added_next is None:
        return "which offsets its rows have is not known"
    for partition, following in snapshot.added_next:
        if following > watermark.offset(partition):
            return f"added offset {following - 1} of partition {partition}, which is not below the watermark"
    growth = snapshot.growth if snapshot.growth is not None else counted_growth(snapshot)
    added = snapshot.count("added-records")
    if growth is None:
        return "how many rows it added and removed is not known"
    if growth > 0:
        return (
            "the table grew"
            if added is None
            else f"added {added} rows but removed {added - growth}"
        )
    if watermark.mode == "upsert" and _rewrote(snapshot) and not snapshot.single_keys:
        return _DOUBLED if snapshot.single_keys is False else _DOUBTED
    return None


_DOUBLED = "a key has two rows since"
_DOUBTED = "whether a key has two rows since is not known"


def _rewrote(snapshot: Snapshot) -> bool:
    return snapshot.operation == "overwrite" and snapshot.count("added-records") != 0


def added_nothing(history: History, snapshot: Snapshot) -> bool:
    """Whether an append shows by its totals that it added no rows (INSERT of an empty SELECT)."""
    parent = history.snapshots.get(snapshot.parent_id or 0)
    total = snapshot.count("total-records")
    return (
        not snapshot.count("added-records")
        and total is not None
        and parent is not None
        and total == parent.count("total-records")
    )


def _from_tag(history: History, oldest: Snapshot | None, head: int, table: str) -> Watermark:
    """Take the tagged snapshot's watermark for a chain that expiry broke below ``oldest``."""
    tagged = history.tagged
    text = tagged.watermark_text if tagged is not None else None
    why: str | None = None
    if oldest is None:
        why = "the snapshot is not in the table's metadata"
    elif tagged is None or text is None:
        why = "no tag holds a watermark"
    elif text != history.mirror:
        why = "the tag and the mirror property disagree"
    elif tagged.sequence_number >= oldest.sequence_number:
        why = "the tag is newer than the snapshot"
    elif _counts_differ(_before(oldest), _totals(tagged), text):
        why = "rows were added or removed by snapshots that expired"
    elif _parsed(text, table).mode == "upsert" and not oldest.single_keys:
        why = "after snapshots that expired a key may have two rows"
    if why is not None or tagged is None or text is None:
        way_out = f"say what the table covers with `thermocline covers {shell_word(table)}`"
        mark = readable_watermark(text)
        if mark is not None and mark.mode == "upsert":
            way_out = "create the table again from its topic"
        raise WatermarkMissing(
            f"{table}: snapshots between {head} and its watermark were expired, and {why}; roll back to a "
            f"snapshot that carries a watermark, or {way_out}.",
            table=table,
            snapshot_id=head,
        )
    return _parsed(text, table)


@dataclass(frozen=True, slots=True)
class _Totals:
    """Rows in a table's files, deleted ones included, and its delete files' position and equality deletes."""

    records: int
    position: int
    equality: int


def _counts_differ(before: _Totals | None, tagged: _Totals | None, text: str) -> bool:
    """Whether rows may have come or gone between the tagged snapshot, of this watermark text, and the oldest one that is left.

    Row deletes leave the records as they are. A compaction drops deleted rows with their deletes, so as many live rows are
    left in fewer records. Both together look like a rollback, and more records are those of an append. A keyed table's publish
    replaces rows, so to be rolled back over one looks like either alone.
    """
    if before is None or tagged is None:
        return True
    mark = readable_watermark(text)
    if mark is not None and mark.mode == "upsert":
        return before != tagged
    is_compacted = (
        before.records < tagged.records
        and before.records - before.position == tagged.records - tagged.position
        and before.equality == tagged.equality
    )
    return before.records != tagged.records and not is_compacted


def _totals(snapshot: Snapshot) -> _Totals | None:
    """Return None where the snapshot's summary does not say."""
    records = snapshot.count("total-records")
    if records is None:
        return None
    position = snapshot.count("total-position-deletes") or 0
    return _Totals(records, position, snapshot.count("total-equality-deletes") or 0)


def _before(snapshot: Snapshot) -> _Totals | None:
    """Return those of the table before ``snapshot``, by its own summary."""
    after = _totals(snapshot)
    if after is None:
        return None

    def growth(added: str, removed: str) -> int:
        return (snapshot.count(added) or 0) - (snapshot.count(removed) or 0)

    return _Totals(
        after.records - growth("added-records", "deleted-records"),
        after.position - growth("added-position-deletes", "removed-position-deletes"),
        after.equality - growth("added-equality-deletes", "removed-equality-deletes"),
    )


def carries(history: History, snapshot: Snapshot) -> bool:
    """Whether the snapshot was committed with the watermark in its summary.

    An unreadable text counts: it may be of a newer version, and the resolver then refuses it.
    """
    text = snapshot.watermark_text
    return (
        snapshot.operation != "replace"
        and text is not None
        and not _is_copy(history, snapshot, text)
    )


def _is_copy(history: History, snapshot: Snapshot, text: str) -> bool:
    try:
        watermark = parse_watermark(text)
    except WatermarkUnreadable:
        return False
    built_on = watermark.prev_snapshot_id
    if snapshot.snapshot_id == history.tagged_id:
        # Only a commit that read this very text moved the tag here.
        return built_on is not None and snapshot.parent_id not in (None, built_on)
    if built_on is None:
        # A creation: nothing can have been committed before it.
        if snapshot.sequence_number > 1:
            return True
    elif built_on != snapshot.parent_id:
        # Of another commit; or unknown, where pyiceberg's expiry took the parent id and no older file has it.
        return True
    if watermark.outcomes.rows > (snapshot.count("added-records") or 0):
        # Of another commit on the same snapshot, which a rollback took back and expiry hides. One that added more than it
        # says is for ``verify`` to name.
        return True
    return any(
        other.watermark_text == text
        and other.operation != "replace"
        and other.snapshot_id != snapshot.snapshot_id
        and (
            other.sequence_number < snapshot.sequence_number
            or other.snapshot_id == history.tagged_id
        )
        for other in history.snapshots.values()
    )
