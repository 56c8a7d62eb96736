"""Brokers that want certificates, passwords or tokens, and rights that are missing or taken away."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import adbc_driver_flightsql.dbapi as adbc
import pytest
from confluent_kafka.admin import AclOperation

from connectors.kafka.admin import DeleteRetention, RetentionReader, is_compacted
from connectors.kafka.log import KafkaLog
from planner.errors import LogUnavailable
from planner.offsets import OffsetRange
from tests.fixtures.commands import ROOT, CliSite, cli_serving, cli_site_of, wait_until
from tests.fixtures.guarded_kafka import PASSWORD, GuardedKafka
from tests.harness.forked_commands import start
from tests.harness.log_reading import positions, whole

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

READING = (AclOperation.DESCRIBE, AclOperation.READ)
LOGINS = ("certificate", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
SOON_S = 60
#: Of Spark.
START_S = 120


def filled(guarded: GuardedKafka, *operations: AclOperation, count: int = 3) -> str:
    topic = guarded.topic()
    guarded.produce(topic, [b'{"id": %d}' % number for number in range(count)])
    if operations:
        guarded.allow(topic, *operations)
    return topic


@pytest.mark.parametrize("way", LOGINS)
def test_a_topic_is_read_by_each_login_with_the_rights_to_it_alone(
    guarded: GuardedKafka, way: str
) -> None:
    topic = filled(guarded, *READING)
    with KafkaLog(guarded.login(way)) as log:
        assert len(positions(log, topic, whole(log, topic))) == 3


@pytest.mark.parametrize(
    ("way", "change", "reason"),
    [
        ("SCRAM-SHA-512", {"sasl.password": "wrong-word"}, "refuse this server's login"),
        ("SCRAM-SHA-512", {"sasl.username": "nobody"}, "refuse this server's login"),
        (
            *("OAUTHBEARER", {"sasl.oauthbearer.client.secret": "wrong-word"}),
            "refuse this server's login",
        ),
        ("certificate", {"ssl.ca.location": ""}, "TLS with the Kafka brokers fails"),
        (
            *("certificate", {"ssl.certificate.location": "", "ssl.key.location": ""}),
            "TLS with the Kafka brokers fails",
        ),
    ],
    ids=["password", "user", "secret", "authority", "no certificate"],
)
def test_a_refused_login_is_named_without_what_it_said(
    guarded: GuardedKafka, way: str, change: dict[str, str], reason: str
) -> None:
    topic = filled(guarded, *READING)
    changed = {**guarded.login(way), **change}
    settings = {key: value for key, value in changed.items() if value}
    calls: list[Callable[[KafkaLog], object]] = [
        lambda log: log.measure([topic]),
        lambda log: positions(log, topic, [OffsetRange(0, 0, 3)], timeout_s=3),
    ]
    with KafkaLog(settings, measure_timeout_s=3) as log:
        for call in calls:
            with pytest.raises(LogUnavailable, match=reason) as caught:
                call(log)
            for text in ("wrong-word", PASSWORD, "localhost", str(guarded.folder)):
                assert text not in caught.value.message


def test_a_topic_without_rights_names_those_to_grant(guarded: GuardedKafka) -> None:
    dark, described = filled(guarded), filled(guarded, AclOperation.DESCRIBE)
    settings = guarded.login("SCRAM-SHA-512")
    denial = r"deny this user the topic; grant it the ACLs Describe and Read on it\.$"
    with KafkaLog(settings) as log:
        with pytest.raises(LogUnavailable, match=denial):
            log.measure([dark])
        ranges = whole(log, described)
        with pytest.raises(LogUnavailable, match=denial):
            positions(log, described, ranges)


def test_settings_of_a_topic_need_a_right_of_their_own(guarded: GuardedKafka) -> None:
    topic, settings = filled(guarded, *READING), guarded.login("SCRAM-SHA-512")
    with pytest.raises(LogUnavailable, match="grant it the ACLs DescribeConfigs on it"):
        is_compacted({"": settings}, topic)
    assert RetentionReader({"": settings})([topic]) == {}
    reader = partial(RetentionReader, {"": settings})
    assert DeleteRetention(reader)(topic, 0.0) is None
    guarded.allow(topic, AclOperation.DESCRIBE_CONFIGS)
    assert not is_compacted({"": settings}, topic)
    assert topic in RetentionReader({"": settings})([topic])
    assert DeleteRetention(reader)(topic, 0.0) == math.inf


@pytest.mark.spark
def test_a_right_taken_away_stops_its_table_alone_and_loses_nothing(
    guarded: GuardedKafka, tmp_path: Path
) -> None:
    """Of server and tierer while both run. No right to any group is ever given.

    Certificate and key are files: the sandbox of a server with default settings has to let its processes read them.
    """
    topics = {name: filled(guarded, *READING, count=10) for name in ("flows", "orders")}
    site = cli_site_of(tmp_path, guarded.login("certificate"))
    for name, topic in topics.items():
        code, _, err = site.run("create", f"lake.net.{name}", "--topic", topic, "--infer")
        assert (code, err) == (0, "")
    for topic in topics.values():
        guarded.produce(topic, [b'{"id": 100}'])
    with cli_serving(site), tiering(site) as tierer:
        expected = [(11, 145)]
        assert count(site, "flows") == count(site, "orders") == expected
        wait_until(
            lambda: published(tierer(), "flows") == published(tierer(), "orders") == 1, START_S
        )
        guarded.deny(topics["flows"])
        guarded.produce(topics["flows"], [b'{"id": 1000}'])
        wait_until(lambda: "grant it the ACLs Describe and Read" in refusal(site), SOON_S)
        guarded.produce(topics["orders"], [b'{"id": 1000}'])
        assert count(site, "orders") == [(12, 1145)]
        wait_until(lambda: published(tierer(), "orders") == 2, SOON_S)
        wait_until(lambda: "grant it the ACLs Describe and Read" in tierer(), SOON_S)
        assert published(tierer(), "flows") == 1
        guarded.allow(topics["flows"], *READING)
        wait_until(lambda: not refusal(site), SOON_S)
        assert count(site, "flows") == [(12, 1145)]
        wait_until(lambda: published(tierer(), "flows") == 2, SOON_S)
        wait_until(lambda: cold(site, "flows") == 12, SOON_S)


@contextmanager
def tiering(site: CliSite) -> Iterator[Callable[[], str]]:
    """A tierer that goes on for ever; what it has said so far."""
    log = site.config.with_name("tier.log")
    log.touch()
    arguments = ("--config", str(site.config), "tier", "loop", "--interval", "1")
    process = start(arguments, ROOT, log, os.environ)
    try:
        yield log.read_text
    finally:
        process.terminate()
        process.wait(SOON_S)


def published(said: str, table: str) -> int:
    """How often."""
    return said.count(f"net.{table}: published ")


def cold(site: CliSite, table: str) -> int:
    [(rows,)] = site.ask(f'SELECT count(*) FROM net."{table}$cold"')
    return int(rows)


def count(site: CliSite, table: str) -> list[tuple[int, int]]:
    return site.ask(f"SELECT count(*), sum(id)::BIGINT FROM net.{table}")


def refusal(site: CliSite) -> str:
    """What a statement over the table is refused with; nothing when it is answered."""
    try:
        count(site, "flows")
    except adbc.Error as error:
        return str(error)
    return ""
