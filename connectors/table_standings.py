"""Where bound tables stand: watermark, log and lag of each, decided from what catalogs and brokers say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from connectors.bounds_cache import Measures
from connectors.kafka.admin import RetentionReader
from connectors.kafka.newest import NewestReader
from connectors.kafka.samples import Sample, sample
from planner.errors import FederationError, UnknownTopic
from planner.names import TableName, by_cluster
from planner.offsets import OffsetRange
from planner.ports import ColdStore
from planner.seam.binding import Binding
from planner.seam.cut import LogBounds, PartitionBounds, Pin, check_log
from planner.seam.watermark import Watermark
from planner.tiering.triggers import LogRetention

if TYPE_CHECKING:
    from planner.maintenance.standing import CareStanding

T = TypeVar("T")

#: Catalog calls at once: they wait for the catalog more than they work.
PINS_AT_ONCE = 16
#: Time limit for all but offsets (ages, bytes); what is late is left out.
_LOOK_TIMEOUT_S = 1.5


@dataclass(frozen=True, slots=True)
class PartitionStanding:
    """Offsets are exclusive ends but for ``log_start``. ``lag`` counts offsets, an upper bound of records.

    ``headroom`` are offsets that retention may still remove before it reaches what is not tiered.
    ``oldest_ms`` is when the oldest record that is not tiered was written, since 1970, ``newest_ms`` the newest of the
    partition; None where there is none, or its broker did not say. ``lag_bytes`` is estimated from the first records;
    None where none came.
    """

    partition: int
    log_start: int
    watermark: int
    log_end: int
    lag: int
    headroom: int
    oldest_ms: int | None = None
    lag_bytes: int | None = None
    newest_ms: int | None = None


@dataclass(frozen=True, slots=True)
class TailReading:
    """How far a server has read a tail: ``read_offsets`` of ``offsets`` are in its memory.

    ``rest_s`` is about how long the rest takes; None where it is not being read. ``error`` says what
    has stopped the reading.
    """

    offsets: int = 0
    read_offsets: int = 0
    rest_s: float | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class TableStatus:
    """One bound table. ``error`` says why it does not answer, with its class name in ``error_class``.

    ``lag_s`` is the age of the oldest record not tiered, ``headroom_s`` how long retention still keeps it; None
    where nothing waits, nothing expires, or the broker did not say. ``last_publish`` counts the last commit's
    records by outcome, ``gap_offsets``, ``skipped_records`` and ``accepted_snapshots`` all that people accepted.
    ``published_ms`` is when its snapshot became the current one, since 1970. ``tail`` is what a server was asked for;
    None where none was. ``care`` is how well it is looked after, where that was asked.
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
    published_ms: int | None = None
    error: str | None = None
    error_class: str | None = None
    tail: TailReading | None = None
    care: CareStanding | None = None


@dataclass(frozen=True, slots=True)
class SurveyedTable:
    """One bound table. ``pin_age_s``: since its catalog confirmed the pin, None without one.

    ``catalog_error``: class of what it failed with since.
    """

    status: TableStatus
    binding: Binding | None = None
    pin_age_s: float | None = None
    catalog_error: str | None = None


@dataclass(frozen=True, slots=True)
class SurveyedCluster:
    """One Kafka cluster. ``answered_s`` is a monotonic time; None: it never answered. ``error``: of its last round."""

    cluster_id: str | None = None
    answered_s: float | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Survey:
    """One round. ``tables`` has None for those without a topic, and lacks those that are not read yet."""

    tables: Mapping[TableName, SurveyedTable | None] = field(default_factory=dict)
    clusters: Mapping[str, SurveyedCluster] = field(default_factory=dict)
    measured_ms: int = 0


#: The log of each partition of a table, and what of it is not tiered yet.
Untiered: TypeAlias = tuple[tuple[PartitionBounds, OffsetRange], ...]
#: Bounds of each topic by address, or why there are none.
Measured: TypeAlias = Mapping[str, LogBounds | FederationError]


