"""The other process: takes orders from the server, and is gone when the server is.

It is two. The first has nothing but this file and waits; for each worker it forks itself once. So a worker that died
can be followed by another one although the server has given up the right to start programs (``proxy.process.landlock``).
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxy.tail.reader.ipc import Channel, ReadRequest
    from proxy.tail.reader.source import Intakes, Subscription

_log = logging.getLogger(__name__)

#: Added to the server's: statements come first.
_NICE = 5


def fork_workers(control: socket.socket, work: Callable[[socket.socket], None]) -> None:
    """Start a worker for each socket that comes along ``control``, instead of the one before; until that ends.

    No other thread may run in this process.
    """
    # They come to the whole group of a terminal or a service. The server tells when to end, by closing.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    worker = 0
    while True:
        message, sockets, *_ = socket.recv_fds(control, 1, 1)
        if worker:
            os.kill(worker, signal.SIGKILL)
            os.waitpid(worker, 0)
        if not message:
            return
        worker = os.fork()
        if not worker:
            control.close()
            with contextlib.suppress(OSError):
                os.nice(_NICE)
            try:
                work(socket.socket(fileno=sockets[0]))
            finally:
                os._exit(0)
        os.close(sockets[0])


def serve_orders(control: socket.socket, intakes: Intakes) -> None:
    """Serve a channel for each socket that comes along ``control``, on a thread each; until that ends."""
    from proxy.tail.reader.ipc import Channel

    # What is loaded by now stays: not looked at again.
    gc.collect()
    gc.freeze()
    while True:
        message, sockets, *_ = socket.recv_fds(control, 1, 1)
        if not message:
            return
        channel = Channel(socket.socket(fileno=sockets[0]))
        threading.Thread(
            target=_serve, args=(channel, intakes), name="order", daemon=True
        ).start()


def _serve(channel: Channel, intakes: Intakes) -> None:
    from planner.errors import FederationError, InternalError
    from proxy.tail.reader.ipc import Ended, receive_order, send_error

    with contextlib.closing(channel), contextlib.suppress(Ended):
        try:
            order = receive_order(channel)
            if order.starts is None:
                _fetch(channel, order, intakes)
            else:
                with contextlib.closing(intakes(order.subject).follow(order.starts)) as feed:
                    _follow(channel, feed)
        except Ended:
            raise
        except FederationError as error:
            send_error(channel, error)
        except Exception:  # noqa: BLE001
            _log.exception("an order of the server failed")
            send_error(channel, InternalError("A topic cannot be read."))


def _follow(channel: Channel, feed: Subscription) -> None:
    from planner.offsets import OffsetRange
    from proxy.tail.reader.ipc import send_arrived, send_confirmed

    while True:
        request, _ = channel.receive()
        ranges = [OffsetRange(*item) for item in request["wanted"]]
        arrived = feed.take(request["timeout_s"], ranges)
        send_arrived(channel, arrived)
        if arrived is not None:
            arrived.confirm()
            send_confirmed(channel)


def _fetch(channel: Channel, order: ReadRequest, intakes: Intakes) -> None:
    from proxy.tail.reader.ipc import send_arrived
    from proxy.tail.reader.source import DecodedBatch

    pieces = intakes(order.subject).fetch(order.ranges, order.timeout_s)
    with contextlib.closing(pieces):
        for piece in pieces:
            channel.receive()
            send_arrived(channel, DecodedBatch(piece, ()))
    channel.receive()
    send_arrived(channel, None)
