"""doctor on real parts with faults planted: each is found, named, and told how to fix."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AclOperation
from pyiceberg.catalog import load_catalog

from connectors.iceberg.create import NewTable, create_table
from connectors.kafka.log import KafkaLog
from connectors.kafka.probe import reach, topic_facts
from planner.column_statistics import STATISTICS
from planner.names import TableName
from planner.schema import Column
from planner.seam.binding import Binding
from tests.fixtures.guarded_kafka import PASSWORD, USER, GuardedKafka
from tests.fixtures.kafka import Kafka
from tests.fixtures.server import sqlite_catalog
from tests.harness.doctor_site import UNLOCKED, DoctorSite
from tests.harness.scripted_registry import Reply, scripted_registry
from thermocline.commands.create import first_watermark
from thermocline.commands.doctor import command
from thermocline.config.settings import load
from thermocline.doctor.machine import fits, machine, python

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

FLOWS = TableName("lake", ("net",), "flows")
ALICE = {"sasl.mechanism": "PLAIN", "sasl.username": USER, "sasl.password": PASSWORD}


@pytest.fixture
def catalog(tmp_path: Path) -> dict[str, str]:
    return sqlite_catalog(tmp_path / "lake")


@pytest.fixture
def site(tmp_path: Path, catalog: dict[str, str], kafka: Kafka) -> DoctorSite:
    value = DoctorSite(tmp_path / "thermocline.toml")
    value.write(catalog, kafka.settings)
    return value


def bind(
    site: DoctorSite,
    topic: str,
    table: TableName = FLOWS,
    columns: Sequence[Column] = (Column(0, "id", pa.int64()),),
    **options: Any,
) -> None:
    settings = load(str(site.config))
    binding = Binding(topic)
    with KafkaLog(settings.kafka) as log:
        first = first_watermark(log.measure([topic])[topic], binding)
    create_table(settings.catalogs, NewTable(table, columns, binding, **options), first)


def test_a_set_up_that_is_well_has_no_failures_and_leaves_no_probe(
    site: DoctorSite, kafka: Kafka, catalog: dict[str, str]
) -> None:
    topic = kafka.topic(2, config={"retention.ms": "604800000"})
    bind(site, topic)
    kafka.produce(topic, [b'{"id": 1}'] * 3)
    site.write(catalog, kafka.settings, more="")
    fields = site.findings(failed=False)
    assert fields["file system lock"][0] in ("ok", "warn")
    assert fields["Java"][0] == fields["packages"][0] == fields["settings"][0] == "ok"
    assert fields[f"broker {kafka.bootstrap}"][0] == "ok"
    assert fields["catalog lake"][:2] == ("ok", "answers, 1 tables")
    assert fields["store of lake"][0] == "ok"
    assert fields["clock of the store of lake"][0] == "ok"
    assert fields[f"topic {topic}"][:2] == (
        "ok",
        "exists, may be described and read, has an id",
    )
    assert fields["table lake.net.flows"][:2] == (
        "ok",
        "3 offsets behind; the oldest untiered record has 100% of its retention left",
    )
    warehouse = Path(catalog["warehouse"].removeprefix("file://"))
    assert not [path for path in warehouse.rglob("*") if "probe" in path.name]
    plain = CliRunner().invoke(command, [], obj=str(site.config)).stdout
    assert f"ok    topic {topic}: exists" in plain


def test_retention_that_presses_is_a_warning_and_a_gap_a_failure(
    site: DoctorSite, kafka: Kafka
) -> None:
    topic = kafka.topic(config={"retention.ms": "100000000", "segment.ms": "86400000"})
    bind(site, topic)
    eighty_per_cent_ago = int(time.time() * 1000) - 80_000_000
    kafka.produce(topic, [b'{"id": 1}'] * 3, timestamp_ms=eighty_per_cent_ago)
    state, what, fix = site.findings(failed=False)["table lake.net.flows"]
    assert (state, what) == (
        "warn",
        "3 offsets behind; the oldest untiered record has 20% of its retention left",
    )
    assert "thermocline tier --once" in fix
    kafka.delete_records(topic, 0, 2)
    state, what, fix = site.findings(failed=True)["table lake.net.flows"]
    assert state == "fail"
    assert "the log starts at 2; 2 offsets were removed before they were tiered" in what
    assert fix


def test_records_from_the_future_are_a_clock_to_look_at(site: DoctorSite, kafka: Kafka) -> None:
    topic = kafka.topic(config={"message.timestamp.after.max.ms": str(2**62)})
    bind(site, topic)
    kafka.produce(topic, [b'{"id": 1}'], timestamp_ms=int(time.time() * 1000) + 600_000)
    state, what, _ = site.findings(failed=False)[f"clock of {topic}"]
    assert state == "warn"
    assert "s in the future: a producer's clock is ahead of this machine's" in what


def test_a_topic_that_is_gone_or_another_is_a_failure(site: DoctorSite, kafka: Kafka) -> None:
    topic = kafka.topic()
    bind(site, topic)
    kafka.delete_topic(topic)
    assert site.findings(failed=True)[f"topic {topic}"][:2] == (
        "fail",
        f"{FLOWS} is bound to it and it does not exist",
    )
    kafka.topic(name=topic)
    state, what, _ = site.findings(failed=True)["table lake.net.flows"]
    assert state == "fail"
    assert "the topic was deleted and created again" in what


def test_a_topic_that_is_not_the_watermarks_is_a_failure(
    site: DoctorSite, kafka: Kafka
) -> None:
    """The table's property was changed; what it holds is of the other one, which is there, too."""
    topic, other = kafka.topic(), kafka.topic()
    bind(site, topic)
    catalog = load_catalog("lake", **load(str(site.config)).catalogs["lake"])
    with (
        contextlib.closing(catalog),
        catalog.load_table("net.flows").transaction() as change,
    ):
        change.set_properties({"thermocline.topic": other})
    findings = site.findings(failed=True)
    assert findings[f"topic {other}"][0] == "ok"
    state, what, fix = findings["table lake.net.flows"]
    assert state == "fail"
    assert f"names topic {other}, but the table holds offsets of topic {topic}" in what
    assert topic in fix


