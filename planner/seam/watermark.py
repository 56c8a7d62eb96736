"""The watermark and its text form, versions 1 to 3 (docs/internals/watermark.md).

The text lives in the summary of the Iceberg snapshot that made it true, and nowhere else with authority.
Its version number is checked before anything else is read; a newer version is refused, never guessed. Version 2
has skipped records; version 3 has the boundary of retention, too, or the key of a keyed table. Each is written only where it is
needed: a reader that does not know what it has would show rows that are none (docs/decisions/0007-ways-out.md,
docs/decisions/0048-row-retention.md), or every change as a row (docs/decisions/0049-keyed-tables.md).
Absent is never zero: a missing text is an error of the caller, not an empty watermark.

One key for all that a record's decoding depends on: equal keys make equal rows of equal bytes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from operator import add, attrgetter
from typing import Any

from planner.errors import WatermarkUnreadable
from planner.names import topic_address
from planner.offsets import OffsetRange, OffsetVector
from planner.seam.boundary import RetentionBoundary
from planner.seam.keys import Mode


def era_after(mark: Watermark, decoding: str) -> str:
    """Name the era, a run of publishes with one decoding, that a publish on top of ``mark`` belongs to.

    Two watermarks of one era cover rows of the same values, up to the lower of both: rows that one leaves to the tail, the
    other may have in cold. So an era is named after the one before it, too, whose rows lie below its start. A watermark
    without its decoding belongs to no era.
    """
    if mark.decoding == decoding:
        return mark.era
    # Of a later boundary cold has fewer rows below the same offsets: that is another era.
    boundary = "" if mark.boundary is None else mark.boundary.key
    before = f":{mark.era}" if mark.era else ""
    text = f"{decoding}:{mark.next.items}{boundary}{before}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


#: Key of the text in the snapshot summary.
SUMMARY_KEY = "thermocline.watermark"

#: Without skipped records, with them, and with a boundary or a key.
TEXT_VERSIONS = (1, 2, 3)

#: Texts longer than this are compressed: every metadata.json repeats every retained summary.
COMPRESS_ABOVE_BYTES = 4096

#: Hostile or damaged input must not inflate without bound; 10,000 partitions need about 0.4 MB.
MAX_TEXT_BYTES = 64 * 1024 * 1024

_COMPRESSED_PREFIX = "z:"

#: The outcomes of the first texts. A later one is written where there are some, so other texts stay as they are.
_COUNTED_ALWAYS = ("rows", "dead", "skipped", "tombstones")
#: Outcomes that people are told also where there are none.
_SAID_ALWAYS = ("rows", "skipped", "tombstones")


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Counts of outcomes in a range. Every committed record has exactly one outcome.

    ``expired`` decoded to rows that are too old (``planner.seam.boundary``). Of a keyed table's publish ``rows`` and ``deletes``
    are the newest changes of their keys, ``superseded`` the others; of changes that were only decoded, none are.

    Texts, metrics, messages and reports walk these fields: a new outcome is one more of them.
    """

    rows: int = 0
    dead: int = 0
    skipped: int = 0
    tombstones: int = 0
    expired: int = 0
    superseded: int = 0
    deletes: int = 0

    def __add__(self, other: Outcomes) -> Outcomes:
        return Outcomes(*map(add, self, other))

    def __iter__(self) -> Iterator[int]:
        """Yield the counts; ``dataclasses.astuple`` would copy each, for every batch."""
        return (getattr(self, name) for name in self.__dataclass_fields__)

    @property
    def records(self) -> int:
        return sum(self)

    @property
    def bad(self) -> int:
        """Count the records that became neither a row, nor a change, nor a tombstone, for a fault of theirs."""
        changes = self.rows + self.superseded + self.deletes
        return self.records - changes - self.tombstones - self.expired

    def folded(self, rows: int, deletes: int) -> Outcomes:
        """Return the outcomes of the same records once changes are folded: so many are the newest of their key."""
        changes = self.rows + self.superseded + self.deletes
        superseded = changes - rows - deletes
        return replace(self, rows=rows, deletes=deletes, superseded=superseded)

    @property
    def texts(self) -> list[str]:
        """Say each count, for people: ``7 rows``, ``0 skipped``, ``1 tombstones``; others where there are some."""
        counts = asdict(self).items()
        return [f"{count:,} {name}" for name, count in counts if count or name in _SAID_ALWAYS]


@dataclass(frozen=True, slots=True)
class LastPublish:
    """The newest publish before a commit that moved no offset.

    ``committed_ms`` is since 1970; ``partitions`` is how many partitions it wrote to, None where there was none with rows.
    """

    committed_ms: int
    partitions: int | None
    outcomes: Outcomes


@dataclass(frozen=True, slots=True, order=True)
class Skip:
    """A record a person gave up: neither a row of cold nor of the tail. ``reason`` is theirs."""

    partition: int
    offset: int
    reason: str = ""

    def __post_init__(self) -> None:
        if self.partition < 0 or self.offset < 0:
            raise ValueError(f"not a record: partition {self.partition}, offset {self.offset}")


