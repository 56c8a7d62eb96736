"""The alerting rules: what they ask for is served, and what they say leads somewhere. Prometheus' own parser reads them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from planner import errors
from proxy.ops.call_record import CallRecord
from proxy.ops.metrics import ServerMetrics
from proxy.ops.states import States
from tests.harness.deploy_files import DEPLOY, Check, Refused
from thermocline.tiering.metrics import TieringMetrics

pytestmark = pytest.mark.timeout(900)
RULES = DEPLOY / "prometheus" / "rules.yaml"
#: Prometheus makes these itself.
OF_PROMETHEUS = {"up": {"job", "instance"}}


@pytest.fixture(scope="module")
def rules(check: Check) -> list[dict[str, Any]]:
    alerts: list[dict[str, Any]] = check("rules", RULES)
    return alerts


def served() -> dict[str, set[str]]:
    """What server and tierer serve: each series with its labels, where there is a sample yet."""
    server = ServerMetrics()
    server.registry.register(States(tuple, tuple, lambda: 0.0, lambda: 0))
    failed = CallRecord("DO_GET")
    failed.is_executed, failed.outcome = True, "TailGap"
    server.read(failed)
    return OF_PROMETHEUS | series(server.registry) | series(TieringMetrics().registry)


def series(registry: CollectorRegistry) -> dict[str, set[str]]:
    text = generate_latest(registry).decode()
    names = re.findall("^# TYPE (\\S+)", text, re.MULTILINE)
    labels: dict[str, set[str]] = {name: set() for name in names}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    return labels


def test_every_metric_and_label_is_served(rules: list[dict[str, Any]]) -> None:
    labels = served()
    for rule in rules:
        assert rule["metrics"].keys() <= labels.keys(), rule["alert"]
        for name, by in rule["metrics"].items():
            assert by.keys() <= labels[name], rule["alert"]


def test_an_inconsistency_of_any_kind_is_an_alert(rules: list[dict[str, Any]]) -> None:
    (rule,) = (rule for rule in rules if rule["alert"] == "ThermoclineInconsistent")
    family: set[type[errors.FederationError]] = {
        errors.Inconsistent,
        *errors.Inconsistent.__subclasses__(),
    }
    expected = {error.__name__ for error in family if error.__module__ == errors.__name__}
    patterns = re.findall('outcome=~"(.+?)"', rule["expr"])
    assert len(patterns) == 2
    assert all(set(pattern.split("|")) == expected for pattern in patterns)


def test_each_alert_says_how_bad_it_is_what_to_do_and_where_to_read(
    rules: list[dict[str, Any]],
) -> None:
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["labels"].keys() == {"severity"}
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert rule["annotations"].keys() == {"summary", "description", "runbook"}
        page, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert anchor in anchors(DEPLOY.parent / page), rule["alert"]


def anchors(page: Path) -> set[str]:
    titles = re.findall("^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("expr: up{job=", "unexpected|parse error"),
        ("expr: up\n        fro: 1m", "unknown field"),
        ("expr: up\n        for: soon", "not a valid duration"),
    ],
)
def test_a_wrong_rule_is_refused(check: Check, tmp_path: Path, wrong: str, words: str) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(
        f"groups:\n  - name: some\n    rules:\n      - alert: Some\n        {wrong}\n"
    )
    with pytest.raises(Refused, match=words):
        check("rules", file)
