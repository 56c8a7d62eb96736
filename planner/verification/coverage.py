"""Decides which offsets of each partition can be compared with the log, and why others cannot.

Cuts the compared offsets by how they were tiered: rows tiered before a column was added stay NULL in it.

The chain of watermarks tells which snapshot tiered an offset, and so its schema and shape.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from planner.offsets import OffsetRange, OffsetVector
from planner.seam.cut import LogBounds
from planner.seam.watermark import Watermark
from planner.verification.chain import Carrier
from planner.verification.findings import Coverage, Fault, Kind


@dataclass(frozen=True, slots=True)
class CoveragePlan:
    coverage: tuple[Coverage, ...]
    findings: tuple[Fault, ...]
    unchecked: tuple[str, ...]


def plan_coverage(
    mark: Watermark,
    bounds: LogBounds,
    chain: Sequence[Carrier],
    since: OffsetVector | None = None,
) -> CoveragePlan:
    """Choose the offsets to compare: from the log start, or where ``since`` begins, to the watermark.

    ``chain`` are the retained carriers, newest first; ``since`` is the watermark of the time asked for. A log
    that is not the one of the watermark, or does not reach it, is a finding; nothing of it is compared.
    """
    wrong = _wrong_log(mark, bounds)
    if wrong is not None:
        return CoveragePlan((), (wrong,), ("the log: it is not the one cold was tiered from",))
    measured = {own.partition: own for own in bounds.partitions}
    coverage, findings, unchecked = [], [], []
    for partition in sorted(measured.keys() | set(mark.next.partitions)):
        watermark, floor = mark.offset(partition), _floor(partition, chain)
        own = measured.get(partition)
        if own is None:
            what = f"cold covers partition {partition}, which the topic has not"
            findings.append(Fault(Kind.LOG, what))
            continue
        if own.log_end < watermark:
            what = f"cold covers partition {partition} up to offset {watermark}, the log ends at {own.log_end}"
            findings.append(Fault(Kind.LOG, what))
        if own.log_start > watermark:
            what = (
                f"partition {partition}: offsets {watermark} to {own.log_start - 1} were removed from the log before they "
                f"were tiered; `thermocline gap accept` goes on without them"
            )
            lost = OffsetRange(partition, watermark, own.log_start)
            findings.append(Fault(Kind.LOG, what, lost))
        stop = min(watermark, own.log_end)
        start = min(max(own.log_start, floor), stop)
        if start > floor:
            unchecked.append(
                f"partition {partition}, offsets {floor} to {start - 1}: the log starts at {own.log_start}, so "
                f"only that no {'key' if mark.key else 'row'} is there twice"
            )
        if since is not None and (later := since.get(partition)) is not None and later > start:
            start = min(later, stop)
        coverage.append(Coverage(OffsetRange(partition, start, stop), floor, watermark))
    return CoveragePlan(tuple(coverage), tuple(findings), tuple(unchecked))


def _wrong_log(mark: Watermark, bounds: LogBounds) -> Fault | None:
    for what, expected, actual in (
        ("cluster", mark.cluster_id, bounds.cluster_id),
        ("topic id", mark.topic_id, bounds.topic_id),
    ):
        if expected != actual:
            why = f"the watermark names {what} {expected}, the log has {actual}"
            return Fault(Kind.LOG, why)
    return None


def _floor(partition: int, chain: Sequence[Carrier]) -> int:
    """First offset the table ever covered, where the chain goes back to its creation."""
    if chain and chain[-1].snapshot.parent_id is None:
        return chain[-1].watermark.offset(partition)
    return 0


@dataclass(frozen=True, slots=True)
class TieredSegment:
    """Ranges tiered alike, one per partition. None: the snapshot that tiered them expired, so it is not known.

    ``skipped`` are the skips that ``shape`` includes.
    """

    ranges: tuple[OffsetRange, ...]
    schema_id: int | None
    shape: str | None
    skipped: tuple[tuple[int, int], ...] = ()


def segments(
    compared: Sequence[OffsetRange], chain: Sequence[Carrier], schema_ids: Mapping[int, int]
) -> tuple[TieredSegment, ...]:
    """Cut ``compared``, one range per partition, where schema or shape changed, oldest first.

    ``chain`` are the retained carriers, newest first; ``schema_ids`` the schema of each snapshot.
    """
    result: list[TieredSegment] = []
    begins = {item.partition: item.start for item in compared}
    ends = {item.partition: item.stop for item in compared}
    steps = itertools.groupby(_steps(chain, schema_ids), key=lambda step: step[1:])
    for (schema_id, shape), group in steps:
        newest = list(group)[-1][0]
        ranges = []
        for partition, start in begins.items():
            stop = min(newest.offset(partition), ends[partition])
            if start < stop:
                ranges.append(OffsetRange(partition, start, stop))
                begins[partition] = stop
        if ranges:
            result.append(TieredSegment(tuple(ranges), schema_id, shape, newest.skipped))
    return tuple(result)


def _steps(
    chain: Sequence[Carrier], schema_ids: Mapping[int, int]
) -> Iterator[tuple[Watermark, int | None, str | None]]:
    """Yield each carrier's watermark with the schema and shape of the rows it added, oldest first."""
    for carrier in reversed(chain):
        if carrier is chain[-1] and not carrier.replaces_all:
            # Its offsets were tiered by earlier commits, and perhaps by itself.
            yield carrier.watermark, None, None
        else:
            schema_id = schema_ids[carrier.snapshot.snapshot_id]
            yield carrier.watermark, schema_id, carrier.watermark.shape
