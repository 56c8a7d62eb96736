"""Arrow's own integration scenarios for Flight SQL, served by the protocol layer over canned answers.

The suite of Arrow (``arrow/dev/archery``) checks each implementation's server with every implementation's client.
The client run here is arrow-go's, unmodified, out of the module that the tests pin: it goes through a scenario step
by step and fails at the first answer that is not as expected. Its expectations of ``flight_sql`` are met whole.

The others ask for more than a server of a read-only lake has. What of them the layer does have is asked for one by
one below; where the client must fail, it is at the step that is named here:

``flight_sql:extension``
    Substrait, savepoints and transactions. SqlInfo says that there are none (5 false, 8 none), and each message is
    refused as UNIMPLEMENTED or INVALID_ARGUMENT. CancelQuery is there.
``flight_sql:ingestion``
    Refused as INVALID_ARGUMENT; SqlInfo 10 and 11 are false.
``session_options``
    A new session is not empty here (ADBC asks it for catalog and schema), and names are a closed list. Setting,
    erasing, values as text and both kinds of refusal are as the scenario has them.
``auth:basic_proto``
    Refused without credentials as the scenario wants. The user goes into the header of the handshake, where all
    Flight SQL drivers send it, not into its payload.
``expiration_time:*``, ``app_metadata_flight_info_endpoint``, ``ordered``, ``location:reuse_connection``,
``middleware``, ``poll_flight_info``, ``do_exchange:echo``
    Of Flight, not of Flight SQL: their commands are raw bytes, which this server refuses. Cancelling and renewing
    are asked for with statements. One endpoint without a location is the answer here, so nothing is ordered nor
    reused; pyarrow has no hook for polling.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from planner import errors
from proxy.access.authentication.callers import Access, FixedUsers
from proxy.flightsql import messages
from proxy.session import Deadline, Planned, Prepared, Session
from tests.harness.canned import USERS, CannedBackend, CannedServer, serve
from tests.harness.wire import bodies, command, packed, prepare, select

# Without `make classes` the first run compiles a Go program.
pytestmark = pytest.mark.timeout(900)

#: What every implementation's server of the scenarios answers.
QUERY_SCHEMA = pa.schema(
    [
        pa.field(
            "id",
            pa.int64(),
            metadata={
                f"ARROW:FLIGHT:SQL:{key}": value
                for key, value in {
                    "TABLE_NAME": "test",
                    "IS_AUTO_INCREMENT": "1",
                    "IS_CASE_SENSITIVE": "0",
                    "TYPE_NAME": "type_test",
                    "SCHEMA_NAME": "schema_test",
                    "IS_SEARCHABLE": "1",
                    "CATALOG_NAME": "catalog_test",
                    "PRECISION": "100",
                    "REMARKS": "test column",
                }.items()
            },
        )
    ]
)
QUERIES = ("SELECT STATEMENT", "SELECT PREPARED STATEMENT")
UPDATES = {"UPDATE STATEMENT": 10_000, "UPDATE PREPARED STATEMENT": 20_000}
PLAN = {"plan": b"plan", "version": "version"}


class ScenarioBackend(CannedBackend):
    """Knows the statements of the scenarios and nothing else; writes down what it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.statements: list[str] = []
        self.bound: list[dict[str, Any]] = []

    def prepare(self, session: Session, sql: str, deadline: Deadline) -> Prepared:
        self.statements.append(f"prepare {sql}")
        if sql in UPDATES:
            return Prepared(pa.schema([]), pa.schema([]))
        self._check_statement(sql)
        return Prepared(QUERY_SCHEMA, QUERY_SCHEMA if "PREPARED" in sql else pa.schema([]))

    def plan(
        self,
        session: Session,
        sql: str,
        parameters: pa.RecordBatch | None,
        deadline: Deadline,
    ) -> Planned:
        self.statements.append(f"plan {sql}")
        self._check_statement(sql)
        if parameters is not None:
            self.bound += parameters.to_pylist()
        return Planned(sql.encode(), QUERY_SCHEMA)

    def open(  # type: ignore[override]  # another stream than the canned one
        self, session: Session, ticket: bytes, deadline: Deadline
    ) -> NoRows:
        self.statements.append(f"open {ticket.decode()}")
        self._check_statement(ticket.decode())
        return NoRows()

    def update(
        self,
        session: Session,
        sql: str,
        rows: Iterable[pa.RecordBatch],
        deadline: Deadline,
    ) -> int:
        self.statements.append(f"update {sql}")
        if sql not in UPDATES:
            raise errors.BadStatement(f"{sql} is no update of a scenario.")
        return UPDATES[sql]

    def _check_statement(self, sql: str) -> None:
        if sql not in QUERIES:
            raise errors.BadStatement(f"{sql} is no query of a scenario.")


