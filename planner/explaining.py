"""``EXPLAIN``: what a statement would read of each side of its tables, and why. Nothing is executed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from planner.cut import TableCut
from planner.errors import UnsupportedStatement
from planner.offsets import OffsetRange
from planner.ports import ColdTotals
from planner.statement.references import ResolvedTable

_EXPLAIN = re.compile(r"\s*EXPLAIN\b\s*(?P<rest>.*)", re.IGNORECASE | re.DOTALL)
_ANALYZE = re.compile(r"(ANALYZE\b|\()", re.IGNORECASE)

_RANGE = pa.struct(
    [
        pa.field("partition", pa.int32()),
        pa.field("log_start", pa.int64()),
        pa.field("start", pa.int64()),
        pa.field("stop", pa.int64()),
    ]
)
#: One row per table and side. ``ranges`` are exclusive of ``stop``; of cold, ``start`` is 0 unless somebody
#: follows. ``offsets`` is the tail's upper bound of records. Of cold, ``records``, ``files`` and ``bytes`` are
#: the snapshot's, ``files_to_read`` those left after pruning (NULL: decided while scanning). ``contract`` is what
#: chose the cut; ``log_age_s`` is how long ago the log was measured, NULL where it was not for this.
EXPLAIN_SCHEMA = pa.schema(
    [
        pa.field("table", pa.string()),
        pa.field("side", pa.string()),
        pa.field("why", pa.string()),
        pa.field("contract", pa.string()),
        pa.field("log_age_s", pa.float64()),
        pa.field("snapshot_id", pa.int64()),
        pa.field("schema_id", pa.int32()),
        pa.field("metadata_age_s", pa.float64()),
        pa.field("topic", pa.string()),
        pa.field("partitions", pa.int32()),
        pa.field("offsets", pa.int64()),
        pa.field("records", pa.int64()),
        pa.field("files", pa.int64()),
        pa.field("bytes", pa.int64()),
        pa.field("files_to_read", pa.int64()),
        pa.field("ranges", pa.list_(_RANGE)),
    ]
)


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of one table beside its cut; ``log_starts`` by partition. None: nobody could tell.

    ``is_counted``: who asks sees every row, so how many there are is no secret.
    """

    metadata_age_s: float | None = None
    log_starts: Mapping[int, int] | None = None
    totals: ColdTotals | None = None
    files_to_read: int | None = None
    is_counted: bool = True
    log_age_s: float | None = None
    contract: str | None = None


def explained(sql: str) -> str | None:
    """Return the statement behind EXPLAIN, or None where the text does not begin with that.

    Raises:
        UnsupportedStatement: EXPLAIN with options: ANALYZE would execute.
    """
    found = _EXPLAIN.match(sql)
    if found is None:
        return None
    if _ANALYZE.match(found["rest"]):
        raise UnsupportedStatement(
            "EXPLAIN takes no options here, and never executes; write EXPLAIN and the statement."
        )
    return found["rest"]


def explanation(
    tables: Iterable[ResolvedTable],
    cuts: Mapping[ResolvedTable, TableCut],
    seen: Mapping[ResolvedTable, Seen],
) -> pa.RecordBatch:
    """Describe every side of every table, in the order the statement names them."""
    rows = [
        row for found in tables for row in _rows(found, cuts[found], seen.get(found, Seen()))
    ]
    return pa.RecordBatch.from_pylist(rows, schema=EXPLAIN_SCHEMA)


def _rows(found: ResolvedTable, cut: TableCut, seen: Seen) -> list[dict[str, object]]:
    name = str(found.table) if found.virtual is None else f"{found.table}${found.virtual}"
    name += "" if found.at is None else f" {found.at}"
    if found.virtual == "seam":
        why = "facts of the cut; no record is read"
        return [{"table": name, "side": "cut", "why": why, "contract": seen.contract}]
    rows: list[dict[str, object]] = []
    if found.virtual != "tail":
        cold = _cold(cut, seen) if seen.is_counted else _uncounted(cut, seen)
        rows.append({"table": name, "side": "cold", "contract": seen.contract, **cold})
    if found.virtual != "cold" and cut.hot is not None:
        tail = _tail(found, cut, seen) if seen.is_counted else {"why": _UNCOUNTED}
        told = {"contract": seen.contract, "log_age_s": seen.log_age_s}
        rows.append({"table": name, "side": "tail", **told, **tail})
    return rows


#: Counts, and how many files a condition leaves, say what is in rows that a filter hides.
_UNCOUNTED = "a row filter holds for you: how much there is to read is not told"


def _uncounted(cut: TableCut, seen: Seen) -> dict[str, object]:
    return {
        "why": _UNCOUNTED,
        "snapshot_id": cut.cold.snapshot_id,
        "schema_id": cut.cold.schema.schema_id,
        "metadata_age_s": seen.metadata_age_s,
    }


def _cold(cut: TableCut, seen: Seen) -> dict[str, object]:
    totals = seen.totals or ColdTotals()
    ranges = cut.new_cold
    if cut.cold.snapshot_id is None:
        why = "the table never had a snapshot: no rows"
    elif cut.watermark is None:
        why = "the pinned snapshot, whole"
    elif not ranges:
        why = (
            "nothing is tiered yet: no offset is below the watermark"
            if cut.news is None
            else "skipped: what is below the watermark was answered before"
        )
    elif seen.files_to_read == 0:
        why = "skipped: no file can hold a row the statement asks for"
    else:
        why = "offsets below the watermark are in Iceberg"
        if cut.news is not None:
            why += "; those answered before are left out"
        elif not cut.is_cold_whole:
            why += "; those above the cut's end are left out"
    return {
        "why": why,
        "snapshot_id": cut.cold.snapshot_id,
        "schema_id": cut.cold.schema.schema_id,
        "metadata_age_s": seen.metadata_age_s,
        "partitions": len(ranges) if cut.watermark is not None else None,
        "records": totals.records,
        "files": totals.files,
        "bytes": totals.bytes,
        "files_to_read": seen.files_to_read,
        "ranges": [_range(held, None) for held in ranges],
    }


def _tail(found: ResolvedTable, cut: TableCut, seen: Seen) -> dict[str, object]:
    hot = cut.hot
    assert hot is not None  # noqa: S101 - a tail has a hot slice, or this is not asked
    ranges = cut.new_hot
    if ranges:
        end = "the cut's" if cut.until is not None else "the log's"
        why = f"offsets from the watermark to {end} end are in Kafka only"
        if cut.news is not None:
            why += "; those answered before are left out"
    else:
        why = "skipped: nothing lies above the watermark"
        if cut.news is not None:
            why += " that was not answered before"
        elif found.at is not None or cut.until is not None:
            why = "skipped: the cut ends at the watermark or below"
    return {
        "why": why,
        "topic": hot.topic,
        "partitions": len(ranges),
        "offsets": sum(map(len, ranges)),
        "ranges": [_range(held, seen.log_starts) for held in ranges],
    }


def _range(held: OffsetRange, log_starts: Mapping[int, int] | None) -> dict[str, object]:
    return {
        "partition": held.partition,
        "log_start": None if log_starts is None else log_starts.get(held.partition),
        "start": held.start,
        "stop": held.stop,
    }
