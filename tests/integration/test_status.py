"""``thermocline status`` as a process: many tables, some of them in trouble."""

from __future__ import annotations

import json
import time
from typing import Any

import pyarrow as pa
import pytest

from connectors.iceberg.create import NewTable, create_table
from connectors.kafka.log import KafkaLog
from planner.names import TableName
from planner.schema import Column
from planner.seam.binding import Binding
from tests.fixtures.commands import CliSite, cli_serving
from tests.fixtures.kafka import Kafka
from thermocline.commands.create import first_watermark
from thermocline.config.settings import load

pytestmark = pytest.mark.kafka

TABLES = 50
COLUMNS = [Column(1, "id", pa.int64())]


def bind(cli_site: CliSite, topics: list[str]) -> None:
    """One table per topic, named alike."""
    settings = load(str(cli_site.config))
    with KafkaLog(settings.kafka) as log:
        measured = log.measure(topics)
    for topic in topics:
        binding = Binding(topic)
        create_table(
            settings.catalogs,
            NewTable(TableName("lake", ("net",), topic.replace("-", "_")), COLUMNS, binding),
            first_watermark(measured[topic], binding),
        )


def records(count: int) -> list[bytes]:
    return [b'{"id": %d}' % number for number in range(count)]


def status_of(cli_site: CliSite, *arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
    code, out, err = cli_site.run("status", "--json", *arguments)
    assert err == ""
    return code, {value["topic"]: value for value in json.loads(out)}


def test_fifty_tables_are_asked_at_once(
    kafka: Kafka, cli_site: CliSite, capfd: pytest.CaptureFixture[str]
) -> None:
    week = {"retention.ms": str(7 * 86_400_000)}
    topics = [kafka.topic(2, config=week) for _ in range(TABLES)]
    bind(cli_site, topics)
    for number, topic in enumerate(topics):
        kafka.produce(topic, records(number), partition=number % 2)
    began_s = time.monotonic()
    code, result = status_of(cli_site)
    took_s = time.monotonic() - began_s
    with capfd.disabled():
        print(f"\nstatus of {TABLES} tables as a process: {took_s:.2f} s")
    assert code == 0
    assert {topic: result[topic]["lag"] for topic in topics} == {
        topic: number for number, topic in enumerate(topics)
    }
    for number, topic in enumerate(topics):
        fields = result[topic]
        if number:
            assert number * 9 <= fields["lag_bytes"] <= number * 10
            assert 0 <= fields["lag_s"] < 300
            assert fields["headroom_s"] == pytest.approx(7 * 86_400, rel=0.01)
        else:
            assert (fields["lag_bytes"], fields["lag_s"], fields["headroom_s"]) == (
                0,
                None,
                None,
            )
        assert fields["retention_s"] == 7 * 86_400


def test_a_table_in_trouble_hides_no_other(kafka: Kafka, cli_site: CliSite) -> None:
    topics = [kafka.topic() for _ in range(3)]
    for topic in topics:
        kafka.produce(topic, records(5))
    bind(cli_site, topics)
    gone, expired, healthy = topics
    kafka.delete_topic(gone)
    kafka.delete_records(expired, 0, 4)
    code, result = status_of(cli_site)
    assert code == 6
    assert (result[healthy]["error"], result[healthy]["lag"]) == (None, 5)
    assert result[gone]["error_class"] == "UnknownTopic"
    assert result[expired]["error_class"] == "TailGap"
    code, out, _ = cli_site.run("status")
    assert code == 6
    [heading, _, row, *errors] = out.splitlines()
    assert heading.split() == ["TABLE", "TOPIC", "LAG", "BYTES", "OLDEST", "HEADROOM", "NOTES"]
    assert row.split()[:3] == [result[healthy]["table"], healthy, "5"]
    assert sorted(line.split()[1] for line in errors) == ["TailGap:", "UnknownTopic:"]


def test_topics_have_retention_of_their_own(kafka: Kafka, cli_site: CliSite) -> None:
    forever = kafka.topic(config={"retention.ms": "-1", "retention.bytes": "1000000"})
    compacted = kafka.topic(config={"cleanup.policy": "compact"})
    kafka.produce(forever, records(2))
    bind(cli_site, [forever, compacted])
    code, result = status_of(cli_site)
    assert code == 0
    assert (result[forever]["retention_s"], result[forever]["is_kept_by_size"]) == (None, True)
    assert (result[compacted]["retention_s"], result[compacted]["is_kept_by_size"]) == (
        None,
        False,
    )
    assert result[forever]["care"] is None
    table = result[forever]["table"]
    out = cli_site.run("status", "--partitions", "--care", table)[1]
    assert "by size" in out
    assert out.splitlines()[-1].split() == ["0", "0", "0", "2", "2", "0"]
    [care] = [line for line in out.splitlines() if " never " in line]
    assert care.split()[:6] == [table, "0", "0", "B", "-", "1"]


def test_brokers_that_do_not_answer_are_told_for_every_table(
    kafka: Kafka, cli_site: CliSite
) -> None:
    topics = [kafka.topic() for _ in range(2)]
    bind(cli_site, topics)
    text = cli_site.config.read_text().replace(kafka.bootstrap, "127.0.0.1:1")
    cli_site.config.write_text(text)
    code, result = status_of(cli_site)
    assert code == 6
    assert {fields["error_class"] for fields in result.values()} == {"LogUnavailable"}


def test_a_server_tells_how_far_it_has_read_each_tail(kafka: Kafka, cli_site: CliSite) -> None:
    topics = [kafka.topic(2) for _ in range(2)]
    bind(cli_site, topics)
    kafka.produce(topics[0], records(10))
    read, empty = (f"net.{topic.replace('-', '_')}" for topic in topics)
    with cli_serving(cli_site):
        assert cli_site.ask(f"SELECT count(*) FROM {read}") == [(10,)]
        uri = f"grpc://127.0.0.1:{cli_site.port}"
        _, tables = status_of(cli_site, "--server", uri)
        assert tables[topics[0]]["tail"] == {
            "offsets": 10,
            "read_offsets": 10,
            "rest_s": 0.0,
            "error": None,
        }
        code, out, _ = cli_site.run("status", "--server", uri)
        assert code == 0
        assert "IN MEMORY" in out
        [line] = [line for line in out.splitlines() if read in line]
        assert " 100 % " in f"{line} "
        [line] = [line for line in out.splitlines() if empty in line]
        assert "%" not in line
    code, _, err = cli_site.run("status", "--server", uri)
    assert (code, "no server answers" in err) == (3, True)
    code, _, err = cli_site.run("status", "--care", "--server", uri)
    assert (code, "--care reads the tables' own files; leave out --server." in err) == (2, True)
    code, _, err = cli_site.run("status", "--user", "amy")
    assert (code, "are for a --server" in err) == (2, True)
