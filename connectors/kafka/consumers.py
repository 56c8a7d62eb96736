"""A pool of warm consumers: connected, assigned nothing, ready to read any partition."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence

from confluent_kafka import KafkaException

from connectors.kafka import librdkafka
from connectors.kafka.consuming import Consuming
from connectors.kafka.messages import MessageConsumer
from connectors.kafka.settings import (
    Properties,
    consumer_properties,
    following_properties,
    refused,
)
from connectors.kafka.structs import StructConsumer
from planner.offsets import OffsetRange

#: What a follower's consumer holds that was not taken yet: some hundred thousand records.
FOLLOWER_BUFFER_BYTES = 32 * 1024 * 1024


class ConsumerPool:
    """Lends each consumer to one reader at a time. Thread-safe."""

    def __init__(
        self,
        settings: Mapping[str, str],
        *,
        buffer_bytes: int,
        max_idle: int,
        with_structs: bool = True,
    ) -> None:
        """Without ``with_structs`` every consumer makes an object per record."""
        self._settings = settings
        self._buffer_bytes = buffer_bytes
        self._max_idle = max_idle
        self._library = librdkafka.library() if with_structs else None
        self._lock = threading.Lock()
        #: Those that read headers are of another kind.
        self._idle: dict[bool, list[Consuming]] = {False: [], True: []}
        self._closed = False

    @contextlib.contextmanager
    def assigned(
        self, topic: str, ranges: Sequence[OffsetRange], *, with_headers: bool
    ) -> Iterator[Consuming]:
        """Lend a consumer that reads from the start of every range.

        After a failure the consumer is closed, not kept: it may be in any state. Closing early
        (``GeneratorExit`` in the reader) is not a failure; what was fetched ahead is dropped.
        """
        idle = self._idle[with_headers]
        with self._lock:
            reused = idle.pop() if idle else None
        consumer = reused or self._new(
            consumer_properties(self._settings, self._buffer_bytes), with_headers=with_headers
        )
        try:
            consumer.assign(topic, {item.partition: item.start for item in ranges})
            yield consumer
        except GeneratorExit:
            self._give_back(consumer, idle)
            raise
        except BaseException:
            consumer.close()
            raise
        self._give_back(consumer, idle)

    def following(self, *, with_headers: bool) -> Consuming:
        """Return a consumer of its own for a reader that goes on; the caller closes it."""
        properties = following_properties(self._settings, FOLLOWER_BUFFER_BYTES)
        return self._new(properties, with_headers=with_headers)

    def close(self) -> None:
        """Close the idle consumers; those on loan are closed when they come back."""
        with self._lock:
            self._closed = True
            idle = [consumer for consumers in self._idle.values() for consumer in consumers]
            for consumers in self._idle.values():
                consumers.clear()
        for consumer in idle:
            consumer.close()

    def _new(self, properties: Properties, *, with_headers: bool) -> Consuming:
        try:
            if self._library is None or with_headers:
                return MessageConsumer(properties, with_headers=with_headers)
            return StructConsumer(self._library, properties)
        except KafkaException as error:
            raise refused(self._settings, str(error)) from error

    def _give_back(self, consumer: Consuming, idle: list[Consuming]) -> None:
        consumer.release()
        with self._lock:
            keep = not self._closed and len(idle) < self._max_idle
            if keep:
                idle.append(consumer)
        if not keep:
            consumer.close()
