"""Commands and their answers, byte by byte as any client sees them."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from proxy.flightsql import messages
from proxy.flightsql.metadata import schemas
from proxy.session import COMMENT, Session, Table
from tests.fixtures.server import SqlServer
from tests.harness.canned import COLUMNS, TABLES, CannedBackend, CannedServer
from tests.harness.wire import (
    bodies,
    command,
    fetched,
    packed,
    prepare,
    select,
    set_options,
    ticket,
)

METADATA = [
    ("CommandGetCatalogs", {}, schemas.CATALOGS),
    ("CommandGetDbSchemas", {}, schemas.DB_SCHEMAS),
    ("CommandGetTables", {}, schemas.TABLES),
    ("CommandGetTables", {"include_schema": True}, schemas.TABLES_WITH_SCHEMA),
    ("CommandGetTableTypes", {}, schemas.TABLE_TYPES),
    ("CommandGetPrimaryKeys", {"table": "flows"}, schemas.PRIMARY_KEYS),
    ("CommandGetExportedKeys", {"table": "flows"}, schemas.FOREIGN_KEYS),
    ("CommandGetImportedKeys", {"table": "flows"}, schemas.FOREIGN_KEYS),
    (
        "CommandGetCrossReference",
        {"pk_table": "flows", "fk_table": "flows"},
        schemas.FOREIGN_KEYS,
    ),
    ("CommandGetSqlInfo", {}, schemas.SQL_INFO),
    ("CommandGetXdbcTypeInfo", {}, schemas.XDBC_TYPE_INFO),
]


def rows(client: flight.FlightClient, name: str, **fields: Any) -> list[dict[str, Any]]:
    return client.do_get(ticket(name, **fields)).read_all().to_pylist()


@pytest.mark.parametrize(("name", "fields", "schema"), METADATA)
def test_info_schema_and_stream_of_a_metadata_command_agree(
    client: flight.FlightClient, name: str, fields: dict[str, Any], schema: pa.Schema
) -> None:
    descriptor = command(name, **fields)
    info = client.get_flight_info(descriptor)
    [endpoint] = info.endpoints
    assert endpoint.locations == []
    assert endpoint.ticket.ticket == descriptor.command
    for result in (
        info.schema,
        client.get_schema(descriptor).schema,
        client.do_get(endpoint.ticket).schema,
    ):
        # Nullability is part of a field's equality.
        assert result.equals(schema, check_metadata=True)


def test_no_fixed_schema_lets_a_required_column_be_null() -> None:
    optional = {
        schemas.DB_SCHEMAS: {"catalog_name"},
        schemas.TABLES_WITH_SCHEMA: {"catalog_name", "db_schema_name"},
        schemas.PRIMARY_KEYS: {"catalog_name", "db_schema_name", "key_name"},
        schemas.FOREIGN_KEYS: {
            "pk_catalog_name",
            "pk_db_schema_name",
            "fk_catalog_name",
            "fk_db_schema_name",
            "fk_key_name",
            "pk_key_name",
        },
        schemas.CATALOGS: set(),
        schemas.TABLE_TYPES: set(),
        schemas.SQL_INFO: set(),
    }
    for schema, names in optional.items():
        assert {field.name for field in schema if field.nullable} == names
    assert not any(field.nullable for field in schemas.SQL_INFO_VALUE)


class TestTables:
    def names(self, client: flight.FlightClient, **fields: Any) -> list[tuple[str, ...]]:
        items = rows(client, "CommandGetTables", **fields)
        return [(r["catalog_name"], r["db_schema_name"], r["table_name"]) for r in items]

    def test_all_are_listed_sorted(self, client: flight.FlightClient) -> None:
        assert self.names(client) == sorted((t.catalog, t.schema, t.name) for t in TABLES)

    @pytest.mark.parametrize(
        ("pattern", "names"),
        [
            ("flows", {"flows"}),
            ("%flows", {"flows", "v_flows"}),
            ("_flows", set()),
            ("v_flows", {"v_flows"}),
            ("FLOWS", set()),
            (r"we\_ird\%", {"we_ird%"}),
            (r"we_ird\_", set()),
            ("%.Name %", {'Quo"ted.Name é'}),
            ("' OR 1=1 --", set()),
            ("", set()),
        ],
    )
    def test_the_name_filter_is_a_like_pattern(
        self, client: flight.FlightClient, pattern: str, names: set[str]
    ) -> None:
        listed = self.names(client, catalog="lake", table_name_filter_pattern=pattern)
        assert {name for _, _, name in listed} == names

    def test_the_catalog_is_exact_and_an_empty_one_means_none(
        self, client: flight.FlightClient
    ) -> None:
        assert self.names(client, catalog="second") == [("second", "main", "plain")]
        assert self.names(client, catalog="secon_") == []
        assert self.names(client, catalog="") == []
        assert self.names(client, catalog="%") == self.names(client)

    @pytest.mark.parametrize(
        ("kinds", "count"),
        [
            (["TABLE"], 6),
            (["VIEW"], 1),
            (["BASE TABLE"], 6),
            (["base table", "view"], 7),
            (["SYSTEM TABLE"], 0),
        ],
    )
    def test_kinds_are_matched_as_tools_write_them(
        self, client: flight.FlightClient, kinds: list[str], count: int
    ) -> None:
        assert len(self.names(client, table_types=kinds)) == count

    def test_schemas_carry_what_sql_clients_show(self, client: flight.FlightClient) -> None:
        [row] = rows(
            client,
            "CommandGetTables",
            catalog="lake",
            db_schema_filter_pattern="main",
            table_name_filter_pattern="flows",
            include_schema=True,
        )
        schema = pa.ipc.read_schema(pa.py_buffer(row["table_schema"]))
        assert (schema.names, schema.types) == (COLUMNS.names, COLUMNS.types)
        price = {
            key.decode().removeprefix("ARROW:FLIGHT:SQL:"): value.decode()
            for key, value in schema.field("price").metadata.items()
        }
        assert price == {
            "CATALOG_NAME": "lake",
            "DB_SCHEMA_NAME": "main",
            "TABLE_NAME": "flows",
            "TYPE_NAME": "DECIMAL(18,4)",
            "PRECISION": "18",
            "SCALE": "4",
            "IS_AUTO_INCREMENT": "0",
            "IS_CASE_SENSITIVE": "0",
            "IS_READ_ONLY": "1",
            "IS_SEARCHABLE": "1",
        }

    def test_a_table_that_cannot_be_served_is_listed_without_columns(
        self, client: flight.FlightClient
    ) -> None:
        items = rows(client, "CommandGetTables", include_schema=True)
        [broken] = [row for row in items if row["table_name"] == "unreadable"]
        assert len(pa.ipc.read_schema(pa.py_buffer(broken["table_schema"]))) == 0
        assert len(items) == len(TABLES)


def test_schemas_are_filtered_like_tables(client: flight.FlightClient) -> None:
    result = rows(client, "CommandGetDbSchemas", catalog="lake", db_schema_filter_pattern="m%")
    assert result == [{"catalog_name": "lake", "db_schema_name": "main"}]


def test_sql_info_answers_what_was_asked_in_order_and_leaves_unknown_codes_out(
    client: flight.FlightClient,
) -> None:
    result = rows(client, "CommandGetSqlInfo", info=[8, 99_999, 0])
    assert result == [
        {"info_name": 8, "value": 0},
        {"info_name": 0, "value": "Thermocline"},
    ]


def test_type_info_can_be_asked_for_one_type(client: flight.FlightClient) -> None:
    items = rows(client, "CommandGetXdbcTypeInfo", data_type=93)
    assert [row["type_name"] for row in items] == ["TIMESTAMP", "TIMESTAMP WITH TIME ZONE"]
    everything = rows(client, "CommandGetXdbcTypeInfo")
    assert everything == sorted(everything, key=lambda r: (r["data_type"], r["type_name"]))


class TestStatements:
    def test_get_flight_info_plans_and_do_get_executes_once_each(
        self, canned_server: CannedServer, client: flight.FlightClient
    ) -> None:
        info = client.get_flight_info(select("SELECT 1 AS a"))
        [endpoint] = info.endpoints
        assert (info.schema.names, endpoint.locations) == (["a"], [])
        assert canned_server.backend.calls["plan"] == 1
        assert canned_server.backend.calls["open"] == 0
        assert client.do_get(endpoint.ticket).read_all().to_pylist() == [{"a": 1}]
        assert (canned_server.backend.calls["plan"], canned_server.backend.calls["open"]) == (
            1,
            1,
        )

    def test_get_schema_plans_nothing(
        self, canned_server: CannedServer, client: flight.FlightClient
    ) -> None:
        assert client.get_schema(select("SELECT 1 AS a")).schema.names == ["a"]
        handle = prepare(client, "SELECT 2 AS b").prepared_statement_handle
        descriptor = command("CommandPreparedStatementQuery", prepared_statement_handle=handle)
        assert client.get_schema(descriptor).schema.names == ["b"]
        assert canned_server.backend.calls["plan"] == 0

    def test_preparing_says_that_it_is_no_update(self, client: flight.FlightClient) -> None:
        prepared = prepare(client, "SELECT ?::BIGINT AS a")
        assert prepared.HasField("is_update")
        assert not prepared.is_update
        for data, name in ((prepared.dataset_schema, "a"), (prepared.parameter_schema, "1")):
            assert pa.ipc.read_schema(pa.py_buffer(data)).names == [name]

    def bind(
        self, client: flight.FlightClient, handle: bytes, batch: pa.RecordBatch
    ) -> bytes | None:
        descriptor = command("CommandPreparedStatementQuery", prepared_statement_handle=handle)
        writer, reader = client.do_put(descriptor, batch.schema)
        with writer:
            writer.write_batch(batch)
            writer.done_writing()
            answer = reader.read()
        return None if answer is None else answer.to_pybytes()

    def test_bound_parameters_are_replaced_and_used(self, client: flight.FlightClient) -> None:
        handle = prepare(client, "SELECT ?::BIGINT AS a").prepared_statement_handle
        for value in (1, 2):
            answer = self.bind(client, handle, pa.record_batch({"1": [value]}))
            assert answer is not None
            result = messages.parse(messages.DoPutPreparedStatementResult, answer)
            assert result.prepared_statement_handle == handle
            fields = {"prepared_statement_handle": handle}
            info = client.get_flight_info(command("CommandPreparedStatementQuery", **fields))
            table = client.do_get(info.endpoints[0].ticket).read_all()
            assert table.to_pylist() == [{"a": value}]
            # The command itself is a ticket, too.
            table = client.do_get(ticket("CommandPreparedStatementQuery", **fields)).read_all()
            assert table.to_pylist() == [{"a": value}]

    def test_a_ticket_outlives_its_prepared_statement(
        self, client: flight.FlightClient
    ) -> None:
        handle = prepare(client, "SELECT 1 AS a").prepared_statement_handle
        fields = {"prepared_statement_handle": handle}
        info = client.get_flight_info(command("CommandPreparedStatementQuery", **fields))
        close = packed("ActionClosePreparedStatementRequest", **fields)
        assert bodies(client, "ClosePreparedStatement", close) == []
        assert bodies(client, "ClosePreparedStatement", close) == []
        with pytest.raises(KeyError, match="Prepare it again"):
            client.get_flight_info(command("CommandPreparedStatementQuery", **fields))
        assert client.do_get(info.endpoints[0].ticket).read_all().num_rows == 1

    def test_several_sets_of_parameters_are_refused(self, client: flight.FlightClient) -> None:
        handle = prepare(client, "SELECT ?::BIGINT AS a").prepared_statement_handle
        with pytest.raises(pa.ArrowInvalid, match="one set of parameters"):
            self.bind(client, handle, pa.record_batch({"1": [1, 2]}))

    def test_an_upload_without_rows_binds_nothing(self, client: flight.FlightClient) -> None:
        handle = prepare(client, "SELECT 1 AS a").prepared_statement_handle
        assert self.bind(client, handle, pa.record_batch({"1": pa.array([], pa.int64())}))
        fields = {"prepared_statement_handle": handle}
        table = client.do_get(ticket("CommandPreparedStatementQuery", **fields)).read_all()
        assert table.num_rows == 1

    def test_too_few_parameters_are_an_error_before_anything_runs(
        self, canned_server: CannedServer, client: flight.FlightClient
    ) -> None:
        handle = prepare(client, "SELECT ?::BIGINT AS a").prepared_statement_handle
        fields = {"prepared_statement_handle": handle}
        with pytest.raises(pa.ArrowInvalid, match="1 parameters, 0 were bound"):
            client.get_flight_info(command("CommandPreparedStatementQuery", **fields))
        assert canned_server.backend.calls["open"] == 0

    @pytest.mark.parametrize(
        ("name", "fields"),
        [
            ("CommandStatementUpdate", {"query": "DELETE FROM flows"}),
            ("CommandPreparedStatementUpdate", {}),
            ("CommandStatementIngest", {"table": "t"}),
        ],
    )
    def test_updates_are_refused_with_a_reason(
        self, client: flight.FlightClient, name: str, fields: dict[str, Any]
    ) -> None:
        if name == "CommandPreparedStatementUpdate":
            handle = prepare(client, "SELECT ?::BIGINT").prepared_statement_handle
            fields = {"prepared_statement_handle": handle}
        writer, reader = client.do_put(command(name, **fields), pa.schema([]))
        writer.done_writing()
        assert reader.read() is None
        with pytest.raises(pa.ArrowInvalid, match="This server is read-only"):
            writer.close()

    def test_a_transaction_id_is_refused(self, client: flight.FlightClient) -> None:
        with pytest.raises(pa.ArrowInvalid, match="no transactions"):
            client.get_flight_info(
                command("CommandStatementQuery", query="SELECT 1", transaction_id=b"t")
            )


class TestBatches:
    def test_none_exceeds_four_mebibytes(self, client: flight.FlightClient) -> None:
        info = client.get_flight_info(select("trick wide"))
        reader = client.do_get(info.endpoints[0].ticket)
        sizes = [pa.ipc.get_record_batch_size(chunk.data) for chunk in reader]
        assert len(sizes) > 4
        assert max(sizes) < 4_194_304 - 1_024

    def test_a_row_larger_than_a_message_is_refused_by_name(
        self, client: flight.FlightClient
    ) -> None:
        sql = "SELECT repeat('x', 5_000_000) AS long UNION ALL SELECT 'y'"
        with pytest.raises(pa.ArrowInvalid, match=r"One row .* max_message_bytes"):
            fetched(client, sql)
        set_options(client, max_message_bytes=16 << 20)
        assert sorted(len(row["long"]) for row in fetched(client, sql)) == [1, 5_000_000]
        with pytest.raises(pa.ArrowInvalid, match="One row of the answer has 1"):
            fetched(client, "SELECT repeat('x', 100_000_000) AS long")

    def test_many_empty_ones_do_not_end_the_stream(self, client: flight.FlightClient) -> None:
        info = client.get_flight_info(select("trick empties"))
        assert client.do_get(info.endpoints[0].ticket).read_all().num_rows == 1


def test_every_listed_action_exists_and_says_what_it_does(client: flight.FlightClient) -> None:
    listed = {action.type: action.description for action in client.list_actions()}
    assert set(listed) == {
        "CreatePreparedStatement",
        "ClosePreparedStatement",
        "CancelFlightInfo",
        "CancelQuery",
        "RenewFlightEndpoint",
        "SetSessionOptions",
        "GetSessionOptions",
        "CloseSession",
    }
    assert all(listed.values())


def test_there_are_no_flights_to_list(client: flight.FlightClient) -> None:
    assert list(client.list_flights()) == []


def test_a_table_told_before_is_told_anew_once_it_changed(
    canned_server: CannedServer, client: flight.FlightClient
) -> None:
    request = ticket("CommandGetTables", table_name_filter_pattern="plain", include_schema=True)

    def remarks() -> bytes | None:
        [row] = client.do_get(request).read_all().to_pylist()
        schema = pa.ipc.read_schema(pa.py_buffer(row["table_schema"]))
        data: bytes | None = schema.field("id").metadata.get(b"ARROW:FLIGHT:SQL:REMARKS")
        return data

    assert remarks() == remarks() == b"the key"
    field = canned_server.backend.columns.field("id").with_metadata(
        {COMMENT: b"another comment"}
    )
    canned_server.backend.columns = canned_server.backend.columns.set(0, field)
    assert remarks() == b"another comment"


class TestManyTables:
    MANY = 3_000

    def test_they_come_in_batches_as_they_are_described(
        self, canned_server: CannedServer, client: flight.FlightClient
    ) -> None:
        canned_server.backend.extra_tables = self.MANY
        reader = client.do_get(ticket("CommandGetTables", include_schema=True))
        batches = [chunk.data for chunk in reader]
        assert len(batches) > 1
        assert max(map(pa.ipc.get_record_batch_size, batches)) < 4_194_304 - 1_024
        rows = pa.Table.from_batches(batches).to_pylist()
        names = [
            (row["catalog_name"], row["db_schema_name"], row["table_name"]) for row in rows
        ]
        assert names == sorted(names)
        assert {name for _, _, name in names} >= {f"t{n}" for n in range(self.MANY)}
        for row in rows[:: self.MANY // 10]:
            schema = pa.ipc.read_schema(pa.py_buffer(row["table_schema"]))
            metadata = schema.field("id").metadata
            assert metadata[b"ARROW:FLIGHT:SQL:TABLE_NAME"].decode() == row["table_name"]

    def test_a_fault_behind_the_first_batch_is_told_as_one(
        self,
        canned_server: CannedServer,
        client: flight.FlightClient,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        canned_server.backend.extra_tables = self.MANY
        table_schema = type(canned_server.backend).table_schema

        def failing(backend: CannedBackend, session: Session, table: Table) -> pa.Schema:
            if table.name == "we_ird%":  # sorted behind those that are many
                raise ZeroDivisionError("a secret")
            return table_schema(backend, session, table)

        monkeypatch.setattr(type(canned_server.backend), "table_schema", failing)
        reader = client.do_get(ticket("CommandGetTables", include_schema=True))
        assert reader.read_chunk().data.num_rows > 0
        with pytest.raises(flight.FlightInternalError, match="Internal error") as caught:
            reader.read_all()
        assert "secret" not in str(caught.value)

    def test_of_none_there_is_the_schema(self, client: flight.FlightClient) -> None:
        request = ticket(
            "CommandGetTables", table_name_filter_pattern="nosuch", include_schema=True
        )
        answer = client.do_get(request).read_all()
        assert answer.num_rows == 0
        assert answer.schema == schemas.TABLES_WITH_SCHEMA


class TestRenewing:
    @staticmethod
    def renewed(client: flight.FlightClient, ticket: flight.Ticket) -> Any:
        request = messages.RenewFlightEndpointRequest()
        request.endpoint.ticket.ticket = ticket.ticket
        request.endpoint.app_metadata = b"kept"
        [body] = bodies(client, "RenewFlightEndpoint", request.SerializeToString())
        return messages.parse(messages.FlightEndpoint, body)

    def test_a_renewed_ticket_fetches_the_same_answer(
        self, client: flight.FlightClient
    ) -> None:
        info = client.get_flight_info(select("SELECT 7 AS a"))
        endpoint = self.renewed(client, info.endpoints[0].ticket)
        assert endpoint.app_metadata == b"kept"
        assert endpoint.expiration_time.ToMicroseconds() == 4_000_000_000_000_000
        table = client.do_get(flight.Ticket(endpoint.ticket.ticket)).read_all()
        assert table.to_pylist() == [{"a": 7}]

    def test_what_does_not_expire_is_not_renewed(self, client: flight.FlightClient) -> None:
        with pytest.raises(pa.ArrowInvalid, match="Only a statement's ticket"):
            self.renewed(client, ticket("CommandGetCatalogs"))
        with pytest.raises(pa.ArrowInvalid, match="not issued by this server"):
            self.renewed(client, ticket("TicketStatementQuery", statement_handle=b"x"))

    def test_a_cancelled_one_stays_cancelled(self, client: flight.FlightClient) -> None:
        info = client.get_flight_info(select("SELECT 7 AS a"))
        bodies(client, "CancelQuery", packed("ActionCancelQueryRequest", info=info.serialize()))
        with pytest.raises(flight.FlightCancelledError):
            self.renewed(client, info.endpoints[0].ticket)


def test_a_real_ticket_says_when_it_expires_and_is_renewed(iceberg_server: SqlServer) -> None:
    with closing(flight.connect(iceberg_server.uri)) as client:
        info = client.get_flight_info(select("SELECT id FROM net.flows"))
        [first] = info.endpoints
        left_s = first.expiration_time.as_py().timestamp() - time.time()
        assert 200 < left_s <= iceberg_server.settings.server.ticket_ttl_s
        endpoint = TestRenewing.renewed(client, first.ticket)
        again = endpoint.expiration_time.ToMicroseconds() / 1e6
        assert again >= first.expiration_time.as_py().timestamp()
        rows = client.do_get(flight.Ticket(endpoint.ticket.ticket)).read_all()
        assert rows["id"].to_pylist() == [1, 2, 3]
