"""What each Kafka error code means to us.

Our own table: ``KafkaError.retriable()`` says False of codes that pass by themselves.
"""

from __future__ import annotations

from enum import Enum

from confluent_kafka import KafkaError

from planner.errors import FederationError, LogUnavailable, UnknownTopic


class Meaning(Enum):
    WAIT = "passes by itself: ask again until the deadline"
    UNKNOWN_TOPIC = "the cluster has no such topic"
    OUT_OF_RANGE = "the log does not hold the offset asked for"
    TRUNCATED = "the log lost records it had"
    DENIED = "the principal may not"
    FAILED = "will not pass by itself"


_MEANING: dict[int, Meaning] = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: Meaning.UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_TOPIC: Meaning.UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION: Meaning.UNKNOWN_TOPIC,
    KafkaError.TOPIC_EXCEPTION: Meaning.UNKNOWN_TOPIC,
    KafkaError._AUTO_OFFSET_RESET: Meaning.OUT_OF_RANGE,
    KafkaError.OFFSET_OUT_OF_RANGE: Meaning.OUT_OF_RANGE,
    KafkaError._LOG_TRUNCATION: Meaning.TRUNCATED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: Meaning.DENIED,
    KafkaError.GROUP_AUTHORIZATION_FAILED: Meaning.DENIED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: Meaning.DENIED,
    KafkaError.SASL_AUTHENTICATION_FAILED: Meaning.DENIED,
    KafkaError._AUTHENTICATION: Meaning.DENIED,
    KafkaError._SSL: Meaning.DENIED,
    **dict.fromkeys(
        (
            # librdkafka's answer for a leader that is unknown at the moment.
            KafkaError._NOENT,
            KafkaError._TIMED_OUT,
            KafkaError._TIMED_OUT_QUEUE,
            KafkaError._TRANSPORT,
            KafkaError._ALL_BROKERS_DOWN,
            KafkaError._RESOLVE,
            KafkaError._WAIT_COORD,
            KafkaError.REQUEST_TIMED_OUT,
            KafkaError.NETWORK_EXCEPTION,
            KafkaError.BROKER_NOT_AVAILABLE,
            KafkaError.REPLICA_NOT_AVAILABLE,
            KafkaError.LEADER_NOT_AVAILABLE,
            KafkaError.NOT_LEADER_FOR_PARTITION,
            KafkaError.PREFERRED_LEADER_NOT_AVAILABLE,
            KafkaError.FENCED_LEADER_EPOCH,
            KafkaError.UNKNOWN_LEADER_EPOCH,
            KafkaError.OFFSET_NOT_AVAILABLE,
            KafkaError.KAFKA_STORAGE_ERROR,
            KafkaError.NOT_CONTROLLER,
            KafkaError.FETCH_SESSION_ID_NOT_FOUND,
            KafkaError.INVALID_FETCH_SESSION_EPOCH,
            KafkaError.UNKNOWN_TOPIC_ID,
            KafkaError.THROTTLING_QUOTA_EXCEEDED,
        ),
        Meaning.WAIT,
    ),
}


def meaning(error: KafkaError) -> Meaning:
    """Classify; a code not in the table is FAILED: waiting for it could last for ever."""
    return _MEANING.get(error.code(), Meaning.FAILED)


def translate(error: KafkaError, topic: str) -> FederationError:
    """Return the error to raise when there is no point in waiting.

    The text is ours: librdkafka's may hold addresses and settings.
    """
    facts = {"topic": topic, "code": error.name()}
    match meaning(error):
        case Meaning.UNKNOWN_TOPIC:
            return UnknownTopic(f"the Kafka cluster has no topic {topic}.", **facts)
        case Meaning.DENIED:
            return LogUnavailable(
                f"{topic}: the Kafka brokers refuse this server's login or rights ({error.name()}); check the "
                f"SASL and TLS properties and the topic's ACLs.",
                **facts,
            )
        case Meaning.WAIT:
            return no_answer(topic, error.name())
        case _:
            return LogUnavailable(
                f"{topic}: the Kafka brokers could not serve the request ({error.name()}).",
                **facts,
            )


def refused_offsets(topic: str) -> LogUnavailable:
    return LogUnavailable(
        f"{topic}: a broker refuses offsets that the log holds; retry when its replicas are in sync.",
        topic=topic,
    )


def no_answer(topic: str, code: str) -> LogUnavailable:
    return LogUnavailable(
        f"{topic}: the Kafka brokers do not answer ({code}); retry when they do.",
        topic=topic,
        code=code,
    )