def test_a_compacted_topic_is_a_warning(site: DoctorSite, kafka: Kafka) -> None:
    topic = kafka.topic(config={"cleanup.policy": "compact"})
    bind(site, topic)
    assert site.findings(failed=False)[f"topic {topic}"][0] == "warn"


def test_uuids_that_spark_would_not_find_are_a_warning(site: DoctorSite, kafka: Kafka) -> None:
    """Once there are files with their statistics, by ``test_live_types``."""
    inner = pa.struct([pa.field("u", pa.uuid())])
    columns = [Column(0, name, kind) for name, kind in (("inner", inner), ("u", pa.uuid()))]
    bind(site, kafka.topic(), columns=columns)
    assert f"uuids of {FLOWS}" not in site.findings(failed=False)
    old = dict.fromkeys((f"{STATISTICS}u", f"{STATISTICS}inner.u"), "true")
    table = TableName("lake", ("net",), "old")
    bind(site, kafka.topic(), table, columns, properties=old)
    assert site.findings(failed=False)[f"uuids of {table}"] == (
        "warn",
        "files may come to have statistics of inner.u, u, which Spark reads in another order: its conditions on a uuid find "
        "no row there; other engines do",
        "type in Spark SQL: `ALTER TABLE lake.net.old SET TBLPROPERTIES ("
        "'write.parquet.stats-enabled.column.inner.u' = 'false', 'write.parquet.stats-enabled.column.u' = 'false')`",
    )


def test_a_grace_shorter_than_what_servers_promise_is_a_warning(
    site: DoctorSite, kafka: Kafka
) -> None:
    bind(site, kafka.topic(), properties={"thermocline.maintain.pin_grace_s": "600"})
    off = {"thermocline.maintain.pin_grace_s": "600", "thermocline.maintain.mode": "off"}
    bind(site, kafka.topic(), TableName("lake", ("net",), "off"), properties=off)
    bind(site, kafka.topic(), TableName("lake", ("net",), "usual"))
    findings = site.findings(failed=False)
    assert [name for name in findings if name.startswith("maintenance")] == [
        "maintenance of lake.net.flows"
    ]
    assert findings["maintenance of lake.net.flows"] == (
        "warn",
        "answers may take 3,900 s from their plan on, and what they read stays for 600 s",
        "set thermocline.maintain.pin_grace_s of the table to 3900 at least, or the server's limits lower",
    )


def test_a_table_outside_the_storage_roots_is_a_failure(
    site: DoctorSite, kafka: Kafka, tmp_path: Path
) -> None:
    bind(site, kafka.topic(), location=(tmp_path / "elsewhere").as_uri())
    state, what, fix = site.findings(failed=True)["files of lake.net.flows"]
    assert (state, what) == (
        "fail",
        "they are outside the storage roots, so the server does not read them",
    )
    assert fix == f"add {tmp_path.as_uri()}/elsewhere to server.storage_roots"


