"""Serves an ASGI application over HTTP from a thread of its own, within limits. Loaded where a port is configured.

What a client may hold is bounded: connections, bytes of a request's head, the time until a request is whole, and the time
until its answer is read. Connections that wait for their client make room for new ones.
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.flow_control import service_unavailable
from uvicorn.protocols.http.h11_impl import H11Protocol

from planner.errors import BadConfig
from proxy.process.sockets import Address, Connections, Listener

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

#: A client that sends no whole request within this time is left.
REQUEST_TIMEOUT_S = 10.0
#: So is one that reads a large answer more slowly.
MIN_BYTES_PER_S = 64 * 1024
#: Of a request's head: a cut in the address has 8 KiB at most, headers as much again.
MAX_HEAD_BYTES = 64 * 1024
#: At the same time. One more has the one closed that has waited longest for its client; where all are at work, it is answered 503.
MAX_CONNECTIONS = 1_200
_REFUSING: Application = service_unavailable  # type: ignore[assignment]  # its messages are named one by one
_BACKLOG = 1_024
_STOP_S = 5


@dataclass(frozen=True, slots=True)
class HttpTls:
    """PEM files. With ``client_ca`` a client must show a certificate that it signed."""

    certificate: str
    key: str
    client_ca: str | None = None


class _Impatient(H11Protocol):
    """uvicorn waits without end for a first request, for the rest of one, and for a client to read its answer."""

    _waiting: asyncio.TimerHandle | None = None
    _writing: asyncio.TimerHandle | None = None

    def __init__(self, connections: Connections, **uvicorns: Any) -> None:
        super().__init__(**uvicorns)
        self._connections = connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._count()
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._stop_waiting()
        elif self._waiting is None:
            self._wait()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._count()
        self._end_if_closing()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._end_if_closing()

    def pause_writing(self) -> None:
        super().pause_writing()
        size = self.transport.get_write_buffer_size()
        self._end_after(REQUEST_TIMEOUT_S + size / MIN_BYTES_PER_S)
        self._count()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_writing()
        self._count()
        self._end_if_closing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._stop_writing()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(REQUEST_TIMEOUT_S, self._leave)

    def _leave(self) -> None:
        self._waiting = None
        if not self._is_at_work:
            self.transport.close()
            self._end_if_closing()

    @property
    def _is_at_work(self) -> bool:
        """Whether a request is whole, and not answered yet."""
        is_answering = self.cycle is not None and not self.cycle.response_complete
        return is_answering and self.conn.their_state is not h11.SEND_BODY

    def _count(self) -> None:
        """Say whether the connection waits for its client. One that reads a large answer does not."""
        is_at_work = self._is_at_work or self.flow.write_paused
        note = self._connections.works if is_at_work else self._connections.waits
        note(self.transport.get_extra_info("socket").fileno())

    def _end_if_closing(self) -> None:
        """A connection that is closed stays until its last answer is read."""
        if self.transport.is_closing() and self._writing is None:
            self._end_after(REQUEST_TIMEOUT_S)

    def _end_after(self, seconds: float) -> None:
        self._stop_writing()
        self._writing = self.loop.call_later(seconds, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _stop_writing(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None


class HttpServer:
    """A listening server; stop it. ``port`` is the real one, also if 0 was asked for."""

    def __init__(
        self,
        application: Application,
        *,
        address: Address,
        name: str,
        setting: str,
        tls: HttpTls | None = None,
    ) -> None:
        """``name`` is the thread's; ``setting`` names the port's for the error.

        Raises:
            BadConfig: the address cannot be listened on, or the certificate is not usable.
        """
        connections = Connections(MAX_CONNECTIONS)
        config = uvicorn.Config(
            _within(connections, application),
            http=partial(_Impatient, connections),  # type: ignore[arg-type]  # all that it does with a class is to call it
            ws="none",
            lifespan="off",
            interface="asgi3",
            loop="asyncio",
            log_config=None,
            log_level=logging.CRITICAL,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=math.ceil(REQUEST_TIMEOUT_S),
            timeout_graceful_shutdown=_STOP_S,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
            **_secured(tls),
        )
        try:
            config.load()
        except (OSError, ssl.SSLError) as error:
            raise BadConfig(
                "access.tls_certificate, tls_key or tls_client_ca cannot be used for HTTP: a file is missing or is not "
                "valid."
            ) from error
        self._socket = Listener(_listening(*address, setting), connections)
        self.port: int = self._socket.getsockname()[1]
        self._tls_context = config.ssl
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, args=([self._socket],), name=name, daemon=True
        )
        self._thread.start()

    def renew(self, tls: HttpTls) -> None:
        """Show another certificate to clients that connect from now on.

        Raises:
            BadConfig: it is not usable; the old one stays in force.
        """
        if self._tls_context is None:
            return
        try:
            # Tried apart: a context that took a certificate and not its key would show neither.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.certificate, tls.key)
            self._tls_context.load_cert_chain(tls.certificate, tls.key)
        except (OSError, ssl.SSLError) as error:
            raise BadConfig("access.tls_certificate or tls_key is not valid.") from error

    def stop(self) -> None:
        """Listen no more, and leave running requests a few seconds to end."""
        self._server.should_exit = True
        self._thread.join(_STOP_S + 1)
        if self._thread.is_alive():
            self._server.force_exit = True
            self._thread.join(1)
        self._socket.close()


def _within(connections: Connections, application: Application) -> Application:
    """Answer 503 where all connections are at work, or too many requests are whose clients have left: each still takes its
    turn. uvicorn's own limit counts connections, too, that made room just now.
    """
    most, running = 2 * MAX_CONNECTIONS, 0

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal running
        is_refused = connections.are_over or running >= most
        running += 1
        try:
            await (_REFUSING if is_refused else application)(scope, receive, send)
        finally:
            running -= 1

    return answer


def _secured(tls: HttpTls | None) -> dict[str, Any]:
    if tls is None:
        return {}
    return {
        "ssl_certfile": tls.certificate,
        "ssl_keyfile": tls.key,
        "ssl_ca_certs": tls.client_ca,
        "ssl_cert_reqs": ssl.CERT_NONE if tls.client_ca is None else ssl.CERT_REQUIRED,
    }


def _listening(host: str, port: int, setting: str) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise BadConfig(
            f"the HTTP port cannot be opened on {host}:{port} ({error.strerror}); choose another {setting}.",
            host=host,
            port=port,
        ) from error
    # Connections inherit it. asyncio sets it only where a socket says that it is TCP's, which this one does not: head and
    # body of an answer are sent apart, and the body would wait 40 ms for the client's acknowledgement.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening
