"""Alerting rules and dashboard: what they ask for is served, and what they say leads somewhere.

Prometheus' own parser reads the expressions. No Prometheus or Grafana is started: none comes as a package.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from planner import errors
from tests.harness.deploy_files import DEPLOY, Check, Refused
from tests.harness.metrics import served_labels

pytestmark = pytest.mark.timeout(900)
RULES = DEPLOY / "prometheus" / "rules.yaml"
DASHBOARD = DEPLOY / "grafana" / "thermocline.json"


@pytest.fixture(scope="module")
def rules(check: Check) -> list[dict[str, Any]]:
    alerts: list[dict[str, Any]] = check("rules", RULES)
    return alerts


def test_every_metric_and_label_is_served(rules: list[dict[str, Any]]) -> None:
    labels = served_labels()
    for rule in rules:
        assert rule["metrics"].keys() <= labels.keys(), rule["alert"]
        for name, by in rule["metrics"].items():
            assert by.keys() <= labels[name], rule["alert"]


def test_sentences_name_labels_that_there_are(rules: list[dict[str, Any]]) -> None:
    labels = served_labels()
    for rule in rules:
        there = set().union(*(labels[name] for name in rule["metrics"]))
        text = " ".join(rule["annotations"].values())
        assert set(re.findall(r"\$labels\.(\w+)", text)) <= there, rule["alert"]


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


@pytest.fixture(scope="module")
def panels() -> list[dict[str, Any]]:
    document = json.loads(DASHBOARD.read_text())
    return [panel for panel in document["panels"] if panel["type"] != "row"]


def test_every_panel_shows_what_is_served(
    check: Check, tmp_path: Path, panels: list[dict[str, Any]]
) -> None:
    labels = served_labels()
    targets = [target for panel in panels for target in panel["targets"]]
    file = tmp_path / "expressions.json"
    # Grafana fills the interval in before Prometheus sees it.
    file.write_text(
        json.dumps([target["expr"].replace("$__rate_interval", "5m") for target in targets])
    )
    for target, metrics in zip(targets, check("promql", file), strict=True):
        assert metrics.keys() <= labels.keys(), target["expr"]
        for name, by in metrics.items():
            assert by.keys() <= labels[name], target["expr"]
            named_in_legend = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            assert named_in_legend <= labels[name], target["expr"]


def test_every_metric_of_ours_is_on_the_dashboard() -> None:
    text = DASHBOARD.read_text()
    ours = [name for name in served_labels() if name.startswith("thermocline_")]
    parts = re.compile("_(bucket|count|sum|total)$")
    assert [name for name in ours if parts.sub("", name) not in text] == []


def test_variables_of_the_dashboard_are_defined(panels: list[dict[str, Any]]) -> None:
    document = json.loads(DASHBOARD.read_text())
    defined = {variable["name"] for variable in document["templating"]["list"]}
    used = set(re.findall(r"\$(?!__){?(\w+)", json.dumps(panels)))
    assert used == defined


def test_panels_lie_beside_each_other_and_have_names_of_their_own(
    panels: list[dict[str, Any]],
) -> None:
    assert len({panel["title"] for panel in panels}) == len(panels)
    cells = [
        (column, line)
        for place in (panel["gridPos"] for panel in panels)
        for column in range(place["x"], place["x"] + place["w"])
        for line in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(column for column, _ in cells) < 24
