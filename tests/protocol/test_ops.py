"""The HTTP port for operators, beside a protocol server over the canned backend."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field

import adbc_driver_flightsql.dbapi as adbc
import pytest
from prometheus_client.parser import text_string_to_metric_families

from connectors.iceberg.pin_cache import PinStatus
from planner.errors import BadConfig, CatalogUnavailable, LogUnavailable
from proxy.access.authentication.callers import Access
from proxy.ops.http import OpsServer
from proxy.ops.metrics import ServerMetrics
from proxy.ops.states import ProcessState, States, degraded, reading
from tests.harness.builders import FLOWS
from tests.harness.canned import CannedBackend, serve
from tests.harness.metrics import tail_state


@dataclass
class Watched:
    port: int
    flight_port: int
    ops: OpsServer
    fit: list[bool] = field(default_factory=lambda: [True])
    warm: list[bool] = field(default_factory=lambda: [True])
    blocked: list[threading.Event] = field(default_factory=list)

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}") as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def value(self, name: str, **labels: str) -> float:
        families = text_string_to_metric_families(self.get("/metrics")[1])
        return sum(
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )


@pytest.fixture
def watched(backend: CannedBackend) -> Iterator[Watched]:
    metrics = ServerMetrics()
    down = CatalogUnavailable("lake: the catalog does not answer.", catalog="lake")
    pins = [PinStatus(FLOWS, None, 42.0, down, failing_s=30.0)]
    tails = [
        tail_state(1, 100, None),
        tail_state(2, 50, LogUnavailable("flows: no answer.", topic="flows")),
    ]
    metrics.registry.register(
        States(lambda: pins, lambda: tails, lambda: ProcessState(0.5, 3, 5))
    )
    fit, warm = [True], [True]
    blocked: list[threading.Event] = []

    def state() -> dict[str, object]:
        for event in blocked:
            event.wait(30)
        return {
            "degraded": degraded(lambda: pins, lambda: tails),
            "reading": reading(lambda: tails),
        }

    ops = OpsServer(
        address=("127.0.0.1", 0),
        registry=metrics.registry,
        healthy=lambda: fit[0],
        state=state,
        is_warm=lambda: warm[0],
    )
    server = serve(backend, Access(allow_anonymous=True), journals=[metrics.read])
    metrics.running.set_function(lambda: server.streaming)
    try:
        yield Watched(ops.port, server.port, ops, fit, warm, blocked)
    finally:
        server.stop(5)
        ops.stop()


def run(watched: Watched, sql: str) -> None:
    with (
        closing(
            adbc.connect(f"grpc://127.0.0.1:{watched.flight_port}", autocommit=True)
        ) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(sql)
        cursor.fetch_arrow_table()


def test_health_follows_the_engine(watched: Watched) -> None:
    assert watched.get("/healthz") == (200, '{"healthy": true}\n')
    watched.fit[0] = False
    assert watched.get("/healthz") == (503, '{"healthy": false}\n')


def test_health_waits_for_no_lock_that_other_pages_wait_for(watched: Watched) -> None:
    """More of them than there are threads for pages."""
    go_on = threading.Event()
    watched.blocked.append(go_on)
    with ThreadPoolExecutor(40) as asking:
        pages = [asking.submit(watched.get, "/readyz") for _ in range(40)]
        try:
            assert watched.get("/healthz")[0] == 200
            assert not any(page.done() for page in pages)
        finally:
            go_on.set()
        assert {page.result()[0] for page in pages} == {503}


def test_readiness_begins_and_ends_with_accepting_and_tells_what_is_degraded(
    watched: Watched,
) -> None:
    assert watched.get("/readyz")[0] == 503
    watched.ops.accept()
    status, body = watched.get("/readyz")
    assert status == 200
    flows = {"table": "lake.net.flows"}
    pin = {"what": "pin", "error": "CatalogUnavailable", "age_s": 42.0, "answers": False}
    tail = {"what": "tail", "error": "LogUnavailable", "lag_rows": 7}
    assert json.loads(body) == {
        "ready": True,
        "healthy": True,
        "degraded": [flows | pin, flows | tail],
        "reading": [flows | {"lag_rows": 7, "rest_s": 2.5}] * 2,
    }
    watched.fit[0] = False
    assert watched.get("/readyz")[0] == 503
    watched.fit[0] = True
    watched.warm[0] = False
    assert watched.get("/readyz")[0] == 503
    watched.warm[0] = True
    assert watched.get("/readyz")[0] == 200
    watched.ops.drain()
    assert watched.get("/readyz")[0] == 503


def test_each_statement_is_counted_once_under_its_outcome(watched: Watched) -> None:
    for _ in range(3):
        run(watched, "select 1")
    with pytest.raises(Exception, match="nonsense"):
        run(watched, "nonsense")
    assert watched.value("thermocline_statements_total", outcome="ok") == 3
    assert watched.value("thermocline_statements_total", outcome="BadStatement") == 1
    assert watched.value("thermocline_statements_total") == 4
    assert watched.value("thermocline_statements_running") == 0
    assert watched.value("thermocline_rows_sent_total") >= 3
    assert watched.value("thermocline_statement_seconds_count", step="stream") == 3


def test_the_state_of_pins_and_tails_is_among_the_metrics(watched: Watched) -> None:
    assert watched.value("thermocline_pin_age_seconds", table="lake.net.flows") == 42
    assert watched.value("thermocline_pin_current", table="lake.net.flows") == 0
    assert watched.value("thermocline_pin_failing_seconds", table="lake.net.flows") == 30
    assert watched.value("thermocline_tail_rows", table="lake.net.flows") == 150
    assert watched.value("thermocline_tail_failing", table="lake.net.flows") == 1
    assert watched.value("thermocline_tail_bad_records", table="lake.net.flows") == 6
    assert watched.value("thermocline_engine_silent_seconds") == 0.5
    assert watched.value("thermocline_readers_lost_total") == 3
    assert watched.value("thermocline_reader_peak_bytes") == 5
    assert watched.value("process_resident_memory_bytes") > 0


def test_other_pages_and_methods_are_refused_without_a_word_about_the_inside(
    watched: Watched,
) -> None:
    assert watched.get("/etc/passwd") == (404, "not found\n")
    request = urllib.request.Request(f"http://127.0.0.1:{watched.port}/metrics", data=b"x")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request)
    with refused.value as error:
        assert error.code == 501
        assert "Traceback" not in error.read().decode()


def test_a_port_that_is_taken_is_named(watched: Watched) -> None:
    with pytest.raises(BadConfig, match=rf"127\.0\.0\.1:{watched.port}.*http_port"):
        OpsServer(
            address=("127.0.0.1", watched.port),
            registry=ServerMetrics().registry,
            healthy=lambda: True,
            state=dict,
        )
