"""Time travel: the moment of a table that AT names, and the text of a cut that brings a later statement back to it.

``AT (VERSION => snapshot)`` means all rows of that snapshot: those below its own watermark. A time or the text of a cut
gives an end per partition instead. Any snapshot together with the log from its watermark may answer it, without rows
at or above the end. So a cut outlives the expiry of its snapshot or the retention of the log, though not both.

The decoding of its records is part of a cut: its text names it, and a snapshot that answers must have the same. The
text does not have the columns' names: it comes from the client, who could choose names to read hidden columns by. The
names are in the metadata file that the text names.

Clients keep texts of positions and cuts, which are compressed JSON behind a prefix that names the kind. They only narrow
what a statement may read anyway, so they are checked for form and not signed. Reading one is reading hostile input: it
does not inflate without bound.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypeAlias

from planner.errors import BadParameter, CutExpired
from planner.names import TableName
from planner.offsets import OffsetRange, OffsetVector
from planner.seam.binding import decoding_key
from planner.seam.cut import (
    HotSlice,
    LogBounds,
    Pin,
    PinReference,
    TableCut,
    check_same_changes,
    cold_cut,
)
from planner.seam.watermark import Watermark, as_int, as_str, era_after
from planner.statement.references import AtClause, CutKey

CUT_VERSION = 2

#: Version 1 did not name the decoding.
_CUT_VERSIONS = (1, CUT_VERSION)

CUT_PREFIX = "c:"


@dataclass(frozen=True, slots=True)
class CutEntry(PinReference):
    """One table of a cut, by reference. ``topic_id`` and ``end`` are None for a table without a topic.

    So are ``decoding`` and ``era`` (``planner.seam.watermark``), also in a text of version 1: that cut means the records below
    its end as the answering snapshot decodes them.
    """

    topic_id: str | None = None
    end: OffsetVector | None = None
    decoding: str | None = None
    era: str | None = None


@dataclass(frozen=True, slots=True)
class AtVersion:
    """A snapshot of the table, read in the schema it was written with."""

    snapshot_id: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """Before the first row of that time or later, in every partition. Microseconds since 1970, UTC."""

    time_us: int


@dataclass(frozen=True, slots=True)
class AtCut:
    """The moment of another statement."""

    tables: tuple[CutEntry, ...]

    def of(self, table: TableName) -> CutEntry:
        """Return the entry of one table. Raises BadParameter: there is none."""
        for entry in self.tables:
            if entry.table == table:
                return entry
        raise BadParameter(
            f"{table}: the cut is of a statement that did not read this table, or read it at several times.",
            table=str(table),
        )


Moment: TypeAlias = AtVersion | AtTime | AtCut


def names_cut(at: AtClause) -> bool:
    """Whether an AT clause has the text of a cut."""
    return str(at.tree.get("value", {}).get("value")).startswith(CUT_PREFIX)


def parse_version(value: object) -> AtVersion | AtCut:
    """Read the value of ``VERSION =>``: a snapshot id, as number or text, or the text of a cut.

    Raises:
        BadParameter: neither.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return AtVersion(value)
    if isinstance(value, str):
        if value.isascii() and value.isdigit() and len(value) < 20:
            return AtVersion(int(value))
        if value.startswith(CUT_PREFIX):
            return parse_cut(value)
    raise BadParameter(
        "AT (VERSION => ...) takes the id of a snapshot, or the text of a cut (thermocline_cut())."
    )


def format_cut(cuts: Mapping[CutKey, TableCut]) -> str:
    """Write the cut of a statement; "" where it read no table.

    A table it read as it is and as it was counts as it is; one it read at several past times is left out.
    """
    chosen: dict[TableName, TableCut | None] = {}
    for (table, at), cut in cuts.items():
        if at is None:
            chosen[table] = cut
        elif (table, None) not in cuts:
            chosen[table] = None if table in chosen else cut
    tables = [_written(cut) for _, cut in sorted(chosen.items()) if cut is not None]
    return pack(CUT_PREFIX, {"v": CUT_VERSION, "tables": tables}) if tables else ""


