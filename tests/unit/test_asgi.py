"""Clients that send or read slowly are left, also before anybody knows who they are."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from proxy.deadline import Deadline
from proxy.process import asgi
from proxy.process.asgi import HttpServer, Receive, Scope, Send

LARGE = 32 << 20
HEAD = b"HTTP/1.1\r\nhost: x\r\n"


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        if not message.get("more_body"):
            break
    size = LARGE if scope["path"] == "/large" else 2
    headers = [(b"content-length", str(size).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"x" * size})


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpServer]:
    monkeypatch.setattr(asgi, "REQUEST_TIMEOUT_S", 0.5)
    monkeypatch.setattr(asgi, "MIN_BYTES_PER_S", 100 << 20)
    server = HttpServer(application, host="127.0.0.1", port=0, name="http", setting="port")
    yield server
    server.stop()


def connected(server: HttpServer, sent: bytes) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    client.sendall(sent)
    return client


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
