"""Starting, stopping, and how the server listens."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pytest
from adbc_driver_flightsql import DatabaseOptions
from pyarrow import flight

from planner.errors import BadConfig
from proxy.access.authentication.callers import Access
from proxy.access.limits import ServerPolicy
from proxy.flightsql.server import Address, FlightSqlServer, ServerOptions, Tls, start
from proxy.ops.call_record import CallRecord
from proxy.session import Planned
from tests.fixtures.jdbc import Jdbc, query, values
from tests.harness.canned import PRODUCT, CannedBackend, CannedServer, serve
from tests.harness.wire import fetched, select, ticket

ANYBODY = Access(allow_anonymous=True)
SOON_S = 5


def _start(backend: CannedBackend, host: str = "127.0.0.1", port: int = 0) -> FlightSqlServer:
    return start(backend, Address(host, port), ServerPolicy(ANYBODY), ServerOptions(PRODUCT))


class TestStopping:
    def test_a_running_stream_is_interrupted_first(self, backend: CannedBackend) -> None:
        server = serve(backend, Access(allow_anonymous=True))
        with closing(flight.connect(f"grpc://127.0.0.1:{server.port}")) as client:
            info = client.get_flight_info(select("trick slow"))
            reader = client.do_get(info.endpoints[0].ticket)
            assert reader.read_chunk().data.num_rows == 1
            assert backend.running.wait(SOON_S)
            started = time.monotonic()
            assert server.stop(10)
            assert time.monotonic() - started < SOON_S
            with pytest.raises(flight.FlightUnavailableError, match="shutting down"):
                reader.read_chunk()

    def test_the_port_is_free_afterwards_and_stopping_twice_is_fine(
        self, backend: CannedBackend
    ) -> None:
        server = serve(backend, Access(allow_anonymous=True))
        port = server.port
        assert server.stop(10)
        assert server.stop(10)
        with (
            closing(flight.connect(f"grpc://127.0.0.1:{port}")) as client,
            pytest.raises(flight.FlightUnavailableError),
        ):
            client.get_flight_info(select("SELECT 1"))

    def test_a_call_that_ignores_its_interrupt_is_reported(
        self, backend: CannedBackend
    ) -> None:
        server = serve(backend, ANYBODY)
        with closing(flight.connect(f"grpc://127.0.0.1:{server.port}")) as client:

            def call() -> None:
                with contextlib.suppress(pa.ArrowException):
                    client.get_flight_info(select("trick deaf"))

            calling = threading.Thread(target=call, daemon=True)
            calling.start()
            assert backend.running.wait(SOON_S)
            assert not server.stop(0.1)
            backend.release.set()
            calling.join(SOON_S)
            assert server.stop(10)

    def test_the_process_s_signals_are_left_alone(self, backend: CannedBackend) -> None:
        numbers = (signal.SIGTERM, signal.SIGINT)
        before = [signal.getsignal(number) for number in numbers]
        server = _start(backend)
        try:
            assert [signal.getsignal(number) for number in numbers] == before
        finally:
            server.stop(5)


class TestListening:
    def test_a_taken_port_is_refused_and_not_shared(
        self, canned_server: CannedServer, backend: CannedBackend
    ) -> None:
        with pytest.raises(BadConfig, match="the address is taken"):
            _start(backend, port=canned_server.port)

    @pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid"])
    def test_an_address_of_another_machine_is_refused(
        self, backend: CannedBackend, host: str
    ) -> None:
        with pytest.raises(BadConfig, match="not one of this machine"):
            _start(backend, host)

    def test_a_port_is_used_again_at_once_after_stopping(self, backend: CannedBackend) -> None:
        port = 0
        for _ in range(2):
            server = _start(backend, port=port)
            port = server.port
            with closing(flight.connect(f"grpc://127.0.0.1:{port}")) as client:
                assert fetched(client, "SELECT 1 AS a") == [{"a": 1}]
            assert server.stop(10)


class TestTls:
    @pytest.fixture
    def pem(self, tmp_path: Path) -> Tls:
        if shutil.which("openssl") is None:
            pytest.skip("needs the openssl command to make a certificate")
        # CA:FALSE, or rustls refuses it.
        request = (
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
            "-keyout key.pem -out cert.pem -subj /CN=localhost -addext "
            "subjectAltName=DNS:localhost -addext basicConstraints=critical,CA:FALSE"
        )
        subprocess.run(
            ["openssl", *request.split()], cwd=tmp_path, check=True, capture_output=True
        )
        return Tls((tmp_path / "cert.pem").read_bytes(), (tmp_path / "key.pem").read_bytes())

    def test_stock_clients_connect(self, backend: CannedBackend, pem: Tls, jdbc: Jdbc) -> None:
        server = serve(backend, ANYBODY, tls=pem)
        trusted = {DatabaseOptions.TLS_ROOT_CERTS.value: pem.certificate.decode()}
        with (
            adbc.connect(
                f"grpc+tls://localhost:{server.port}", db_kwargs=trusted, autocommit=True
            ) as connection,
            connection.cursor() as cur,
        ):
            cur.execute("SELECT 1")
            assert cur.fetchall() == [(1,)]
        _, outcome, _ = jdbc.run(
            [query("SELECT 1")],
            port=server.port,
            properties={"useEncryption": "true", "disableCertificateVerification": "true"},
        )
        assert values(outcome) == [["1"]]
        assert server.stop(10)

    def test_a_certificate_that_is_none_is_named(self, backend: CannedBackend) -> None:
        with pytest.raises(BadConfig, match="certificate or its key is not valid"):
            serve(backend, ANYBODY, tls=Tls(b"x", b"y"))

    def test_its_key_shows_in_no_repr(self, pem: Tls) -> None:
        assert repr(pem) == "Tls(…)"


def test_ten_thousand_tables_are_listed_within_a_second(backend: CannedBackend) -> None:
    backend.extra_tables = 10_000
    server = serve(backend, ANYBODY)
    with contextlib.closing(flight.connect(f"grpc://127.0.0.1:{server.port}")) as client:
        listing = ticket("CommandGetTables", catalog="lake", table_name_filter_pattern="%1%")
        client.do_get(listing).read_all()
        started = time.process_time()
        table = client.do_get(listing).read_all()
        assert table.num_rows > 3_000
        assert time.process_time() - started < 1
    assert server.stop(10)


def test_a_thread_keeps_its_state_for_one_call() -> None:
    """What belongs to a thread lives as long as its call: Python makes it once, and nothing piles up."""
    local, before, after = threading.local(), [], []

    class Backend(CannedBackend):
        def plan(self, *arguments: Any) -> Planned:
            before.append(hasattr(local, "call"))
            local.call = True
            return super().plan(*arguments)

    def ended(record: CallRecord) -> None:
        after.append(hasattr(local, "call"))

    server = serve(Backend(), ANYBODY, journals=[ended])
    with closing(flight.connect(f"grpc://127.0.0.1:{server.port}")) as client:
        for _ in range(20):
            client.get_flight_info(select("SELECT 1"))
    assert server.stop(10)
    assert (before, after) == ([False] * 20, [True] * 20)
