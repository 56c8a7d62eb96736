"""Which properties a user may set, and that none of them is ever told."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from connectors.kafka.errors import Meaning, is_tls_alert, meaning, translate
from connectors.kafka.log import KafkaLog
from connectors.kafka.settings import OWNED, checked, consumer_properties
from planner.errors import BadConfig, LogUnavailable, UnknownTopic
from planner.offsets import OffsetRange
from planner.ports import TopicSource

BROKER = {"bootstrap.servers": "broker.invalid:9092"}
SECRET = "hunter2-hunter2"


@pytest.mark.parametrize("key", sorted(OWNED))
def test_a_property_that_exactness_rests_on_is_refused_by_name(key: str) -> None:
    with pytest.raises(BadConfig, match=f"the Kafka property {key} is set by Thermocline"):
        KafkaLog({**BROKER, key: OWNED[key]})


def test_the_brokers_must_be_named() -> None:
    with pytest.raises(BadConfig, match=r"bootstrap\.servers is missing"):
        KafkaLog({"client.id": "x"})


def test_a_value_that_is_not_text_is_refused() -> None:
    with pytest.raises(BadConfig, match=r"fetch\.wait\.max\.ms must be text"):
        checked({**BROKER, "fetch.wait.max.ms": 5})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("extra", "key"),
    [
        ({"no.such.property": SECRET}, "no.such.property"),
        ({"security.protocol": SECRET}, "security.protocol"),
        ({"fetch.wait.max.ms": SECRET}, "fetch.wait.max.ms"),
        ({"fetch.wait.max.ms": "900000000"}, "fetch.wait.max.ms"),
        ({"security.protocol": "SSL", "ssl.key.pem": SECRET}, "ssl.key.pem"),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "PLAIN",
                "sasl.password": SECRET,
            },
            "sasl",
        ),
    ],
)
def test_what_librdkafka_refuses_is_named_without_its_value(
    extra: dict[str, str], key: str
) -> None:
    with pytest.raises(BadConfig, match=key) as caught:
        KafkaLog({**BROKER, **extra})
    assert SECRET not in caught.value.message
    assert SECRET not in repr(caught.value.facts)


def test_a_log_does_not_show_its_settings() -> None:
    log = KafkaLog({**BROKER, "sasl.password": SECRET})
    assert SECRET not in repr(log)
    assert BROKER["bootstrap.servers"] not in repr(log)


def test_tuning_of_the_user_wins_and_owned_properties_stay() -> None:
    tuning = {"fetch.wait.max.ms": "50", "queued.max.messages.kbytes": "65536"}
    properties = consumer_properties({**BROKER, **tuning})
    assert tuning.items() <= properties.items()
    assert OWNED.items() <= properties.items()


@pytest.mark.parametrize("topic", ["", "a b", "a/b", "ü", "x" * 250])
def test_a_name_no_topic_can_have_is_unknown_without_asking(topic: str) -> None:
    log = KafkaLog(BROKER)
    with pytest.raises(UnknownTopic, match="not a name a Kafka topic can have"):
        log.measure([topic])
    with pytest.raises(UnknownTopic):
        list(log.fetch(TopicSource(topic), [OffsetRange(0, 0, 1)], timeout_s=1))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (KafkaError._TIMED_OUT, Meaning.WAIT),
        (KafkaError._TRANSPORT, Meaning.WAIT),
        (KafkaError._ALL_BROKERS_DOWN, Meaning.WAIT),
        (KafkaError._NOENT, Meaning.WAIT),
        (KafkaError.LEADER_NOT_AVAILABLE, Meaning.WAIT),
        (KafkaError.NOT_LEADER_FOR_PARTITION, Meaning.WAIT),
        (KafkaError.OFFSET_NOT_AVAILABLE, Meaning.WAIT),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, Meaning.UNKNOWN_TOPIC),
        (KafkaError._AUTO_OFFSET_RESET, Meaning.OUT_OF_RANGE),
        (KafkaError.OFFSET_OUT_OF_RANGE, Meaning.OUT_OF_RANGE),
        (KafkaError._LOG_TRUNCATION, Meaning.TRUNCATED),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Meaning.DENIED),
        (KafkaError._AUTHENTICATION, Meaning.DENIED),
        # Nobody joins a group: who may not use one reads all the same.
        (KafkaError.GROUP_AUTHORIZATION_FAILED, Meaning.WAIT),
        (KafkaError._BAD_MSG, Meaning.FAILED),
        (
            KafkaError._DECOMPRESSION if hasattr(KafkaError, "_DECOMPRESSION") else -198,
            Meaning.FAILED,
        ),
    ],
)
def test_each_code_has_its_meaning(code: int, expected: Meaning) -> None:
    assert meaning(KafkaError(code)) is expected


def test_translated_errors_hold_nothing_of_the_clients_text() -> None:
    reply = f"sasl failed for {SECRET} at broker.invalid:9092"
    for code in (KafkaError._TRANSPORT, KafkaError._BAD_MSG, KafkaError._AUTHENTICATION):
        error = translate(KafkaError(code, reply), "flows")
        assert isinstance(error, LogUnavailable)
        assert error.message.startswith("flows: the Kafka brokers ")
        assert SECRET not in error.message + repr(error.facts)
        assert "broker.invalid" not in error.message + repr(error.facts)
    unknown = translate(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, reply), "flows")
    assert isinstance(unknown, UnknownTopic)


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "grant it the ACLs Describe and Read on it"),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, "grant it the ACL Describe on the cluster"),
        (
            KafkaError.SASL_AUTHENTICATION_FAILED,
            "check security.protocol and the sasl.* properties",
        ),
        (KafkaError._SSL, "check the ssl.* properties and the certificates"),
    ],
)
def test_what_brokers_refuse_names_what_to_change(code: int, hint: str) -> None:
    assert hint in translate(KafkaError(code), "flows").message


def test_only_an_alert_of_the_other_side_is_one() -> None:
    text = "Receive failed: error:0A00045C:SSL routines::alert certificate required: SSL alert number 116"
    assert is_tls_alert(KafkaError(KafkaError._TRANSPORT, text))
    assert not is_tls_alert(KafkaError(KafkaError._TRANSPORT, "Connection refused"))
