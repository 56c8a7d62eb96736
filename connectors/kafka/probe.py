"""Checks a cluster for a person who sets it up: one bootstrap server at a time, with the reason of a failure."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection, Uuid

from connectors.kafka.admin import Admin
from connectors.kafka.errors import is_tls_alert
from connectors.kafka.settings import checked, settings_of
from planner.errors import BadConfig, LogUnavailable
from planner.names import by_cluster, topic_name

REACH_TIMEOUT_S = 5.0
_POLL_S = 0.05
_NO_TOPIC_ID = str(Uuid(0, 0))


@dataclass(frozen=True, slots=True)
class Reached:
    """One bootstrap server. ``why`` is None when it answered; else ``fix`` says what to do."""

    server: str
    cluster_id: str | None = None
    why: str | None = None
    fix: str = ""


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """Facts of a topic that this login may see, None where the brokers do not tell. ``has_id`` is False before Kafka 2.8."""

    exists: bool
    may_describe: bool = True
    may_read: bool | None = None
    has_id: bool | None = None
    cleanup_policy: str | None = None
    #: Record times are the brokers' own.
    log_append_time: bool | None = None


def bootstrap_servers(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return each address of ``bootstrap.servers``. Raises BadConfig as ``KafkaLog``."""
    properties = checked(settings)
    named = properties.get("bootstrap.servers") or properties.get("metadata.broker.list", "")
    return tuple(server.strip() for server in named.split(",") if server.strip())


def reach(settings: Mapping[str, str], server: str) -> Reached:
    events: list[KafkaError] = []
    properties = {
        key: value for key, value in settings.items() if key != "metadata.broker.list"
    }
    try:
        client = Admin.of(checked({**properties, "bootstrap.servers": server}), events.append)
    except BadConfig as error:
        return Reached(server, why=error.message.rstrip("."), fix="correct that property")
    request = client.describe_cluster(request_timeout=REACH_TIMEOUT_S)
    deadline = time.monotonic() + REACH_TIMEOUT_S
    while not request.done() and time.monotonic() < deadline:
        client.poll(_POLL_S)
        reason = _explained(events, settings)
        if reason is not None:
            return Reached(server, None, *reason)
    with contextlib.suppress(KafkaException, TimeoutError):
        return Reached(server, request.result(_POLL_S).cluster_id)
    reason = _explained(events, settings)
    return Reached(server, None, *(reason or _silent(server, settings)))


def topic_facts(
    clusters: Mapping[str, Mapping[str, str]], topics: Sequence[str]
) -> dict[str, TopicFacts]:
    """Describe topics, by address, as far as this login may; no facts if their cluster does not answer."""
    facts: dict[str, TopicFacts] = {}
    for own in by_cluster(topics).values():
        with contextlib.suppress(LogUnavailable):  # its cluster is not in the settings
            facts |= _topic_facts(settings_of(clusters, own[0]), own)
    return facts


def _topic_facts(settings: Mapping[str, str], topics: Sequence[str]) -> dict[str, TopicFacts]:
    client = Admin.of(checked(settings), lambda _error: None)
    described = client.describe_topics(
        TopicCollection([topic_name(topic) for topic in topics]),
        include_authorized_operations=True,
        request_timeout=REACH_TIMEOUT_S,
    )
    configured = client.settings_of(topics, REACH_TIMEOUT_S)
    facts = {}
    for topic in topics:
        with contextlib.suppress(TimeoutError):
            facts[topic] = _facts(described[topic_name(topic)], configured[topic])
    return facts


