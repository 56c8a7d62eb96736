"""A gateway in front of an S3 store: it counts requests, is slow or far away, and does wrong on request.

Signatures hold: the host a client signed is passed on as it came (SigV4 signs the Host header).
"""

from __future__ import annotations

import http.client
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_CHUNK_BYTES = 1 << 18
_SLOW_BYTES, _REST_S = 1 << 10, 0.2
#: Headers of one connection alone (RFC 9110, section 7.6.1), and those that are written anew.
_OWN = {"connection", "transfer-encoding", "keep-alive", "date", "server"}


class Fault(Enum):
    """What happens to a request."""

    FAILED = "answered 500"
    BUSY = "answered 503 SlowDown"
    MISSING = "answered 404"
    DENIED = "answered 403 AccessDenied"
    EXPIRED = "answered 400 ExpiredToken"
    SKEWED = "answered 403 RequestTimeTooSkewed"
    ELSEWHERE = "answered 301 PermanentRedirect"
    NO_BUCKET = "answered 404 NoSuchBucket"
    SLOW = "passed on, in pieces with rests between them"
    CUT = "passed on, and the connection ends in the middle of the answer"
    SILENT = "never answered"
    TOO_LONG = "passed on; the answer says a file longer than it is"
    TOO_SHORT = "passed on; the answer says a file shorter than it is"


#: Status, code and sentence: https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html.
_ANSWERS = {
    Fault.FAILED: (500, "InternalError", "We encountered an internal error. Please try again."),
    Fault.BUSY: (503, "SlowDown", "Please reduce your request rate."),
    Fault.MISSING: (404, "NoSuchKey", "The specified key does not exist."),
    Fault.DENIED: (403, "AccessDenied", "Access Denied"),
    Fault.EXPIRED: (400, "ExpiredToken", "The provided token has expired."),
    Fault.SKEWED: (
        403,
        "RequestTimeTooSkewed",
        "The difference between the request time and the server's time is too large.",
    ),
    Fault.ELSEWHERE: (301, "PermanentRedirect", "The bucket must be addressed elsewhere."),
    Fault.NO_BUCKET: (404, "NoSuchBucket", "The specified bucket does not exist."),
}


@dataclass(frozen=True, slots=True)
class StoreRequest:
    """``span`` is the Range header, empty where all of a file is read; ``token`` that of the session."""

    method: str
    path: str
    span: str
    token: str = ""


class StoreGateway:
    """Passes on to the store at port ``target`` of this machine. A context manager.

    ``latency_s`` passes before each request is passed on. ``choose_fault`` is asked for each. ``certificate`` is a file
    with key and certificate in PEM.
    """

    def __init__(self, target: int, certificate: Path | None = None) -> None:
        self._target = target
        self.latency_s = 0.0
        #: After so many seconds without a request the gateway ends a connection.
        self.idle_s: float | None = None
        self.choose_fault: Callable[[StoreRequest], Fault | None] = lambda _: None
        self.requests: list[StoreRequest] = []
        #: How many connections clients have opened.
        self.connections = 0
        self._over = threading.Event()
        self._server = _Server(("127.0.0.1", 0), self._handler())
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        scheme = "http" if certificate is None else "https"
        self.endpoint = f"{scheme}://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> StoreGateway:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        gateway = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # One answer goes out in two writes: with Nagle's algorithm the second waits for 40 ms.
            disable_nagle_algorithm = True
            wbufsize = _CHUNK_BYTES
            _store: http.client.HTTPConnection | None = None

            def setup(self) -> None:
                super().setup()
                self.connection.settimeout(gateway.idle_s)
                gateway.connections += 1

            def handle_any(self) -> None:
                request = StoreRequest(
                    self.command,
                    self.path,
                    self.headers.get("Range") or "",
                    self.headers.get("x-amz-security-token") or "",
                )
                gateway.requests.append(request)
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                time.sleep(gateway.latency_s)
                fault = gateway.choose_fault(request)
                if fault is Fault.SILENT:
                    gateway._over.wait()
                    self.close_connection = True
                elif fault in _ANSWERS:
                    self._refuse(*_ANSWERS[fault])
                else:
                    self._pass_on(body, fault)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any

            def _refuse(self, status: int, code: str, sentence: str) -> None:
                text = (
                    f"<?xml version='1.0'?><Error><Code>{code}</Code>"
                    f"<Message>{sentence}</Message></Error>"
                ).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/xml")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(text)

            def _pass_on(self, body: bytes, fault: Fault | None) -> None:
                answer = self._answer(body)
                headers = [(k, v) for k, v in answer.getheaders() if k.lower() not in _OWN]
                if fault in (Fault.TOO_LONG, Fault.TOO_SHORT):
                    more = 1_000 if fault is Fault.TOO_LONG else -1_000
                    is_head = self.command == "HEAD"
                    headers = [
                        (k, _another_length(k, v, more, is_head=is_head)) for k, v in headers
                    ]
                # Not send_response: it adds a date of its own.
                self.send_response_only(answer.status)
                for name, value in headers:
                    self.send_header(name, value)
                chunked = answer.getheader("Content-Length") is None and self.command != "HEAD"
                if chunked:
                    rest = answer.read()
                    self.send_header("Content-Length", str(len(rest)))
                    self.end_headers()
                    self.wfile.write(rest)
                    return
                self.end_headers()
                if fault is Fault.CUT:
                    self.wfile.write(
                        answer.read()[: int(answer.getheader("Content-Length") or 0) // 2]
                    )
                    self.close_connection = True
                    return
                is_slow = fault is Fault.SLOW
                while chunk := answer.read(_SLOW_BYTES if is_slow else _CHUNK_BYTES):
                    self.wfile.write(chunk)
                    if is_slow:
                        self.wfile.flush()
                        time.sleep(_REST_S)

            def _answer(self, body: bytes) -> http.client.HTTPResponse:
                """A connection to the store for each of a client's, as there would be without us."""
                if self._store is None:
                    self._store = http.client.HTTPConnection(
                        "127.0.0.1", gateway._target, timeout=60
                    )
                store = self._store
                store.putrequest(
                    self.command, self.path, skip_host=True, skip_accept_encoding=True
                )
                for name, value in self.headers.items():
                    if name.lower() not in ("connection", "expect"):
                        store.putheader(name, value)
                store.endheaders(body or None)
                return store.getresponse()

            def finish(self) -> None:
                try:
                    # What is still to be written has nobody to go to, where the client went away.
                    super().finish()
                finally:
                    if self._store is not None:
                        self._store.close()

            def log_message(self, format: str, *args: Any) -> None:
                """Quiet."""

        return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Quiet: clients go away."""


def _another_length(name: str, value: str, more: int, *, is_head: bool) -> str:
    """Of a part, its own length stays what it is: else it would be a cut connection."""
    if name.lower() == "content-length" and is_head:
        return str(int(value) + more)
    if name.lower() == "content-range":
        span, _, total = value.partition("/")
        return f"{span}/{int(total) + more}"
    return value
