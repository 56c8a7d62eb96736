"""Which connections to a port are closed where there are too many: those that have waited for their client longest."""

from __future__ import annotations

import contextlib
import socket
from collections import OrderedDict
from typing import Any


class Connections:
    """Connections that were accepted, by descriptor. For one event loop, whose thread alone calls it."""

    def __init__(self, most: int) -> None:
        self._most = most
        #: Those that wait for their client, the longest first: for a handshake, a request, or the rest of one.
        self._waiting: OrderedDict[int, socket.socket] = OrderedDict()
        self._at_work: dict[int, socket.socket] = {}

    def enter(self, connection: socket.socket) -> None:
        """Count a new one. Where that makes too many, those go that have waited longest; never one that is at work."""
        number = connection.fileno()
        # A closed one may have had the number before.
        self._at_work.pop(number, None)
        self._waiting.pop(number, None)
        self._waiting[number] = connection
        if len(self) > self._most:
            self._forget_closed()
        while len(self) > self._most and len(self._waiting) > 1:
            _, longest = self._waiting.popitem(last=False)
            # Its transport notices, and closes it: also one whose handshake is not done, which has no protocol yet.
            with contextlib.suppress(OSError):
                longest.shutdown(socket.SHUT_RDWR)

    def works(self, number: int) -> None:
        """Note that its request is whole, and not answered yet."""
        connection = self._waiting.pop(number, None)
        if connection is not None:
            self._at_work[number] = connection

    def waits(self, number: int) -> None:
        """Note that its last request is answered."""
        connection = self._at_work.pop(number, None)
        if connection is not None:
            self._waiting[number] = connection

    def __len__(self) -> int:
        return len(self._waiting) + len(self._at_work)

    def _forget_closed(self) -> None:
        for connections in (self._waiting, self._at_work):
            closed = [number for number, each in connections.items() if each.fileno() != number]
            for number in closed:
                del connections[number]


class Listener(socket.socket):
    """A listening socket that counts what it accepts: a connection has no protocol before its TLS handshake is done."""

    def __init__(self, listening: socket.socket, connections: Connections) -> None:
        """``listening`` is taken over."""
        super().__init__(listening.family, listening.type, listening.proto, listening.detach())
        self._connections = connections

    def accept(self) -> tuple[socket.socket, Any]:
        connection, address = super().accept()
        self._connections.enter(connection)
        return connection, address
