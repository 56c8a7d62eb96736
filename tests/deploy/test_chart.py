"""The Helm chart: linted and rendered by Helm's own code, every manifest decoded into the Kubernetes types."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.deploy_files import DEPLOY, Check, Refused
from thermocline.config.settings import read, validate

# go builds the tool on a machine that has nothing yet.
pytestmark = pytest.mark.timeout(900)
CHART = DEPLOY / "chart"
SMALL: dict[str, Any] = {"access": {"allowInsecure": True}}
LARGE: dict[str, Any] = {
    "image": {"repository": "registry.example/thermocline", "tag": "1.2.3"},
    "imagePullSecrets": [{"name": "pull"}],
    "access": {"credentialsSecret": "callers", "tlsSecret": "certificate"},
    "secretEnv": {
        "THERMOCLINE_SERVER__TICKET_SECRET": "s3cret",
        "THERMOCLINE_KAFKA__SASL_PASSWORD": "pw",
    },
    "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/x"}},
    "server": {
        "replicas": 3,
        "podAnnotations": {"prometheus.io/scrape": "true"},
        "nodeSelector": {"disk": "nvme"},
        "tolerations": [{"key": "sql", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
    },
    "service": {"type": "LoadBalancer", "port": 443},
    "tier": {"nodeSelector": {"disk": "hdd"}},
}


class Chart:
    """Renders with values, as ``helm template`` does; with the same values once."""

    def __init__(self, check: Check, folder: Path) -> None:
        self._check = check
        self._values = folder / "values.yaml"
        self._rendered: dict[str, dict[tuple[str, str], dict[str, Any]]] = {}

    def __call__(self, values: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
        """The objects by kind and name."""
        text = json.dumps(values)  # JSON is YAML
        if text not in self._rendered:
            self._values.write_text(text, encoding="utf-8")
            items = self._check("chart", CHART, self._values)
            objects = {(fields["kind"], fields["metadata"]["name"]): fields for fields in items}
            assert len(objects) == len(items), "two objects of one name"
            self._rendered[text] = objects
        return self._rendered[text]


@pytest.fixture(scope="module")
def chart(check: Check, tmp_path_factory: pytest.TempPathFactory) -> Chart:
    return Chart(check, tmp_path_factory.mktemp("chart"))


def pods(objects: dict[tuple[str, str], dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for (kind, _), fields in objects.items():
        if kind == "Deployment":
            yield fields["spec"]["template"]


def variables(pod: dict[str, Any]) -> dict[str, str]:
    return {fields["name"]: fields["value"] for fields in pod["spec"]["containers"][0]["env"]}


def test_a_small_installation_is_a_server_and_a_tierer(chart: Chart) -> None:
    assert set(chart(SMALL)) == {
        ("ConfigMap", "try-thermocline"),
        ("Deployment", "try-thermocline-server"),
        ("Deployment", "try-thermocline-tier"),
        ("Service", "try-thermocline"),
        ("ServiceAccount", "try-thermocline"),
    }


def test_a_large_one_adds_a_secret_and_a_budget(chart: Chart) -> None:
    objects = chart(LARGE)
    assert {kind for kind, _ in objects} >= {"Secret", "PodDisruptionBudget"}
    server = objects["Deployment", "try-thermocline-server"]["spec"]
    assert server["replicas"] == 3
    container = server["template"]["spec"]["containers"][0]
    assert container["image"] == "registry.example/thermocline:1.2.3"
    assert container["envFrom"] == [{"secretRef": {"name": "try-thermocline"}}]
    assert "s3cret" not in json.dumps(
        [value for (kind, _), value in objects.items() if kind != "Secret"]
    )


def test_the_tierer_is_one_and_never_two(chart: Chart) -> None:
    spec = chart(LARGE)["Deployment", "try-thermocline-tier"]["spec"]
    assert (spec["replicas"], spec["strategy"]["type"]) == (1, "Recreate")
    assert ("Deployment", "try-thermocline-tier") not in chart(
        {**SMALL, "tier": {"enabled": False}}
    )


@pytest.mark.parametrize("values", [SMALL, LARGE], ids=["small", "large"])
def test_selectors_choose_the_pods_that_are_meant(chart: Chart, values: dict[str, Any]) -> None:
    objects = chart(values)
    server = objects["Deployment", "try-thermocline-server"]["spec"]["template"]["metadata"][
        "labels"
    ]
    tier = objects["Deployment", "try-thermocline-tier"]["spec"]["template"]["metadata"][
        "labels"
    ]
    for (kind, _), fields in objects.items():
        if kind in ("Service", "PodDisruptionBudget"):
            chosen = fields["spec"]["selector"]
            chosen = chosen.get("matchLabels", chosen)
            assert chosen.items() <= server.items()
            assert not chosen.items() <= tier.items()


@pytest.mark.parametrize("values", [SMALL, LARGE], ids=["small", "large"])
def test_pods_meet_the_restricted_security_standard(
    chart: Chart, values: dict[str, Any]
) -> None:
    for pod in pods(chart(values)):
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["requests"]
            assert container["resources"]["limits"]["memory"]
            assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
            mounted = {mount["name"] for mount in container["volumeMounts"]}
            assert mounted == {volume["name"] for volume in spec["volumes"]}


@pytest.mark.parametrize("values", [SMALL, LARGE], ids=["small", "large"])
def test_the_program_accepts_the_configuration_and_every_variable(
    chart: Chart, values: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = chart(values)
    file = tmp_path / "thermocline.toml"
    file.write_text(
        objects["ConfigMap", "try-thermocline"]["data"]["thermocline.toml"], encoding="utf-8"
    )
    for pod in pods(objects):
        with monkeypatch.context() as patched:
            for name, value in {**variables(pod), **values.get("secretEnv", {})}.items():
                patched.setenv(name, value)
            settings, problems = validate(read(str(file)))
        assert not [problem.sentence for problem in problems if problem.severity == "error"]
        assert settings is not None
        if pod["metadata"]["labels"]["app.kubernetes.io/component"] == "tier":
            assert settings.tier.driver_memory == "2g"
        else:
            ports = {
                problem["name"]: problem["containerPort"]
                for problem in pod["spec"]["containers"][0]["ports"]
            }
            # The server's own rule: a network is listened to with users and TLS, or on purpose.
            access = settings.access
            assert access.allow_insecure_public or (
                access.credentials_file == "/etc/thermocline/access/credentials.toml"
                and access.tls_certificate == "/etc/thermocline/tls/tls.crt"
                and access.tls_key == "/etc/thermocline/tls/tls.key"
            )
            assert ports == {
                "flight-sql": settings.server.port,
                "http": settings.server.http_port,
            }


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({}, "Name users"),
        ({"access": {"credentialsSecret": "callers"}}, "access.tlsSecret"),
        (
            {**SMALL, "server": {"replicas": 2}},
            "More than one replica needs THERMOCLINE_SERVER__TICKET_SECRET",
        ),
        ({**SMALL, "secretEnv": {"A": "b"}, "existingSecret": "c"}, "exclude each other"),
        ({**SMALL, "secretEnv": {"lower": "b"}}, "'lower'"),
        ({**SMALL, "server": {"replica": 2}}, "'replica' not allowed"),
        ({**SMALL, "service": {"port": 0}}, "service/port"),
        ({**SMALL, "tier": {"resources": {"limit": {}}}}, "'limit' not allowed"),
        ({**SMALL, "server": {"affinity": {"podAffinitty": {}}}}, "podAffinitty"),
    ],
)
def test_wrong_values_are_refused_by_name(
    chart: Chart, values: dict[str, Any], says: str
) -> None:
    with pytest.raises(Refused) as refused:
        chart(values)
    assert says in str(refused.value)
