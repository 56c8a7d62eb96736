"""Kafka's admin client: one future for many offsets, topic ids that do not leak, and topics' settings as far as told."""

from __future__ import annotations

import contextlib
import ctypes
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import confluent_kafka
from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from connectors.kafka.errors import translate
from connectors.kafka.settings import (
    CLIENT_DEFAULTS,
    checked,
    named_section,
    refused,
    settings_of,
)
from planner.names import by_cluster, topic_name
from planner.tiering.triggers import LogRetention

#: This version leaks a reference to the id of every topic that it describes: 150 bytes for each measurement of a log,
#: 500 MB a day at 40 statements a second. Release the reference in no other version.
_KEEPS_IDS = str(confluent_kafka.__version__) == "2.16.1"

_give_back = ctypes.pythonapi.Py_DecRef
_give_back.argtypes, _give_back.restype = [ctypes.py_object], None


class AdminAnswer:
    """The part of a future that the client needs, with one lock where that has three, and no list of who waits.

    The client's thread takes Python's lock from a statement for as long as it says what it got.
    """

    def __init__(self) -> None:
        self._ready = threading.Lock()
        self._ready.acquire()
        self._result: Any = None
        self._error: BaseException | None = None

    def set_result(self, result: Any) -> None:
        self._result = result
        self._ready.release()

    def set_exception(self, error: BaseException) -> None:
        self._error = error
        self._ready.release()

    def result(self, timeout_s: float) -> Any:
        if not self._ready.acquire(timeout=timeout_s):
            raise TimeoutError
        self._ready.release()
        if self._error is not None:
            raise self._error
        return self._result


class _Descriptions(AdminAnswer):
    """Releases the id of each topic once, also where the answer is not read: who reads it has a reference of its own."""

    def set_result(self, result: Any) -> None:
        if _KEEPS_IDS:
            for description in result:
                if not isinstance(description, KafkaError):
                    _give_back(description.topic_id)
        super().set_result(result)


class Admin(AdminClient):
    @classmethod
    def of(
        cls, settings: Mapping[str, str], note: Callable[[KafkaError], None] | None = None
    ) -> Admin:
        """Build a client with a user's properties, or raise BadConfig; ``note`` gets the errors of its connections."""
        properties: dict[str, Any] = {**CLIENT_DEFAULTS, **settings}
        if note is not None:
            properties["error_cb"] = note
        try:
            return cls(properties)
        except KafkaException as error:
            raise refused(settings, str(error)) from error

    def offsets(
        self, pairs: list[TopicPartition], level: IsolationLevel, timeout_s: float
    ) -> AdminAnswer:
        """As ``list_offsets``; ``offset`` of each is the kind of offset wanted. The answer maps each to a result or an error.

        A future per partition costs 15 us: over 1,000 partitions most of the time of a cut.
        """
        answer = AdminAnswer()
        super(AdminClient, self).list_offsets(
            pairs, answer, isolation_level_value=level.value, request_timeout=timeout_s
        )
        return answer

    def described(self, topics: Sequence[str], timeout_s: float) -> AdminAnswer:
        """Describe topics by their addresses (``planner.names``). The answer has a description or an error for each, in order."""
        answer = _Descriptions()
        names = [topic_name(topic) for topic in topics]
        super(AdminClient, self).describe_topics(names, answer, request_timeout=timeout_s)  # type: ignore[arg-type]
        return answer

    def settings_of(self, topics: Sequence[str], timeout_s: float) -> dict[str, Future[Any]]:
        """Request the settings of topics by address; each answer has an entry with a ``value`` by name."""
        resources = {
            topic: ConfigResource(ResourceType.TOPIC, topic_name(topic)) for topic in topics
        }
        answers = self.describe_configs(list(resources.values()), request_timeout=timeout_s)
        return {topic: answers[resource] for topic, resource in resources.items()}


def admins_of(clusters: Mapping[str, Mapping[str, str]]) -> dict[str, Admin]:
    """Build a client for each cluster, by its name. Raises BadConfig as ``KafkaClusters``."""
    admins = {}
    for name, settings in clusters.items():
        with named_section(name):
            admins[name] = Admin.of(checked(settings))
    return admins


_TIMEOUT_S = 5.0
#: How long it is not asked again for how long a topic keeps deletes.
_DELETES_REFRESH_S = 60.0


