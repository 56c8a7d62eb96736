"""What server and tierer serve to Prometheus, with a sample of every series."""

from __future__ import annotations

import re

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from connectors.iceberg.pin_cache import PinStatus
from connectors.jobs import events
from connectors.jobs.round import RoundResult
from connectors.registry.registries import RegistryState
from planner.errors import CatalogUnavailable, FederationError, TailGap, TieringConflict
from planner.maintenance.facts import MaintenanceFacts
from planner.maintenance.steps import OrphanRemoval, StepResult, Upkeep
from planner.seam.snapshots import History
from planner.seam.watermark import Outcomes
from planner.tiering.plan import TieringBudget, plan_tiering
from planner.tiering.triggers import Lag, Trigger
from proxy.ops.call_record import CallRecord
from proxy.ops.metrics import ServerMetrics
from proxy.ops.schema_registries import SchemaRegistryStates
from proxy.ops.states import ProcessState, States
from proxy.tail.budget import TailState
from tests.harness.builders import BINDING, FLOWS, bounds, pin, watermark
from thermocline.tiering.maintenance_metrics import MaintenanceMetrics
from thermocline.tiering.metrics import TieringMetrics

#: Prometheus adds these to every series.
OF_THE_TARGET = {"job", "instance"}


def tail_state(schema_id: int, rows: int, error: FederationError | None) -> TailState:
    return TailState(
        table=FLOWS,
        topic="flows",
        schema_id=schema_id,
        is_followed=True,
        ranges=(),
        lag=7,
        rest_s=2.5,
        rows=rows,
        size=rows * 10,
        packed=0,
        on_disk=0,
        error=error,
        outcomes=Outcomes(rows=rows, dead=1, skipped=2),
    )


def served_labels() -> dict[str, set[str]]:
    """The labels of each series that a server, a tierer or Prometheus itself makes."""
    labels = {"up": set[str]()} | _labels(_server()) | _labels(_tierer())
    return {name: own | OF_THE_TARGET for name, own in labels.items()}


def _server() -> CollectorRegistry:
    metrics = ServerMetrics()
    pins = [PinStatus(FLOWS, None, 42.0, None)]
    tails = [tail_state(1, 100, None)]
    metrics.registry.register(
        States(lambda: pins, lambda: tails, lambda: ProcessState(0.0, 0, 0))
    )
    metrics.registry.register(_registries())
    metrics.count_waiting(lambda _: 0)
    failed = CallRecord("DO_GET")
    failed.is_executed, failed.outcome, failed.steps = True, "TailGap", {"plan": 0.1}
    metrics.read(failed)
    return metrics.registry


def _registries() -> SchemaRegistryStates:
    states = (RegistryState("", 3, 1, 7.0),)
    return SchemaRegistryStates(lambda: states, lambda: {str(FLOWS): 2})


def _tierer() -> CollectorRegistry:
    metrics = TieringMetrics()
    plan = plan_tiering(pin(0), bounds((0, 9)), TieringBudget())
    done = RoundResult(plan, watermark(9), True, Outcomes(rows=9), 0, 2.0, 0.1)
    metrics(events.TableMeasured(FLOWS, Lag(rows=9), BINDING))
    metrics(events.RoundPublished(FLOWS, done, Trigger("age", 1.0), None))
    metrics(events.RoundRefused(FLOWS, TieringConflict("another was first.")))
    metrics(events.TableFailed(FLOWS, TailGap("gone."), 1.0))
    metrics(events.TableFailed(None, CatalogUnavailable("down."), 1.0))
    maintenance = MaintenanceMetrics(metrics.registry)
    facts = MaintenanceFacts(FLOWS, 1, History({}), {1: 0})
    maintenance(events.TableSurveyed(FLOWS, facts, Upkeep()))
    maintenance(events.StepDone(FLOWS, OrphanRemoval(), StepResult(1, 2, 3.0)))
    maintenance(events.TableFailed(FLOWS, TailGap("gone."), 1.0))
    return metrics.registry


def _labels(registry: CollectorRegistry) -> dict[str, set[str]]:
    text = generate_latest(registry).decode()
    names = re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)
    labels: dict[str, set[str]] = {name: set() for name in names}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    return labels
