"""Waits for ports that the process before still listens on: it may be ending a statement."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable, Mapping

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
