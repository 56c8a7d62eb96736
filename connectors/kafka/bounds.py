"""Where a log starts and ends, and which log it is: one concurrent round of requests for all topics.

A round uses the partitions and topic ids of the one before, requests them again beside the offsets, and is repeated
when they differ. The cluster id stays while topic ids, which are random UUIDs (KIP-516), stay the same.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from connectors.kafka.admin import Admin, AdminAnswer
from connectors.kafka.errors import Meaning, is_tls_alert, meaning, no_answer, translate
from connectors.kafka.last_ends import LastEnds
from planner.errors import FederationError, LogUnavailable, UnknownTopic
from planner.names import topic_name
from planner.seam.cut import LogBounds, PartitionBounds

_PAUSE_S = 0.03
# Brokers learn of a topic some milliseconds after its creation was acknowledged.
_UNKNOWN_TOPIC_S = 0.3
#: A request to a leader that died waits for it until its time is over. The next round has another client.
_FIRST_ROUND_S = 1.0
#: Prepared requests: two a topic, for log ends and for log starts.
_MAX_POSITIONS = 32
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]

_Listed = Mapping[tuple[str, int], Any]


@dataclass(frozen=True, slots=True)
class _Identity:
    """Facts of a topic from the previous round."""

    topic_id: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BoundsRequest:
    """Requests under way. ``previous`` was noted before they were sent: answers may arrive out of order.

    ``offsets`` are log ends, log starts and, if wanted, high watermarks; none before partitions are known.
    ``may_cross``: the last round had a log start beyond the log end, both of the same time.
    """

    client: Admin
    topics: tuple[str, ...]
    deadline: float
    identities: Mapping[str, _Identity]
    previous: Mapping[str, LastEnds]
    described: AdminAnswer
    cluster: Future[Any] | None
    offsets: Sequence[AdminAnswer] = ()
    may_cross: bool = False


class _AskAgain(Exception):
    """The round did not settle. ``error`` is raised if the deadline passes."""

    def __init__(self, error: FederationError, pause_s: float = _PAUSE_S) -> None:
        super().__init__(error.message)
        self.error = error
        self.pause_s = pause_s


class _Crossed(_AskAgain):
    """A log starts beyond its end: retention moved the start since, or records of an open transaction are gone."""


class _Unanswered(_AskAgain):
    """There is no answer, so the round says less than one before it did."""


class _Silent(_Unanswered):
    """The client let the time limit pass: it has lost the request, or goes on to ask a leader that is gone."""


class _Refusals:
    """Remembers a refused login until brokers answer. Only events show it, some once in 10 s: requests just time out."""

    def __init__(self) -> None:
        self.last: KafkaError | None = None

    def note(self, error: KafkaError) -> None:
        if is_tls_alert(error):
            self.last = KafkaError(KafkaError._SSL)
        elif meaning(error) is Meaning.DENIED:
            self.last = error

    def forget(self) -> None:
        self.last = None


class BoundsReader:
    """Measures logs. Thread-safe; one connection per broker, apart from those of the fetches."""

    def __init__(self, settings: Mapping[str, str], *, with_high_watermark: bool) -> None:
        # Not a bound method: a cycle of client and owner would let its threads outlive both.
        self._refusals = _Refusals()
        self._settings = settings
        self._admin = Admin.of(settings, self._refusals.note)
        self._with_high_watermark = with_high_watermark
        self._lock = threading.Lock()
        self._identities: dict[str, _Identity] = {}
        self._previous: dict[str, LastEnds] = {}
        self._cluster_id: str | None = None

    def measure(self, topics: Sequence[str], *, deadline: float) -> dict[str, LogBounds]:
        return self.settle(self.begin(topics, deadline=deadline))

    def begin_identity(self, topic: str, *, deadline: float) -> BoundsRequest:
        """Request the topic's id only; return at once."""
        client = self._admin
        described = client.described([topic], max(0.05, deadline - time.monotonic()))
        return BoundsRequest(client, (topic,), deadline, {}, {}, described, None)

    def settle_identity(self, round_: BoundsRequest) -> str:
        """Return the topic's id. Raises UnknownTopic, LogUnavailable: see ``planner.ports.Log.measure``."""
        topic = round_.topics[0]
        unknown_until = time.monotonic() + _UNKNOWN_TOPIC_S
        while True:
            try:
                return _identities(round_)[topic].topic_id
            except _AskAgain as again:
                self._pause(again, again, round_, unknown_until)
                round_ = self.begin_identity(topic, deadline=round_.deadline)

    def begin(
        self,
        topics: Sequence[str],
        *,
        deadline: float,
        is_first: bool = True,
        may_cross: bool = False,
    ) -> BoundsRequest:
        """Send a round and return at once. ``deadline`` is a time of ``time.monotonic``."""
        names = tuple(dict.fromkeys(topics))
        left_s = max(0.05, deadline - time.monotonic())
        timeout_s = min(left_s, _FIRST_ROUND_S) if is_first else left_s
        with self._lock:
            identities = {
                name: self._identities[name] for name in names if name in self._identities
            }
            previous = dict(self._previous)
            has_cluster = self._cluster_id is not None and len(identities) == len(names)
        client = self._admin
        client.poll(0)  # delivers to _Refusals, so that an outage's events do not pile up
        offsets = []
        if any(identity.partitions for identity in identities.values()):
            # Ends first: a broker answers in order on one connection, so the ids are not older than the ends.
            offsets.append(_requested(client, identities, _LATEST, timeout_s))
            offsets.append(_requested(client, identities, _EARLIEST, timeout_s))
            if self._with_high_watermark:
                high = _requested(client, identities, _LATEST, timeout_s, committed=False)
                offsets.append(high)
        described = client.described(names, timeout_s)
        cluster = None if has_cluster else client.describe_cluster(request_timeout=timeout_s)
        sent = (client, names, deadline, identities, previous, described, cluster)
        return BoundsRequest(*sent, offsets, may_cross)

    def settle(self, round_: BoundsRequest) -> dict[str, LogBounds]:
        """Wait for a round's answers, repeating it while that helps.

        Raises UnknownTopic, LogUnavailable: see ``planner.ports.Log.measure``.
        """
        unknown_until = time.monotonic() + _UNKNOWN_TOPIC_S
        reason: _AskAgain | None = None
        while True:
            try:
                return self._gather(round_)
            except _AskAgain as again:
                if reason is None or not _says_more(reason, again):
                    reason = again
                self._pause(again, reason, round_, unknown_until)
                round_ = self.begin(
                    round_.topics,
                    deadline=round_.deadline,
                    is_first=False,
                    may_cross=round_.may_cross or isinstance(again, _Crossed),
                )

    def _pause(
        self, again: _AskAgain, reason: _AskAgain, round_: BoundsRequest, unknown_until: float
    ) -> None:
        """Wait before the next round, or raise ``reason``. The next round gets a client that answers."""
        if isinstance(again, _Silent):
            self._replace(round_.client)
        is_unknown = isinstance(again.error, UnknownTopic)
        until = min(unknown_until, round_.deadline) if is_unknown else round_.deadline
        if time.monotonic() + again.pause_s >= until:
            raise self._why(reason.error, round_.topics[0]) from reason.__cause__
        time.sleep(again.pause_s)

    def _replace(self, client: Admin) -> None:
        """Replace a client that has lost a request: it loses the next ones, too (confluent-kafka-dotnet issue 1491).

        It happens about once in a hundred times after brokers stood still for seconds, and mostly after a leader has died:
        librdkafka 2.16 asks it for its partitions' offsets for minutes on, also where others lead them now.
        """
        client.poll(0)  # a refused login is an event, and no other call fetches it
        with self._lock:
            if self._admin is client:
                self._admin = Admin.of(self._settings, self._refusals.note)

    def _why(self, error: FederationError, topic: str) -> FederationError:
        self._admin.poll(0)
        refusal = self._refusals.last
        if refusal is None or not isinstance(error, LogUnavailable):
            return error
        return translate(refusal, topic)

    def _gather(self, round_: BoundsRequest) -> dict[str, LogBounds]:
        current = _identities(round_)
        if round_.cluster is not None:
            cluster_id = _answer(round_.cluster, round_, ", ".join(round_.topics)).cluster_id
            with self._lock:
                self._cluster_id = cluster_id
        changed = [
            name for name in round_.topics if current[name] != round_.identities.get(name)
        ]
        if changed:
            with self._lock:
                self._identities.update(current)
                if any(name in round_.identities for name in changed):
                    self._cluster_id = None
            raise _Unanswered(
                no_answer(", ".join(changed), "the topic keeps changing"), pause_s=0
            )
        offsets = [_listed(future, round_) for future in round_.offsets]
        measured = {
            name: self._bounds(round_, name, current[name], offsets) for name in round_.topics
        }
        for bounds in measured.values():
            previous = round_.previous.get(bounds.topic)
            lower = None if previous is None else previous.refuted_by(bounds)
            if lower is not None:
                raise _AskAgain(lower)
        self._refusals.forget()
        with self._lock:
            for bounds in measured.values():
                previous = self._previous.get(bounds.topic, LastEnds(bounds.topic_id, {}))
                self._previous[bounds.topic] = previous.merged(bounds)
        return measured

    def _bounds(
        self,
        round_: BoundsRequest,
        topic: str,
        identity: _Identity,
        offsets: Sequence[_Listed],
    ) -> LogBounds:
        partitions = []
        ends, starts, *high_watermarks = offsets
        for partition in identity.partitions:
            at = topic, partition
            end, start = _offset(ends, at), _offset(starts, at)
            high = [_offset(listed, at) for listed in high_watermarks]
            # Requested at the same time, so retention may have moved the start past an older end.
            if start.offset > end.offset and not round_.may_cross:
                raise _Crossed(no_answer(topic, "log start and end cross"), pause_s=0)
            epoch = end.leader_epoch
            partitions.append(
                PartitionBounds(
                    partition,
                    start.offset,
                    # An open transaction keeps the last stable offset where it began, also when DeleteRecords or
                    # retention removed those records: committed readers see the log empty from its start on.
                    max(start.offset, end.offset),
                    epoch if epoch is not None and epoch >= 0 else None,
                    high[0].offset if high else None,
                )
            )
        cluster_id = self._cluster_id
        if cluster_id is None:
            raise _AskAgain(no_answer(topic, "no cluster id"), pause_s=0)
        return LogBounds(cluster_id, topic, identity.topic_id, tuple(partitions))


