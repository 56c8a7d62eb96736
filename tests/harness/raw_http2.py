"""Calls that stop halfway, as no Flight client can be brought to: HTTP/2 by hand."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEADERS, _SETTINGS = 1, 4
_END_HEADERS = 4
_SERVICE = "/arrow.flight.protocol.FlightService/"


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return struct.pack(">I", len(body))[1:] + struct.pack(">BBI", kind, flags, stream) + body


def _literal(name: str, value: str) -> bytes:
    """A header that is not indexed, as HPACK writes it; both shorter than 127 bytes."""
    return b"\x00" + b"".join(bytes((len(items),)) + items.encode() for items in (name, value))


class RawConnection:
    """One connection that begins calls and sends no message in them."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.sendall(_PREFACE + _frame(_SETTINGS, 0, 0, b""))
        self._stream = -1
        threading.Thread(target=self._drain, daemon=True).start()

    def begin(
        self, method: str, authorization: str | None = None, *, is_whole: bool = True
    ) -> None:
        """Send a call's headers; without the flag that they are all where they are not ``is_whole``."""
        self._stream += 2
        headers = {
            ":method": "POST",
            ":scheme": "http",
            ":path": _SERVICE + method,
            ":authority": "localhost",
            "content-type": "application/grpc",
            "te": "trailers",
        }
        if authorization is not None:
            headers["authorization"] = authorization
        block = b"".join(_literal(*header) for header in headers.items())
        flags = _END_HEADERS if is_whole else 0
        self._socket.sendall(_frame(_HEADERS, flags, self._stream, block))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _drain(self) -> None:
        with contextlib.suppress(OSError):
            while self._socket.recv(65_536):
                pass
