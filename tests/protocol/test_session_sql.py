"""SET, USE, SHOW and transactions of a read-only session, as stock clients send them."""

from __future__ import annotations

from contextlib import closing
from decimal import Decimal
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pytest
from adbc_driver_flightsql import DatabaseOptions
from adbc_driver_manager import ProgrammingError
from pyarrow import flight

from proxy.flightsql import messages
from tests.fixtures.jdbc import Jdbc, connection, execute, query, values
from tests.harness.canned import CannedServer
from tests.harness.wire import (
    command,
    fetched,
    get_options,
    prepare,
    select,
    set_options,
    ticket,
)

HUGEINT = "SELECT 7::HUGEINT AS n, TIMESTAMP '2024-01-02 03:04:05.678901' AS at"


def update(client: flight.FlightClient, name: str, **fields: Any) -> int:
    """Execute an update: its row count."""
    writer, reader = client.do_put(command(name, **fields), pa.schema([]))
    with writer:
        writer.done_writing()
        parsed = messages.parse(messages.DoPutUpdateResult, reader.read().to_pybytes())
    return int(parsed.record_count)


def test_adbc_sets_and_shows(cursor: adbc.Cursor, canned_server: CannedServer) -> None:
    cursor.execute("SET time_zone = 'Europe/Zurich'")
    cursor.execute("SHOW time_zone")
    assert cursor.fetchall() == [("Europe/Zurich",)]
    cursor.execute("SELECT (TIMESTAMPTZ '2024-07-01 00:00:00Z')::VARCHAR")
    assert cursor.fetchall() == [("2024-07-01 02:00:00+02",)]
    cursor.execute("BEGIN TRANSACTION")
    cursor.execute("COMMIT")
    # The SHOW and the SELECT; nothing else asked the engine.
    assert canned_server.backend.calls["plan"] == 2


def test_jdbc_sets_and_shows(canned_server: CannedServer, jdbc: Jdbc) -> None:
    _, count, reply, _ = jdbc.run(
        [execute("SET time_zone = 'Europe/Zurich'"), query("SHOW TIME ZONE")],
        port=canned_server.port,
        properties={"user": "a", "password": "b"},
    )
    assert count == {"ok": 0}
    assert values(reply) == [["Europe/Zurich"]]


@pytest.mark.parametrize("prepared", [False, True])
def test_an_update_and_a_query_change_the_session_once_each(
    client: flight.FlightClient, canned_server: CannedServer, prepared: bool
) -> None:
    sql = "SET CATALOG second"
    fields: dict[str, Any] = {"query": sql}
    kind = "Statement"
    if prepared:
        reply = prepare(client, sql)
        assert reply.is_update
        assert pa.ipc.read_schema(pa.py_buffer(reply.dataset_schema)).names == []
        fields = {"prepared_statement_handle": reply.prepared_statement_handle}
        kind = "PreparedStatement"
        get_options(client)
    configured = canned_server.backend.calls["configure"]
    assert update(client, f"Command{kind}Update", **fields) == 0
    assert get_options(client)["catalog"] == "second"
    assert canned_server.backend.calls["configure"] <= configured + (1 if prepared else 2)
    set_options(client, catalog="lake")
    before = canned_server.backend.calls["configure"]
    info = client.get_flight_info(command(f"Command{kind}Query", **fields))
    assert info.schema.names == []
    assert client.do_get(info.endpoints[0].ticket).read_all().num_rows == 0
    assert get_options(client)["catalog"] == "second"
    assert canned_server.backend.calls["configure"] == before + 1


def test_preparing_and_asking_for_a_schema_change_nothing(client: flight.FlightClient) -> None:
    prepare(client, "USE second")
    assert client.get_schema(select("USE second")).schema.names == []
    assert get_options(client)["catalog"] == "lake"


@pytest.mark.parametrize(
    ("sql", "place"),
    [
        ("USE second", ("second", "main")),
        ("USE other", ("lake", "other")),
        ("USE lake.other", ("lake", "other")),
    ],
)
def test_use_finds_catalogs_before_schemas(
    client: flight.FlightClient, sql: str, place: tuple[str, str]
) -> None:
    client.get_flight_info(select(sql))
    fields = get_options(client)
    assert (fields["catalog"], fields["schema"]) == place


