"""Clients that break off, stall, are killed or talk nonsense: the server returns to where it was."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psutil
import pyarrow as pa
import pytest
from pyarrow import flight

from proxy.access.authentication.callers import Access
from proxy.flightsql import server as server_module
from tests.harness.canned import SECRET, CannedBackend, CannedServer, serve
from tests.harness.wire import bodies, command, fetched, packed, prepare, select, ticket

SOON_S = 15
ROUNDS = 16
#: What may stay behind whatever the number of rounds, and less than one for each: pools of gRPC and of Arrow.
SLACK_THREADS, SLACK_FILES = 8, 8


class Base:
    """What the process holds, and whether it came back to it."""

    def __init__(self, canned_server: CannedServer) -> None:
        self._process = psutil.Process()
        self._served = canned_server
        self._before = self._now()

    def _now(self) -> tuple[int, int]:
        gc.collect()
        return self._process.num_threads(), self._process.num_fds()

    def restored(self) -> None:
        until = time.monotonic() + SOON_S
        while True:
            threads, files = self._now()
            calls = len(self._served.server.gate.calls._live)
            fits = (
                threads <= self._before[0] + SLACK_THREADS
                and files <= self._before[1] + SLACK_FILES
                and calls == 0
            )
            if fits:
                break
            assert time.monotonic() < until, (self._before, threads, files, calls)
            time.sleep(0.05)
        with closing(flight.connect(self._served.uri)) as client:
            assert fetched(client, "SELECT 1 AS a") == [{"a": 1}]


@pytest.fixture
def four_stream_server(backend: CannedBackend) -> Iterator[CannedServer]:
    server = serve(backend, Access(allow_anonymous=True), max_streams=4, stream_wait_s=SOON_S)
    yield CannedServer(server, backend)
    assert server.stop(10)


def test_streams_broken_off_release_all_they_hold(four_stream_server: CannedServer) -> None:
    def broken_off() -> None:
        client = flight.connect(four_stream_server.uri)
        info = client.get_flight_info(select("SELECT * FROM range(10_000_000)"))
        reader = client.do_get(info.endpoints[0].ticket)
        assert reader.read_chunk().data.num_rows
        reader.cancel()
        client.close()

    broken_off()
    base = Base(four_stream_server)
    for _ in range(ROUNDS):
        broken_off()
    base.restored()
    assert four_stream_server.backend.open_streams == 0


def test_a_reader_that_stalls_holds_back_its_own_stream_only(
    four_stream_server: CannedServer,
) -> None:
    base = Base(four_stream_server)
    memory = psutil.Process().memory_info().rss
    stalled = []
    for _ in range(3):
        client = flight.connect(four_stream_server.uri)
        # 800 MB, of which nobody reads more than the first batch.
        info = client.get_flight_info(select("SELECT range AS a FROM range(100_000_000)"))
        reader = client.do_get(info.endpoints[0].ticket)
        assert reader.read_chunk().data.num_rows
        stalled.append((client, reader))
    time.sleep(1)
    with closing(flight.connect(four_stream_server.uri)) as client:
        assert fetched(client, "SELECT 1 AS a") == [{"a": 1}]
    assert psutil.Process().memory_info().rss - memory < 300 << 20
    for client, reader in stalled:
        reader.cancel()
        client.close()
    base.restored()


def _read_forever(uri: str, started: Any) -> None:
    client = flight.connect(uri)
    info = client.get_flight_info(select("trick slow"))
    reader = client.do_get(info.endpoints[0].ticket)
    reader.read_chunk()
    started.set()
    reader.read_chunk()


def test_a_client_killed_amid_its_stream_frees_it(four_stream_server: CannedServer) -> None:
    context = multiprocessing.get_context("spawn")
    base = Base(four_stream_server)
    started = context.Event()
    child = context.Process(target=_read_forever, args=(four_stream_server.uri, started))
    child.start()
    assert started.wait(60)
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join(SOON_S)
    assert four_stream_server.backend.interrupted.wait(SOON_S)
    assert four_stream_server.backend.closed.wait(SOON_S)
    base.restored()


def test_an_upload_left_half_open_ends_with_its_client(
    four_stream_server: CannedServer,
) -> None:
    base = Base(four_stream_server)
    for _ in range(ROUNDS):
        client = flight.connect(four_stream_server.uri)
        handle = prepare(client, "SELECT ?::BIGINT").prepared_statement_handle
        descriptor = command("CommandPreparedStatementQuery", prepared_statement_handle=handle)
        writer, _ = client.do_put(descriptor, pa.schema([("1", pa.int64())]))
        writer.write_batch(pa.record_batch({"1": [1]}))
        # Never done writing: the connection goes away under it.
        del writer
        client.close()
    base.restored()


def test_bytes_that_are_no_http_harm_nobody(four_stream_server: CannedServer) -> None:
    base = Base(four_stream_server)
    chance = random.Random(20261121)
    for _ in range(ROUNDS * 4):
        with socket.create_connection(("127.0.0.1", four_stream_server.port), timeout=5) as raw:
            if chance.random() < 0.5:
                raw.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                raw.sendall(chance.randbytes(chance.randrange(1, 4_000)))
    base.restored()


CALLS: dict[str, Callable[[flight.FlightClient, bytes], Any]] = {
    "GetFlightInfo": lambda client, data: client.get_flight_info(
        flight.FlightDescriptor.for_command(data)
    ),
    "GetSchema": lambda client, data: client.get_schema(
        flight.FlightDescriptor.for_command(data)
    ),
    "DoGet": lambda client, data: client.do_get(flight.Ticket(data)).read_all(),
    "CreatePreparedStatement": lambda client, data: bodies(
        client, "CreatePreparedStatement", data
    ),
    "ClosePreparedStatement": lambda client, data: bodies(
        client, "ClosePreparedStatement", data
    ),
    "CancelFlightInfo": lambda client, data: bodies(client, "CancelFlightInfo", data),
    "CancelQuery": lambda client, data: bodies(client, "CancelQuery", data),
    "SetSessionOptions": lambda client, data: bodies(client, "SetSessionOptions", data),
}


@pytest.mark.parametrize("name", CALLS)
def test_mutated_messages_bring_out_nothing_of_the_inside(
    four_stream_server: CannedServer, name: str
) -> None:
    chance = random.Random(name)
    seeds = [
        packed("CommandStatementQuery", query="SELECT 1"),
        packed("ActionCreatePreparedStatementRequest", query="SELECT ?"),
        packed("CommandGetTables", include_schema=True, table_types=["TABLE"]),
        packed("CommandGetSqlInfo", info=[1, 8, 500]),
        packed("CommandPreparedStatementQuery", prepared_statement_handle=b"x" * 16),
        packed("TicketStatementQuery", statement_handle=b"x" * 16),
        packed("CommandStatementIngest", table="t"),
        ticket("CommandGetXdbcTypeInfo", data_type=4).ticket,
        b"",
    ]
    base = Base(four_stream_server)
    with closing(flight.connect(four_stream_server.uri)) as client:
        for _ in range(120):
            data = bytearray(chance.choice(seeds))
            for _ in range(chance.randrange(4)):
                place = chance.randrange(len(data) + 1)
                data[place : place + chance.randrange(3)] = chance.randbytes(
                    chance.randrange(4)
                )
            try:
                CALLS[name](client, bytes(data))
            except (pa.ArrowException, KeyError, NotImplementedError) as error:
                text = str(error)
                assert "Traceback" not in text
                assert ".py" not in text
                assert SECRET not in text
                assert (
                    "/" not in text.replace("://", "").split("gRPC client")[0]
                    or "type URL" in text
                )
    base.restored()


def test_many_clients_at_once_come_and_go(four_stream_server: CannedServer) -> None:
    def come_and_go(number: int) -> None:
        with closing(flight.connect(four_stream_server.uri)) as client:
            for turn in range(5):
                sql = f"SELECT {number * 100 + turn} AS a FROM range(1000)"
                rows = fetched(client, sql)
                assert {row["a"] for row in rows} == {number * 100 + turn}

    come_and_go(0)
    base = Base(four_stream_server)
    failed: list[BaseException] = []

    def run(number: int) -> None:
        try:
            come_and_go(number)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed
    base.restored()
    assert four_stream_server.backend.open_streams == 0


class Gone:
    """The writer of a client that is not there any more."""

    def write(self, _: pa.Buffer) -> None:
        raise OSError("Unknown error writing metadata.")


def test_a_client_that_left_during_its_upload_is_no_fault_of_the_server(
    canned_server: CannedServer,
    client: flight.FlightClient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    served_type: Any = server_module._FlightServer
    do_put = served_type.do_put
    monkeypatch.setattr(
        served_type,
        "do_put",
        lambda server, context, request, reader, _: do_put(
            server, context, request, reader, Gone()
        ),
    )
    handle = prepare(client, "SELECT ?::BIGINT").prepared_statement_handle
    put = command("CommandPreparedStatementQuery", prepared_statement_handle=handle)
    row = pa.record_batch([pa.array([1])], names=["1"])
    writer, answers = client.do_put(put, row.schema)
    writer.write_batch(row)
    writer.done_writing()
    with contextlib.suppress(pa.ArrowException):
        answers.read()
    with pytest.raises(flight.FlightCancelledError, match="The client ended the call"):
        writer.close()
    assert "internal error" not in caplog.text