def test_a_warehouse_outside_the_storage_roots_is_a_failure(
    site: DoctorSite, kafka: Kafka, catalog: dict[str, str], tmp_path: Path
) -> None:
    site.write(catalog, kafka.settings, f'{UNLOCKED}storage_roots = ["{tmp_path}/other"]\n')
    result = CliRunner().invoke(command, ["--json"], obj=str(site.config))
    whats = [f["what"] for f in json.loads(result.stdout)["findings"] if f["state"] == "fail"]
    assert whats == ["its warehouse is outside server.storage_roots"]


def test_a_store_that_cannot_be_written_is_a_failure(
    site: DoctorSite, kafka: Kafka, catalog: dict[str, str]
) -> None:
    # A file where the folder should be: nobody can write below it, not even root.
    warehouse = Path(catalog["warehouse"].removeprefix("file://"))
    shutil.rmtree(warehouse)
    warehouse.touch()
    state, what, _ = site.findings(failed=True)["store of lake"]
    assert state == "fail"
    assert "a file cannot be written there: " in what
    assert str(warehouse) not in what


def test_a_catalog_that_does_not_answer_is_a_failure(
    site: DoctorSite, kafka: Kafka, catalog: dict[str, str], tmp_path: Path
) -> None:
    site.write(catalog | {"uri": f"sqlite:///{tmp_path}/absent/c.db"}, kafka.settings)
    assert site.findings(failed=True)["catalog lake"][0] == "fail"


def test_each_url_of_a_schema_registry_is_asked(
    site: DoctorSite, kafka: Kafka, catalog: dict[str, str]
) -> None:
    with (
        scripted_registry(Reply(["a-value", "b-value"])) as well,
        scripted_registry(Reply("<html>", kind="text/html")) as other,
        scripted_registry(Reply("", 401)) as closed,
    ):
        logins = well.url.replace("://", "://alice:hush@")
        registries = (
            f'[schema_registry]\nurl = "{well.url}"\n'
            f'[schema_registries.two]\nurl = "{other.url}, {logins}"\n'
            f'[schema_registries.closed]\nurl = "{closed.url}"\n'
        )
        site.write(catalog, kafka.settings, f"{UNLOCKED}{registries}")
        fields = site.findings(failed=True)
    assert {check: field for check, field in fields.items() if "registry" in check} == {
        "schema registry": ("ok", "answers, 2 subjects", ""),
        f"schema registry two at {other.url}": (
            "warn",
            "the schema registry two answered text/html, not JSON",
            "is url in [schema_registries.two] the registry's URL?",
        ),
        f"schema registry two at {well.url.replace('://', '://********@')}": (
            "ok",
            "answers, 2 subjects",
            "",
        ),
        "schema registry closed": (
            "fail",
            "the schema registry closed refuses the login (HTTP 401)",
            "check basic.auth.user.info or bearer.auth.* in [schema_registries.closed]",
        ),
    }


def test_settings_that_do_not_load_are_the_only_finding(site: DoctorSite) -> None:
    site.config.write_text("[server]\nprot = 1\n")
    assert site.findings(failed=True) == {
        "settings": (
            "fail",
            f"{site.config}: server.prot: unknown key",
            "did you mean port?",
        )
    }


def test_one_server_of_several_that_is_wrong_is_a_warning(
    site: DoctorSite, kafka: Kafka, catalog: dict[str, str]
) -> None:
    site.write(catalog, {"bootstrap.servers": f"{kafka.bootstrap},127.0.0.1:1"})
    fields = site.findings(failed=False)
    assert fields[f"broker {kafka.bootstrap}"][0] == "ok"
    assert fields["broker 127.0.0.1:1"] == (
        "warn",
        "nothing listens there",
        "start the broker, or correct the port in bootstrap.servers",
    )


