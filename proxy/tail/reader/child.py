"""Starts the process that reads topics, and starts it again when it dies.

It starts before the server gives up starting programs (``proxy.process.landlock``). That needs a process without
other threads, and Arrow and numpy start some on import. So this file loads neither before the first request.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import subprocess
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxy.tail.reader.ipc import ReadJob, ReadRequest

_log = logging.getLogger(__name__)

_STOP_S = 5.0
_ONE = b"1"
#: Beginnings of the names of variables that may hold logins of catalogs and stores, which that process is not to have.
_SECRETS = ("THERMOCLINE_", "PYICEBERG_", "AWS_", "AZURE_", "GOOGLE_")
_FAILPOINTS = "THERMOCLINE_FAILPOINT"


class Ingestion:
    """The process, and its worker while there are requests. Thread-safe. The caller closes it."""

    def __init__(self, command: Sequence[str], setup: bytes) -> None:
        """Start ``command`` with the number of a socket as last argument and ``setup`` as its standard input.

        It calls ``proxy.tail.reader.worker.fork_workers`` with that socket.
        """
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={
                    name: value
                    for name, value in os.environ.items()
                    if name.startswith(_FAILPOINTS) or not name.startswith(_SECRETS)
                },
            )
        if self._process.stdin is not None:
            with contextlib.suppress(OSError), self._process.stdin as stdin:
                stdin.write(setup)
        self._lock = threading.Lock()
        self._worker: socket.socket | None = None
        self._is_ready = False
        #: Workers that died or hung.
        self.lost = 0
        #: Most resident memory that the worker has had; 0 before its first answer.
        self.peak_bytes = 0

    def close(self) -> None:
        """End the process and its worker."""
        with self._lock:
            self._forget()
            self._control.close()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def begin(self) -> None:
        """Start a worker before the first request: it takes a second until it can serve."""
        with self._lock, contextlib.suppress(OSError):
            self._running()

    @property
    def is_ready(self) -> bool:
        """Whether a worker has loaded what it needs, and serves."""
        with self._lock:
            if self._worker is not None and not self._is_ready:
                with contextlib.suppress(OSError):  # most often that it has not said so yet
                    self._is_ready = self._worker.recv(1, socket.MSG_DONTWAIT) == _ONE
            return self._is_ready

    def begin_job(self, request: ReadRequest) -> ReadJob:
        """Send a worker a request.

        Raises:
            LogUnavailable: there is none.
        """
        from proxy.tail.reader.ipc import gone

        with self._lock:
            for _ in range(2):  # the first try may show that it is dead
                with contextlib.suppress(OSError):
                    return self._assigned(request)
                self.lost += 1
                self._forget()
        raise gone(request.source)

    def _assigned(self, request: ReadRequest) -> ReadJob:
        from proxy.tail.reader.ipc import Channel, Ended, ReadJob, send_request

        worker = self._running()
        channel = Channel(_linked(worker))
        with contextlib.suppress(Ended):  # reading from it raises the reason
            send_request(channel, request)
        return ReadJob(channel, request, lambda: self._lost(worker), self._note_peak)

    def _running(self) -> socket.socket:
        if self._worker is None:
            self._worker = _linked(self._control)
        return self._worker

    def _lost(self, worker: socket.socket) -> None:
        """Give up a worker that died or hangs. The next request starts another, which ends this one."""
        with self._lock:
            if worker is self._worker:
                _log.warning("the process that reads topics ended; it is started again")
                self.lost += 1
                self._forget()

    def _note_peak(self, size: int) -> None:
        # Answers of several channels may cross: the older one is at most a step behind.
        self.peak_bytes = size

    def _forget(self) -> None:
        self.peak_bytes = 0
        self._is_ready = False
        if self._worker is not None:
            self._worker.close()
            self._worker = None


def _linked(other: socket.socket) -> socket.socket:
    """Send one end of a new pair to the ``other`` side; return our end."""
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            socket.send_fds(other, [_ONE], [theirs.fileno()])
        except OSError:
            ours.close()
            raise
    return ours
