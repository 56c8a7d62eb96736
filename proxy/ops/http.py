"""A small HTTP port for operators: is it alive, should it get traffic, what does it count.

``/healthz``: 200 while the engine answers; else an orchestrator should replace the process.
``/readyz``: 200 while new statements are welcome; 503 before that (``[tail] ready_when_read``), from the start of a
shutdown on, and while unhealthy.
``/metrics``: Prometheus' text format.

A catalog or a broker that is down makes no process unhealthy: another one would fare no better. It is told in
the body of ``/readyz``, and by the metrics. The port has no authentication: keep it off public networks.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from planner.errors import BadConfig

_log = logging.getLogger(__name__)
#: A client that sends no request within this time is left.
_REQUEST_TIMEOUT_S = 10.0


class OpsServer:
    """Serves the three pages. Stop it; ``port`` is the real one, also if 0 was asked for."""

    def __init__(
        self,
        *,
        host: str,
        port: int,
        registry: CollectorRegistry,
        healthy: Callable[[], bool],
        state: Callable[[], Mapping[str, object]],
        is_warm: Callable[[], bool] = lambda: True,
    ) -> None:
        """``state`` says in plain values what is degraded: the body of ``/readyz``, which waits for ``is_warm`` too.

        Raises:
            BadConfig: the address cannot be listened on.
        """
        self._accepting = threading.Event()
        handler = _handler(
            registry, healthy, lambda: self._accepting.is_set() and is_warm(), state
        )
        try:
            self._server = ThreadingHTTPServer((host, port), handler)
        except OSError as error:
            raise BadConfig(
                f"the HTTP port cannot be opened on {host}:{port} ({error.strerror}); choose another "
                f"server.http_port.",
                host=host,
                port=port,
            ) from error
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="ops-http", daemon=True
        )
        self._thread.start()

    def accept(self) -> None:
        """Tell load balancers that statements are welcome."""
        self._accepting.set()

    def drain(self) -> None:
        """Tell load balancers to send no more."""
        self._accepting.clear()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(
    registry: CollectorRegistry,
    healthy: Callable[[], bool],
    accepting: Callable[[], bool],
    state: Callable[[], Mapping[str, object]],
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        server_version = "thermocline"
        sys_version = ""
        timeout = _REQUEST_TIMEOUT_S

        def do_GET(self) -> None:
            pages = {
                "/healthz": self._health,
                "/readyz": self._ready,
                "/metrics": self._metrics,
            }
            page = pages.get(self.path.partition("?")[0])
            if page is None:
                self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"not found\n")
                return
            try:
                page()
            except OSError:
                raise
            except Exception:  # noqa: BLE001  a fault in a page must not reach the client as a traceback
                _log.exception("%s failed", self.path)
                self._answer(
                    HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain", b"internal error\n"
                )

        do_HEAD = do_GET

        def _health(self) -> None:
            fit = healthy()
            self._tell(fit, {"healthy": fit})

        def _ready(self) -> None:
            fit = healthy()
            ready = fit and accepting()
            self._tell(ready, {"ready": ready, "healthy": fit, **state()})

        def _metrics(self) -> None:
            encode, kind = choose_encoder(self.headers.get("Accept", ""))
            self._answer(HTTPStatus.OK, kind, encode(registry))

        def _tell(self, good: bool, document: Mapping[str, object]) -> None:
            status = HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE
            self._answer(status, "application/json", json.dumps(document).encode() + b"\n")

        def _answer(self, status: HTTPStatus, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            _log.debug(format, *args)

    return Handler
