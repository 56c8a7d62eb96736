"""Before a server ends: what runs may end, nothing begins. And a new certificate while it goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import pytest
from adbc_driver_flightsql import DatabaseOptions
from pyarrow import flight

from planner.errors import BadConfig
from proxy.access.authentication.callers import Access, FixedUsers
from proxy.access.limits import UserLimits, unlimited
from proxy.flightsql.server import FlightSqlServer, Tls
from tests.fixtures.certificates import Authority
from tests.harness.canned import USERS, CannedBackend, CannedServer, serve
from tests.harness.wire import SOON_S, fetched, get_options, login, prepare, refused, select

#: More than what gRPC sends ahead of a reader.
LARGE = "SELECT * FROM range(5000000)"


class TestDraining:
    def drained(self, server: FlightSqlServer, deadline_s: float) -> Callable[[], bool]:
        """Drain in the background; the result waits for how it ended."""
        ended: list[bool] = []
        thread = threading.Thread(target=lambda: ended.append(server.drain(deadline_s)))
        thread.start()

        def result() -> bool:
            thread.join(SOON_S)
            return ended[0]

        return result

    def test_what_runs_or_was_planned_ends_and_nothing_begins(
        self, password_server: CannedServer
    ) -> None:
        with closing(flight.connect(password_server.uri)) as client:
            ada = login(client, "ada")
            planned = client.get_flight_info(select("SELECT 1 AS a"), ada)
            running = client.do_get(
                client.get_flight_info(select(LARGE), ada).endpoints[0].ticket, ada
            )
            rows = running.read_chunk().data.num_rows
            result = self.drained(password_server.server, SOON_S)
            refusal = refused(lambda: client.get_flight_info(select("SELECT 1"), ada))
            assert "shutting down. Retry on another server" in refusal
            for call in (
                lambda: login(client, "bob"),
                lambda: prepare(client, "SELECT 1", ada),
                lambda: client.get_flight_info(select("SET time_zone = 'UTC'"), ada),
            ):
                with pytest.raises(flight.FlightUnavailableError, match="shutting down"):
                    call()
            assert get_options(client, ada)
            assert client.do_get(planned.endpoints[0].ticket, ada).read_all().num_rows == 1
            assert rows + running.read_all().num_rows == 5_000_000
            assert result()

    def test_at_the_deadline_the_rest_is_interrupted(self, backend: CannedBackend) -> None:
        server = serve(backend, Access(allow_anonymous=True))
        with closing(flight.connect(f"grpc://127.0.0.1:{server.port}")) as client:
            reader = client.do_get(
                client.get_flight_info(select("trick slow")).endpoints[0].ticket
            )
            assert reader.read_chunk().data.num_rows == 1
            assert not self.drained(server, 0.1)()
            assert server.stop(10)
            with pytest.raises(flight.FlightUnavailableError, match="shutting down"):
                reader.read_chunk()


def pem(authority: Authority) -> Tls:
    issued = authority.server()
    return Tls(issued.certificate, issued.key)


def trusting(port: int, authority: Authority, **options: Any) -> flight.FlightClient:
    return flight.connect(
        f"grpc+tls://localhost:{port}", tls_root_certs=authority.certificate, **options
    )


class TestCertificates:
    def test_a_new_one_serves_new_connections_while_old_streams_go_on(
        self, backend: CannedBackend
    ) -> None:
        old, new = Authority("the old one"), Authority("the new one")
        server = serve(backend, Access(FixedUsers(USERS).verify), tls=pem(old))
        with closing(trusting(server.port, old)) as client:
            ada = login(client, "ada")
            running = client.do_get(
                client.get_flight_info(select(LARGE), ada).endpoints[0].ticket, ada
            )
            rows = running.read_chunk().data.num_rows
            server.listen_again(pem(new))
            with closing(trusting(server.port, new)) as another:
                # The session goes on: its token is the server's, not the connection's.
                assert fetched(another, "SELECT 1 AS a", ada) == [{"a": 1}]
            with (
                closing(trusting(server.port, old)) as stranger,
                pytest.raises(flight.FlightUnavailableError, match="handshake failed"),
            ):
                get_options(stranger, ada)
            assert rows + running.read_all().num_rows == 5_000_000
        assert server.stop(10)

    def test_a_client_of_the_same_authority_does_not_notice(
        self, backend: CannedBackend, authority: Authority
    ) -> None:
        server = serve(backend, Access(allow_anonymous=True), tls=pem(authority))
        trusted = {DatabaseOptions.TLS_ROOT_CERTS.value: authority.certificate.decode()}
        with (
            adbc.connect(
                f"grpc+tls://localhost:{server.port}", db_kwargs=trusted, autocommit=True
            ) as connection,
            connection.cursor() as cursor,
        ):
            for number in range(4):
                cursor.execute(f"SELECT {number}")
                assert cursor.fetchall() == [(number,)]
                server.listen_again(pem(authority))
        assert server.stop(10)

    def test_one_that_is_none_leaves_the_old_one_in_force(
        self, backend: CannedBackend, authority: Authority
    ) -> None:
        server = serve(backend, Access(allow_anonymous=True), tls=pem(authority))
        mixed = Tls(pem(authority).certificate, pem(authority).key)
        for wrong in (Tls(b"x", b"y"), mixed):
            with pytest.raises(BadConfig, match="certificate or its key is not valid"):
                server.listen_again(wrong)
        with closing(trusting(server.port, authority)) as client:
            assert fetched(client, "SELECT 1 AS a") == [{"a": 1}]
        assert server.stop(10)


class TestPolicy:
    def test_who_cannot_log_in_so_any_more_is_out_and_others_stay(
        self, backend: CannedBackend
    ) -> None:
        before = FixedUsers(USERS)
        server = serve(backend, Access(before.verify, recall=before.recall))
        with closing(flight.connect(f"grpc://127.0.0.1:{server.port}")) as client:
            ada, bob = login(client, "ada"), login(client, "bob")
            now = FixedUsers({"ada": USERS["ada"], "bob": "another"})
            server.let_in(Access(now.verify, recall=now.recall))
            assert get_options(client, ada)
            with pytest.raises(flight.FlightUnauthenticatedError):
                get_options(client, bob)
            with pytest.raises(flight.FlightUnauthenticatedError, match="wrong password"):
                login(client, "bob")
            # Nobody is let in without a name, nor stays.
            server.let_in(Access(allow_anonymous=True))
            with pytest.raises(flight.FlightUnauthenticatedError):
                get_options(client, ada)
            assert get_options(client)
            server.let_in(Access(now.verify, recall=now.recall))
            with pytest.raises(flight.FlightUnauthenticatedError):
                get_options(client)
        assert server.stop(10)

    def test_limits_and_places_change_for_the_next_call(self, backend: CannedBackend) -> None:
        server = serve(backend, Access(allow_anonymous=True), max_streams=1, stream_wait_s=0.1)
        with closing(flight.connect(f"grpc://127.0.0.1:{server.port}")) as client:
            reader = client.do_get(
                client.get_flight_info(select("trick slow")).endpoints[0].ticket
            )
            assert reader.read_chunk().data.num_rows == 1
            with pytest.raises(flight.FlightUnavailableError, match="max_streams"):
                fetched(client, "SELECT 1 AS a")
            places: dict[str, Any] = {"max_queued": 1, "stream_wait_s": 0.1}
            server.limit(unlimited, max_streams=2, **places)
            assert fetched(client, "SELECT 1 AS a") == [{"a": 1}]
            server.limit(lambda _user, _groups: UserLimits(max_rows=1), max_streams=2, **places)
            with pytest.raises(Exception, match="more than 1 rows"):
                fetched(client, "SELECT * FROM range(2)")
            reader.cancel()
        assert server.stop(10)
