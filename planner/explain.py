"""``EXPLAIN``: what a statement would read of each side of its tables, and why. Nothing is executed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from planner.offsets import OffsetRange
from planner.ports import ColdTotals
from planner.reading.plan import ColdMode, TableRead
from planner.statement.references import ResolvedTable

_RANGE = pa.struct(
    [
        pa.field("partition", pa.int32()),
        pa.field("log_start", pa.int64()),
        pa.field("start", pa.int64()),
        pa.field("stop", pa.int64()),
    ]
)
#: One row per table and side. ``ranges`` are exclusive of ``stop``; for cold, ``start`` is 0 unless a follower asks.
#: ``offsets`` is the tail's upper bound of records. For cold, ``records``, ``files`` and ``bytes`` are the snapshot's,
#: ``files_to_read`` those left after pruning (NULL: decided while scanning). ``contract`` chose the cut;
#: ``log_age_s`` is how long ago the log was measured, NULL where it was not needed.
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
class TableReport:
    """Facts of one table beside its cut; ``log_starts`` by partition. None: not known.

    ``is_counted``: the user may see every row, so their number is no secret.
    """

    metadata_age_s: float | None = None
    log_starts: Mapping[int, int] | None = None
    totals: ColdTotals | None = None
    files_to_read: int | None = None
    is_counted: bool = True
    log_age_s: float | None = None
    contract: str | None = None


def explanation(
    reads: Mapping[ResolvedTable, TableRead], report: Mapping[ResolvedTable, TableReport]
) -> pa.RecordBatch:
    """Describe what is read of every side of every table, in the order the statement names them."""
    rows = [
        row
        for table, read in reads.items()
        for row in _rows(table, read, report.get(table, TableReport()))
    ]
    return pa.RecordBatch.from_pylist(rows, schema=EXPLAIN_SCHEMA)


def _rows(
    table: ResolvedTable, read: TableRead, report: TableReport
) -> list[dict[str, object]]:
    cut, name = read.cut, str(table.table.side(read.side))
    name += "" if table.at is None else f" {table.at}"
    if read.side.is_facts:
        why = "facts of the cut; no record is read"
        return [{"table": name, "side": "cut", "why": why, "contract": report.contract}]
    rows: list[dict[str, object]] = []
    if read.side.has_cold:
        cold = _cold(read, report) if report.is_counted else {"why": _UNCOUNTED}
        pinned = {
            "contract": report.contract,
            "snapshot_id": cut.cold.snapshot_id,
            "schema_id": cut.cold.schema.schema_id,
            "metadata_age_s": report.metadata_age_s,
        }
        rows.append({"table": name, "side": "cold", **pinned, **cold})
    if read.side.has_tail and cut.hot is not None:
        tail = _tail(table, read, report) if report.is_counted else {"why": _UNCOUNTED}
        common = {"contract": report.contract, "log_age_s": report.log_age_s}
        rows.append({"table": name, "side": "tail", **common, **tail})
    return rows


#: Counts, and the number of files that a condition leaves, tell of rows that a filter hides.
_UNCOUNTED = "a row filter holds for you: how much there is to read is not told"


def _cold(read: TableRead, report: TableReport) -> dict[str, object]:
    cut = read.cut
    totals = report.totals or ColdTotals()
    ranges = cut.new_cold
    if cut.cold.snapshot_id is None:
        why = "the table never had a snapshot: no rows"
    elif cut.watermark is not None and not ranges:
        why = (
            "nothing is tiered yet: no offset is below the watermark"
            if cut.increment is None
            else "skipped: what is below the watermark was answered before"
        )
    elif read.cold is ColdMode.COUNTED:
        why = (
            "min and max by statistics of files: no file is read"
            if read.extremes
            else "counted from the list of manifests: no file is read"
        )
    elif cut.watermark is None:
        why = "the pinned snapshot, whole"
    elif report.files_to_read == 0:
        why = "skipped: no file can hold a row the statement asks for"
    else:
        why = "offsets below the watermark are in Iceberg"
        if read.key:
            why = "the newest row of each key below the watermark is in Iceberg; of keys with a change in the tail, that decides"
        if cut.increment is not None:
            why += "; those answered before are left out"
        elif not cut.is_cold_whole:
            why += "; those above the cut's end are left out"
    return {
        "why": why,
        "partitions": len(ranges) if cut.watermark is not None else None,
        "records": totals.records,
        "files": totals.files,
        "bytes": totals.bytes,
        "files_to_read": report.files_to_read,
        "ranges": [_range(span, None) for span in ranges],
    }


def _tail(table: ResolvedTable, read: TableRead, report: TableReport) -> dict[str, object]:
    cut = read.cut
    ranges = cut.new_hot
    if ranges:
        end = "the cut's" if cut.until is not None else "the log's"
        why = f"offsets from the watermark to {end} end are in Kafka only"
        if read.key:
            why += "; the newest change of each key is its row, or deletes it"
        if cut.increment is not None:
            why += "; those answered before are left out"
    else:
        why = "skipped: nothing lies above the watermark"
        if cut.increment is not None:
            why += " that was not answered before"
        elif table.at is not None or cut.until is not None:
            why = "skipped: the cut ends at the watermark or below"
    return {
        "why": why,
        "topic": cut.hot.topic if cut.hot else None,
        "partitions": len(ranges),
        "offsets": sum(map(len, ranges)),
        "ranges": [_range(span, report.log_starts) for span in ranges],
    }


def _range(span: OffsetRange, log_starts: Mapping[int, int] | None) -> dict[str, object]:
    return {
        "partition": span.partition,
        "log_start": None if log_starts is None else log_starts.get(span.partition),
        "start": span.start,
        "stop": span.stop,
    }
