"""Where bound tables stand: watermark, log and lag of each, asked of all of them at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from connectors.kafka.admin import RetentionReader
from connectors.kafka.samples import Sample, sample
from planner.errors import FederationError, UnknownTopic
from planner.maintenance.standing import CareStanding
from planner.maintenance.steps import Situation, plan_upkeep
from planner.names import TableName, by_cluster
from planner.offsets import OffsetRange
from planner.ports import ColdStore, Log
from planner.seam.cut import LogBounds, PartitionBounds, Pin, check_log
from planner.seam.watermark import Watermark
from planner.tiering.triggers import LogRetention

if TYPE_CHECKING:
    from connectors.iceberg.maintenance_facts import MaintenanceReader

T = TypeVar("T")

#: Catalog calls at once: they wait for the catalog more than they work.
PINS_AT_ONCE = 16
#: Time limit for all but offsets (ages, bytes); what is late is left out.
_LOOK_TIMEOUT_S = 1.5


@dataclass(frozen=True, slots=True)
class PartitionStanding:
    """Offsets are exclusive ends but for ``log_start``. ``lag`` counts offsets, an upper bound of records.

    ``headroom`` are offsets that retention may still remove before it reaches what is not tiered.
    ``oldest_ms`` is when the oldest record that is not tiered was written, since 1970; None where there is none,
    or its broker did not say. ``lag_bytes`` is estimated from the first records; None where none came.
    """

    partition: int
    log_start: int
    watermark: int
    log_end: int
    lag: int
    headroom: int
    oldest_ms: int | None = None
    lag_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class TailReading:
    """How far a server has read a tail: ``read_offsets`` of ``offsets`` are in its memory.

    ``rest_s`` is about how long the rest takes; None where it is not being read. ``error`` says why the server does
    not tell.
    """

    offsets: int = 0
    read_offsets: int | None = None
    rest_s: float | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class TableStatus:
    """One bound table. ``error`` says why it does not answer, with its class name in ``error_class``.

    ``lag_s`` is the age of the oldest record not tiered, ``headroom_s`` how long retention still keeps it; None
    where nothing waits, nothing expires, or the broker did not say. ``last_publish`` counts the last commit's
    records by outcome, ``gap_offsets``, ``skipped_records`` and ``accepted_snapshots`` all that people accepted.
    ``tail`` is what a server was asked for; None where none was. ``care`` is how well it is looked after, where that was asked.
    """

    table: str
    topic: str | None
    snapshot_id: int | None
    lag: int
    partitions: tuple[PartitionStanding, ...]
    lag_bytes: int | None = None
    lag_s: float | None = None
    retention_s: float | None = None
    headroom_s: float | None = None
    is_bounded_by_size: bool = False
    gap_offsets: int = 0
    skipped_records: int = 0
    accepted_snapshots: int = 0
    last_publish: Mapping[str, int] | None = None
    error: str | None = None
    error_class: str | None = None
    tail: TailReading | None = None
    care: CareStanding | None = None


#: The log of each partition of a table, and what of it is not tiered yet.
_Untiered = tuple[tuple[PartitionBounds, OffsetRange], ...]


def standings(
    store: ColdStore,
    log: Log,
    names: Sequence[TableName],
    *,
    clusters: Mapping[str, Mapping[str, str]],
    now_ms: int,
) -> list[TableStatus]:
    """Pin all, then measure all logs in one round; tables without a topic are left out."""
    with ThreadPoolExecutor(PINS_AT_ONCE) as pool:
        pins = pool.map(lambda name: _or_error(lambda: store.pin(name)), names)
        pinned = dict(zip(names, pins, strict=True))
    marks = {
        name: pin.watermark
        for name, pin in pinned.items()
        if isinstance(pin, Pin) and pin.watermark is not None
    }
    bounds: dict[str, LogBounds | FederationError] = {}
    for topics in by_cluster(sorted({mark.address for mark in marks.values()})).values():
        bounds |= _measured(log, topics)
    untiered = {
        name: _untiered(name, mark, bounds[mark.address]) for name, mark in marks.items()
    }
    waiting: dict[str, dict[int, OffsetRange]] = {}
    for name, spans in untiered.items():
        if not isinstance(spans, FederationError):
            # Two tables may read one topic: the older beginning is the one that waits longer.
            waiting.setdefault(marks[name].address, {}).update(
                {span.partition: span for _, span in spans if len(span)}
            )
    ranges = {topic: tuple(spans.values()) for topic, spans in waiting.items()}
    with ThreadPoolExecutor(2) as pool:
        sampling = pool.submit(sample, clusters, ranges, timeout_s=_LOOK_TIMEOUT_S)
        keeping = pool.submit(_retentions, clusters, sorted(ranges))
        look = _Look(sampling.result(), keeping.result(), now_ms)
    statuses = []
    for name, pin in pinned.items():
        if isinstance(pin, FederationError):
            statuses.append(_refused(name, None, pin))
        elif name in marks:
            spans = untiered[name]
            statuses.append(
                _refused(name, pin, spans)
                if isinstance(spans, FederationError)
                else look.standing(name, pin, marks[name], spans)
            )
    return statuses


def _retentions(
    clusters: Mapping[str, Mapping[str, str]], topics: Sequence[str]
) -> Mapping[str, LogRetention]:
    """Read what topics keep; connect to no cluster where none is asked for."""
    return RetentionReader(clusters, _LOOK_TIMEOUT_S)(topics) if topics else {}


def _or_error(call: Callable[[], T]) -> T | FederationError:
    try:
        return call()
    except FederationError as error:
        return error


def _measured(log: Log, topics: list[str]) -> dict[str, LogBounds | FederationError]:
    """Measure in one round; a topic that is gone must not hide the others."""
    measured: dict[str, LogBounds | FederationError] = {}
    left = list(topics)
    while left:
        try:
            return measured | dict(log.measure(left))
        except UnknownTopic as error:
            missing = str(error.facts["topic"])
            measured[missing] = error
            left.remove(missing)
        except FederationError as error:
            return measured | dict.fromkeys(left, error)
    return measured


def _untiered(
    name: TableName, mark: Watermark, bounds: LogBounds | FederationError
) -> _Untiered | FederationError:
    if isinstance(bounds, FederationError):
        return bounds
    return _or_error(
        lambda: tuple(zip(bounds.partitions, check_log(name, mark, bounds), strict=True))
    )


@dataclass(frozen=True, slots=True)
class _Look:
    """What brokers say of all topics, beside offsets: first records by address and partition, and retention."""

    samples: Mapping[tuple[str, int], Sample]
    retained: Mapping[str, LogRetention]
    now_ms: int

    def standing(
        self, name: TableName, pin: Pin, mark: Watermark, untiered: _Untiered
    ) -> TableStatus:
        partitions = []
        for limits, span in untiered:
            look = self.samples.get((mark.address, span.partition)) if len(span) else None
            partitions.append(
                PartitionStanding(
                    partition=span.partition,
                    log_start=limits.log_start,
                    watermark=span.start,
                    log_end=limits.log_end,
                    lag=len(span),
                    headroom=span.start - limits.log_start,
                    oldest_ms=None if look is None else look.timestamp_ms,
                    lag_bytes=None if look is None else round(look.mean_bytes * len(span)),
                )
            )
        lag = sum(each.lag for each in partitions)
        oldest = [each.oldest_ms for each in partitions if each.oldest_ms is not None]
        lag_s = max(0.0, (self.now_ms - min(oldest)) / 1000) if oldest else None
        retention = self.retained.get(mark.address)
        retention_s = None if retention is None else retention.seconds
        sizes = [each.lag_bytes for each in partitions if each.lag]
        return TableStatus(
            table=str(name),
            topic=mark.address,
            snapshot_id=pin.snapshot_id,
            lag=lag,
            partitions=tuple(partitions),
            lag_bytes=0 if not lag else None if None in sizes else sum(filter(None, sizes)),
            lag_s=lag_s,
            retention_s=retention_s,
            headroom_s=None if retention_s is None or lag_s is None else retention_s - lag_s,
            is_bounded_by_size=retention is not None and retention.partition_bytes is not None,
            gap_offsets=sum(map(len, mark.gaps)),
            skipped_records=len(mark.skips),
            accepted_snapshots=len(mark.accepted),
            last_publish=asdict(mark.publish_outcomes),
        )


def with_care(
    statuses: Sequence[TableStatus],
    reader: MaintenanceReader,
    now_ms: int,
) -> list[TableStatus]:
    """Add how well tables are looked after. One whose files cannot be read, or whose properties do not fit, says why."""

    def one(status: TableStatus) -> TableStatus:
        if status.error is not None:
            return status
        try:
            facts = reader.read(TableName.parse(status.table))
            if facts is None:
                return status
            upkeep = plan_upkeep(facts, Situation(now_ms))
        except FederationError as error:
            return replace(status, error=error.message, error_class=type(error).__name__)
        return replace(status, care=CareStanding.of(facts, upkeep, now_ms))

    with ThreadPoolExecutor(PINS_AT_ONCE) as pool:
        return list(pool.map(one, statuses))


def _refused(name: TableName, pin: Pin | None, error: FederationError) -> TableStatus:
    return TableStatus(
        table=str(name),
        topic=None if pin is None or pin.watermark is None else pin.watermark.address,
        snapshot_id=None if pin is None else pin.snapshot_id,
        lag=0,
        partitions=(),
        error=error.message,
        error_class=type(error).__name__,
    )
