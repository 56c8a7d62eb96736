"""The compose file, as Docker Compose's own loader reads it. No container is started: there is no daemon here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.harness.deploy_files import DEPLOY, Check, Refused
from thermocline.config.settings import read, validate

pytestmark = pytest.mark.timeout(900)
COMPOSE = DEPLOY / "compose.yaml"


@pytest.fixture(scope="module")
def services(check: Check) -> dict[str, Any]:
    fields: dict[str, Any] = check("compose", COMPOSE)["services"]
    return fields


def test_the_server_starts_after_kafka_answers_and_the_volume_is_ready(
    services: dict[str, Any],
) -> None:
    for name in ("serve", "tier"):
        after = {
            other: fields["condition"] for other, fields in services[name]["depends_on"].items()
        }
        assert after == {"kafka": "service_healthy", "lake": "service_completed_successfully"}


def test_images_are_built_from_stages_that_exist(services: dict[str, Any]) -> None:
    stages = [
        line.split()[-1]
        for line in (DEPLOY / "Dockerfile").read_text().splitlines()
        if line.startswith("FROM ")
    ]
    built = {name: fields["build"] for name, fields in services.items() if "build" in fields}
    assert set(built) == {"lake", "serve", "tier"}
    for fields in built.values():
        assert fields["target"] in stages
        assert (Path(fields["context"]) / fields["dockerfile"]).samefile(DEPLOY / "Dockerfile")


def test_ports_are_open_to_this_machine_only(services: dict[str, Any]) -> None:
    opened = [port for service in services.values() for port in service.get("ports") or ()]
    assert {port["target"] for port in opened} == {9092, 31337, 8080}
    assert {port["host_ip"] for port in opened} == {"127.0.0.1"}


def test_the_mounted_configuration_is_valid_and_names_the_broker(
    services: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    mounted = {fields["target"]: fields["source"] for fields in services["serve"]["volumes"]}
    for name, value in services["serve"]["environment"].items():
        monkeypatch.setenv(name, value)
    settings, problems = validate(read(mounted["/etc/thermocline/thermocline.toml"]))
    assert not [fields.sentence for fields in problems if fields.severity == "error"]
    assert settings is not None
    listeners = services["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert f"INSIDE://{settings.kafka['bootstrap.servers']}" in listeners
    assert settings.catalogs["lake"]["warehouse"].startswith("file:///lake/")
    assert "/lake" in mounted


def test_an_unknown_key_is_refused(check: Check, tmp_path: Path) -> None:
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(COMPOSE.read_text().replace("read_only: true", "readonly: true", 1))
    with pytest.raises(Refused, match="readonly"):
        check("compose", wrong)