@dataclass(frozen=True, slots=True)
class BrokerLook:
    """What brokers say beside offsets: first records not tiered and newest times by address and partition, and retention."""

    samples: Mapping[tuple[str, int], Sample] = field(default_factory=dict)
    newest_ms: Mapping[tuple[str, int], int] = field(default_factory=dict)
    retained: Mapping[str, LogRetention] = field(default_factory=dict)


class BrokerFacts:
    """Asks the brokers of all clusters for what a ``BrokerLook`` has. Thread-safe."""

    def __init__(self, clusters: Mapping[str, Mapping[str, str]]) -> None:
        """Raises BadConfig as ``KafkaClusters``."""
        self._clusters = clusters
        self.retention = RetentionReader(clusters, _LOOK_TIMEOUT_S)
        self.newest = NewestReader(clusters, _LOOK_TIMEOUT_S)

    def samples(
        self, ranges: Mapping[str, tuple[OffsetRange, ...]]
    ) -> dict[tuple[str, int], Sample]:
        """Read the first records of ranges; what is late is left out."""
        return sample(self._clusters, ranges, timeout_s=_LOOK_TIMEOUT_S)


def standings(
    store: ColdStore,
    log: Measures,
    names: Sequence[TableName],
    *,
    clusters: Mapping[str, Mapping[str, str]],
    now_ms: int,
) -> list[TableStatus]:
    """Pin all, then measure all logs in one round; tables without a topic are left out."""

    def read(name: TableName) -> tuple[Pin | FederationError, int | None]:
        pin = or_error(lambda: store.pin(name))
        # At once: a store remembers what it retains of some hundred tables.
        return pin, published_ms(store, pin) if isinstance(pin, Pin) else None

    with ThreadPoolExecutor(PINS_AT_ONCE) as pool:
        entries = dict(zip(names, pool.map(read, names), strict=True))
    pinned = {name: pin for name, (pin, _) in entries.items()}
    marks = {
        name: pin.watermark
        for name, pin in pinned.items()
        if isinstance(pin, Pin) and pin.watermark is not None
    }
    bounds = measured(log, {mark.address for mark in marks.values()})
    untiered = {
        name: untiered_of(name, mark, bounds[mark.address]) for name, mark in marks.items()
    }
    look = _look_once(clusters, by_topic(waiting_of(marks, untiered)), bounds)
    statuses = []
    for name, pin in pinned.items():
        if isinstance(pin, FederationError):
            statuses.append(refused(name, None, pin))
        elif name in marks:
            spans = untiered[name]
            statuses.append(
                refused(name, pin, spans)
                if isinstance(spans, FederationError)
                else standing(pin, spans, look, published_ms=entries[name][1], now_ms=now_ms)
            )
    return statuses


def _look_once(
    clusters: Mapping[str, Mapping[str, str]],
    waiting: Mapping[str, tuple[OffsetRange, ...]],
    bounds: Measured,
) -> BrokerLook:
    logs = logs_of(bounds)
    if not logs:
        return BrokerLook()
    brokers = BrokerFacts(clusters)
    with ThreadPoolExecutor(3) as pool:
        sampling = pool.submit(brokers.samples, waiting)
        dating = pool.submit(
            brokers.newest, {topic: partitions(each) for topic, each in logs.items()}
        )
        keeping = pool.submit(brokers.retention, sorted(logs))
        return BrokerLook(sampling.result(), dating.result(), keeping.result())


def logs_of(bounds: Measured) -> dict[str, LogBounds]:
    """Return the topics whose logs could be measured. Also one of which nothing waits has retention."""
    return {topic: each for topic, each in bounds.items() if isinstance(each, LogBounds)}


def partitions(bounds: LogBounds) -> list[int]:
    return [each.partition for each in bounds.partitions]


def published_ms(store: ColdStore, pin: Pin) -> int | None:
    """Return when the snapshot of a pin became the table's current one; None: it has none, or its file is gone."""
    with suppress(FederationError):
        for since_us, snapshot_id in reversed(store.retained(pin).log):
            if snapshot_id == pin.snapshot_id:
                return since_us // 1000
    return None


def or_error(call: Callable[[], T]) -> T | FederationError:
    try:
        return call()
    except FederationError as error:
        return error