def test_a_taken_port_little_memory_and_little_disk_are_warnings(
    site: DoctorSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("LOW_MEMORY_BYTES", "LOW_DISK_BYTES"):
        monkeypatch.setattr(f"thermocline.doctor.machine.{limit}", 2**60)
    settings = load(str(site.config))
    with socket.create_server(("127.0.0.1", 0)) as batch:
        server = settings.server.model_copy(update={"port": batch.getsockname()[1]})
        value = settings.model_copy(update={"server": server})
        fields = {f.check: f for f in machine(value)}
    for check in ("server port", "memory", "disk for spilling"):
        assert fields[check].state == "warn", fields[check]
        assert fields[check].fix
    assert "address already in use" in fields["server port"].what


def test_java_that_is_missing_is_a_failure(
    site: DoctorSite, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from connectors import jars

    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    jars.java.cache_clear()
    try:
        result = site.findings(failed=True)["Java"]
    finally:
        jars.java.cache_clear()
    assert result[:2] == ("fail", "the Java of JAVA_HOME does not run; it must be Java 17")


def test_versions_are_compared_as_numbers() -> None:
    assert fits("1.10.0", ">=1.9,<2")
    assert not fits("2.0", ">=1.9,<2")
    assert fits("1.5.5", "==1.5.5")
    assert not fits("1.5.6", "==1.5.5")
    assert [python(v).state for v in ((3, 10), (3, 11), (3, 14), (3, 15))] == [
        *("fail", "ok", "ok", "warn")
    ]


@pytest.mark.parametrize(
    ("listener", "properties", "why", "fix"),
    [
        ("plain", {}, None, ""),
        ("tls", {"security.protocol": "ssl", "ssl.ca.location": "{ca}"}, None, ""),
        ("sasl", {"security.protocol": "sasl_plaintext", **ALICE}, None, ""),
        (
            *("tls", {}, "it speaks TLS, and the settings do not"),
            "set security.protocol to SSL",
        ),
        (
            *("tls", {"security.protocol": "sasl_plaintext", **ALICE}),
            "it speaks TLS, and the settings do not",
            "set security.protocol to SASL_SSL",
        ),
        (
            *("plain", {"security.protocol": "ssl"}, "it does not speak TLS"),
            "set security.protocol to PLAINTEXT",
        ),
        (
            *("tls", {"security.protocol": "ssl"}),
            "its certificate is not trusted here, or is for another name",
            "set ssl.ca.location to the certificate of the authority that signed it, and reach the broker by "
            "the name in its certificate",
        ),
        (
            *("mtls", {"security.protocol": "ssl", "ssl.ca.location": "{ca}"}),
            "it wants a certificate of this client, or does not trust the one it got",
            "set ssl.certificate.location and ssl.key.location to one that its authority signed",
        ),
        (
            *("token", {"sasl.oauthbearer.client.secret": "wrong-word"}),
            "the identity provider gives no token for it",
            "correct the sasl.oauthbearer.* properties, or ask those who run the provider",
        ),
        ("token", {}, None, ""),
        (
            *("sasl", {}, "it takes the connection and does not answer"),
            "it may want a login: set security.protocol, sasl.mechanism, sasl.username and sasl.password",
        ),
        (
            "sasl",
            {"security.protocol": "sasl_plaintext", **ALICE, "sasl.password": "hush"},
            "it refuses the login",
            "correct sasl.username and sasl.password",
        ),
        (
            "sasl",
            {"security.protocol": "sasl_plaintext", **ALICE, "sasl.mechanism": "SCRAM-SHA-256"},
            "it does not offer the SASL mechanism that is configured",
            "set sasl.mechanism to one of PLAIN",
        ),
    ],
)
def test_each_way_not_to_reach_a_broker_is_told_apart(
    guarded: GuardedKafka, listener: str, properties: dict[str, str], why: str | None, fix: str
) -> None:
    server = {
        "plain": guarded.bootstrap,
        "tls": guarded.listeners["TLS"],
        "mtls": guarded.listeners["MTLS"],
        "token": guarded.listeners["SASL_TLS"],
        "sasl": guarded.listeners["SASL"],
    }[listener]
    entry = {key: value.format(ca=guarded.certificate) for key, value in properties.items()}
    login = guarded.login("OAUTHBEARER") if listener == "token" else {}
    result = reach({**login, "bootstrap.servers": server, **entry}, server)
    assert (result.why, result.fix) == (why, fix)
    assert (result.cluster_id is None) == (why is not None)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("127.0.0.1:1", "nothing listens there"),
        ("no-such-host.invalid:9092", "its name is not known here"),
    ],
)
def test_an_address_that_is_wrong_is_told(name: str, why: str) -> None:
    assert reach({"bootstrap.servers": name}, name).why == why


def test_missing_rights_are_told_apart(guarded: GuardedKafka) -> None:
    topics = ["dark", "seen", "read"]
    for topic in topics:
        guarded.topic(name=topic)
    guarded.allow("seen", AclOperation.DESCRIBE)
    guarded.allow("read", AclOperation.READ)
    settings = {
        "bootstrap.servers": guarded.listeners["SASL"],
        "security.protocol": "sasl_plaintext",
        **ALICE,
    }

    def reply() -> list[tuple[bool, bool | None]]:
        result = topic_facts({"": settings}, topics)
        return [(result[t].may_describe, result[t].may_read) for t in topics if t in result]

    expected = [(False, None), (True, False), (True, True)]
    deadline = time.monotonic() + 15
    while reply() != expected:
        assert time.monotonic() < deadline, reply()
        time.sleep(0.1)
