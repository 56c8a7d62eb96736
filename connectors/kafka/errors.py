"""What each Kafka error code means to us.

Our own table: ``KafkaError.retriable()`` says False of codes that pass by themselves.
"""

from __future__ import annotations

from enum import Enum

from confluent_kafka import KafkaError

from planner.errors import FederationError, LogTruncated, LogUnavailable, UnknownTopic

_TRUNCATION = KafkaError(KafkaError._LOG_TRUNCATION).str().removeprefix("Local: ")


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
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: Meaning.DENIED,
    KafkaError.SASL_AUTHENTICATION_FAILED: Meaning.DENIED,
    KafkaError._AUTHENTICATION: Meaning.DENIED,
    KafkaError._SSL: Meaning.DENIED,
    **dict.fromkeys(
        (
            # librdkafka looks for the coordinator of a group that no consumer joins: reading goes on without it.
            KafkaError.GROUP_AUTHORIZATION_FAILED,
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


#: What to change where brokers refuse, by code. Kafka's docs, "Authorization using ACLs", list each request's rights.
_DENIALS: dict[int, str] = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: (
        "the Kafka brokers deny this user the topic; grant it the ACLs {acls} on it."
    ),
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: (
        "the Kafka brokers deny this user the cluster; grant it the ACL Describe on the cluster."
    ),
    KafkaError._SSL: (
        "TLS with the Kafka brokers fails; check the ssl.* properties and the certificates (thermocline doctor "
        "says more)."
    ),
}
_LOGIN = (
    "the Kafka brokers refuse this server's login; check security.protocol and the sasl.* properties (thermocline "
    "doctor says more)."
)
#: What reading a topic takes. Its settings take DescribeConfigs, too.
_READING = "Describe and Read"


def meaning(error: KafkaError) -> Meaning:
    """Classify; a code not in the table is FAILED: waiting for it could last for ever."""
    return _MEANING.get(error.code(), Meaning.FAILED)


def is_truncation(error: KafkaError) -> bool:
    """Whether the log lost what lay below a position (KIP-320).

    librdkafka 2.16 tells it as any offset that it may not reset; the cause is in its text.
    """
    return error.code() == KafkaError._LOG_TRUNCATION or _TRUNCATION in error.str()


def is_tls_alert(error: KafkaError) -> bool:
    """Whether the other side ended TLS, as a listener does that wants a certificate: no code of librdkafka's says so."""
    return "SSL alert number" in error.str()


def translate(error: KafkaError, topic: str, acls: str = _READING) -> FederationError:
    """Return the error to raise when there is no point in waiting; ``acls`` is what the request takes on the topic.

    The text is ours: librdkafka's may hold addresses and settings.
    """
    facts = {"topic": topic, "code": error.name()}
    match meaning(error):
        case Meaning.UNKNOWN_TOPIC:
            return UnknownTopic(f"the Kafka cluster has no topic {topic}.", **facts)
        case Meaning.DENIED:
            denial = _DENIALS.get(error.code(), _LOGIN).format(acls=acls)
            return LogUnavailable(f"{topic}: {denial}", **facts)
        case Meaning.WAIT:
            return no_answer(topic, error.name())
        case _:
            return LogUnavailable(
                f"{topic}: the Kafka brokers could not serve the request ({error.name()}).",
                **facts,
            )


def lost_history(topic: str, partition: int, offset: int | None) -> LogTruncated:
    at = "read before" if offset is None else f"below offset {offset}"
    return LogTruncated(
        f"{topic}/{partition}: the log lost records {at}, and has others in their place: a replica that was not in sync "
        f"became leader (an unclean leader election).",
        topic=topic,
        partition=partition,
        offset=offset,
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