def _facts(described: Future[Any], configured: Future[Any]) -> TopicFacts:
    try:
        description = described.result(REACH_TIMEOUT_S + 1)
    except KafkaException as error:
        code = error.args[0].code()
        if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return TopicFacts(exists=True, may_describe=False)
        if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
            return TopicFacts(exists=False)
        raise TimeoutError from error
    allowed = {operation.name for operation in description.authorized_operations or ()}
    config: dict[str, str | None] = {}
    with contextlib.suppress(KafkaException):
        entries = configured.result(REACH_TIMEOUT_S + 1)
        config = {key: entry.value for key, entry in entries.items()}
    stamped = config.get("message.timestamp.type")
    return TopicFacts(
        exists=True,
        may_read="READ" in allowed if allowed else None,
        has_id=str(description.topic_id) != _NO_TOPIC_ID,
        cleanup_policy=config.get("cleanup.policy"),
        log_append_time=None if stamped is None else stamped == "LogAppendTime",
    )


def _explained(
    events: Sequence[KafkaError], settings: Mapping[str, str]
) -> tuple[str, str] | None:
    """Return why, and what to do, from the first event that tells. Leaves out librdkafka's texts."""
    for event in events:
        code, text = event.code(), event.str()
        if code == KafkaError._RESOLVE:
            return (
                "its name is not known here",
                "correct the name in bootstrap.servers, or the DNS",
            )
        if "PLAINTEXT broker listener" in text:
            return "it does not speak TLS", _protocol_fix(settings, tls=False)
        if code == KafkaError._SSL and "certificate verify failed" in text:
            return (
                "its certificate is not trusted here, or is for another name",
                "set ssl.ca.location to the certificate of the authority that signed it, and reach the broker "
                "by the name in its certificate",
            )
        if is_tls_alert(event):
            return (
                "it wants a certificate of this client, or does not trust the one it got",
                "set ssl.certificate.location and ssl.key.location to one that its authority signed",
            )
        if code == KafkaError._SSL:
            return "TLS with it failed", "compare the ssl.* properties with the listener's"
        if code == KafkaError._AUTHENTICATION and "mechanism" in text:
            offered = text.partition("supported mechanisms: ")[2].partition(" (")[0]
            return (
                "it does not offer the SASL mechanism that is configured",
                f"set sasl.mechanism to one of {offered or 'those it offers'}",
            )
        if code == KafkaError._AUTHENTICATION and "OAUTHBEARER token" in text:
            return (
                "the identity provider gives no token for it",
                "correct the sasl.oauthbearer.* properties, or ask those who run the provider",
            )
        if code == KafkaError._AUTHENTICATION:
            return "it refuses the login", "correct sasl.username and sasl.password"
        if code == KafkaError._TRANSPORT and "Connection refused" in text:
            fix = "start the broker, or correct the port in bootstrap.servers"
            return "nothing listens there", fix
    return None


def _silent(server: str, settings: Mapping[str, str]) -> tuple[str, str]:
    """The server never answered, and librdkafka does not know why: check whether it speaks TLS."""
    host, _, port = server.rpartition("://")[2].rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), REACH_TIMEOUT_S) as plain:
            if settings.get("security.protocol", "plaintext").lower().endswith("plaintext"):
                context = ssl.create_default_context()
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE  # only asked whether it speaks TLS at all
                with contextlib.suppress(OSError):  # ssl.SSLError is one
                    context.wrap_socket(plain).close()
                    fix = _protocol_fix(settings, tls=True)
                    return "it speaks TLS, and the settings do not", fix
    except (OSError, ValueError):
        return "it does not answer", "look for a firewall between here and there"
    fix = "look at the broker's log"
    if not _is_sasl(settings):
        fix = "it may want a login: set security.protocol, sasl.mechanism, sasl.username and sasl.password"
    return "it takes the connection and does not answer", fix


def _is_sasl(settings: Mapping[str, str]) -> bool:
    return settings.get("security.protocol", "").lower().startswith("sasl")


def _protocol_fix(settings: Mapping[str, str], *, tls: bool) -> str:
    sasl = "SASL_" if _is_sasl(settings) else ""
    return f"set security.protocol to {sasl}{'SSL' if tls else 'PLAINTEXT'}"