def _says_more(earlier: _AskAgain, latest: _AskAgain) -> bool:
    """Whether to raise an earlier round's reason, that a log is unavailable: the latest was cut short by the deadline.

    That a log lost records is true of the latest answer or of none.
    """
    return (
        isinstance(latest, _Unanswered)
        and not isinstance(earlier, _Unanswered)
        and isinstance(earlier.error, LogUnavailable)
    )


def _identities(round_: BoundsRequest) -> dict[str, _Identity]:
    """Wait for the descriptions of all topics of a round; raise for the first that has none."""
    identities = {}
    answer = _answer(round_.described, round_, round_.topics[0])
    for topic, description in zip(round_.topics, answer, strict=True):
        if isinstance(description, KafkaError):
            raise _failed(description, topic) from KafkaException(description)
        partitions = sorted(each.id for each in description.partitions)
        identities[topic] = _Identity(str(description.topic_id), tuple(partitions))
    return identities


def _requested(
    client: Admin,
    identities: Mapping[str, _Identity],
    spec: OffsetSpec,
    timeout_s: float,
    *,
    committed: bool = True,
) -> AdminAnswer:
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    requests = chain.from_iterable(
        _positions(topic, identity.partitions, spec._value)
        for topic, identity in identities.items()
    )
    return client.offsets(list(requests), level, timeout_s)