def _written(cut: TableCut) -> dict[str, Any]:
    decoding = None
    if cut.binding is not None and cut.watermark is not None:
        key = decoding_key(cut.cold.schema, cut.binding)
        decoding = [key, era_after(cut.watermark, key)]
    return {
        "table": [cut.table.catalog, list(cut.table.namespace), cut.table.name],
        "uuid": cut.table_uuid,
        "file": cut.cold.metadata_location.rsplit("/", 1)[-1],
        "snapshot": cut.cold.snapshot_id,
        "schema": cut.cold.schema.schema_id,
        "topic": None if cut.hot is None else cut.hot.topic_id,
        "end": None if cut.hot is None else cut.end.items,
        "decoding": decoding,
    }


def parse_cut(text: str) -> AtCut:
    """Read the text of a cut. Raises BadParameter: it is not one, or of a newer version."""
    try:
        document = unpack(CUT_PREFIX, text)
        version = document["v"]
        # ``True`` equals 1.
        if type(version) is not int or version not in _CUT_VERSIONS:
            raise ValueError("another version")
        return AtCut(tuple(_entry(item, version) for item in document["tables"]))
    except MALFORMED as error:
        raise BadParameter(
            "the cut is not one a server gave out; take a new one with thermocline_cut()."
        ) from error


def _entry(item: dict[str, Any], version: int) -> CutEntry:
    topic, end, snapshot_id = item["topic"], item["end"], item["snapshot"]
    named = version > 1 and topic is not None
    decoding, era = map(as_str, item["decoding"]) if named else (None, None)
    numbers = (item["schema"], 0 if snapshot_id is None else snapshot_id, *chain(*(end or ())))
    if any(abs(as_int(number)) >= 2**63 for number in numbers) or (topic is None) != (
        end is None
    ):
        raise ValueError("not a cut")
    return CutEntry(
        *(table_of(item["table"]), as_str(item["uuid"]), as_str(item["file"])),
        *(snapshot_id, item["schema"]),
        None if topic is None else as_str(topic),
        None if end is None else vector_of(end),
        decoding,
        era,
    )


def table_of(entry: Any) -> TableName:
    """Read a table's name in a document; raises one of MALFORMED."""
    catalog, namespace, name = entry
    return TableName(as_str(catalog), tuple(map(as_str, namespace)), as_str(name))


def vector_of(pairs: Any) -> OffsetVector:
    """Read (partition, offset) pairs of a document; raises one of MALFORMED."""
    return OffsetVector.of((as_int(partition), as_int(offset)) for partition, offset in pairs)


def decodes_as(entry: CutEntry, pin: Pin) -> bool:
    """Whether the records below a cut's end have the same values in a pin of its table as in the cut.

    The snapshot's rows were decoded like the cut's or were cold in it, and the tail would be decoded alike.
    """
    if entry.decoding is None or entry.end is None or pin.watermark is None:
        return True
    if era_after(pin.watermark, entry.decoding) != entry.era:
        return False
    key = None if pin.binding is None else decoding_key(pin.schema, pin.binding)
    return key == entry.decoding or not needs_log(pin, entry.end)


def needs_log(pin: Pin, end: OffsetVector) -> bool:
    """Whether a cut that ends at ``end`` holds records that are not in the pinned snapshot."""
    mark = pin.watermark
    return mark is not None and any(stop > mark.offset(at) for at, stop in end)


def cut_until(pin: Pin, end: OffsetVector, bounds: LogBounds | None) -> TableCut:
    """Cut one table at a past end. ``bounds``: of its topic, where ``needs_log``.

    Raises:
        CutExpired: the topic was created again, or the log does not hold all records between snapshot and end; or the table is
            keyed and the snapshot newer than the cut.
        ShapeMismatch: as ``check_same_changes``.
    """
    mark = pin.watermark
    if mark is None:
        raise ValueError(f"{pin.table} has no topic")
    check_same_changes(pin)
    if mark.mode == "upsert" and not is_at_or_below(mark, end):
        raise expired(
            pin.table,
            "the table is keyed, and what it holds has newer rows, or none, of keys that had others then",
        )
    ranges = tuple(
        OffsetRange(at, mark.offset(at), stop) for at, stop in end if stop > mark.offset(at)
    )
    if ranges and bounds is None:
        raise ValueError(f"{pin.table}: its log was not measured")
    if ranges and bounds is not None:
        _check_retained(pin, ranges, bounds)
    return replace(cold_cut(pin), hot=HotSlice(mark.address, mark.topic_id, ranges), until=end)


