"""Ends connections of clients. It is the one way to end a call that waits for its client inside gRPC.

A synchronous gRPC server reads and writes with no time limit, and pyarrow gives no way to cancel a call from
here. A connection that is shut down ends its calls at once: reads find the end of the upload, writes fail.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Set as AbstractSet
from pathlib import Path
from urllib.parse import unquote

_OWN_FILES = Path("/proc/self/fd")


def hang_up(peers: AbstractSet[str]) -> int:
    """Shut down the connections whose other ends these are, as gRPC names them; return how many there were."""
    addresses = {_address(peer) for peer in peers}
    count = 0
    for name in os.listdir(_OWN_FILES):  # noqa: PTH208 - numbers, and one may be gone by now
        try:
            # A duplicate: the number may be somebody else's file a moment later.
            duplicate = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue
        with duplicate:
            try:
                host, port = duplicate.getpeername()[:2]
                if (str(host).removeprefix("::ffff:"), port) in addresses:
                    duplicate.shutdown(socket.SHUT_RDWR)
                    count += 1
            except (OSError, ValueError):
                continue
    return count


def _address(peer: str) -> tuple[str, int] | None:
    """``ipv4:127.0.0.1:4321`` or ``ipv6:%5B::1%5D:4321``; None: not an address of a network."""
    kind, _, rest = unquote(peer).partition(":")
    host, _, port = rest.rpartition(":")
    if kind not in ("ipv4", "ipv6") or not port.isdecimal():
        return None
    return host.strip("[]").removeprefix("::ffff:"), int(port)
