"""What a user holds of the server (positions, cuts, tickets, tokens) opens no more to him, and nothing to others."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from pyarrow import flight

from proxy.flightsql import messages
from tests.fixtures.permissions import (
    USERS,
    PermissionsServer,
    calling,
    outcome,
)
from tests.harness.wire import fetched, select
from thermocline.config.settings import Granted

pytestmark = pytest.mark.kafka


def test_a_follower_gets_the_rows_he_may_see(permissions_server: PermissionsServer) -> None:
    with flight.connect(permissions_server.server.uri) as client:
        for user, (forbidden, rows) in USERS.items():
            if user == "both":
                continue  # may not follow: offsets are closed to him
            options = calling(permissions_server, user, after="beginning")
            items = fetched(client, f"SELECT * FROM {permissions_server.bound}", options)
            assert len(items) == rows
            assert not any(pattern.search(str(items)) for pattern in forbidden)


def test_nothing_counts_records_to_one_whose_rows_are_filtered_and_offsets_closed(
    permissions_server: PermissionsServer,
) -> None:
    sql = f"SELECT id FROM {permissions_server.bound}"
    (cut,) = permissions_server.ask(
        "boss", f"SELECT thermocline_cut() AS c FROM {permissions_server.bound} LIMIT 1"
    )["c"]
    with flight.connect(permissions_server.server.uri) as client:

        def planned(user: str) -> flight.FlightInfo:
            return client.get_flight_info(select(sql), permissions_server.options(user))

        table = planned("filtered")
        assert table.app_metadata.startswith(b"c:")
        assert b"thermocline.cut" in table.schema.metadata
        assert b'"ranges"' in table.endpoints[0].ticket.ticket
        table = planned("both")
        assert table.app_metadata == b""
        assert not table.schema.metadata
        ticket = table.endpoints[0].ticket
        for word in (b"ranges", permissions_server.bound.name.encode(), b"snapshot"):
            assert word not in ticket.ticket
        options = permissions_server.options("both")
        answer = client.do_get(ticket, options).read_all()
        assert answer.num_rows == 20
        assert not answer.schema.metadata
        request = messages.RenewFlightEndpointRequest()
        request.endpoint.ParseFromString(table.endpoints[0].serialize())
        action = flight.Action("RenewFlightEndpoint", request.SerializeToString())
        (result,) = client.do_action(action, options)
        again = flight.FlightEndpoint.deserialize(result.body.to_pybytes()).ticket
        assert b"ranges" not in again.ticket
        assert client.do_get(again, options).read_all().equals(answer)
        data = ticket.ticket
        altered = flight.Ticket(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
        with pytest.raises(pa.ArrowInvalid, match="not issued by this server"):
            client.do_get(altered, options).read_all()
        for headers, what in (
            ({"after": "beginning"}, "following"),
            ({"cut": cut.as_py()}, "the setting cut"),
            ({"wait_for": "somewhere/0:9999"}, "the setting wait_for"),
        ):
            with pytest.raises(
                flight.FlightUnauthorizedError,
                match=f"{permissions_server.bound}: {what} would tell how many records there are",
            ):
                client.get_flight_info(
                    select(sql), calling(permissions_server, "both", **headers)
                )
    for statement, what in (
        (f"SELECT thermocline_cut() FROM {permissions_server.bound}", r"thermocline_cut\(\)"),
        (f"SELECT id FROM {permissions_server.bound} AT (VERSION => '{cut}')", "AT with a cut"),
    ):
        assert re.search(
            f"{what} would tell how many", outcome(permissions_server, "both", statement)
        )


def test_a_call_for_whole_tables_is_refused_to_who_sees_a_part(
    permissions_server: PermissionsServer,
) -> None:
    statement = select(f"SELECT 1 FROM {permissions_server.bound}")
    with flight.connect(permissions_server.server.uri) as client:
        for user in USERS:
            client.get_flight_info(statement, calling(permissions_server, user, whole="false"))
            with pytest.raises(
                flight.FlightUnauthorizedError, match="you may read a part of it only"
            ):
                client.get_flight_info(
                    statement, calling(permissions_server, user, whole="true")
                )
        client.get_flight_info(statement, calling(permissions_server, "boss", whole="true"))
        with pytest.raises(pa.ArrowInvalid, match="thermocline-whole is true or false"):
            client.get_flight_info(statement, calling(permissions_server, "boss", whole="yes"))


def test_anothers_ticket_is_worth_nothing(permissions_server: PermissionsServer) -> None:
    with flight.connect(permissions_server.server.uri) as client:
        planned = client.get_flight_info(
            select(f"FROM {permissions_server.bound}"), permissions_server.options("boss")
        )
        ticket = planned.endpoints[0].ticket
        for user in ("filtered", "nobody"):
            with pytest.raises(pa.ArrowInvalid, match="belongs to another user"):
                client.do_get(ticket, permissions_server.options(user)).read_all()
        assert (
            client.do_get(ticket, permissions_server.options("boss")).read_all().num_rows == 31
        )


@pytest.mark.parametrize("sql", ["FROM {}", "EXPLAIN FROM {}", "SELECT 1 FROM {} LIMIT 1"])
def test_a_ticket_is_worth_nothing_once_its_grants_are_others(
    permissions_server: PermissionsServer, sql: str
) -> None:
    tables = (str(permissions_server.bound), str(permissions_server.plain))
    with flight.connect(permissions_server.server.uri) as client:
        planned = client.get_flight_info(
            select(sql.format(permissions_server.bound)), permissions_server.options("filtered")
        )
        ticket = planned.endpoints[0].ticket

        def redeemed() -> int:
            rows: int = (
                client.do_get(ticket, permissions_server.options("filtered"))
                .read_all()
                .num_rows
            )
            return rows

        before = redeemed()
        with permissions_server.granting(filtered=None):
            with pytest.raises(KeyError, match=f"there is no table {permissions_server.bound}"):
                redeemed()
            assert (
                permissions_server.ask(
                    "filtered", "SELECT * FROM information_schema.tables"
                ).num_rows
                == 0
            )
        for other in (
            Granted(users=("filtered",), tables=tables, rows="region = 'us'"),
            Granted(
                users=("filtered",), tables=tables, rows="region = 'eu'", masks={"name": "NULL"}
            ),
            Granted(users=("filtered",), tables=tables, rows="region = 'eu'", without=("ssn",)),
        ):
            with (
                permissions_server.granting(filtered=other),
                pytest.raises(
                    flight.FlightUnavailableError, match="what you may read has changed"
                ),
            ):
                redeemed()
        # What does not concern him changes nothing.
        with permissions_server.granting(
            masked=None, late=Granted(users=("filtered",), tables=("*",))
        ):
            assert redeemed() == before


def test_a_cut_of_another_user_opens_no_rows(permissions_server: PermissionsServer) -> None:
    cut = permissions_server.ask(
        "boss", f"SELECT thermocline_cut() AS c FROM {permissions_server.bound} LIMIT 1"
    ).to_pylist()
    for user, (forbidden, rows) in USERS.items():
        if user == "both":
            continue  # offsets are closed to him, so cuts are
        reply = outcome(
            permissions_server,
            user,
            f"SELECT * FROM {permissions_server.bound} AT (VERSION => '{cut[0]['c']}')",
        )
        assert reply.count('"id"') == rows
        assert not any(pattern.search(reply) for pattern in forbidden)


def test_nobody_without_a_token_gets_anywhere(permissions_server: PermissionsServer) -> None:
    with (
        flight.connect(permissions_server.server.uri) as client,
        pytest.raises(flight.FlightUnauthenticatedError),
    ):
        client.get_flight_info(select("SELECT 1"))
