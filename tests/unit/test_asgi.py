"""Clients that send or read slowly are left, also before they log in; they make room for others."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.process import asgi
from proxy.process.asgi import HttpServer, HttpTls, Receive, Scope, Send
from proxy.session import Deadline
from tests.fixtures.certificates import Authority

LARGE = 32 << 20
HEAD = b"HTTP/1.1\r\nhost: x\r\n"
REQUEST = b"GET / " + HEAD + b"\r\n"


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["path"] == "/regardless":
        await asyncio.sleep(5)  # whether the client is there or not
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        if not message.get("more_body"):
            break
    if scope["path"] == "/stuck":
        time.sleep(0.5)  # the loop, and all that it would notice
    if scope["path"] == "/slow":
        await asyncio.sleep(1)
    size = LARGE if scope["path"] == "/large" else 2
    headers = [(b"content-length", str(size).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"x" * size})


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpServer]:
    monkeypatch.setattr(asgi, "REQUEST_TIMEOUT_S", 0.5)
    monkeypatch.setattr(asgi, "MIN_BYTES_PER_S", 100 << 20)
    server = HttpServer(application, address=("127.0.0.1", 0), name="http", setting="port")
    yield server
    server.stop()


def connected(server: HttpServer, sent: bytes) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    client.sendall(sent)
    return client


def answer(client: socket.socket) -> bytes:
    """One answer, or what comes of it until the server closes."""
    parts = b""
    while not parts.endswith((b"\r\n\r\nxx", b"Service Unavailable")) and (
        more := client.recv(1000)
    ):
        parts += more
    return parts


def rest_of(client: socket.socket) -> bytes:
    """All that comes until the server closes; a reset is an end too."""
    parts = []
    try:
        while part := client.recv(1 << 20):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HTTP",
        b"POST / " + HEAD + b"content-length: 100\r\n\r\nsome",
        b"POST / " + HEAD + b"transfer-encoding: chunked\r\n\r\n4\r\nsome\r\n",
    ],
)
def test_who_sends_no_whole_request_is_left(server: HttpServer, sent: bytes) -> None:
    with connected(server, sent) as client:
        assert rest_of(client) == b""


@pytest.mark.parametrize("more", [b"", b"connection: close\r\n"])
def test_who_does_not_read_its_answer_is_left(server: HttpServer, more: bytes) -> None:
    with connected(server, b"GET /large " + HEAD + more + b"\r\n") as client:
        connections = server._server.server_state.connections
        deadline = Deadline(10)
        while not connections:
            deadline.check("nobody connected in {:g} s.")
            time.sleep(0.01)
        while connections:
            deadline.check("it was still there after {:g} s.")
            time.sleep(0.01)
        assert len(rest_of(client)) < LARGE


def test_who_reads_and_sends_gets_all(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asgi, "MIN_BYTES_PER_S", 1 << 20)
    with connected(server, b"POST / " + HEAD + b"content-length: 4\r\n\r\nso") as client:
        client.sendall(b"me")
        answer = b""
        while not answer.endswith(b"\r\n\r\nxx"):
            answer += client.recv(1000)
        client.sendall(b"GET /large " + HEAD + b"connection: close\r\n\r\n")
        assert len(rest_of(client)) > LARGE


@pytest.fixture
def patient() -> Iterator[HttpServer]:
    """A server as users get it."""
    server = HttpServer(application, address=("127.0.0.1", 0), name="http", setting="port")
    yield server
    server.stop()


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
@pytest.mark.parametrize("sent", [b"", b"GET / HTTP", REQUEST])
def test_connections_that_wait_for_their_client_make_room(
    patient: HttpServer, sent: bytes
) -> None:
    """They say nothing, stop in the middle, or go on after an answer."""
    with contextlib.ExitStack() as stack:
        idle = [
            stack.enter_context(connected(patient, sent))
            for _ in range(asgi.MAX_CONNECTIONS + 100)
        ]
        last = idle[-1]
        if sent == REQUEST:
            assert answer(last).startswith(b"HTTP/1.1 200")
        last.sendall(REQUEST.removeprefix(sent) or REQUEST)
        assert answer(last).startswith(b"HTTP/1.1 200")  # the last is not gone
        with connected(patient, REQUEST) as client:
            assert answer(client).startswith(b"HTTP/1.1 200")
        assert b"503" not in rest_of(idle[0])  # the first is


@pytest.mark.parametrize("shakes", [False, True])
def test_so_do_those_that_begin_tls(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shakes: bool
) -> None:
    monkeypatch.setattr(asgi, "MAX_CONNECTIONS", 20)
    authority = Authority("here")
    issued = authority.server()
    (tmp_path / "pem").write_bytes(issued.certificate)
    (tmp_path / "key").write_bytes(issued.key)
    trusting = ssl.create_default_context(cadata=authority.certificate.decode())
    server = HttpServer(
        application,
        address=("127.0.0.1", 0),
        name="http",
        setting="port",
        tls=HttpTls(str(tmp_path / "pem"), str(tmp_path / "key")),
    )
    with contextlib.ExitStack() as stack:
        stack.callback(server.stop)

        def client(shakes: bool) -> socket.socket:
            raw = connected(server, b"")
            whole = trusting.wrap_socket(raw, server_hostname="localhost") if shakes else raw
            return stack.enter_context(whole)

        idle = [client(shakes) for _ in range(30)]
        last = client(True)
        last.sendall(REQUEST)
        assert answer(last).startswith(b"HTTP/1.1 200")
        with contextlib.suppress(ConnectionResetError):
            assert idle[0].recv(100) == b""


def test_what_is_at_work_makes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asgi, "MAX_CONNECTIONS", 5)
    server = HttpServer(application, address=("127.0.0.1", 0), name="http", setting="port")
    with contextlib.ExitStack() as stack:
        stack.callback(server.stop)
        slow = b"GET /slow " + HEAD + b"\r\n"
        first = stack.enter_context(connected(server, slow))
        time.sleep(0.2)
        for _ in range(10):
            stack.enter_context(connected(server, b""))
        assert answer(first).startswith(b"HTTP/1.1 200")
        # Where all are at work, one more is refused.
        at_work = [stack.enter_context(connected(server, slow)) for _ in range(5)]
        time.sleep(0.2)
        with connected(server, REQUEST) as one_more:
            assert answer(one_more).startswith(b"HTTP/1.1 503")
        assert all(answer(client).startswith(b"HTTP/1.1 200") for client in at_work)


def test_connections_that_made_room_leave_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the loop was late: it has not read their requests, nor noticed that they are shut."""
    monkeypatch.setattr(asgi, "MAX_CONNECTIONS", 20)
    server = HttpServer(application, address=("127.0.0.1", 0), name="http", setting="port")
    with contextlib.ExitStack() as stack:
        stack.callback(server.stop)
        stack.enter_context(connected(server, b"GET /stuck " + HEAD + b"\r\n"))
        time.sleep(0.2)
        more = [stack.enter_context(connected(server, REQUEST)) for _ in range(60)]
        assert all(answer(client).startswith(b"HTTP/1.1 200") for client in more[-15:])


def test_requests_whose_clients_have_left_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their connections are gone, their work is not: else clients that leave at once pile it up without end."""
    monkeypatch.setattr(asgi, "MAX_CONNECTIONS", 20)
    server = HttpServer(application, address=("127.0.0.1", 0), name="http", setting="port")
    with contextlib.ExitStack() as stack:
        stack.callback(server.stop)
        for _ in range(100):
            connected(server, b"GET /regardless " + HEAD + b"\r\n").close()
        with connected(server, REQUEST) as client:
            assert answer(client).startswith(b"HTTP/1.1 503")