def is_at_or_below(mark: Watermark, end: OffsetVector) -> bool:
    """Whether all records of cold are below ``end``: a keyed table has forgotten the rows that they replaced."""
    stops = end.as_dict()
    return all(offset <= stops.get(at, 0) for at, offset in mark.next)


def ended(cut: TableCut, end: OffsetVector) -> TableCut:
    """Return a cut without rows at or above ``end``; a partition absent from ``end`` keeps all."""
    if cut.hot is None:
        raise ValueError(f"{cut.table} has no topic")
    stops = cut.end.as_dict() | {at: stop for at, stop in end if stop < (cut.end.get(at) or 0)}
    ranges = tuple(
        replace(span, stop=stops[span.partition])
        for span in cut.hot.ranges
        if stops[span.partition] > span.start
    )
    return replace(
        cut, hot=replace(cut.hot, ranges=ranges), until=OffsetVector.of(stops.items())
    )


def check_not_expired(cut: TableCut, time_us: int) -> None:
    """Refuse a moment whose rows are before the boundary of the cut's watermark: microseconds since 1970, UTC.

    Raises:
        CutExpired: they left cold and tail.
    """
    boundary = None if cut.watermark is None else cut.watermark.boundary
    if boundary is not None and time_us <= boundary.before_us:
        raise expired(cut.table, "the table's retention removed the rows of that time")


def same_snapshot(entry: CutEntry, pin: Pin) -> TableCut:
    """Cut a table without a topic as it was: the pin must be the one the cut was of.

    Raises:
        CutExpired: the table has been bound to a topic since.
    """
    if pin.binding is not None:
        raise expired(entry.table, "it was bound to a topic since")
    return cold_cut(pin)


def expired(table: TableName, why: str) -> CutExpired:
    return CutExpired(
        f"{table}: the cut cannot be read any more: {why}. Take a new one with thermocline_cut().",
        table=str(table),
    )


def _check_retained(pin: Pin, ranges: Iterable[OffsetRange], bounds: LogBounds) -> None:
    mark = pin.watermark
    assert mark is not None  # noqa: S101 - asked for bound tables only
    if (bounds.cluster_id, bounds.topic_id) != (mark.cluster_id, mark.topic_id):
        raise expired(pin.table, f"topic {mark.address} was created again")
    by_partition = {item.partition: item for item in bounds.partitions}
    for item in ranges:
        own = by_partition.get(item.partition)
        where = f"{mark.address}/{item.partition}"
        if own is None or own.log_end < item.stop:
            raise expired(pin.table, f"the log of {where} ends before offset {item.stop}")
        if own.log_start > item.start:
            raise expired(
                pin.table,
                f"the log of {where} begins at offset {own.log_start}, and Iceberg holds the records below "
                f"{item.start} only",
            )


#: 10,000 partitions need about 0.1 MB.
MAX_PACKED_BYTES = 4 * 1024 * 1024

_ENCODE = json.JSONEncoder(separators=(",", ":")).encode

#: The best level makes offsets of 1,000 partitions one percent smaller, in three times the time.
_LEVEL = 3

#: Bits of the window, and what else memory goes by. By default zlib takes 268 KB for each text: the system's pages, as
#: they are given back each time, and five times the time of a text that fits a window of 4 KB.
_MUCH, _LITTLE, _SHORT = (zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL), (12, 5), 1 << 12

#: Errors of reading a document from outside, checks included.
MALFORMED = (binascii.Error, zlib.error, ValueError, KeyError, TypeError, RecursionError)


def pack(prefix: str, document: dict[str, Any]) -> str:
    """Write ``document`` as one word of letters, digits and ``-_=:``; the same document gives the same text."""
    text = _ENCODE(document).encode()
    packing = zlib.compressobj(
        _LEVEL, zlib.DEFLATED, *(_LITTLE if len(text) <= _SHORT else _MUCH)
    )
    packed = packing.compress(text) + packing.flush()
    return prefix + base64.urlsafe_b64encode(packed).decode()


def unpack(prefix: str, text: str) -> Any:
    """Read what ``pack`` wrote. Raises MALFORMED: it is something else."""
    if not text.startswith(prefix):
        raise ValueError("another kind of text")
    inflate = zlib.decompressobj()
    plain = inflate.decompress(
        base64.b64decode(text[len(prefix) :], altchars=b"-_", validate=True), MAX_PACKED_BYTES
    )
    if not inflate.eof:
        raise ValueError("too large")
    return json.loads(plain)
