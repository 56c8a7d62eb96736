"""Reads topics in a child process, which ends with the server.

There are two processes: a parent that has loaded this file only forks a worker, and a replacement when it dies. The
sandboxed server (``proxy.process.landlock``) may not start programs itself.
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
    from connectors.registry.decoders import Answers
    from planner.seam.binding import Binding
    from proxy.tail.reader.ipc import Channel, ReadRequest
    from proxy.tail.reader.source import Subscription, TopicReaders

    Learn = Callable[[str, Binding, Answers], None]

_log = logging.getLogger(__name__)

#: Added to the server's niceness: statements come first.
_NICE = 5
_ONE = b"1"


def fork_workers(control: socket.socket, work: Callable[[socket.socket], None]) -> None:
    """Fork a worker for each socket received over ``control``, in place of the last one. Returns when ``control`` ends.

    No other thread may run in this process.
    """
    # A terminal or a service manager sends these to the whole group. The server ends this process by closing.
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
            try:
                work(socket.socket(fileno=sockets[0]))
            finally:
                os._exit(0)
        os.close(sockets[0])


def serve_requests(control: socket.socket, readers: TopicReaders, learn: Learn) -> None:
    """Say over ``control`` that this serves; serve each socket received over it, on a thread of its own.

    ``learn`` takes the schemas that come with a request, before ``readers`` opens its source. Returns when ``control`` ends.
    """
    from proxy.tail.reader.ipc import Channel

    # What is loaded by now stays, so the collector need not scan it again.
    gc.collect()
    gc.freeze()
    # Not before: loading takes most of a second of a core, and at a low priority half a minute where others keep it
    # busy. Threads for requests inherit it.
    with contextlib.suppress(OSError):
        os.nice(_NICE)
    with contextlib.suppress(OSError):  # the server is gone: nothing comes
        control.send(_ONE)
    while True:
        message, sockets, *_ = socket.recv_fds(control, 1, 1)
        if not message:
            return
        channel = Channel(socket.socket(fileno=sockets[0]))
        threading.Thread(
            target=_serve, args=(channel, readers, learn), name="request", daemon=True
        ).start()


def _serve(channel: Channel, readers: TopicReaders, learn: Learn) -> None:
    from planner.errors import FederationError, InternalError
    from proxy.tail.reader.ipc import Ended, receive_request, send_error

    with contextlib.closing(channel), contextlib.suppress(Ended):
        try:
            request = receive_request(channel)
            if request.answers:
                learn(request.source.table, request.source.binding, request.answers)
            if request.starts is None:
                _fetch(channel, request, readers)
            else:
                with contextlib.closing(
                    readers(request.source).follow(request.starts, request.epochs)
                ) as subscription:
                    _follow(channel, subscription)
        except Ended:
            raise
        except FederationError as error:
            send_error(channel, error)
        except Exception:  # noqa: BLE001
            _log.exception("a request of the server failed")
            send_error(channel, InternalError("A topic cannot be read."))


def _follow(channel: Channel, subscription: Subscription) -> None:
    from planner.offsets import OffsetRange
    from proxy.tail.reader.ipc import send_batch, send_confirmed

    while True:
        request, _ = channel.receive()
        ranges = [OffsetRange(*item) for item in request["ranges"]]
        batch = subscription.take(request["timeout_s"], ranges)
        send_batch(channel, batch)
        if batch is not None:
            batch.confirm()
            send_confirmed(channel)


def _fetch(channel: Channel, request: ReadRequest, readers: TopicReaders) -> None:
    from proxy.tail.reader.ipc import send_batch
    from proxy.tail.reader.source import DecodedBatch

    pieces = readers(request.source).fetch(request.ranges, request.timeout_s, request.epochs)
    with contextlib.closing(pieces):
        for piece in pieces:
            channel.receive()
            send_batch(channel, DecodedBatch(piece, ()))
    channel.receive()
    send_batch(channel, None)