def measured(log: Measures, topics: set[str]) -> dict[str, LogBounds | FederationError]:
    """Measure in one round for each cluster; a topic that is gone must not hide the others."""
    bounds: dict[str, LogBounds | FederationError] = {}
    for own in by_cluster(sorted(topics)).values():
        left = list(own)
        while left:
            try:
                bounds |= log.measure(left)
                break
            except UnknownTopic as error:
                missing = str(error.facts["topic"])
                bounds[missing] = error
                left.remove(missing)
            except FederationError as error:
                bounds |= dict.fromkeys(left, error)
                break
    return bounds


def untiered_of(
    name: TableName, mark: Watermark, bounds: LogBounds | FederationError
) -> Untiered | FederationError:
    if isinstance(bounds, FederationError):
        return bounds
    return or_error(
        lambda: tuple(zip(bounds.partitions, check_log(name, mark, bounds), strict=True))
    )


def waiting_of(
    marks: Mapping[TableName, Watermark],
    untiered: Mapping[TableName, Untiered | FederationError],
) -> dict[tuple[str, int], OffsetRange]:
    """Return what of each partition is not tiered, by topic's address: of two tables of a topic, what waits longer."""
    waiting: dict[tuple[str, int], OffsetRange] = {}
    for name, spans in untiered.items():
        for _, span in () if isinstance(spans, FederationError) else spans:
            key = marks[name].address, span.partition
            if len(span) and (key not in waiting or span.start < waiting[key].start):
                waiting[key] = span
    return waiting


def by_topic(
    waiting: Mapping[tuple[str, int], OffsetRange],
) -> dict[str, tuple[OffsetRange, ...]]:
    ranges: dict[str, tuple[OffsetRange, ...]] = {}
    for (topic, _), span in waiting.items():
        ranges[topic] = (*ranges.get(topic, ()), span)
    return ranges


def standing(
    pin: Pin, untiered: Untiered, look: BrokerLook, *, published_ms: int | None, now_ms: int
) -> TableStatus:
    """Describe a bound table whose log could be measured."""
    mark = pin.watermark
    if mark is None:
        raise ValueError(f"{pin.table} is not bound to a topic")
    each_partition = []
    for limits, span in untiered:
        key = mark.address, span.partition
        first = look.samples.get(key) if len(span) else None
        each_partition.append(
            PartitionStanding(
                partition=span.partition,
                log_start=limits.log_start,
                watermark=span.start,
                log_end=limits.log_end,
                lag=len(span),
                headroom=span.start - limits.log_start,
                oldest_ms=None if first is None else first.timestamp_ms,
                lag_bytes=None if first is None else round(first.mean_bytes * len(span)),
                newest_ms=look.newest_ms.get(key),
            )
        )
    lag = sum(each.lag for each in each_partition)
    oldest = [each.oldest_ms for each in each_partition if each.oldest_ms is not None]
    lag_s = max(0.0, (now_ms - min(oldest)) / 1000) if oldest else None
    retention = look.retained.get(mark.address)
    retention_s = None if retention is None else retention.seconds
    sizes = [each.lag_bytes for each in each_partition if each.lag]
    return TableStatus(
        table=str(pin.table),
        topic=mark.address,
        snapshot_id=pin.snapshot_id,
        lag=lag,
        partitions=tuple(each_partition),
        lag_bytes=0 if not lag else None if None in sizes else sum(filter(None, sizes)),
        lag_s=lag_s,
        retention_s=retention_s,
        headroom_s=None if retention_s is None or lag_s is None else retention_s - lag_s,
        is_bounded_by_size=retention is not None and retention.partition_bytes is not None,
        gap_offsets=sum(map(len, mark.gaps)),
        skipped_records=len(mark.skips),
        accepted_snapshots=len(mark.accepted),
        last_publish=asdict(mark.publish_outcomes),
        published_ms=published_ms if mark.publish is None else mark.publish.committed_ms,
    )


def refused(name: TableName, pin: Pin | None, error: FederationError) -> TableStatus:
    return TableStatus(
        table=str(name),
        topic=None if pin is None or pin.watermark is None else pin.watermark.address,
        snapshot_id=None if pin is None else pin.snapshot_id,
        lag=0,
        partitions=(),
        error=error.message,
        error_class=type(error).__name__,
    )
