"""The trial in one command: what its parts must agree on. No container is started: there is no daemon here."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pytest

from connectors import jars
from connectors.spark.catalogs import jar_sets
from tests.fixtures import object_store, rest_catalog
from tests.harness.deploy_files import DEPLOY, Check
from thermocline.config.settings import read, validate

pytestmark = pytest.mark.timeout(900)
TRIAL = DEPLOY / "trial"
CONFIG = "/etc/thermocline/thermocline.toml"


@pytest.fixture(scope="module")
def services(check: Check) -> dict[str, Any]:
    fields: dict[str, Any] = check("compose", TRIAL / "compose.yaml")["services"]
    return fields


def test_versions_are_those_that_the_tests_run(services: dict[str, Any]) -> None:
    assert services["kafka"]["image"] == f"apache/kafka:{jars.SETS['kafka'][0].revision}"
    [store] = object_store._JAR
    assert services["store"]["image"] == f"andrewgaul/s3proxy:{store.revision}"
    catalog = f"apache/iceberg-rest-fixture:{rest_catalog._VERSION}"
    assert services["catalog"]["image"] == catalog


def test_every_version_and_shared_setting_is_in_one_file() -> None:
    text = (TRIAL / "compose.yaml").read_text()
    for line in (TRIAL / ".env").read_text().splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.partition("=")
            assert f"${{{name}}}" in text, name
            assert not name.endswith("_IMAGE") or value not in text


def test_ports_are_open_to_this_machine_only(services: dict[str, Any]) -> None:
    opened = [port for service in services.values() for port in service.get("ports") or ()]
    assert {port["target"] for port in opened} == {9092, 9000, 8181, 31337, 8080, 9090, 3000}
    assert {port["host_ip"] for port in opened} == {"127.0.0.1"}


def test_server_and_tierer_have_settings_that_name_the_other_parts(
    services: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    both = []
    for name in ("serve", "tier"):
        fields = services[name]
        for key, value in fields["environment"].items():
            monkeypatch.setenv(key, value)
        mounted = {volume["target"]: volume["source"] for volume in fields["volumes"]}
        settings, problems = validate(read(mounted[CONFIG]))
        assert not [problem.sentence for problem in problems if problem.severity == "error"]
        assert settings is not None
        both.append(settings)
    lake, store, catalog = (
        both[0].catalogs["lake"],
        services["store"]["environment"],
        services["catalog"]["environment"],
    )
    assert both[1].catalogs["lake"] == lake
    assert lake["s3.endpoint"] == catalog["CATALOG_S3_ENDPOINT"] == "http://store:9000"
    assert store["S3PROXY_ENDPOINT"].endswith(":9000")
    assert lake["s3.access-key-id"] == store["S3PROXY_IDENTITY"]
    assert lake["s3.secret-access-key"] == store["S3PROXY_CREDENTIAL"]
    assert both[0].server.storage_roots == (catalog["CATALOG_WAREHOUSE"],)
    bucket = catalog["CATALOG_WAREHOUSE"].split("/")[2]
    assert (
        services["bucket"]["entrypoint"][-1]
        == f"{store['JCLOUDS_FILESYSTEM_BASEDIR']}/{bucket}"
    )
    listeners = services["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert f"INSIDE://{both[0].kafka['bootstrap.servers']}" in listeners
    # A file system that is read only takes no jar at run time.
    assert services["tier"]["build"]["args"]["JARS"].split() == list(jar_sets(both[1].catalogs))


def test_prometheus_asks_the_jobs_of_the_rules(services: dict[str, Any]) -> None:
    sources = {
        volume["target"]: Path(volume["source"]) for volume in services["prometheus"]["volumes"]
    }
    text = sources["/etc/prometheus/prometheus.yml"].read_text()
    [name] = re.findall(r"rule_files: \[(.*)\]", text)
    rules = sources[f"/etc/prometheus/{name}"].read_text()
    jobs, targets = (
        re.findall(r"job_name: (\S+)", text),
        re.findall(r'targets: \["(\w+):8080"\]', text),
    )
    assert len(jobs) == len(targets) == 2
    for job in jobs:
        assert f'up{{job="{job}"}}' in rules
    assert set(targets) <= services.keys()


def test_grafana_shows_the_dashboard_over_that_prometheus(services: dict[str, Any]) -> None:
    sources = {
        volume["target"]: Path(volume["source"]) for volume in services["grafana"]["volumes"]
    }
    folder = "/etc/grafana/provisioning"
    [url] = re.findall(
        r"url: http://(\w+):9090", sources[f"{folder}/datasources/prometheus.yaml"].read_text()
    )
    assert url in services
    [path] = re.findall(
        r"path: ([^}\s]+)", sources[f"{folder}/dashboards/thermocline.yaml"].read_text()
    )
    home = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home.startswith(f"{path}/")
    assert sources[home] == (DEPLOY / "grafana" / "thermocline.json").resolve()


def test_values_for_a_cluster_are_those_of_the_trial(
    check: Check, services: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    objects = check("chart", DEPLOY / "chart", TRIAL / "values.yaml")
    [text] = [
        fields["data"]["thermocline.toml"]
        for fields in objects
        if fields["kind"] == "ConfigMap"
    ]
    [encoded] = [fields["data"] for fields in objects if fields["kind"] == "Secret"]
    secret = {key: base64.b64decode(value).decode() for key, value in encoded.items()}
    chart: list[Any] = []
    compose: list[Any] = []
    for kind, environment, settings in (
        (chart, secret, text),
        (compose, services["serve"]["environment"], (TRIAL / "thermocline.toml").read_text()),
    ):
        with monkeypatch.context() as patch:
            for key, value in environment.items():
                patch.setenv(key, value)
            (tmp_path / "thermocline.toml").write_text(settings)
            read_back, _ = validate(read(str(tmp_path / "thermocline.toml")))
        assert read_back is not None
        kind += [read_back.catalogs, read_back.kafka, read_back.server.storage_roots]
    assert chart == compose