@pytest.mark.parametrize(
    ("sql", "error", "message"),
    [
        ("USE nowhere", KeyError, "no catalog and no schema 'nowhere'"),
        ("USE nowhere.main", pa.ArrowInvalid, "no catalog nowhere"),
        ("SET threads = 4", pa.ArrowInvalid, "no setting 'threads'"),
        ("SET profile = excel", pa.ArrowInvalid, "profile is one of arrow, bi"),
    ],
)
def test_what_cannot_be_set_is_an_error_and_changes_nothing(
    client: flight.FlightClient, sql: str, error: type[Exception], message: str
) -> None:
    before = get_options(client)
    with pytest.raises(error, match=message):
        client.get_flight_info(select(sql))
    assert get_options(client) == before


def test_a_sensible_error_reaches_adbc(cursor: adbc.Cursor) -> None:
    with pytest.raises(ProgrammingError, match="There is no setting 'memory_limit'"):
        cursor.execute("SET memory_limit = '1TB'")


class TestProfile:
    def test_it_is_a_session_s_own(self, canned_server: CannedServer) -> None:
        with (
            closing(flight.connect(canned_server.uri)) as one,
            closing(flight.connect(canned_server.uri)) as two,
        ):
            set_options(one, profile="bi", timestamp_unit="ms")
            [row] = fetched(one, HUGEINT)
            assert isinstance(row["n"], float)
            assert row["at"].microsecond == 678_000
            [row] = fetched(two, HUGEINT)
            assert row["n"] == Decimal(7)
            assert row["at"].microsecond == 678_901

    def test_every_place_that_tells_a_schema_tells_the_same(
        self, client: flight.FlightClient
    ) -> None:
        set_options(client, profile="bi", timestamp_unit="ns")
        expected = pa.schema([("n", pa.float64()), ("at", pa.timestamp("ns"))])
        prepared = prepare(client, HUGEINT)
        handle = {"prepared_statement_handle": prepared.prepared_statement_handle}
        assert pa.ipc.read_schema(pa.py_buffer(prepared.dataset_schema)) == expected
        for descriptor in (select(HUGEINT), command("CommandPreparedStatementQuery", **handle)):
            assert client.get_schema(descriptor).schema == expected
            info = client.get_flight_info(descriptor)
            assert info.schema == expected
            assert client.do_get(info.endpoints[0].ticket).schema == expected
        direct = client.do_get(ticket("CommandPreparedStatementQuery", **handle))
        assert direct.schema == expected

    def test_a_listing_shows_the_types_a_query_returns(
        self, client: flight.FlightClient
    ) -> None:
        set_options(client, timestamp_unit="ns")
        request = ticket(
            "CommandGetTables", table_name_filter_pattern="flows", include_schema=True
        )
        row = client.do_get(request).read_all().to_pylist()[0]
        schema = pa.ipc.read_schema(pa.py_buffer(row["table_schema"]))
        assert schema.field("at").type == pa.timestamp("ns", "UTC")
        assert schema.field("id").metadata[b"ARROW:FLIGHT:SQL:REMARKS"] == b"the key"

    def test_headers_choose_it_at_connect(self, canned_server: CannedServer) -> None:
        prefix = DatabaseOptions.RPC_CALL_HEADER_PREFIX.value
        with (
            adbc.connect(
                canned_server.uri, db_kwargs={f"{prefix}profile": "bi"}, autocommit=True
            ) as connected,
            connected.cursor() as cur,
        ):
            cur.execute(HUGEINT)
            assert isinstance(cur.fetchall()[0][0], float)

    def test_jdbc_chooses_it_in_its_url(self, canned_server: CannedServer, jdbc: Jdbc) -> None:
        [_, reply, _, _] = jdbc.run(
            [
                query("SELECT 7::HUGEINT AS n, 'a'::ENUM('b', 'a') AS e"),
                connection("getCatalog"),
            ],
            port=canned_server.port,
            properties={"profile": "bi"},
        )
        assert values(reply) == [["7.0", "a"]]
