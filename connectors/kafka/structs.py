"""Consuming through librdkafka's C interface: a batch of structs at a time, gathered to columns."""

from __future__ import annotations

import ctypes
import math
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import repeat

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from connectors.kafka.consuming import (
    FEW,
    NO_RECORDS,
    NOTHING,
    ConsumedBatch,
    Event,
    raw_batch,
    timestamps,
)
from connectors.kafka.gathering import MAX_MESSAGES, FewMessages, Messages
from connectors.kafka.librdkafka import CONF_OK, CONSUMER, Library
from connectors.kafka.settings import Properties

#: Keys and values of one batch: far below the 2 GiB that 32-bit offsets reach, far above what is usual.
_MAX_BYTES = 256 * 1024 * 1024
#: Messages handled between two chances for other threads to run: 0.3 ms.
_CALLS = 2_048
_REASON_BYTES = 512


class StructConsumer:
    """``connectors.kafka.consuming.Consuming``, without headers."""

    def __init__(self, library: Library, properties: Properties) -> None:
        """Connect to nobody yet.

        Raises:
            KafkaException: librdkafka does not accept a property.
        """
        self._library = library
        self._slots = (ctypes.c_int64 * MAX_MESSAGES)()
        self._buffer = pa.py_buffer(self._slots)
        #: Messages at these places were taken from the client and not read yet.
        self._first = self._last = 0
        self._client = _client(library, properties)
        library.poll_set_consumer(self._client)
        self._queue = library.queue_get_consumer(self._client)
        # For a consumer that nobody closes. Not at exit: a thread may still be reading.
        self._closing = weakref.finalize(self, _close, library, self._client, self._queue)
        self._closing.atexit = False
        self._topic = ""
        self._assigned: tuple[int, ...] = ()

    def assign(self, topic: str, starts: Mapping[int, int]) -> None:
        """See ``Consuming.assign``."""
        with self._listed(topic, starts) as listed:
            self._check(self._library.assign(self._client, listed))
        self._topic, self._assigned = topic, tuple(starts)

    def pause(self, topic: str, partitions: Iterable[int]) -> None:
        """See ``Consuming.pause``."""
        with self._listed(topic, dict.fromkeys(partitions, 0)) as listed:
            self._check(self._library.pause_partitions(self._client, listed))

    def release(self) -> None:
        """See ``Consuming.release``."""
        # A partition stays paused through unassign and the next assign: it would never deliver again [ran].
        with self._listed(self._topic, dict.fromkeys(self._assigned, 0)) as listed:
            self._check(self._library.resume_partitions(self._client, listed))
        self._check(self._library.assign(self._client, None))
        self._destroy(self._last - self._first)

    def take(self, wait_s: float, limit: int, *, with_key: bool) -> ConsumedBatch:
        """See ``Consuming.take``."""
        if self._first == self._last:
            self._receive(wait_s, min(limit, MAX_MESSAGES))
        count = min(self._last - self._first, limit)
        if count == 0:
            return NOTHING
        messages = self._messages(count)
        if (fitting := messages.within(_MAX_BYTES)) < count:
            count = fitting
            messages = self._messages(count)
        try:
            return self._read(messages, with_key=with_key)
        finally:
            self._destroy(count)

    def close(self) -> None:
        """See ``Consuming.close``."""
        self._destroy(self._last - self._first)
        self._closing()

    def _receive(self, wait_s: float, limit: int) -> None:
        """Fill the slots. ``consume_batch_queue`` alone always waits its whole timeout."""
        first = self._library.consumer_poll(self._client, math.ceil(max(0.0, wait_s) * 1000))
        if first is None:
            return
        self._slots[0] = first
        rest = ctypes.addressof(self._slots) + ctypes.sizeof(ctypes.c_int64)
        more = self._library.consume_batch_queue(self._queue, 0, rest, limit - 1)
        self._first, self._last = 0, 1 + max(0, more)

    def _messages(self, count: int) -> Messages | FewMessages:
        if count <= FEW:
            return FewMessages(self._slots[self._first : self._first + count])
        return Messages(
            pa.Array.from_buffers(pa.int64(), count, [None, self._buffer], offset=self._first)
        )

    def _read(self, messages: Messages | FewMessages, *, with_key: bool) -> ConsumedBatch:
        raised = messages.events()
        events = tuple(
            Event(KafkaError(code), partition, offset) for code, partition, offset in raised
        )
        records = messages.records() if events else messages
        if not len(records.addresses):
            return ConsumedBatch(NO_RECORDS, events)
        return ConsumedBatch(self._columns(records, with_key=with_key), events)

    def _columns(self, records: Messages | FewMessages, *, with_key: bool) -> pa.RecordBatch:
        return raw_batch(
            records.partitions(),
            records.offsets(),
            timestamps(self._milliseconds(records.addresses)),
            records.keys() if with_key else None,
            None,
            records.values(),
        )

    def _milliseconds(self, addresses: pa.Array | Sequence[int]) -> list[int]:
        """The one field that is not in the struct that rdkafka.h declares."""
        timestamp = self._library.message_timestamp
        listed = addresses.to_pylist() if isinstance(addresses, pa.Array) else addresses
        times: list[int] = []
        for some in _portions(listed):
            times += map(timestamp, some, repeat(None))
        return times

    def _destroy(self, count: int) -> None:
        """Give the next ``count`` messages back to the client."""
        first, self._first = self._first, self._first + count
        for some in _portions(self._slots[first : self._first]):
            deque(map(self._library.message_destroy, some), 0)

    @contextmanager
    def _listed(self, topic: str, offsets: Mapping[int, int]) -> Iterator[int]:
        """A ``rd_kafka_topic_partition_list_t`` with these offsets."""
        name = topic.encode()
        listed: int = self._library.topic_partition_list_new(len(offsets))
        try:
            for partition, offset in offsets.items():
                self._library.topic_partition_list_add(listed, name, partition)
                self._library.topic_partition_list_set_offset(listed, name, partition, offset)
            yield listed
        finally:
            self._library.topic_partition_list_destroy(listed)

    def _check(self, code: int) -> None:
        if code:
            raise KafkaException(KafkaError(code))


def _portions(addresses: Sequence[int]) -> Iterator[Sequence[int]]:
    for at in range(0, len(addresses), _CALLS):
        yield addresses[at : at + _CALLS]


def _client(library: Library, properties: Properties) -> int:
    reason = ctypes.create_string_buffer(_REASON_BYTES)
    where = ctypes.addressof(reason)
    conf = library.conf_new()
    for name, value in properties.items():
        text = str(value).encode()
        if library.conf_set(conf, name.encode(), text, where, _REASON_BYTES) != CONF_OK:
            library.conf_destroy(conf)
            raise KafkaException(reason.value.decode(errors="replace"))
    # The client owns the properties from here on, unless it could not be made.
    client: int | None = library.new(CONSUMER, conf, where, _REASON_BYTES)
    if client is None:
        library.conf_destroy(conf)
        raise KafkaException(reason.value.decode(errors="replace"))
    return client


def _close(library: Library, client: int, queue: int) -> None:
    library.consumer_close(client)
    library.queue_destroy(queue)
    library.destroy(client)
