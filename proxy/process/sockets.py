"""Connections to a port, of which there may be so many; ports that an ending process still listens on."""

from __future__ import annotations

import contextlib
import errno
import resource
import socket
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
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
        if number in self._waiting:
            self._at_work[number] = self._waiting.pop(number)

    def waits(self, number: int) -> None:
        """Note that its last request is answered."""
        if number in self._at_work:
            self._waiting[number] = self._at_work.pop(number)

    @property
    def are_over(self) -> bool:
        """Whether more are at work than there may be: none can make room. One that was shut counts no more, though its
        transport has not noticed yet.
        """
        if len(self._at_work) > self._most:
            self._forget_closed()
        return len(self._at_work) > self._most

    def __len__(self) -> int:
        return len(self._waiting) + len(self._at_work)

    def _forget_closed(self) -> None:
        for connections in (self._waiting, self._at_work):
            for number, each in tuple(connections.items()):
                if each.fileno() != number:
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


_LOOK_S = 0.1
#: Host and port.
Address = tuple[str, int]


def await_free(
    addresses: Mapping[str, Address],
    limit_s: float,
    report: Callable[[str], None],
    is_over: Callable[[], bool],
) -> None:
    """Wait until nothing listens on ``addresses`` (by setting), so long at most, or until ``is_over``.

    ``report`` gets one sentence for each that is waited for. An address that is still in use then is no error here.
    """
    until_s = time.monotonic() + limit_s
    for setting, address in addresses.items():
        if not _is_in_use(address):
            continue
        report(
            f"{setting}: {address[0]}:{address[1]} is in use; waiting {limit_s:g} s at most for a server that ends"
        )
        while _is_in_use(address) and time.monotonic() < until_s and not is_over():
            time.sleep(_LOOK_S)


def _is_in_use(address: Address) -> bool:
    try:
        family = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            # As those that listen do: connections of before that are not yet forgotten are no listener.
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(address)
    except OSError as error:
        return error.errno == errno.EADDRINUSE
    return False


def allow_open_files() -> None:
    """Raise the soft limit to the hard one: systemd starts processes with 1,024, which idle connections alone would use up."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # a limit of the system's is lower yet
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
