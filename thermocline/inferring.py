"""Columns of a new table from the newest records of its topic, and what is said of them."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow.compute as pc

from connectors.decoding.framing import HEADERS_WITH_IDS, Side
from connectors.decoding.json.infer import Inferred, infer_columns
from connectors.decoding.json.samples import (
    Samples,
    change_events,
    placeholders,
    read_samples,
    varying_names,
)
from connectors.decoding.json.wishes import Refusal, Wishes, column_option
from connectors.kafka.admin import RetentionReader
from planner.errors import BadBinding, BadConfig
from planner.names import (
    KAFKA_HEADERS,
    KAFKA_OFFSET,
    KAFKA_PARTITION,
    KAFKA_TIMESTAMP,
    KAFKA_VALUE,
    first_of,
)
from planner.offsets import OffsetRange
from planner.ports import Log, TopicSource
from planner.seam.binding import Binding
from planner.seam.cut import LogBounds
from planner.sql_text import spell
from thermocline.output.units import span_text

#: Newest records of each partition that are looked at.
SAMPLES_PER_PARTITION = 500
SAMPLE_TIMEOUT_S = 30.0
#: Newest records of each partition whose headers are looked at.
_WITH_HEADERS = 10


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest records of a topic, and when the last of them was written, in seconds since 1970.

    ``samples`` are those with a value; ``tombstones`` counts the others. ``written_s`` is None where no record has a time.
    """

    samples: Samples
    tombstones: int
    written_s: float | None


def newest_records(log: Log, bounds: LogBounds) -> Newest:
    """Read samples. Raises BadConfig: the topic has no record with a value."""
    ranges = [
        OffsetRange(p.partition, max(p.log_start, p.log_end - SAMPLES_PER_PARTITION), p.log_end)
        for p in bounds.partitions
    ]
    values: list[tuple[str, bytes]] = []
    times: list[float] = []
    tombstones = 0
    for batch in log.fetch(TopicSource(bounds.topic), ranges, timeout_s=SAMPLE_TIMEOUT_S):
        columns = (
            batch[name].to_pylist() for name in (KAFKA_PARTITION, KAFKA_OFFSET, KAFKA_VALUE)
        )
        values += [
            (f"partition {partition}, offset {offset}", value)
            for partition, offset, value in zip(*columns, strict=True)
            if value is not None
        ]
        tombstones += batch[KAFKA_VALUE].null_count
        newest = pc.max(batch[KAFKA_TIMESTAMP]).as_py()
        if newest is not None:
            times.append(newest.timestamp())
    if not values:
        raise BadConfig(
            f"topic {bounds.topic} holds no record to infer columns from{_why_none(bounds, tombstones)}; give them with --column.",
            topic=bounds.topic,
        )
    return Newest(read_samples(values), tombstones, max(times, default=None))


def refuse_ids_in_headers(log: Log, bounds: LogBounds, sides: Iterable[Side]) -> None:
    """Look at the newest records, of which there may be none.

    Raises:
        BadConfig: one has the id or GUID of its schema in a header, where decoders do not look.
    """
    prefixes = {prefix: side for side in sides for prefix in HEADERS_WITH_IDS[side]}
    if not prefixes:
        return
    ranges = [
        OffsetRange(p.partition, max(p.log_start, p.log_end - _WITH_HEADERS), p.log_end)
        for p in bounds.partitions
        if p.log_start < p.log_end
    ]
    source = TopicSource(bounds.topic, with_headers=True)
    for batch in log.fetch(source, ranges, timeout_s=SAMPLE_TIMEOUT_S):
        headers = pc.list_flatten(batch[KAFKA_HEADERS]).field("key")
        for name in pc.unique(headers).to_pylist():
            for prefix, side in prefixes.items():
                if name.startswith(prefix):
                    raise BadConfig(
                        f"records of topic {bounds.topic} have the id of their {side}'s schema in the header {name}, which is "
                        f"not read; have their producer write it in front of the {side}, as serializers do by default.",
                        topic=bounds.topic,
                    )


