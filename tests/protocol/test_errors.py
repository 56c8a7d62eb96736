"""What a client is told when something goes wrong, and what it is never told."""

from __future__ import annotations

import contextlib
import logging
import random
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any
from urllib.parse import quote

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pytest
from pyarrow import flight

from planner import errors
from proxy.access.authentication.callers import Unauthenticated
from proxy.flightsql import messages
from proxy.flightsql.actions import ACTIONS
from proxy.flightsql.errors import MAX_MESSAGE_CHARS, TABLE, to_wire
from proxy.flightsql.messages import UnknownCommand
from proxy.flightsql.state.client_session import UnknownHandle
from proxy.ops.call_record import CallRecord
from tests.harness.canned import SECRET, CannedServer
from tests.harness.error_statuses import LEAKS, ROWS
from tests.harness.wire import bodies, command, fetched, packed, select, ticket

RECORD = CallRecord("DO_GET")


def _said(kind: type[Exception]) -> str:
    return f"lake.main.flows: this is what {kind.__name__} says (statement "


@pytest.fixture(scope="module")
def asking(shared_server: CannedServer) -> Iterator[flight.FlightClient]:
    with closing(flight.connect(shared_server.uri)) as connected:
        yield connected


@pytest.fixture(scope="module")
def driver(shared_server: CannedServer) -> Iterator[adbc.Connection]:
    with adbc.connect(shared_server.uri, autocommit=True) as connection:
        yield connection


@pytest.mark.parametrize(("ours", "raised", "adbc_status"), ROWS)
def test_each_error_has_its_status_and_whole_message(
    asking: flight.FlightClient,
    driver: adbc.Connection,
    ours: type[Exception],
    raised: type[Exception],
    adbc_status: str,
) -> None:
    with pytest.raises(raised) as result:
        asking.get_flight_info(select(f"trick fail {ours.__name__}"))
    assert str(result.value).strip("'").startswith(_said(ours))
    assert not LEAKS.search(str(result.value))
    with driver.cursor() as cursor, pytest.raises(adbc.Error) as reply:
        cursor.execute(f"trick fail {ours.__name__}")
    assert str(reply.value).startswith(f"{adbc_status}: [FlightSQL] {_said(ours)}")
    assert not LEAKS.search(str(reply.value))


@pytest.mark.parametrize(("ours", "raised", "adbc_status"), ROWS)
def test_an_error_halfway_through_the_rows_has_the_same_status(
    asking: flight.FlightClient,
    ours: type[Exception],
    raised: type[Exception],
    adbc_status: str,
) -> None:
    info = asking.get_flight_info(select(f"trick late_fail {ours.__name__}"))
    reader = asking.do_get(info.endpoints[0].ticket)
    assert reader.read_chunk().data.num_rows == 1
    with pytest.raises(raised) as result:
        reader.read_chunk()
    assert _said(ours) in str(result.value)
    assert not LEAKS.search(str(result.value))


def test_get_schema_tells_the_message_without_a_traceback(client: flight.FlightClient) -> None:
    for ours, raised, _ in ROWS:
        with pytest.raises(pa.ArrowException) as result:
            client.get_schema(select(f"trick fail_prepare {ours.__name__}"))
        assert _said(ours) in str(result.value)
        assert not LEAKS.search(str(result.value))
        if raised in (pa.ArrowInvalid, KeyError):
            assert isinstance(result.value, raised)


def test_the_table_covers_every_family_and_each_row_is_reachable() -> None:
    families = set(errors.FederationError.__subclasses__()) - {
        errors.InternalError,
        Unauthenticated,
    }
    value = [kind for kind, _ in TABLE]
    assert families <= set(value)
    for position, kind in enumerate(value):
        assert not any(issubclass(kind, earlier) for earlier in value[:position])
    assert issubclass(type(to_wire(UnknownCommand("x"), RECORD)), NotImplementedError)
    assert issubclass(type(to_wire(UnknownHandle("x"), RECORD)), KeyError)
    assert isinstance(to_wire(Unauthenticated("x"), RECORD), flight.FlightUnauthenticatedError)


class TestBugs:
    """Exceptions nobody planned."""

    @pytest.mark.parametrize("sql", ["trick bug", "trick late_bug"])
    def test_the_client_gets_an_id_and_the_log_the_rest_once(
        self, client: flight.FlightClient, caplog: pytest.LogCaptureFixture, sql: str
    ) -> None:
        with (
            caplog.at_level(logging.ERROR),
            pytest.raises(flight.FlightInternalError) as result,
        ):
            fetched(client, sql)
        reply = str(result.value)
        assert not LEAKS.search(reply)
        assert SECRET not in reply
        error_id = re.search(
            r"Internal error ([0-9a-f]{16})\. This is a fault of the server", reply
        )
        assert error_id
        [record] = [record for record in caplog.records if error_id[1] in record.getMessage()]
        assert record.exc_info is not None
        assert SECRET in str(record.exc_info[1])

    def test_an_internal_error_of_ours_keeps_its_text_to_the_log(self) -> None:
        assert "secret" not in str(to_wire(errors.InternalError("secret"), RECORD))


