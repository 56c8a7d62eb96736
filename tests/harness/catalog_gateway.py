"""A scripted REST catalog: it passes requests on to a real one, asks for a token, and does wrong on request."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt

from tests.fixtures.oidc import AUDIENCE, Provider

#: Headers of one connection alone (RFC 9110, section 7.6.1), and those that are written anew.
_OWN = {
    "connection",
    "transfer-encoding",
    "content-length",
    "date",
    "server",
    "keep-alive",
    "host",
}


class Fault(Enum):
    """What happens to the next commit to a table."""

    REFUSED = "answered 503, and not passed on"
    DONE_AND_FAILED = "passed on, and answered 500"
    DONE_AND_CUT = "passed on, and the connection ends without an answer"
    DONE_AND_SILENT = "passed on, and never answered"


class CatalogGateway:
    """``requests`` counts answers by status. With ``provider``, requests need one of its tokens. A context manager.

    ``certificate`` is a file with key and certificate in PEM. While ``silent`` is set, no request is answered at all; unless
    ``writable`` is, those that could change something are denied.
    ``faults`` are those of the next commits, one each; None passes it on.
    """

    def __init__(
        self, target: int, provider: Provider | None = None, certificate: Path | None = None
    ) -> None:
        self._target, self._provider = target, provider
        self.requests: Counter[int] = Counter()
        self.faults: list[Fault | None] = []
        self.silent = threading.Event()
        #: Unless set, whoever is neither a GET nor a HEAD is answered that it may not.
        self.writable = threading.Event()
        self.writable.set()
        #: Asked for the configuration that goes out with each table that is loaded or created.
        self.vend: Callable[[], Mapping[str, str]] | None = None
        #: It goes out as that of these places, by prefix, where there are some.
        self.places: tuple[str, ...] = ()
        self._over = threading.Event()
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        scheme = "http" if certificate is None else "https"
        self.uri = f"{scheme}://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> CatalogGateway:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _may(self, authorization: str) -> bool:
        if self._provider is None:
            return True
        try:
            jwt.decode(
                authorization.removeprefix("Bearer "),
                self._provider.public_pem(),
                algorithms=["RS256"],
                audience=AUDIENCE,
            )
        except jwt.InvalidTokenError:
            return False
        return True

    def _pass_on(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._target, timeout=60)
        try:
            connection.request(method, path, body or None, headers)
            answer = connection.getresponse()
            passed_on = [(k, v) for k, v in answer.getheaders() if k.lower() not in _OWN]
            return answer.status, passed_on, answer.read()
        finally:
            connection.close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        gateway = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if gateway.silent.is_set():
                    gateway._over.wait()
                    return
                if not gateway._may(self.headers.get("Authorization") or ""):
                    self._answer(*_failure(401, "NotAuthorizedException"))
                    return
                if self.command not in ("GET", "HEAD") and not gateway.writable.is_set():
                    self._answer(*_failure(403, "ForbiddenException"))
                    return
                fault = None
                if self.command == "POST" and "/tables/" in self.path and gateway.faults:
                    fault = gateway.faults.pop(0)
                if fault is Fault.REFUSED:
                    self._answer(*_failure(503, "ServiceUnavailableException"))
                    return
                headers = {k: v for k, v in self.headers.items() if k.lower() not in _OWN}
                if gateway.vend is not None:
                    headers.pop("Accept-Encoding", None)
                answer = gateway._pass_on(self.command, self.path, headers, body)
                if gateway.vend is not None and "/tables" in self.path:
                    answer = (
                        *answer[:2],
                        _with_keys(answer[2], gateway.vend(), gateway.places),
                    )
                match fault:
                    case Fault.DONE_AND_FAILED:
                        assert answer[0] == 200, answer
                        self._answer(*_failure(500, "InternalServerError"))
                    case Fault.DONE_AND_CUT:
                        self.close_connection = True
                        self.connection.close()
                    case Fault.DONE_AND_SILENT:
                        gateway._over.wait()
                    case _:
                        self._answer(*answer)

            do_GET = do_POST = do_DELETE = do_HEAD = handle_any

            def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
                gateway.requests[status] += 1
                self.send_response(status)
                for name, value in headers:
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Quiet."""

        return Handler


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Quiet: clients go away, and are killed."""


def _with_keys(body: bytes, keys: Mapping[str, str], places: tuple[str, ...]) -> bytes:
    """A LoadTableResult with more configuration; of anything else nothing changes."""
    document = json.loads(body) if body else {}
    if "metadata" not in document:
        return body
    if places:
        document["storage-credentials"] = [
            {"prefix": place, "config": dict(keys)} for place in places
        ]
    else:
        document["config"] = {**document.get("config", {}), **keys}
    return json.dumps(document).encode()


def _failure(code: int, kind: str) -> tuple[int, list[tuple[str, str]], bytes]:
    """As the specification of Iceberg's REST catalog says errors."""
    document = {"error": {"message": "as the test asked for", "type": kind, "code": code}}
    return code, [("Content-Type", "application/json")], json.dumps(document).encode()
