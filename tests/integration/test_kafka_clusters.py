"""Tables over topics of two clusters: one server, one tierer, one statement."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import pytest
from pyiceberg.catalog import load_catalog

from tests.fixtures.commands import CliSite, cli_serving, cli_site_of, wait_until
from tests.fixtures.kafka import Kafka
from tests.fixtures.server import sqlite_catalog
from tests.harness.calm_broker import IDLE
from tests.harness.doctor_site import UNLOCKED, DoctorSite
from tests.harness.quick_jvm import quick_jvm
from thermocline.config.settings import load
from thermocline.demo.broker import Broker
from thermocline.serve.assembly import running_server

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]

SOON_S = 30
BOTH = "SELECT h.id, h.v, p.v FROM net.here h JOIN net.plant p USING (id) ORDER BY ALL"


@pytest.fixture(scope="module")
def second_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    folder = tmp_path_factory.mktemp("plant")
    with Broker(folder, properties=IDLE, jvm_flags=quick_jvm("kafka")) as broker:
        yield Kafka(broker)


def site_of(folder: Path, kafka: Kafka, second_kafka: Kafka) -> CliSite:
    site = cli_site_of(folder, kafka.settings)
    with site.config.open("a") as file:
        file.write(
            f'[kafka_clusters.plant]\n"bootstrap.servers" = "{second_kafka.bootstrap}"\n'
        )
    return site


def twins(folder: Path, kafka: Kafka, second_kafka: Kafka) -> tuple[str, CliSite]:
    """A topic of one name in both clusters: who forgets the cluster reads the rows of the other."""
    topic = kafka.topic()
    second_kafka.topic(name=topic)
    return topic, site_of(folder, kafka, second_kafka)


def write(kafka: Kafka, topic: str, value: str, *ids: int) -> None:
    kafka.produce(topic, [json.dumps({"id": number, "v": value}).encode() for number in ids])


def run(site: CliSite, *arguments: str) -> str:
    code, out, err = site.run(*arguments)
    assert code == 0, err
    return out


def refusal(site: CliSite, sql: str) -> str:
    try:
        site.ask(sql)
    except adbc.Error as error:
        return str(error)
    return ""


def test_one_statement_reads_topics_of_two_clusters_and_one_that_is_down_stops_only_its_tables(
    kafka: Kafka, second_kafka: Kafka, tmp_path: Path
) -> None:
    topic, site = twins(tmp_path, kafka, second_kafka)
    write(kafka, topic, "here", 1, 2)
    write(second_kafka, topic, "plant", 1, 2, 3)
    run(site, "create", "lake.net.here", "--topic", topic, "--infer")
    code, _, err = site.run("create", "lake.net.p", "--topic", f"plant/{topic}", "--infer")
    assert (code, "named with --kafka plant" in err) == (2, True)
    out = run(site, "create", "lake.net.plant", "--topic", topic, "--kafka", "plant", "--infer")
    assert f"over topic plant/{topic}" in out
    run(site, "tier", "--once")
    write(kafka, topic, "here", 3, 4)
    write(second_kafka, topic, "plant", 4)
    expected = [(number, "here", "plant") for number in (1, 2, 3, 4)]
    with cli_serving(site):
        assert site.ask(BOTH) == expected
        # Both tails are followed by now, each on its own cluster.
        write(kafka, topic, "here", 5)
        write(second_kafka, topic, "plant", 5)
        assert site.ask(BOTH) == [*expected, (5, "here", "plant")]
        assert site.ask('SELECT DISTINCT topic FROM net."plant$seam"') == [(f"plant/{topic}",)]
        assert {row[0] for row in site.ask('SELECT cluster_id FROM net."here$seam"')} != {
            row[0] for row in site.ask('SELECT cluster_id FROM net."plant$seam"')
        }
        assert {table["table"]: table["topic"] for table in status(site)} == {
            "lake.net.here": topic,
            "lake.net.plant": f"plant/{topic}",
        }
        run(site, "verify")
        rights = json.loads(run(site, "doctor", "--permissions", "--json"))
        assert {f"topic {topic}", f"topic plant/{topic}"} <= {right["on"] for right in rights}

        second_kafka.broker.stop()
        try:
            wait_until(lambda: "do not answer" in refusal(site, BOTH), SOON_S)
            assert site.ask("SELECT count(*) FROM net.here") == [(5,)]
            assert [bool(table["error"]) for table in status(site)] == [False, True]
            # A tierer goes on with what it can reach, and says what it cannot.
            code, _, err = site.run("tier", "--once")
            assert code != 0
            assert f"plant/{topic}" in err
            assert site.ask('SELECT count(*) FROM net."here$cold"') == [(5,)]
        finally:
            second_kafka.broker.start()
        wait_until(lambda: not refusal(site, BOTH), SOON_S)
        assert site.ask("SELECT count(*), min(v) FROM net.plant") == [(5, "plant")]


def status(site: CliSite) -> list[dict[str, Any]]:
    _, out, _ = site.run("status", "--json")
    tables: list[dict[str, Any]] = json.loads(out)
    return sorted(tables, key=lambda table: str(table["table"]))


def test_a_name_that_leads_to_another_cluster_is_refused(
    kafka: Kafka, second_kafka: Kafka, tmp_path: Path
) -> None:
    """Same name of the topic, rows of another log: only the cluster's id tells.

    Names of no cluster: ``unit/test_topics.py``, ``unit/test_binding.py``.
    """
    topic, site = twins(tmp_path, kafka, second_kafka)
    write(kafka, topic, "here", 1)
    write(second_kafka, topic, "plant", 1)
    run(site, "create", "lake.net.here", "--topic", topic, "--infer")
    table = load_catalog("lake", **sqlite_catalog(tmp_path)).load_table("net.here")
    with running_server(load(str(site.config))):
        assert site.ask("SELECT v FROM net.here") == [("here",)]
        words = "offsets of one mean nothing on the other"
        with table.transaction() as change:
            change.set_properties({"thermocline.kafka": "plant"})
        wait_until(lambda: words in refusal(site, "FROM net.here"), SOON_S)
        code, _, err = site.run("tier", "--once", "lake.net.here")
        assert code != 0
        assert words in " ".join(err.split())
        with table.transaction() as change:
            change.remove_properties("thermocline.kafka")
        wait_until(lambda: site.answers("FROM net.here"), SOON_S)
        assert site.ask("SELECT v FROM net.here") == [("here",)]


def test_doctor_asks_the_brokers_of_each_cluster(
    kafka: Kafka, second_kafka: Kafka, tmp_path: Path
) -> None:
    site = site_of(tmp_path, kafka, second_kafka)
    topic = second_kafka.topic()
    write(second_kafka, topic, "plant", 1)
    run(site, "create", "lake.net.plant", "--topic", topic, "--kafka", "plant", "--infer")
    text = site.config.read_text().replace("[server]\n", UNLOCKED)
    site.config.write_text(
        f'{text}[kafka_clusters.gone]\n"bootstrap.servers" = "127.0.0.1:1"\n'
    )
    findings = DoctorSite(site.config).findings(failed=True)
    states = {check: state for check, (state, _, _) in findings.items()}
    assert states[f"broker {second_kafka.bootstrap} of plant"] == "ok"
    assert states[f"broker {kafka.bootstrap}"] == "ok"
    assert states["broker 127.0.0.1:1 of gone"] == "fail"
    assert states[f"topic plant/{topic}"] == "ok"