class RetentionReader:
    """Reads ``retention.ms``, ``retention.bytes`` and ``delete.retention.ms``. Its clients connect once it is made. Thread-safe."""

    def __init__(
        self, clusters: Mapping[str, Mapping[str, str]], timeout_s: float = _TIMEOUT_S
    ) -> None:
        """``clusters`` as for ``KafkaClusters``, with its errors."""
        self._admins = admins_of(clusters)
        self._timeout_s = timeout_s

    def __call__(self, topics: Sequence[str]) -> dict[str, LogRetention]:
        """Return the retention of each topic, by address, whose settings are readable."""
        retentions: dict[str, LogRetention] = {}
        answers: dict[str, Future[Any]] = {}
        for cluster, own in by_cluster(topics).items():
            if cluster in self._admins:
                answers |= self._admins[cluster].settings_of(own, self._timeout_s)
        for name, answer in answers.items():
            with contextlib.suppress(KafkaException, TimeoutError):
                settings = answer.result(self._timeout_s + 1)
                values = {key: entry.value for key, entry in settings.items()}
                policy = values.get("cleanup.policy") or "delete"
                retention = LogRetention(deletes_s=math.inf)
                if "delete" in policy:
                    retention = replace(
                        retention,
                        seconds=_seconds(values.get("retention.ms")),
                        partition_bytes=_bound(values.get("retention.bytes")),
                    )
                if "compact" in policy:
                    deletes_s = _seconds(values.get("delete.retention.ms"))
                    retention = replace(retention, deletes_s=deletes_s)
                retentions[name] = retention
        return retentions


class DeleteRetention:
    """How long topics keep deletes, read again now and then. Thread-safe."""

    def __init__(
        self,
        reader: Callable[[], Callable[[Sequence[str]], Mapping[str, LogRetention]]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``reader`` makes a ``RetentionReader``, which connects: only tables that need it pay. ``clock`` is since 1970."""
        self._make_reader, self._clock = reader, clock
        self._lock = threading.Lock()
        self._reader: Callable[[Sequence[str]], Mapping[str, LogRetention]] | None = None
        self._read_s: dict[str, float] = {}
        #: Of each topic, in order of time: since when, and how many seconds.
        self._values: dict[str, list[tuple[float, float]]] = {}

    def __call__(self, topic: str, since_s: float) -> float | None:
        """Return the shortest time that a topic kept deletes since ``since_s``, as far as it was read; infinite: not compacted.

        None: its settings could not be read yet.
        """
        with self._lock:
            now_s = self._clock()
            if abs(now_s - self._read_s.get(topic, -math.inf)) >= _DELETES_REFRESH_S:
                self._read(topic, now_s)
            values = self._values.get(topic, [])
            ends_s = [at_s for at_s, _ in values[1:]] + [math.inf]
            in_force = (
                seconds
                for (_, seconds), end_s in zip(values, ends_s, strict=False)
                if end_s > since_s
            )
            return min(in_force, default=None)

    def _read(self, topic: str, now_s: float) -> None:
        if self._reader is None:
            self._reader = self._make_reader()
        retention = self._reader([topic]).get(topic)
        self._read_s[topic] = now_s
        if retention is None or retention.deletes_s is None:
            return
        values = self._values.setdefault(topic, [])
        if not values or values[-1][1] != retention.deletes_s:
            values.append((now_s, retention.deletes_s))


def _seconds(text: str | None) -> float | None:
    milliseconds = _bound(text)
    return None if milliseconds is None else milliseconds / 1000


def _bound(text: str | None) -> int | None:
    """Kafka writes -1 for no bound."""
    value = int(text) if text else -1
    return value if value >= 0 else None


def is_compacted(clusters: Mapping[str, Mapping[str, str]], topic: str) -> bool:
    """Return whether the log cleaner may remove records of ``topic`` (``cleanup.policy``). Raises as ``topic_settings``."""
    return "compact" in topic_settings(clusters, topic)["cleanup.policy"]


def topic_settings(clusters: Mapping[str, Mapping[str, str]], topic: str) -> dict[str, str]:
    """Return the settings of ``topic``, by Kafka's names.

    Raises BadConfig as ``KafkaLog``; UnknownTopic or LogUnavailable also when the user may not describe the topic.
    """
    # By its name: a client without a reference is gone, and its requests with it.
    admin = Admin.of(checked(settings_of(clusters, topic)))
    answer = admin.settings_of([topic], _TIMEOUT_S)[topic]
    try:
        settings = answer.result(_TIMEOUT_S + 1)
    except KafkaException as error:
        raise translate(error.args[0], topic, acls="DescribeConfigs") from error
    return {name: entry.value for name, entry in settings.items() if entry.value is not None}