@dataclass(frozen=True, slots=True)
class Watermark:
    """First offset not in cold, per partition of one topic of one cluster.

    ``next`` is exclusive. ``epochs`` holds the leader epoch seen at each partition's end, where known.
    ``gaps`` are ranges a person accepted as lost, ``accepted`` foreign snapshots a person accepted, ``skips``
    records a person gave up, at or above the watermark when they did. All three stay for ever.
    ``outcomes`` counts the commit that carries this text, not the table. ``decoding`` and ``era`` are those of the
    newest publish (``planner.seam.watermark``), both empty where a program that did not know them wrote the text.
    ``publish`` is carried on by commits that move no offset (``renewed``): what triggers go by is the last one that did.
    ``boundary``: rows before it are in neither cold nor tail; it never goes back.
    ``kafka`` is the binding's: a name in settings, which is no part of the text. ``key`` are the ids of the columns that a keyed
    table has one row of; empty: each record is a row. ``whole_ms``: of a keyed table whose newest publish left offsets of the
    log, when the last one came that left none, in milliseconds since 1970. ``published_s`` is when that was of any pin's table, by
    the writer's clock in seconds since 1970, which is no part of the text; None: never published, so it has no row.
    """

    cluster_id: str
    topic: str
    topic_id: str
    next: OffsetVector
    shape: str
    run: str
    epochs: OffsetVector = field(default_factory=OffsetVector)
    prev_snapshot_id: int | None = None
    gaps: tuple[OffsetRange, ...] = ()
    accepted: tuple[int, ...] = ()
    skips: tuple[Skip, ...] = ()
    outcomes: Outcomes = field(default_factory=Outcomes)
    decoding: str = ""
    era: str = ""
    publish: LastPublish | None = None
    boundary: RetentionBoundary | None = None
    kafka: str = field(default="", compare=False)
    key: tuple[int, ...] = ()
    whole_ms: int | None = None
    published_s: float | None = field(default=None, compare=False)

    @property
    def mode(self) -> Mode:
        """How records became the table's rows."""
        return "upsert" if self.key else "append"

    @property
    def publish_outcomes(self) -> Outcomes:
        """Count the outcomes of the last publish, which may be of an earlier commit."""
        return self.outcomes if self.publish is None else self.publish.outcomes

    def renewed(self, publish: LastPublish, *, run: str, head: int) -> Watermark:
        """Return what a commit without rows on snapshot ``head`` writes that changes nothing else."""
        return replace(
            self,
            run=run,
            prev_snapshot_id=head,
            outcomes=Outcomes(),
            publish=self.publish or publish,
        )

    def offset(self, partition: int) -> int:
        """First offset of ``partition`` not in cold. A partition absent from the text was added later: 0."""
        return self.next.get(partition) or 0

    @property
    def address(self) -> str:
        """The topic for programs that may know several clusters (``planner.names``)."""
        return topic_address(self.kafka, self.topic)

    @property
    def log(self) -> tuple[str, str, str]:
        """What names the log that the offsets are of."""
        return self.cluster_id, self.topic, self.topic_id

    def same_position(self, other: Watermark) -> bool:
        """Whether both name the same log and the same offsets: the comparison of the compare-and-set."""
        return (self.log, self.next) == (other.log, other.next)

    @property
    def skipped(self) -> tuple[tuple[int, int], ...]:
        """(partition, offset) of the skips, as in a binding."""
        return tuple((skip.partition, skip.offset) for skip in self.skips)

    def same_decisions(self, other: Watermark) -> bool:
        """Whether both have the same decisions of people, decoding and boundary: a tierer carries them on."""
        decided = attrgetter("shape", "gaps", "accepted", "skips", "boundary")
        return bool(decided(self) == decided(other))


def format_watermark(watermark: Watermark) -> str:
    """Write the text form: canonical JSON, compressed above 4 KB."""
    document: dict[str, Any] = {
        "v": _version(watermark),
        "cluster": watermark.cluster_id,
        "topics": {
            watermark.topic: {
                "id": watermark.topic_id,
                "next": _dense(watermark.next),
                "epoch": _dense(watermark.epochs),
            }
        },
        "prev": None if watermark.prev_snapshot_id is None else str(watermark.prev_snapshot_id),
        "run": watermark.run,
        "shape": watermark.shape,
        "gaps": [[gap.partition, gap.start, gap.stop] for gap in watermark.gaps],
        "accepted": [str(snapshot_id) for snapshot_id in watermark.accepted],
        **_counts(watermark.outcomes),
    }
    if watermark.key:
        document["key"] = list(watermark.key)
    if watermark.whole_ms is not None:
        document["whole"] = watermark.whole_ms
    if document["v"] > 1:
        document["skips"] = [
            [skip.partition, skip.offset, skip.reason] for skip in watermark.skips
        ]
    if watermark.boundary is not None:
        document["boundary"] = [watermark.boundary.field_id, watermark.boundary.before_us]
    if watermark.decoding:
        document["decoding"] = [watermark.decoding, watermark.era]
    if (last := watermark.publish) is not None:
        document["publish"] = [last.committed_ms, last.partitions, _counts(last.outcomes)]
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    if len(text) <= COMPRESS_ABOVE_BYTES:
        return text
    return _COMPRESSED_PREFIX + base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def _version(watermark: Watermark) -> int:
    if watermark.boundary is not None or watermark.key:
        return 3
    return 2 if watermark.skips else 1