class NoRows:
    schema = QUERY_SCHEMA

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return iter(())

    def close(self) -> None:
        """It holds nothing."""


@pytest.fixture
def backend() -> ScenarioBackend:
    return ScenarioBackend()


def run(client: Path, scenario: str, port: int) -> str:
    """What the client says where it fails; empty: the scenario is passed."""
    done = subprocess.run(
        [client, "-host", "127.0.0.1", "-port", str(port), "-scenario", scenario],
        capture_output=True,
        text=True,
        timeout=120,
    )
    return "" if done.returncode == 0 else done.stderr


def test_flight_sql(
    arrow_integration_client: Path, canned_server: CannedServer, backend: ScenarioBackend
) -> None:
    assert run(arrow_integration_client, "flight_sql", canned_server.port) == ""
    # Each once: nothing runs twice because it was prepared, described or planned.
    assert backend.statements == [
        "plan SELECT STATEMENT",
        "open SELECT STATEMENT",
        "prepare SELECT STATEMENT",
        "update UPDATE STATEMENT",
        "prepare SELECT PREPARED STATEMENT",
        "plan SELECT PREPARED STATEMENT",
        "open SELECT PREPARED STATEMENT",
        "plan SELECT PREPARED STATEMENT",  # for its schema, in which what is bound has a say
        "prepare UPDATE PREPARED STATEMENT",
        "update UPDATE PREPARED STATEMENT",
    ]
    assert backend.bound == [{"id": 1}] * 2


#: Scenarios of which a read-only server has a part, and how the client says at which step it stopped.
STOPS = {
    # One of SqlInfo's codes 4 to 8, 100 and 101, in random order: SQL only, no Substrait, no transactions.
    "flight_sql:extension": "did not match",
    "flight_sql:ingestion": "code = InvalidArgument desc = This server is read-only",
    "session_options": "expected new session to be empty, but found 2 options already set",
}


@pytest.mark.parametrize("scenario", STOPS)
def test_what_a_read_only_server_lacks_ends_a_scenario_where_it_is_told(
    arrow_integration_client: Path,
    canned_server: CannedServer,
    backend: ScenarioBackend,
    scenario: str,
) -> None:
    assert STOPS[scenario] in run(arrow_integration_client, scenario, canned_server.port)
    assert backend.statements == []


class TestExtension:
    """The steps of ``flight_sql:extension``."""

    @pytest.mark.parametrize("call", ["get_flight_info", "get_schema"])
    def test_a_substrait_plan_is_refused(self, client: flight.FlightClient, call: str) -> None:
        request = command("CommandStatementSubstraitPlan", plan=PLAN)
        with pytest.raises(NotImplementedError, match="SQL, not Substrait plans"):
            getattr(client, call)(request)

    def test_an_update_by_substrait_is_refused(self, client: flight.FlightClient) -> None:
        request = command("CommandStatementSubstraitPlan", plan=PLAN)
        writer, _ = client.do_put(request, pa.schema([]))
        with pytest.raises(NotImplementedError, match="SQL, not Substrait plans"):
            writer.close()

    @pytest.mark.parametrize(
        ("action", "fields"),
        [
            ("CreatePreparedSubstraitPlan", {"plan": PLAN}),
            ("BeginTransaction", {}),
            ("BeginSavepoint", {"transaction_id": b"t", "name": "savepoint_name"}),
            ("EndSavepoint", {"savepoint_id": b"savepoint_id", "action": 1}),
        ],
    )
    def test_plans_transactions_and_savepoints_are_not_there(
        self, client: flight.FlightClient, action: str, fields: dict[str, Any]
    ) -> None:
        assert action not in {listed.type for listed in client.list_actions()}
        body = packed(f"Action{action}Request", **fields)
        with pytest.raises(NotImplementedError, match=f"does not have the action '{action}'"):
            bodies(client, action, body)

    def test_a_statement_of_a_transaction_is_refused(
        self, client: flight.FlightClient, backend: ScenarioBackend
    ) -> None:
        inside = {"query": "SELECT STATEMENT", "transaction_id": b"transaction_id"}
        for call in (client.get_flight_info, client.get_schema):
            with pytest.raises(pa.ArrowInvalid, match="no transactions"):
                call(command("CommandStatementQuery", **inside))
        with pytest.raises(pa.ArrowInvalid, match="no transactions"):
            bodies(
                client,
                "CreatePreparedStatement",
                packed("ActionCreatePreparedStatementRequest", **inside),
            )
        update = inside | {"query": "UPDATE STATEMENT"}
        writer, _ = client.do_put(command("CommandStatementUpdate", **update), pa.schema([]))
        with pytest.raises(pa.ArrowInvalid, match="no transactions"):
            writer.close()
        assert backend.statements == []

    def test_a_query_is_cancelled_by_its_info(self, client: flight.FlightClient) -> None:
        info = client.get_flight_info(select("SELECT STATEMENT"))
        [body] = bodies(
            client, "CancelQuery", packed("ActionCancelQueryRequest", info=info.serialize())
        )
        assert messages.unpack(body).result == 1  # CANCEL_RESULT_CANCELLED
        with pytest.raises(flight.FlightCancelledError):
            client.do_get(info.endpoints[0].ticket).read_all()


