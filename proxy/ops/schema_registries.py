"""What was asked of schema registries, in Prometheus' terms: for servers and tierers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from connectors.registry.options import section_of
from connectors.registry.registries import RegistryState


class SchemaRegistryStates(Collector):
    """``states`` are the registries that were asked, ``ids`` how many schemas records of each table had."""

    def __init__(
        self,
        states: Callable[[], Sequence[RegistryState]],
        ids: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self._states, self._ids = states, ids

    def collect(self) -> Iterable[Metric]:
        labels = ["registry"]
        requests = CounterMetricFamily(
            "thermocline_schema_registry_requests",
            "Requests of a schema registry, each attempt of one.",
            labels=labels,
        )
        failures = CounterMetricFamily(
            "thermocline_schema_registry_failures",
            "Those of them without an answer that can be used.",
            labels=labels,
        )
        age = GaugeMetricFamily(
            "thermocline_schema_registry_answer_age_seconds",
            "Time since a schema registry last answered; before the first time, since it was first asked.",
            labels=labels,
        )
        for state in self._states():
            section = [section_of(state.name)]
            requests.add_metric(section, state.requests)
            failures.add_metric(section, state.failures)
            age.add_metric(section, state.silent_s)
        met = GaugeMetricFamily(
            "thermocline_schema_ids",
            "Schema ids that records of the table had since the start.",
            labels=["table"],
        )
        for table, count in self._ids().items():
            met.add_metric([table], count)
        yield from (requests, failures, age, met)
