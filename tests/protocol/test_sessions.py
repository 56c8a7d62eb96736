"""Credentials, tokens, and what one session sees of another."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import closing

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pytest
from pyarrow import flight

from proxy.access.authentication.callers import Access, FixedUsers
from proxy.flightsql import messages
from tests.harness.canned import USERS, CannedBackend, CannedServer, serve
from tests.harness.wire import (
    NoHandshake,
    bearer,
    bodies,
    command,
    fetched,
    get_options,
    login,
    packed,
    prepare,
    select,
    set_options,
)


@pytest.fixture
def caller(password_server: CannedServer) -> Iterator[flight.FlightClient]:
    with closing(flight.connect(password_server.uri)) as connected:
        yield connected


class TestCredentials:
    def test_adbc_logs_in_with_user_and_password(self, password_server: CannedServer) -> None:
        options = {"username": "ada", "password": USERS["ada"]}
        with (
            adbc.connect(password_server.uri, db_kwargs=options, autocommit=True) as connection,
            connection.cursor() as cur,
        ):
            cur.execute("SELECT 1")
            assert cur.fetchall() == [(1,)]

    def test_adbc_with_a_wrong_password_is_told_so(self, password_server: CannedServer) -> None:
        options = {"username": "ada", "password": "wrong"}
        with pytest.raises(adbc.Error, match="Unknown user or wrong password"):
            adbc.connect(password_server.uri, db_kwargs=options, autocommit=True)

    @pytest.mark.filterwarnings("ignore:Cannot disable autocommit")
    def test_adbc_without_credentials_is_told_what_is_missing(
        self, password_server: CannedServer
    ) -> None:
        with (
            adbc.connect(password_server.uri, autocommit=True) as connection,
            connection.cursor() as cur,
            pytest.raises(adbc.Error, match="needs a user name and a password"),
        ):
            cur.execute("SELECT 1")

    @pytest.mark.parametrize("padded", [True, False])
    @pytest.mark.parametrize("user", ["ada", "bob"])
    def test_base64_is_read_with_and_without_padding(
        self, caller: flight.FlightClient, user: str, padded: bool
    ) -> None:
        encoded = base64.b64encode(f"{user}:{USERS[user]}".encode()).decode()
        header = encoded if padded else encoded.rstrip("=")
        options = flight.FlightCallOptions(
            headers=[(b"authorization", f"Basic {header}".encode())]
        )
        assert fetched(caller, "SELECT 1 AS a", options) == [{"a": 1}]

    @pytest.mark.parametrize(
        "header", ["Basic %%%", "Basic YWRh", "Basic /w", "Digest x", "Bearer", "Bearer x", ""]
    )
    def test_nonsense_is_unauthenticated_and_no_more(
        self, caller: flight.FlightClient, header: str
    ) -> None:
        options = flight.FlightCallOptions(headers=[(b"authorization", header.encode())])
        with pytest.raises(flight.FlightUnauthenticatedError) as result:
            caller.get_flight_info(select("SELECT 1"), options)
        assert "Traceback" not in str(result.value)

    def test_a_server_without_users_takes_any_credentials_as_anonymous(
        self, canned_server: CannedServer
    ) -> None:
        with (
            adbc.connect(
                canned_server.uri, db_kwargs={"username": "x", "password": "y"}, autocommit=True
            ) as connection,
            connection.cursor() as cur,
        ):
            cur.execute("SELECT 1")
            assert cur.fetchall() == [(1,)]


class TestTokens:
    def test_two_logins_are_two_sessions(self, caller: flight.FlightClient) -> None:
        one, two = login(caller, "ada"), login(caller, "ada")
        set_options(caller, one, catalog="second")
        assert get_options(caller, one)["catalog"] == "second"
        assert get_options(caller, two)["catalog"] == "lake"

    def test_a_statement_prepared_in_one_session_is_unknown_in_another(
        self, caller: flight.FlightClient
    ) -> None:
        one, two = login(caller, "ada"), login(caller, "ada")
        handle = prepare(caller, "SELECT 1", one).prepared_statement_handle
        descriptor = command("CommandPreparedStatementQuery", prepared_statement_handle=handle)
        assert caller.get_flight_info(descriptor, one).schema.names == ["1"]
        with pytest.raises(KeyError):
            caller.get_flight_info(descriptor, two)

    def test_a_ticket_is_for_its_user(self, caller: flight.FlightClient) -> None:
        ada, bob = login(caller, "ada"), login(caller, "bob")
        ticket = caller.get_flight_info(select("SELECT 1"), ada).endpoints[0].ticket
        with pytest.raises(pa.ArrowInvalid, match="another user"):
            caller.do_get(ticket, bob).read_all()
        assert caller.do_get(ticket, ada).read_all().num_rows == 1

    def test_a_closed_session_s_token_is_refused(self, caller: flight.FlightClient) -> None:
        options, other = login(caller, "ada"), login(caller, "ada")
        [body] = bodies(caller, "CloseSession", b"", options)
        assert messages.parse(messages.CloseSessionResult, body).status == 1
        for _ in range(2):
            with pytest.raises(flight.FlightUnauthenticatedError, match="Connect again"):
                caller.get_flight_info(select("SELECT 1"), options)
        assert caller.get_flight_info(select("SELECT 1"), other).schema.names == ["1"]

    def test_an_idle_session_ends_and_a_used_one_does_not(self, backend: CannedBackend) -> None:
        now_s = [0.0]
        server = serve(
            backend,
            Access(FixedUsers(USERS).verify),
            idle_timeout_s=100.0,
            clock_s=lambda: now_s[0],
        )
        with closing(flight.connect(f"grpc://127.0.0.1:{server.port}")) as client:
            used, idle = login(client, "ada"), login(client, "ada")
            for _ in range(3):
                now_s[0] += 60.0
                get_options(client, used)
            with pytest.raises(flight.FlightUnauthenticatedError):
                get_options(client, idle)
        assert server.stop(10)

    def test_the_longest_idle_session_makes_room_for_a_new_one(
        self, backend: CannedBackend
    ) -> None:
        now_s = [0.0]
        server = serve(
            backend, Access(FixedUsers(USERS).verify), max_sessions=2, clock_s=lambda: now_s[0]
        )
        with closing(flight.connect(f"grpc://127.0.0.1:{server.port}")) as client:
            first, second = login(client, "ada"), login(client, "ada")
            now_s[0] = 1.0
            get_options(client, first)
            login(client, "bob")
            get_options(client, first)
            with pytest.raises(flight.FlightUnauthenticatedError):
                get_options(client, second)
        assert server.stop(10)

    def test_a_token_can_be_shaken_hands_with(self, caller: flight.FlightClient) -> None:
        # JDBC's ``token=`` does so before its first call.
        options = login(caller, "ada")
        caller.authenticate(NoHandshake(), options)
        with pytest.raises(flight.FlightUnauthenticatedError):
            caller.authenticate(NoHandshake(), bearer("made-up"))


class TestAnonymous:
    def test_each_connection_is_a_session_of_its_own(self, canned_server: CannedServer) -> None:
        with (
            closing(flight.connect(canned_server.uri)) as one,
            closing(flight.connect(canned_server.uri)) as two,
        ):
            set_options(one, catalog="second")
            handle = prepare(one, "SELECT 1").prepared_statement_handle
            assert get_options(one)["catalog"] == "second"
            assert get_options(two)["catalog"] == "lake"
            with pytest.raises(KeyError):
                two.get_flight_info(
                    command("CommandPreparedStatementQuery", prepared_statement_handle=handle)
                )

    def test_one_that_closes_its_session_starts_afresh(
        self, client: flight.FlightClient
    ) -> None:
        set_options(client, catalog="second")
        bodies(client, "CloseSession", b"")
        assert get_options(client)["catalog"] == "lake"

    @pytest.mark.parametrize("name", ["catalog", "database"])
    def test_headers_choose_where_a_session_starts(
        self, client: flight.FlightClient, name: str
    ) -> None:
        options = flight.FlightCallOptions(
            headers=[(name.encode(), b"second"), (b"schema", b"other")]
        )
        fields = get_options(client, options)
        assert (fields["catalog"], fields["schema"]) == ("second", "other")

    def test_a_header_that_names_no_catalog_is_an_error(
        self, client: flight.FlightClient
    ) -> None:
        options = flight.FlightCallOptions(headers=[(b"catalog", b"nowhere")])
        with pytest.raises(pa.ArrowInvalid, match="no catalog nowhere"):
            get_options(client, options)


class TestOptions:
    def test_unknown_names_and_bad_values_are_told_apart(
        self, client: flight.FlightClient
    ) -> None:
        result = set_options(client, catalog="nowhere", schema=7, time_zone="UTC", colour="red")
        reply = {name: error.value for name, error in result.errors.items()}
        assert reply == {"catalog": 2, "schema": 2, "colour": 1}
        assert get_options(client) == {"catalog": "lake", "schema": "main", "time_zone": "UTC"}

    def test_another_catalog_starts_with_its_default_schema(
        self, client: flight.FlightClient
    ) -> None:
        set_options(client, schema="other")
        set_options(client, catalog="lake")
        assert get_options(client)["schema"] == "other"
        set_options(client, catalog="second")
        assert get_options(client)["schema"] == "main"
        set_options(client, catalog="lake", schema="other")
        assert get_options(client) == {"catalog": "lake", "schema": "other"}

    def test_no_value_sets_back_to_the_default(self, client: flight.FlightClient) -> None:
        set_options(client, catalog="second", time_zone="Europe/Zurich")
        set_options(client, catalog=None, time_zone=None)
        assert get_options(client) == {"catalog": "lake", "schema": "main"}

    def test_statements_see_the_session_s_time_zone(self, client: flight.FlightClient) -> None:
        sql = "SELECT (TIMESTAMPTZ '2024-07-01 00:00:00Z')::VARCHAR AS at"
        assert fetched(client, sql) == [{"at": "2024-07-01 00:00:00+00"}]
        set_options(client, time_zone="Europe/Zurich")
        assert fetched(client, sql) == [{"at": "2024-07-01 02:00:00+02"}]


def test_prepared_statements_of_a_session_are_bounded(
    client: flight.FlightClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.flightsql.state.client_session.MAX_STATEMENTS", 2)
    first = prepare(client, "SELECT 1").prepared_statement_handle
    prepare(client, "SELECT 1")
    with pytest.raises(pa.ArrowInvalid, match="2 prepared statements open"):
        prepare(client, "SELECT 1")
    close = packed("ActionClosePreparedStatementRequest", prepared_statement_handle=first)
    bodies(client, "ClosePreparedStatement", close)
    prepare(client, "SELECT 1")