def parse_watermark(text: str) -> Watermark:
    """Read the text form back.

    Raises:
        WatermarkUnreadable: malformed, or of a newer version. Not retryable: upgrade this program, or look
            at who wrote the table.
    """
    document = _load(text)
    version = document.get("v")
    # ``True`` equals 1.
    if version not in TEXT_VERSIONS or isinstance(version, bool):
        raise WatermarkUnreadable(
            f"the watermark text has version {version!r} and this program reads versions 1 to 3; run a newer "
            f"Thermocline.",
            version=version,
        )
    try:
        return _watermark(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise WatermarkUnreadable(
            f"the watermark text is version {version} but malformed; the table was changed by something other than "
            "Thermocline, compare its snapshot summaries."
        ) from error


def readable_watermark(text: str | None) -> Watermark | None:
    """Read the text form, where there is one that can be read."""
    try:
        return None if text is None else parse_watermark(text)
    except WatermarkUnreadable:
        return None


def _counts(outcomes: Outcomes) -> dict[str, int]:
    counts = asdict(outcomes).items()
    return {name: count for name, count in counts if count or name in _COUNTED_ALWAYS}


def _outcomes(document: dict[str, Any]) -> Outcomes:
    return Outcomes(
        **{
            item.name: as_int(document[item.name])
            for item in fields(Outcomes)
            if item.name in document or item.name in _COUNTED_ALWAYS
        }
    )


def _last_publish(entry: list[Any] | None) -> LastPublish | None:
    if entry is None:
        return None
    committed_ms, partitions, counts = entry
    return LastPublish(as_int(committed_ms), _optional_int(partitions), _outcomes(counts))


def _optional_int(value: object) -> int | None:
    return None if value is None else as_int(value)


def _boundary(entry: list[Any]) -> RetentionBoundary:
    field_id, before_us = entry
    return RetentionBoundary(as_int(field_id), as_int(before_us))


def _dense(vector: OffsetVector) -> list[int | None]:
    offsets = vector.as_dict()
    return [offsets.get(partition) for partition in range(max(offsets, default=-1) + 1)]


def _sparse(entries: list[Any]) -> OffsetVector:
    return OffsetVector(
        tuple(
            (index, as_int(entry)) for index, entry in enumerate(entries) if entry is not None
        )
    )


def as_int(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError("not an integer")
    return value


def as_str(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not a string")
    return value


def _load(text: str) -> dict[str, Any]:
    malformed = WatermarkUnreadable(
        "the watermark text is not one this program can read; it is damaged or of a newer version."
    )
    try:
        if text.startswith(_COMPRESSED_PREFIX):
            inflate = zlib.decompressobj()
            packed = base64.b64decode(text[len(_COMPRESSED_PREFIX) :], validate=True)
            plain = inflate.decompress(packed, MAX_TEXT_BYTES)
            if not inflate.eof:
                raise malformed
            text = plain.decode()
        document = json.loads(text)
    except (binascii.Error, zlib.error, ValueError, RecursionError) as error:
        raise malformed from error
    if not isinstance(document, dict):
        raise malformed
    return document


def _watermark(document: dict[str, Any]) -> Watermark:
    ((topic, mark),) = document["topics"].items()
    prev = document["prev"]
    decoding, era = document.get("decoding", ("", ""))
    is_keyed = document["v"] == 3 and bool(document.get("key"))
    return Watermark(
        cluster_id=as_str(document["cluster"]),
        topic=topic,
        topic_id=as_str(mark["id"]),
        next=_sparse(mark["next"]),
        epochs=_sparse(mark["epoch"]),
        shape=as_str(document["shape"]),
        run=as_str(document["run"]),
        prev_snapshot_id=None if prev is None else int(as_str(prev)),
        gaps=tuple(
            OffsetRange(as_int(p), as_int(start), as_int(stop))
            for p, start, stop in document["gaps"]
        ),
        accepted=tuple(int(as_str(snapshot_id)) for snapshot_id in document["accepted"]),
        skips=tuple(
            Skip(as_int(partition), as_int(offset), as_str(reason))
            for partition, offset, reason in (document["skips"] if document["v"] > 1 else ())
        ),
        outcomes=_outcomes(document),
        publish=_last_publish(document.get("publish")),
        boundary=_boundary(document["boundary"])
        if document["v"] == 3 and not is_keyed
        else None,
        decoding=as_str(decoding),
        era=as_str(era),
        key=tuple(map(as_int, document["key"])) if is_keyed else (),
        whole_ms=_optional_int(document.get("whole")) if is_keyed else None,
    )
