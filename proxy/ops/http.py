"""A small HTTP port for operators: is it alive, should it get traffic, what does it count.

``/healthz``: 200 while the engine answers; else an orchestrator should replace the process. It waits for no lock.
``/readyz``: 200 while new statements are welcome; 503 before that (``[tail] ready_when_read``), from the start of a
shutdown on, and while unhealthy.
``/metrics``: Prometheus' text format.

A catalog or a broker that is down makes no process unhealthy: another one would fare no better. It shows in
the body of ``/readyz``, and by the metrics. The port has no authentication: keep it off public networks.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from proxy.process.asgi import HttpServer, Receive, Scope, Send
from proxy.process.sockets import Address

_log = logging.getLogger(__name__)
_PLAIN = "text/plain"
#: Status, kind and body of an answer.
_Page = tuple[HTTPStatus, str, bytes]


class OpsServer:
    """Serves the three pages. Stop it; ``port`` is the real one, also if 0 was asked for."""

    def __init__(
        self,
        *,
        address: Address,
        registry: CollectorRegistry,
        healthy: Callable[[], bool],
        state: Callable[[], Mapping[str, object]],
        is_warm: Callable[[], bool] = lambda: True,
    ) -> None:
        """``healthy`` must not wait. ``state`` says in plain values what is degraded: the body of ``/readyz``, which waits for
        ``is_warm`` too.

        Raises:
            BadConfig: the address cannot be listened on.
        """
        self._accepting = threading.Event()
        self._registry = registry
        self._healthy = healthy
        self._state = state
        self._is_warm = is_warm
        self._server = HttpServer(
            self._answer, address=address, name="ops-http", setting="server.http_port"
        )
        self.port = self._server.port

    def accept(self) -> None:
        """Tell load balancers that statements are welcome."""
        self._accepting.set()

    def drain(self) -> None:
        """Tell load balancers to send no more."""
        self._accepting.clear()

    def stop(self) -> None:
        self._server.stop()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  ASGI
        method, path = scope["method"], scope["path"]
        accept = dict(scope["headers"]).get(b"accept", b"").decode("latin-1")
        if method not in ("GET", "HEAD"):
            status, kind, body = HTTPStatus.NOT_IMPLEMENTED, _PLAIN, b"not implemented\n"
        elif path == "/healthz":
            # Not on a thread: all that there are may wait for a lock, on behalf of other pages.
            status, kind, body = self._page(path, accept)
        else:
            # Tails are counted under their locks.
            status, kind, body = await asyncio.to_thread(self._page, path, accept)
        headers = {
            "content-type": kind,
            "content-length": str(len(body)),
            "cache-control": "no-store",
            "server": "thermocline",
        }
        encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": int(status), "headers": encoded})
        await send({"type": "http.response.body", "body": b"" if method == "HEAD" else body})

    def _page(self, path: str, accept: str) -> _Page:
        try:
            if path == "/healthz":
                fit = self._healthy()
                return _state_page(fit, {"healthy": fit})
            if path == "/readyz":
                fit = self._healthy()
                ready = fit and self._accepting.is_set() and self._is_warm()
                return _state_page(ready, {"ready": ready, "healthy": fit, **self._state()})
            if path == "/metrics":
                encode, kind = choose_encoder(accept)
                return HTTPStatus.OK, kind, encode(self._registry)
        except Exception:  # noqa: BLE001  a fault in a page must not reach the client as a traceback
            _log.exception("%s failed", path)
            return HTTPStatus.INTERNAL_SERVER_ERROR, _PLAIN, b"internal error\n"
        return HTTPStatus.NOT_FOUND, _PLAIN, b"not found\n"


def _state_page(good: bool, document: Mapping[str, object]) -> _Page:
    status = HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE
    return status, "application/json", json.dumps(document).encode() + b"\n"
