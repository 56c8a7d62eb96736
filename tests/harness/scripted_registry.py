"""A server at the address of a schema registry that answers what a test says."""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from connectors.registry.client import SchemaRegistry
from connectors.registry.texts import Answer


@dataclass
class Reply:
    """``body``: text as it is, anything else as JSON.

    ``hangs``: nothing is sent before the server ends. ``drips``: a byte of the body each twentieth of a second.
    """

    body: object = ""
    status: int = 200
    kind: str = "application/vnd.schemaregistry.v1+json"
    hangs: bool = False
    drips: bool = False


def missing(code: int = 40403) -> Reply:
    return Reply({"error_code": code, "message": "not here"}, 404)


def by_id(registry: SchemaRegistry, schema_id: int, *, timeout_s: float) -> Answer:
    return registry.by_ids((schema_id,), timeout_s=timeout_s)[schema_id]


@dataclass
class ScriptedRegistry:
    """``answer`` gets the path; ``paths`` and ``logins`` are those that were requested, in order."""

    answer: Callable[[str], Reply]
    port: int = 0
    paths: list[str] = field(default_factory=list)
    logins: list[str | None] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextlib.contextmanager
def scripted_registry(
    answer: Callable[[str], Reply] | Reply, tls: ssl.SSLContext | None = None
) -> Iterator[ScriptedRegistry]:
    registry = ScriptedRegistry(answer if callable(answer) else lambda _path: answer)
    is_over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def do_GET(self) -> None:
            registry.paths.append(self.path)
            registry.logins.append(self.headers.get("Authorization"))
            reply = registry.answer(self.path)
            if reply.hangs:
                is_over.wait()
                return
            text = reply.body if isinstance(reply.body, str) else json.dumps(reply.body)
            with contextlib.suppress(ConnectionError):
                self.send_response(reply.status)
                self.send_header("Content-Type", reply.kind)
                self.send_header("Content-Length", str(len(text.encode())))
                self.end_headers()
                size = 1 if reply.drips else len(text.encode())
                for piece in range(0, len(text.encode()), size or 1):
                    self.wfile.write(text.encode()[piece : piece + size])
                    if reply.drips:
                        is_over.wait(0.05)

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """A client that does not trust the certificate ends the connection."""

    with Server(("127.0.0.1", 0), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        registry.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield registry
        finally:
            is_over.set()
            server.shutdown()
            thread.join()