@pytest.mark.parametrize("character", ["a", "%", "é", "\n", "🧊"])
@pytest.mark.parametrize("count", [1_800, 100_000])
def test_a_message_is_cut_before_it_fills_the_trailers(character: str, count: int) -> None:
    items = str(to_wire(errors.BadStatement(character * count), RECORD))
    assert len(items) <= MAX_MESSAGE_CHARS
    assert (len(items) > MAX_MESSAGE_CHARS - 10) == (
        character == "a" and count > MAX_MESSAGE_CHARS
    )
    # As gRPC sends it, and as Arrow does beside it; others are there, too.
    assert len(quote(items, safe=" ")) + len(items.encode()) * 4 // 3 < 7_000
    assert items.endswith(f" {RECORD.id})")


def test_unknown_commands_are_unimplemented(client: flight.FlightClient) -> None:
    url = b"type.googleapis.com/arrow.flight.protocol.sql.CommandOfTomorrow"
    unknown = b"\x0a" + bytes([len(url)]) + url
    with pytest.raises(NotImplementedError, match="CommandOfTomorrow"):
        client.get_flight_info(flight.FlightDescriptor.for_command(unknown))
    with pytest.raises(NotImplementedError):
        client.do_get(flight.Ticket(unknown)).read_all()
    with pytest.raises(
        NotImplementedError, match="does not have the action 'BeginTransaction'"
    ):
        bodies(client, "BeginTransaction", packed("ActionBeginTransactionRequest"))


def test_a_plain_text_ticket_is_not_taken_for_sql(
    canned_server: CannedServer, client: flight.FlightClient
) -> None:
    for call in (
        lambda: client.do_get(flight.Ticket(b"SELECT 1")).read_all(),
        lambda: client.get_flight_info(flight.FlightDescriptor.for_command(b"SELECT 1")),
    ):
        with pytest.raises(pa.ArrowInvalid):
            call()
    assert canned_server.backend.calls["plan"] == canned_server.backend.calls["open"] == 0


def test_a_path_is_not_a_command(client: flight.FlightClient) -> None:
    with pytest.raises(pa.ArrowInvalid, match="a path was given"):
        client.get_flight_info(flight.FlightDescriptor.for_path("a"))


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.get_flight_info(command("TicketStatementQuery")),
        lambda client: client.get_flight_info(command("CommandStatementUpdate", query="x")),
        lambda client: client.get_schema(command("CommandStatementUpdate", query="x")),
        lambda client: client.do_get(ticket("CommandStatementQuery", query="x")).read_all(),
        lambda client: bodies(client, "CreatePreparedStatement", packed("CommandGetCatalogs")),
    ],
)
def test_a_message_in_the_wrong_place_is_refused_by_name(
    client: flight.FlightClient, call: Callable[[flight.FlightClient], Any]
) -> None:
    with pytest.raises(pa.ArrowInvalid, match=r"is not a message for|This action takes"):
        call(client)


def _hostile() -> Iterator[bytes]:
    """Random bytes, and real messages damaged in one place."""
    chance = random.Random(1)
    yield from (b"", b"\x00", b"\xff" * 64, b"\x0a\xff\xff\xff\xff\x0f")
    for _ in range(60):
        yield chance.randbytes(chance.randrange(1, 80))
    for name in messages.WRAPPED:
        whole = packed(name)
        for _ in range(4):
            at = chance.randrange(len(whole))
            yield whole[:at] + chance.randbytes(3) + whole[at + 1 :]
        # A right name over a wrong body.
        yield messages.pack(messages.WRAPPED[name]()) + b"\x12\x05" + chance.randbytes(5)
        yield messages._ANY(
            type_url=f"type.googleapis.com/arrow.flight.protocol.sql.{name}",
            value=b"\xff\xfe\xfd",
        ).SerializeToString()


def test_damaged_bytes_never_bring_out_a_traceback(
    canned_server: CannedServer, client: flight.FlightClient, caplog: pytest.LogCaptureFixture
) -> None:
    items = []

    def attempt(call: Callable[[], Any]) -> None:
        try:
            call()
        except Exception as error:
            items.append(str(error))

    def read(data: bytes) -> None:
        client.do_get(flight.Ticket(data)).read_all()

    def upload(data: bytes) -> None:
        writer, reader = client.do_put(
            flight.FlightDescriptor.for_command(data), pa.schema([("a", pa.int64())])
        )
        with contextlib.suppress(pa.ArrowException):
            writer.write_batch(pa.record_batch({"a": [1]}))
        writer.done_writing()
        reader.read()

    for data in _hostile():
        descriptor = flight.FlightDescriptor.for_command(data)
        attempt(partial(client.get_flight_info, descriptor))
        attempt(partial(client.get_schema, descriptor))
        attempt(partial(read, data))
        attempt(partial(upload, data))
    names = [name for name in ACTIONS if name != "CloseSession"]
    for data in _hostile():
        for name in names:
            attempt(partial(bodies, client, name, data))
    assert len(items) > 1_000
    assert not [text for text in items if LEAKS.search(text)]
    assert not [text for text in items if "Internal error" in text], caplog.text
    # And the server is as well as before.
    assert client.get_flight_info(select("SELECT 1")).schema.names == ["1"]


def _exchanged(client: flight.FlightClient) -> None:
    # It is refused by its headers, which may be before or after its first message was sent.
    _, reader = client.do_exchange(flight.FlightDescriptor.for_command(b"x"))
    reader.read_chunk()


def test_do_exchange_is_unimplemented(client: flight.FlightClient) -> None:
    with pytest.raises(NotImplementedError) as result:
        _exchanged(client)
    assert not LEAKS.search(str(result.value))