def test_ingestion_says_that_the_server_is_read_only(
    client: flight.FlightClient, backend: ScenarioBackend
) -> None:
    request = command(
        "CommandStatementIngest",
        table_definition_options={"if_not_exist": 1, "if_exists": 3},
        table="test_table",
        schema="test_schema",
        catalog="test_catalog",
        temporary=True,
        transaction_id=b"123",
        options={"key1": "val1", "key2": "val2"},
    )
    rows = pa.record_batch({"test_field": pa.nulls(5, pa.int64())})

    def ingest() -> None:
        writer, _ = client.do_put(request, rows.schema)
        writer.write_batch(rows)
        writer.close()

    with pytest.raises(pa.ArrowInvalid, match="This server is read-only"):
        ingest()
    assert backend.statements == []


def test_session_options(client: flight.FlightClient) -> None:
    """The steps of ``session_options``, with names and values that this server knows."""

    def options() -> dict[str, Any]:
        [body] = bodies(client, "GetSessionOptions", b"")
        entry = messages.parse(messages.GetSessionOptionsResult, body).session_options
        return {
            name: getattr(value, value.WhichOneof("option_value"))
            for name, value in entry.items()
        }

    def set_them(**settings: Any) -> dict[str, int]:
        request = messages.SetSessionOptionsRequest()
        for name, value in settings.items():
            entry = request.session_options[name]
            if isinstance(value, list):
                entry.string_list_value.values.extend(value)
            elif isinstance(value, str):
                entry.string_value = value
            elif isinstance(value, float):
                entry.double_value = value
            elif value is not None:
                entry.int64_value = value
        [body] = bodies(client, "SetSessionOptions", request.SerializeToString())
        failed = messages.parse(messages.SetSessionOptionsResult, body).errors
        return {name: error.value for name, error in failed.items()}

    invalid_name, invalid_value = 1, 2
    new = options()
    assert set_them(
        max_message_bytes=8 << 20,
        time_zone="Europe/Zurich",
        lol_invalid="this won't get set",
        freshness="lol_invalid",
        catalog=["a", "b", "sea", " ", "(づ｡◕‿‿◕｡)づ"],
        hugeint=456.0,
    ) == {
        "lol_invalid": invalid_name,
        "freshness": invalid_value,
        "catalog": invalid_value,
        "hugeint": invalid_value,
    }
    assert options() == new | {
        "max_message_bytes": 8 << 20,
        "time_zone": "Europe/Zurich",
    }
    # Erase one; set the other again, as text.
    assert set_them(time_zone=None, max_message_bytes=str(16 << 20)) == {}
    assert options() == new | {"max_message_bytes": 16 << 20}
    [body] = bodies(client, "CloseSession", b"")
    assert messages.parse(messages.CloseSessionResult, body).status == 1  # CLOSED


def test_nobody_gets_in_without_credentials(backend: ScenarioBackend) -> None:
    """The first step of ``auth:basic_proto``; its second with the user where drivers send it."""
    server = serve(backend, Access(FixedUsers(USERS).verify))
    with closing(flight.connect(f"grpc://127.0.0.1:{server.port}")) as client:
        with pytest.raises(flight.FlightUnauthenticatedError):
            bodies(client, "", b"")
        token = client.authenticate_basic_token(b"ada", USERS["ada"].encode())
        options = flight.FlightCallOptions(headers=[token])
        assert prepare(client, "SELECT STATEMENT", options).prepared_statement_handle
    assert server.stop(10)
