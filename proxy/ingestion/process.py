"""Reading and decoding in a process of its own, seen from the server."""

from __future__ import annotations

import contextlib
import logging
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, replace

from planner.errors import LogUnavailable
from planner.offsets import OffsetRange
from proxy.ingestion.intake import Arrived, Feed, Intake, Intakes, Pieces, Subject
from proxy.ingestion.local import MUCH_OFFSETS
from proxy.ingestion.wire import (
    Channel,
    Ended,
    Order,
    receive_arrived,
    receive_confirmed,
    send_order,
)

_log = logging.getLogger(__name__)

#: A worker that is silent so much longer than it was given hangs.
_PATIENCE_S = 60.0
_STOP_S = 5.0
_ONE = b"1"


class Ingestion:
    """The process, and a worker of it while there are orders. Thread-safe. The caller closes it."""

    def __init__(self, command: Sequence[str], setup: bytes) -> None:
        """Start ``command``, with the number of a socket behind it and ``setup`` as its standard input.

        It comes to ``proxy.ingestion.worker.fork_workers`` with that socket.
        """
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        if self._process.stdin is not None:
            with contextlib.suppress(OSError), self._process.stdin as stdin:
                stdin.write(setup)
        self._lock = threading.Lock()
        self._worker: socket.socket | None = None
        #: Workers that died or hung.
        self.lost = 0

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
        """Start a worker before there is an order: it takes a second until it can serve one."""
        with self._lock, contextlib.suppress(OSError):
            self._running()

    def carry_out(self, order: Order) -> Work:
        """Give a worker an order.

        Raises:
            LogUnavailable: there is none.
        """
        with self._lock:
            for _ in range(2):  # one that died is found out by this
                with contextlib.suppress(OSError):
                    return self._given(order)
                self.lost += 1
                self._forget()
        raise _gone(order.subject)

    def _given(self, order: Order) -> Work:
        worker = self._running()
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(worker, [_ONE], [theirs.fileno()])
        channel = Channel(ours)
        with contextlib.suppress(Ended):  # what is read from it tells
            send_order(channel, order)
        return Work(channel, order, lambda: self._lost(worker))

    def _running(self) -> socket.socket:
        if self._worker is None:
            ours, theirs = socket.socketpair()
            with theirs:
                socket.send_fds(self._control, [_ONE], [theirs.fileno()])
            self._worker = ours
        return self._worker

    def _lost(self, worker: socket.socket) -> None:
        """A worker died, or hangs: the next order starts another one, and that ends this one."""
        with self._lock:
            if worker is self._worker:
                _log.warning("the process that reads topics ended; it is started again")
                self.lost += 1
                self._forget()

    def _forget(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None


class Work:
    """An order that a worker carries out. For one thread; whoever has it closes it."""

    def __init__(self, channel: Channel, order: Order, lost: Callable[[], None]) -> None:
        self._channel = channel
        self._order = order
        self._lost = lost

    def ask(self, timeout_s: float, wanted: Sequence[OffsetRange] = ()) -> None:
        """Ask for what is next."""
        asked = {"timeout_s": timeout_s, "wanted": [astuple(item) for item in wanted]}
        with contextlib.suppress(Ended):  # it may have said why: that is to be read
            self._channel.send(asked)

    def answer(self, timeout_s: float) -> Arrived | None:
        """Return what was asked for.

        Raises:
            FederationError: what the worker met, or ``LogUnavailable``: it is gone.
        """
        with self._reading():
            return receive_arrived(
                self._channel, self._order.subject.schema.arrow, timeout_s + _PATIENCE_S
            )

    def confirm(self) -> None:
        """Wait until what was answered last is confirmed. Raises as ``answer``."""
        with self._reading():
            receive_confirmed(self._channel, _PATIENCE_S)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (Ended, TimeoutError) as error:
            self._lost()
            raise _gone(self._order.subject) from error

    def close(self) -> None:
        self._channel.close()


def remote_intakes(ingestion: Ingestion, local: Intakes) -> Intakes:
    """Follow, and fetch what is much, by ``ingestion``; fetch little by ``local``."""
    return lambda subject: _RemoteIntake(ingestion, subject, local(subject))


class _RemoteIntake:
    """See ``proxy.ingestion.intake.Intake``."""

    def __init__(self, ingestion: Ingestion, subject: Subject, local: Intake) -> None:
        self._ingestion = ingestion
        self._subject = subject
        self._local = local

    def follow(self, starts: Mapping[int, int]) -> Feed:
        """See ``Intake.follow``."""
        order = Order(self._subject, starts=dict(starts))
        return _RemoteFeed(self._ingestion.carry_out(order))

    def fetch(self, ranges: Sequence[OffsetRange], timeout_s: float) -> Pieces:
        """See ``Intake.fetch``."""
        if sum(map(len, ranges)) > MUCH_OFFSETS:
            order = Order(self._subject, ranges=tuple(ranges), timeout_s=timeout_s)
            return _fetched(self._ingestion, order)
        return self._local.fetch(ranges, timeout_s)


class _RemoteFeed:
    """See ``proxy.ingestion.intake.Feed``."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def take(self, timeout_s: float, wanted: Sequence[OffsetRange] = ()) -> Arrived | None:
        """See ``Feed.take``."""
        self._work.ask(timeout_s, wanted)
        arrived = self._work.answer(timeout_s)
        return None if arrived is None else replace(arrived, confirm=self._work.confirm)

    def close(self) -> None:
        """See ``Feed.close``."""
        self._work.close()


def _fetched(ingestion: Ingestion, order: Order) -> Pieces:
    with contextlib.closing(ingestion.carry_out(order)) as work:
        work.ask(order.timeout_s)
        while (piece := work.answer(order.timeout_s)) is not None:
            work.ask(order.timeout_s)  # sent while this one is held
            yield piece.decoded


def _gone(subject: Subject) -> LogUnavailable:
    return LogUnavailable(
        f"{subject.topic}: the server's process that reads topics ended; retry, it is started again.",
        topic=subject.topic,
    )
