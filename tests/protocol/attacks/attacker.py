"""Somebody who attacks: his connection, what became of what he sent, and all that he received."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa
from pyarrow import flight

from tests.harness.error_statuses import LEAKS
from tests.harness.wire import select

#: What nobody but its owner may receive: rows, texts and passwords of others are written so, tokens are of this form.
CANARY = re.compile(rb"CANARY-[0-9a-f]{12}|tc[01]\.[A-Za-z0-9_.-]{20,}")
#: Of an answer, its beginning: more is only more load for who attacks.
_MAX_BATCHES = 20
_MAX_SAMPLES = 20
_PAUSE_S = 0.1
#: A session is in the memory of its server only: whoever lost it logs in again.
_LOST = (flight.FlightUnauthenticatedError,)
_REFUSED = (pa.ArrowException, flight.FlightError, KeyError, NotImplementedError, OSError)


@dataclass
class Tally:
    """What became of the attacks. Thread-safe."""

    #: By how they ended: "answered", or the kind of the error.
    ends: Counter[str] = field(default_factory=Counter)
    leaks: list[str] = field(default_factory=list)
    #: Errors that name no cause, or more than one may know: tracebacks, paths.
    faults: list[str] = field(default_factory=list)
    samples: dict[str, str] = field(default_factory=dict)
    longest_s: float = 0.0
    longest: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ended(self, how: str, sent: str, took_s: float, message: str = "") -> None:
        with self._lock:
            self.ends[how] += 1
            self.samples.setdefault(how, f"{sent[:200]} -> {message[:300]}")
            if took_s > self.longest_s:
                self.longest_s, self.longest = took_s, f"{how}: {sent[:200]}"

    def received(self, content: bytes, own: bytes, sent: str) -> None:
        for result in CANARY.findall(content):
            if result != own and len(self.leaks) < _MAX_SAMPLES:
                self.leaks.append(f"{sent[:200]} -> {result[:30]!r}")

    def left_idle(self, calls: int) -> None:
        with self._lock:
            self.ends["calls left idle"] += calls

    def fault(self, text: str) -> None:
        if len(self.faults) < _MAX_SAMPLES:
            self.faults.append(text)


class Attacker:
    """One thread of an attack. Whatever it is refused, it goes on."""

    def __init__(
        self, port: int, user: str, password: str, tally: Tally, deadline_s: float
    ) -> None:
        self.port = port
        self.user = user
        self.password = password
        self.tally = tally
        #: A call that takes longer is one that nothing ended.
        self.deadline_s = deadline_s
        self._token = ""
        self.connect()

    @property
    def uri(self) -> str:
        return f"grpc://127.0.0.1:{self.port}"

    def connect(self) -> None:
        # A connection of its own: those of one process are shared else.
        self.client = flight.connect(
            self.uri, generic_options=[("grpc.use_local_subchannel_pool", 1)]
        )
        self.login()

    def login(self) -> None:
        self._token = ""
        with contextlib.suppress(*_REFUSED):
            _, value = self.client.authenticate_basic_token(
                self.user, self.password, flight.FlightCallOptions(timeout=self.deadline_s)
            )
            self._token = value.decode().removeprefix("Bearer ")

    def options(self, *headers: tuple[bytes, bytes]) -> flight.FlightCallOptions:
        return flight.FlightCallOptions(
            headers=[(b"authorization", f"Bearer {self._token}".encode()), *headers],
            timeout=self.deadline_s,
        )

    def ask(self, sql: str, *headers: tuple[bytes, bytes]) -> None:
        info = self.client.get_flight_info(select(sql), self.options(*headers))
        self.receive(info.endpoints[0].ticket.ticket, sql)
        self.read(info.endpoints[0].ticket, sql)

    def read(self, ticket: flight.Ticket, sent: str) -> None:
        reader = self.client.do_get(ticket, self.options())
        with contextlib.closing(_Cancelling(reader)):
            for _ in range(_MAX_BATCHES):
                try:
                    batch = reader.read_chunk().data
                except StopIteration:
                    return
                for buffer in _buffers(batch):
                    self.receive(buffer, sent)

    def receive(self, content: bytes, sent: str) -> None:
        self.tally.received(content, self._token.encode(), sent)

    def attempt(self, sent: str, act: Callable[[], None]) -> None:
        """Do it, and note how it ended."""
        began = time.monotonic()
        try:
            act()
        except UnicodeEncodeError:
            return  # not a text to this client
        except _REFUSED as error:
            text = str(error)
            self.receive(text.encode("utf-8", "replace"), sent)
            how = _kind(error, text)
            self.tally.ended(how, sent, time.monotonic() - began, text)
            # What one sent may come back, nothing else of the machine.
            if "Internal error" in text or LEAKS.search(text.replace(sent, "")):
                self.tally.fault(f"{sent[:300]} -> {text[:600]}")
            if isinstance(error, _LOST):
                self.login()
            if how.startswith(("FlightUnavailable", "FlightUnauthenticated")):
                time.sleep(_PAUSE_S)
        else:
            self.tally.ended("answered", sent, time.monotonic() - began)

    def close(self) -> None:
        self.client.close()


class _Cancelling:
    def __init__(self, reader: flight.FlightStreamReader) -> None:
        self._reader = reader

    def close(self) -> None:
        self._reader.cancel()


def _buffers(batch: pa.RecordBatch) -> Iterator[bytes]:
    for column in batch.columns:
        for buffer in column.buffers():
            if buffer is not None:
                yield buffer.to_pybytes()


def _kind(error: BaseException, message: str) -> str:
    name = type(error).__name__
    if isinstance(error, flight.FlightTimedOutError) and "Deadline Exceeded" in message:
        return "late"
    return name