def _why_none(bounds: LogBounds, tombstones: int) -> str:
    if all(each.log_end == 0 for each in bounds.partitions):
        return ""
    if all(each.log_start == each.log_end for each in bounds.partitions):
        return ": what it had is removed, by its retention or on request"
    if tombstones:
        return f": the newest {tombstones} are tombstones, which have no value"
    return ": the newest are parts of transactions"


def inferred_columns(
    newest: Newest, wishes: Wishes, binding: Binding, registries: Collection[str] = ()
) -> Inferred:
    """Infer the columns of a table; ``registries`` are the names of configured schema registries.

    Raises:
        BadBinding: with every field that becomes no column, and what to type for each.
    """
    samples, refusals = newest.samples, list[Refusal]()
    inferred = infer_columns(samples.records, wishes)
    if not samples.records or binding.on_error == "fail":
        ways: tuple[str, ...] = ()
        if samples.records:
            ways = ("--on-error skip", "--on-error null")
        elif samples.schema_ids:
            ways = _registry_ways(registries)
        refusals = [Refusal(text, ways) for text in _unreadable(samples)]
    if samples.records:
        refusals += inferred.refusals
    if refusals:
        raise refused(refusals, f"topic {binding.address}")
    return inferred


def _registry_ways(registries: Collection[str]) -> tuple[str, ...]:
    """Return what gives a table of Avro records its registry, where there is none of an empty name."""
    named = tuple(f"--registry {name}" for name in sorted(registries) if name)
    return named or ("configure [schema_registry], with url, and create the table then",)


def refused(refusals: Sequence[Refusal], where: str) -> BadBinding:
    """Return the error of a table that is not made: one line for each refusal."""
    lines = [
        f"\n  {refusal.reason}" + (f": {' or '.join(refusal.ways)}" if refusal.ways else "")
        for refusal in refusals
    ]
    return BadBinding(
        f"no table was made over {where}:{''.join(lines)}", refusals=len(refusals)
    )


def report(
    newest: Newest, inferred: Inferred, clusters: Mapping[str, Mapping[str, str]], address: str
) -> list[str]:
    """Say what a person should know of inferred columns, a line each."""
    samples = newest.samples
    lines = []
    if inferred.left_out:
        fields = first_of([f"{spell(path)} ({reason})" for path, reason in inferred.left_out])
        lines.append(f"no columns, for want of a type: {', '.join(fields)}")
    if newest.tombstones:
        count = _samples_of(newest.tombstones, samples.total + newest.tombstones)
        lines.append(f"{count} are tombstones, which have no value: they become no rows")
    lines += _unreadable(samples)
    if inferred.whole:
        fields = first_of([f"{spell(path)} ({count})" for path, count in inferred.whole])
        option = column_option(inferred.whole[0][0], "double")
        lines.append(
            f"long, since whole in all samples: {', '.join(fields)}; for one that can have a fraction: {option}"
        )
    hints = varying_names(samples.records), change_events(samples.records)
    lines += [hint for hint in hints if hint is not None]
    missing = first_of([spell(path) for path in placeholders(samples.records)])
    if missing:
        lines.append(
            f"{', '.join(missing)}: Debezium's __debezium_unavailable_value stands for a value that did not change, as a text"
        )
    retention = (
        None if newest.written_s is None else RetentionReader(clusters)([address]).get(address)
    )
    if newest.written_s is not None and retention is not None and retention.seconds is not None:
        age_s = time.time() - newest.written_s
        if age_s > retention.seconds:
            lines.append(
                f"the newest record is {span_text(age_s)} old, and the topic keeps records for "
                f"{span_text(retention.seconds)}: Kafka may remove all of them at any time; tier now"
            )
    return lines


def _unreadable(samples: Samples) -> list[str]:
    return [
        f"{_samples_of(group.count, samples.total)} do not decode, the first at {group.first}: {group.reason}"
        for group in samples.unreadable
    ]


def _samples_of(count: int, total: int) -> str:
    return f"{count:,} of {total:,} samples"