@lru_cache(_MAX_POSITIONS)
def _positions(
    topic: str, partitions: tuple[int, ...], offset: int
) -> tuple[TopicPartition, ...]:
    """Make the client's own objects once: of 500 partitions they take 1 ms. It copies them."""
    name = topic_name(topic)
    return tuple(TopicPartition(name, partition, offset) for partition in partitions)


def _answer(future: AdminAnswer | Future[Any], round_: BoundsRequest, topic: str) -> Any:
    try:
        # librdkafka has its own time limit; ours is only the safety net.
        return future.result(max(0.05, round_.deadline - time.monotonic()) + 1.0)
    except TimeoutError as error:
        raise _Silent(no_answer(topic, "_TIMED_OUT")) from error
    except KafkaException as error:
        raise _failed(error.args[0], topic) from error


def _listed(future: AdminAnswer, round_: BoundsRequest) -> _Listed:
    answers = _answer(future, round_, round_.topics[0])
    addresses = {topic_name(topic): topic for topic in round_.topics}
    return {(addresses[tp.topic], tp.partition): answer for tp, answer in answers.items()}


def _offset(listed: _Listed, at: tuple[str, int]) -> Any:
    answer = listed[at]
    if isinstance(answer, KafkaError):
        raise _failed(answer, at[0]) from KafkaException(answer)
    # The client's mark for an offset without an answer; it happens on a starved machine.
    if answer.offset < 0:
        raise _Silent(no_answer(at[0], "no offset was told"))
    return answer


def _failed(error: KafkaError, topic: str) -> FederationError | _AskAgain:
    translated = translate(error, topic)
    if error.code() == KafkaError._TIMED_OUT:
        return _Silent(translated)
    again = meaning(error) in (Meaning.WAIT, Meaning.UNKNOWN_TOPIC)
    return _AskAgain(translated) if again else translated
