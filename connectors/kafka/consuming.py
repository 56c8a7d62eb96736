"""What a client of one topic gives: records as columns, and what else the brokers say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError

from planner.schema import HEADERS_TYPE, RAW_SCHEMA, TIMESTAMPTZ

#: Milliseconds beyond this do not fit microseconds in 64 bits (year 294247). A producer may write any number.
_MAX_MS = (2**63 - 1) // 1000
#: Up to so many records, looking at them one by one takes less than functions of whole columns do.
FEW = 512


@dataclass(frozen=True, slots=True)
class Event:
    """An end of a partition, or an error. ``offset`` is None where the event has none."""

    error: KafkaError
    partition: int
    offset: int | None


@dataclass(frozen=True, slots=True)
class ConsumedBatch:
    """``records`` (``RAW_SCHEMA``) in the order they arrived, which is that of offsets within a partition."""

    records: pa.RecordBatch
    events: tuple[Event, ...]

    def __bool__(self) -> bool:
        return bool(self.events) or self.records.num_rows > 0


class Consuming(Protocol):
    """A client that reads the partitions it is assigned, and joins no group. Not thread-safe.

    Whether its records have headers was said when it was made.
    """

    def assign(self, topic: str, starts: Mapping[int, int]) -> None:
        """Read these partitions from these offsets, and no others.

        Raises:
            KafkaException: the client refuses.
        """

    def take(self, wait_s: float, limit: int, *, with_key: bool) -> ConsumedBatch:
        """Wait for a record or an event, then take what is there: at most ``limit`` of both together."""

    def pause(self, topic: str, partitions: Iterable[int]) -> None:
        """Deliver no more of these partitions; what was fetched of them already may still come."""

    def release(self) -> None:
        """Drop the assignment and what was fetched ahead, so that the next one starts clean."""

    def close(self) -> None: ...


def raw_batch(
    partitions: pa.Array,
    offsets: pa.Array,
    timestamps: pa.Array,
    keys: pa.Array | None,
    headers: pa.Array | None,
    values: pa.Array,
) -> pa.RecordBatch:
    """Put columns together to ``RAW_SCHEMA``; keys and headers that were not asked for are null."""
    count = len(offsets)
    return pa.RecordBatch.from_arrays(
        [
            partitions,
            offsets,
            timestamps,
            pa.nulls(count, pa.binary()) if keys is None else keys,
            pa.nulls(count, HEADERS_TYPE) if headers is None else headers,
            values,
        ],
        schema=RAW_SCHEMA,
    )


def timestamps(milliseconds: Sequence[int]) -> pa.Array:
    """Null where the record has none (KafkaProducer's NO_TIMESTAMP is -1) or microseconds cannot hold it."""
    if len(milliseconds) <= FEW:
        return pa.array(
            [1000 * at if 0 <= at <= _MAX_MS else None for at in milliseconds], TIMESTAMPTZ
        )
    times = pa.array(milliseconds, pa.int64())
    is_valid = pc.and_(pc.greater_equal(times, 0), pc.less_equal(times, _MAX_MS))
    return pc.multiply(pc.if_else(is_valid, times, None), 1000).view(TIMESTAMPTZ)


NO_RECORDS = pa.RecordBatch.from_pylist([], RAW_SCHEMA)
NOTHING = ConsumedBatch(NO_RECORDS, ())
