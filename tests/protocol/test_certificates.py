"""Client certificates: who is let in, and as whom."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import adbc_driver_flightsql.dbapi as adbc
import pytest
from adbc_driver_flightsql import DatabaseOptions
from pyarrow import flight

from proxy.access.authentication.callers import Access, Caller, FixedUsers
from proxy.access.authentication.credentials import make_token
from proxy.flightsql.server import Tls
from tests.fixtures.certificates import Authority, Pem
from tests.harness.canned import USERS, CannedBackend, CannedServer, serve
from tests.harness.wire import bearer, fetched, get_options, select, set_options

TOKEN, _ = make_token()


def serve_certificates(
    backend: CannedBackend, authority: Authority, access: Access
) -> CannedServer:
    issued = authority.server()
    tls = Tls(issued.certificate, issued.key, client_ca=authority.certificate)
    return CannedServer(serve(backend, access, tls=tls), backend)


@pytest.fixture
def by_certificate(backend: CannedBackend, authority: Authority) -> Iterator[CannedServer]:
    """The certificate's subject is the user; passwords and one token are accepted too."""

    def token(text: str) -> Caller | None:
        return Caller("bot") if text == TOKEN else None

    access = Access(verify=FixedUsers(USERS).verify, tokens=(token,), certificates=True)
    canned_server = serve_certificates(backend, authority, access)
    yield canned_server
    assert canned_server.server.stop(10)


def connect(
    canned_server: CannedServer, authority: Authority, output: Pem | None
) -> flight.FlightClient:
    own = (
        {} if output is None else {"cert_chain": output.certificate, "private_key": output.key}
    )
    return flight.FlightClient(
        f"grpc+tls://localhost:{canned_server.port}",
        tls_root_certs=authority.certificate,
        **own,
    )


@pytest.mark.parametrize(
    ("names", "user"), [(("ada",), "ada"), (("ada", "ada@example.com"), "ada@example.com")]
)
def test_the_subject_is_the_user(
    by_certificate: CannedServer, authority: Authority, names: tuple[str, ...], user: str
) -> None:
    with closing(connect(by_certificate, authority, authority.client(*names))) as client:
        assert fetched(client, "SELECT 1 AS a") == [{"a": 1}]
    assert by_certificate.backend.planned_in is not None
    assert by_certificate.backend.planned_in.user == user


def test_adbc_shows_its_certificate(by_certificate: CannedServer, authority: Authority) -> None:
    output = authority.client("ada")
    options = {
        DatabaseOptions.TLS_ROOT_CERTS.value: authority.certificate.decode(),
        DatabaseOptions.MTLS_CERT_CHAIN.value: output.certificate.decode(),
        DatabaseOptions.MTLS_PRIVATE_KEY.value: output.key.decode(),
    }
    with (
        adbc.connect(
            f"grpc+tls://localhost:{by_certificate.port}", db_kwargs=options, autocommit=True
        ) as connection,
        connection.cursor() as cur,
    ):
        cur.execute("SELECT 1")
        assert cur.fetchall() == [(1,)]
    assert by_certificate.backend.planned_in is not None
    assert by_certificate.backend.planned_in.user == "ada"


def test_credentials_in_the_call_win_over_the_certificate(
    by_certificate: CannedServer, authority: Authority
) -> None:
    backend = by_certificate.backend
    with closing(connect(by_certificate, authority, authority.client("eve"))) as client:
        fetched(client, "SELECT 1", bearer(TOKEN))
        assert backend.planned_in is not None
        assert backend.planned_in.user == "bot"
        with pytest.raises(flight.FlightUnauthenticatedError):
            fetched(client, "SELECT 1", bearer("x"))


def test_two_subjects_are_two_sessions_and_one_cannot_redeem_the_other_s_ticket(
    by_certificate: CannedServer, authority: Authority
) -> None:
    with (
        closing(connect(by_certificate, authority, authority.client("ada"))) as ada,
        closing(connect(by_certificate, authority, authority.client("bob"))) as bob,
    ):
        set_options(ada, catalog="second")
        assert get_options(bob)["catalog"] == "lake"
        ticket = ada.get_flight_info(select("SELECT 1")).endpoints[0].ticket
        with pytest.raises(Exception, match="another user") as caught:
            bob.do_get(ticket).read_all()
        assert "ada" not in str(caught.value)


@pytest.mark.parametrize("stranger", [False, True])
def test_nobody_gets_in_without_a_certificate_of_the_right_authority(
    by_certificate: CannedServer, authority: Authority, stranger: bool
) -> None:
    output = Authority("another").client("ada") if stranger else None
    options = flight.FlightCallOptions(timeout=5)
    with (
        closing(connect(by_certificate, authority, output)) as client,
        pytest.raises((flight.FlightUnavailableError, flight.FlightTimedOutError)),
    ):
        fetched(client, "SELECT 1", options)
    assert by_certificate.backend.planned_in is None


def test_a_certificate_alone_may_be_only_the_way_in(
    backend: CannedBackend, authority: Authority
) -> None:
    canned_server = serve_certificates(
        backend, authority, Access(verify=FixedUsers(USERS).verify)
    )
    with closing(connect(canned_server, authority, authority.client("eve"))) as client:
        with pytest.raises(flight.FlightUnauthenticatedError, match="user name and a password"):
            fetched(client, "SELECT 1")
        _, inputs = client.authenticate_basic_token("ada", USERS["ada"])
        options = bearer(inputs.decode().removeprefix("Bearer "))
        assert fetched(client, "SELECT 1 AS a", options) == [{"a": 1}]
    assert canned_server.server.stop(10)
