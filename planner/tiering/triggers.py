"""When a table is published: once its files would be full, its oldest row old, or its tail a danger.

A reader sees every committed record with or without tiering, so nothing here is about freshness. Waiting fills files;
age, the tail budget and the log's retention end the wait. Facts in, decision out: the caller measures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from planner.names import TableName
from planner.seam.binding import TIER_PREFIX, Binding, count_property
from planner.seam.cut import LogBounds, Pin, check_log
from planner.seam.formats import bad_property
from planner.seam.range_check import LEAST_DELETES_S, check_deletes

Distribution = Literal["auto", "none", "hash"]
#: Who writes data files: the tasks that decode records, where they can, or Iceberg's Spark writer.
Writer = Literal["tasks", "spark"]
#: Reasons of a publish, most urgent first.
Kind = Literal["pressure", "bytes", "age"]

#: Properties of a table that only its tierer reads.
MAX_AGE_S = TIER_PREFIX + "max_age_s"
MAX_ROWS = TIER_PREFIX + "max_rows"
DISTRIBUTION = TIER_PREFIX + "distribution"
WRITER = TIER_PREFIX + "writer"
#: Iceberg's own, "Table behavior properties".
TARGET_FILE_BYTES = "write.target-file-size-bytes"
DEFAULT_TARGET_FILE_BYTES = 512 * 1024**2

#: Two publishes an hour at least while rows arrive. Each is a snapshot, a metadata file, and a data file in every
#: partition with a row: what a publish costs hardly depends on how many rows it moves.
DEFAULT_MAX_AGE_S = 1800.0
#: A proxy's default bounds of a tail (``[server]`` in the configuration).
DEFAULT_TAIL_ROWS = 5_000_000
DEFAULT_TAIL_BYTES = 2 * 1024**3
#: The share of a budget or of the log's retention at which rows are published at any size of their files. The
#: other half is for the publish itself, and for a tierer that has just died.
PRESSURE_SHARE = 0.5
#: Publish if retention reaches untiered rows sooner than this, at its observed pace.
URGENT_S = 600.0
#: Until a table has rows to learn from: Parquet with zstd against JSON, as measured on the benchmark's records.
ASSUMED_COMPRESSION = 0.25
#: Fewer rows than this say little of a table's bytes per row: footers and dictionaries weigh too much.
_ENOUGH_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class TierOptions:
    """How one table wants to be tiered. ``max_rows`` bounds one publish; None leaves it to the service."""

    max_age_s: float = DEFAULT_MAX_AGE_S
    max_rows: int | None = None
    distribution: Distribution = "auto"
    writer: Writer = "tasks"
    target_file_bytes: int = DEFAULT_TARGET_FILE_BYTES


@dataclass(frozen=True, slots=True)
class ColdSurvey:
    """Sizes by one metadata file.

    ``rows`` and ``file_bytes`` count the head's data files. ``published_at_s`` is when the newest watermark was
    committed, in seconds since 1970, where known. ``partition_values`` is how many partitions the newest publish with rows
    wrote to: 1 without partitioning, None before there was one.
    """

    options: TierOptions = TierOptions()
    rows: int = 0
    file_bytes: int = 0
    published_at_s: float | None = None
    partitioned: bool = False
    partition_values: int | None = 1

    def bytes_per_row(self, log_bytes_per_offset: float) -> float:
        """Bytes per row in a data file: as observed, else estimated from records in the log."""
        if self.rows >= _ENOUGH_ROWS and self.file_bytes > 0:
            return self.file_bytes / self.rows
        return log_bytes_per_offset * ASSUMED_COMPRESSION


@dataclass(frozen=True, slots=True)
class LogRetention:
    """Retention of every partition of a topic; None: without bound, or it could not be read.

    ``earlier`` is a measurement ``elapsed_s`` seconds before the newest one: it tells how fast log starts rise.
    ``deletes_s``: how long a compacted topic keeps deletes; infinite: it is not compacted.
    """

    seconds: float | None = None
    partition_bytes: int | None = None
    earlier: LogBounds | None = None
    elapsed_s: float = 0.0
    deletes_s: float | None = None


@dataclass(frozen=True, slots=True)
class Lag:
    """The log above the watermark. ``rows`` counts offsets, an upper bound.

    ``log_bytes`` and ``file_bytes`` are estimates: the records as they are, and as data files. ``age_s`` is an
    upper bound on how long the oldest has been waiting. ``headroom_s`` is how long until retention may remove
    untiered rows, ``headroom_rows`` how many offsets it may still remove before; None where nothing tells.
    ``longest_bytes`` is the longest partition's share of ``log_bytes``.
    """

    rows: int = 0
    log_bytes: float = 0.0
    file_bytes: float = 0.0
    age_s: float = 0.0
    headroom_s: float | None = None
    headroom_rows: int | None = None
    longest_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class Trigger:
    """Why a table is published now. ``fullness`` is the measure over its limit: 1 and above."""

    kind: Kind
    fullness: float

    @property
    def urgency(self) -> tuple[int, float]:
        """Sorts triggers: the greatest first."""
        return -get_args(Kind).index(self.kind), self.fullness


def parse_options(table: TableName, properties: Mapping[str, str]) -> TierOptions:
    """Read ``thermocline.tier.*`` and Iceberg's own properties of files.

    Raises:
        BadBinding: an unknown key or a value that does not fit. Tiering of this table stops; reading does not.
    """
    allowed = (MAX_AGE_S, MAX_ROWS, DISTRIBUTION, WRITER)
    for key in properties:
        if key.startswith(TIER_PREFIX) and key not in allowed:
            what = f"unknown property {key}; known are {', '.join(allowed)}."
            raise bad_property(table, key, what)
    # Iceberg's own ``hash`` is respected. Its ``none`` is the property that we set on new tables, and its ``range``
    # would read the log twice.
    default = "hash" if properties.get("write.distribution-mode") == "hash" else "auto"
    chosen = {DISTRIBUTION: default, WRITER: "tasks", **properties}
    for key, choices in ((DISTRIBUTION, get_args(Distribution)), (WRITER, get_args(Writer))):
        if chosen[key] not in choices:
            what = f"property {key} is {chosen[key]!r}; it must be one of {', '.join(choices)}."
            raise bad_property(table, key, what)
    return TierOptions(
        max_rows=count_property(table, properties, MAX_ROWS),
        target_file_bytes=count_property(table, properties, TARGET_FILE_BYTES)
        or DEFAULT_TARGET_FILE_BYTES,
        max_age_s=float(count_property(table, properties, MAX_AGE_S) or DEFAULT_MAX_AGE_S),
        distribution=chosen[DISTRIBUTION],  # type: ignore[arg-type]
        writer=chosen[WRITER],  # type: ignore[arg-type]
    )


def measure_lag(
    pin: Pin,
    bounds: LogBounds,
    survey: ColdSurvey,
    retention: LogRetention,
    *,
    bytes_per_offset: float,
    age_s: float,
) -> Lag:
    """Turn one measurement of a bound table's log into its lag.

    Raises:
        TombstonesExpired: a keyed table's log may have lost deletes of rows that it has.
        TailGap, LogTruncated, TopicRecreated, ClusterChanged: as ``plan_cut``.
    """
    if pin.watermark is None:
        raise ValueError(f"{pin.table} is not bound to a topic")
    untiered = [item for item in check_log(pin.table, pin.watermark, bounds) if len(item)]
    rows = sum(map(len, untiered))
    if not rows:
        return Lag()
    if survey.rows and pin.binding is not None and pin.binding.upsert is not None:
        address, limit_s = pin.watermark.address, retention.deletes_s
        check_deletes(str(pin.table), address, age_s=age_s, retention_s=limit_s)
    starts = {each.partition: each.log_start for each in bounds.partitions}
    # Offsets a second, of log starts that rose.
    paces = {
        each.partition: (starts[each.partition] - each.log_start) / retention.elapsed_s
        for each in (retention.earlier.partitions if retention.earlier else ())
        if retention.elapsed_s > 0 and each.log_start < starts.get(each.partition, 0)
    }
    headrooms = [
        (item.start - starts[item.partition]) / paces[item.partition]
        for item in untiered
        if item.partition in paces
    ]
    if retention.seconds is not None:
        headrooms.append(max(0.0, retention.seconds - age_s))
    return Lag(
        rows=rows,
        log_bytes=rows * bytes_per_offset,
        file_bytes=rows * survey.bytes_per_row(bytes_per_offset),
        age_s=age_s,
        headroom_s=min(headrooms, default=None),
        headroom_rows=min(item.start - starts[item.partition] for item in untiered),
        longest_bytes=max(map(len, untiered)) * bytes_per_offset,
    )


def decide(
    lag: Lag, survey: ColdSurvey, binding: Binding, retention: LogRetention
) -> Trigger | None:
    """Return why the table should be published now, the most urgent reason, or None to wait."""
    if not lag.rows:
        return None
    options = survey.options
    measures: dict[Kind, list[float]] = {
        "pressure": [
            lag.rows / (PRESSURE_SHARE * (binding.max_tail_rows or DEFAULT_TAIL_ROWS)),
            lag.log_bytes / (PRESSURE_SHARE * (binding.max_tail_bytes or DEFAULT_TAIL_BYTES)),
        ],
        "bytes": [
            lag.file_bytes / (options.target_file_bytes * (survey.partition_values or 1))
        ],
        "age": [lag.age_s / options.max_age_s],
    }
    if retention.seconds is not None:
        measures["pressure"].append(_fullness(lag.age_s, PRESSURE_SHARE * retention.seconds))
    if retention.partition_bytes is not None:
        measures["pressure"].append(
            _fullness(lag.longest_bytes, PRESSURE_SHARE * retention.partition_bytes)
        )
    if binding.upsert is not None:
        deletes_s = LEAST_DELETES_S if retention.deletes_s is None else retention.deletes_s
        measures["pressure"].append(_fullness(lag.age_s, PRESSURE_SHARE * deletes_s))
    if lag.headroom_s is not None and lag.headroom_s <= min(
        URGENT_S, PRESSURE_SHARE * (retention.seconds or 2 * URGENT_S)
    ):
        measures["pressure"].append(2.0)
    for kind, ratios in measures.items():
        if max(ratios) >= 1:
            return Trigger(kind, max(ratios))
    return None


def _fullness(measure: float, limit: float) -> float:
    """Brokers take 0 for a time or a size to keep records for."""
    return measure / limit if limit > 0 else math.inf


def exceeds_tail_budget(lag: Lag, binding: Binding) -> bool:
    """Whether statements on the table are refused (``TailTooLarge``) by a proxy with the table's budget."""
    return lag.rows > (binding.max_tail_rows or DEFAULT_TAIL_ROWS) or lag.log_bytes > (
        binding.max_tail_bytes or DEFAULT_TAIL_BYTES
    )
