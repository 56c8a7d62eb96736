"""Messages between two processes of one server: frames of a header and the columns behind it.

Requests come from the server and are unpickled. Answers come from a process that handles untrusted records: they are
numbers, texts and Arrow's format, each checked.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import resource
import socket
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import Any

import pyarrow as pa

from connectors.registry.decoders import Answers
from planner import errors
from planner.errors import FederationError, InternalError, LogUnavailable
from planner.offsets import OffsetRange
from planner.ports import Decoded
from planner.seam.binding import decoded_schema
from planner.seam.watermark import Outcomes
from proxy.tail.reader.source import DecodedBatch, TailSource

_LENGTHS = struct.Struct("<IQ")
#: ``struct timeval``: seconds and microseconds.
_TIME = struct.Struct("@ll")
#: Receive at most this much in one call. Most steps that a statement waits for are smaller.
_AHEAD_BYTES = 64 * 1024
#: Bounds far above any frame of ours. Refuse larger ones: another program sent them.
_MAX_HEADER_BYTES = 64 * 1024 * 1024
_MAX_BODY_BYTES = 8 * 1024 * 1024 * 1024
#: Grace beyond a request's timeout before a silent worker counts as hung.
_PATIENCE_S = 60.0
_INT64 = range(-(1 << 63), 1 << 63)


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """What a channel is opened for: to follow from ``starts``, or to fetch ``ranges``.

    ``epochs`` as in ``planner.ports.Log.fetch``. ``answers`` are a registry's about schemas that the table's records have.
    """

    source: TailSource
    starts: Mapping[int, int] | None = None
    ranges: Sequence[OffsetRange] = ()
    timeout_s: float = 0.0
    epochs: Mapping[int, int] = field(default_factory=dict)
    answers: Answers = field(default_factory=dict)


class Ended(Exception):
    """The other side is gone, or has closed the channel."""


class Channel:
    """Frames over a stream socket, which it owns. For one thread at a time.

    A frame takes one call to send and, if it is small, one to receive: after each call the thread needs the
    interpreter's lock again, and statements compete for it.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._timeout_s: float | None = None
        #: Bytes received that belong to the next frame.
        self._ahead = memoryview(bytearray(_AHEAD_BYTES))
        self._from = self._to = 0

    def close(self) -> None:
        self._socket.close()

    def send(self, header: object, body: pa.Buffer | bytes = b"") -> None:
        """Raises:
        Ended
        """
        text = json.dumps(header).encode()
        frames = [memoryview(_LENGTHS.pack(len(text), len(body)) + text), memoryview(body)]
        try:
            sent = self._socket.sendmsg(frames)
            for frame in frames:
                if sent < len(frame):
                    self._socket.sendall(frame[sent:])
                sent = max(0, sent - len(frame))
        except OSError as error:
            raise Ended from error

    def receive(self, timeout_s: float | None = None) -> tuple[Any, pa.Buffer]:
        """Receive a frame; each part of it may take ``timeout_s``.

        Raises:
            Ended
            TimeoutError: then nothing more can be read from this channel.
        """
        try:
            if timeout_s != self._timeout_s:
                # On the socket itself: ``settimeout`` makes Python poll before each call.
                seconds, frame = divmod(timeout_s or 0.0, 1)
                limit = _TIME.pack(int(seconds), int(frame * 1_000_000))
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
                self._timeout_s = timeout_s
            text_bytes, body_bytes = _LENGTHS.unpack(self._exactly(_LENGTHS.size))
            if text_bytes > _MAX_HEADER_BYTES or body_bytes > _MAX_BODY_BYTES:
                raise Ended
            header = json.loads(self._exactly(text_bytes).to_pybytes())
            return header, self._exactly(body_bytes)
        except BlockingIOError as error:
            raise TimeoutError from error
        except (OSError, ValueError, RecursionError, MemoryError) as error:
            raise Ended from error

    def _exactly(self, size: int) -> pa.Buffer:
        buffer = pa.allocate_buffer(size)
        rest = memoryview(buffer).cast("B")
        while rest:
            if self._from == self._to and len(rest) >= _AHEAD_BYTES:
                count = self._received(rest)
            else:
                if self._from == self._to:
                    self._from, self._to = 0, self._received(self._ahead)
                count = min(len(rest), self._to - self._from)
                rest[:count] = self._ahead[self._from : self._from + count]
                self._from += count
            rest = rest[count:]
        return buffer

    def _received(self, into: memoryview) -> int:
        count = self._socket.recv_into(into)
        if not count:
            raise Ended
        return count


# --- requests ---


def send_request(channel: Channel, request: ReadRequest) -> None:
    channel.send({}, pickle.dumps(request))


def receive_request(channel: Channel) -> ReadRequest:
    _, body = channel.receive()
    request = pickle.loads(body)  # noqa: S301 - from the server's own process
    if not isinstance(request, ReadRequest):
        raise TypeError(type(request))
    return request


# --- answers ---


def send_batch(channel: Channel, batch: DecodedBatch | None) -> None:
    """Send a step. None: nothing came, or this was the last."""
    if batch is None:
        channel.send({})
        return
    decoded = batch.decoded
    header = {
        "ranges": [astuple(item) for item in batch.ranges],
        "epochs": list(batch.epochs.items()),
        "outcomes": list(decoded.outcomes),
        "writer_ids": None if decoded.writer_ids is None else sorted(decoded.writer_ids),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    channel.send(header, decoded.rows.serialize())


def send_confirmed(channel: Channel) -> None:
    channel.send({"confirmed": True})


def send_error(channel: Channel, error: FederationError) -> None:
    plain = str | int | float | bool | None
    facts = {name: value for name, value in error.facts.items() if isinstance(value, plain)}
    channel.send({"error": [type(error).__name__, error.message, facts]})


def receive_batch(
    channel: Channel, schema: pa.Schema, timeout_s: float | None
) -> DecodedBatch | None:
    """Return a step that is not confirmed yet.

    Raises:
        FederationError: what the other side met.
        Ended, TimeoutError: as ``Channel.receive``.
    """
    header, body = _received(channel, timeout_s)
    if not header:
        return None
    try:
        rows = pa.ipc.read_record_batch(body, schema)
        # In full: the engine trusts offsets and text.
        rows.validate(full=True)
        ids = header["writer_ids"]
        decoded = Decoded(
            rows,
            Outcomes(*_whole(header["outcomes"])),
            writer_ids=None if ids is None else frozenset(_whole(ids)),
        )
        ranges = tuple(OffsetRange(*_whole(item)) for item in header["ranges"])
        epochs = {}
        for pair in header["epochs"]:
            partition, epoch = _whole(pair)
            epochs[partition] = epoch
        [peak_bytes] = _whole([header["peak_bytes"]])
        return DecodedBatch(decoded, ranges, epochs=epochs, peak_bytes=peak_bytes)
    except (pa.ArrowException, OSError, EOFError, LookupError, TypeError, ValueError) as error:
        raise Ended from error


def _whole(numbers: Sequence[int]) -> Sequence[int]:
    if any(type(number) is not int or number not in _INT64 for number in numbers):
        raise TypeError
    return numbers


def receive_confirmed(channel: Channel, timeout_s: float | None) -> None:
    """Wait until a step is confirmed. Raises as ``receive_batch``."""
    header, _ = _received(channel, timeout_s)
    if header != {"confirmed": True}:
        raise Ended


def _received(channel: Channel, timeout_s: float | None) -> tuple[dict[str, Any], pa.Buffer]:
    header, body = channel.receive(timeout_s)
    if not isinstance(header, dict):
        raise Ended
    if "error" in header:
        try:
            error = _error(*header["error"])
        except TypeError as bad:
            raise Ended from bad
        raise error
    return header, body


def _error(kind: str, message: str, facts: Mapping[str, object]) -> FederationError:
    if not isinstance(message, str):
        raise TypeError
    error_class = getattr(errors, kind, None)
    if not (isinstance(error_class, type) and issubclass(error_class, FederationError)):
        error_class = InternalError
    return error_class(message, **facts)


@dataclass(frozen=True, slots=True)
class ReadJob:
    """A request that a worker carries out; one to follow is a ``Subscription``. For one thread; its owner closes it."""

    channel: Channel
    request: ReadRequest
    on_loss: Callable[[], None]
    note_peak: Callable[[int], None]

    def ask(self, timeout_s: float, ranges: Sequence[OffsetRange] = ()) -> None:
        """Ask for what is next."""
        request = {"timeout_s": timeout_s, "ranges": [astuple(item) for item in ranges]}
        with contextlib.suppress(Ended):  # its last frame says why: ``answer`` reads it
            self.channel.send(request)

    def answer(self, timeout_s: float) -> DecodedBatch | None:
        """Return the answer to ``ask``.

        Raises:
            FederationError: what the worker met, or ``LogUnavailable``: it is gone.
        """
        with self._reading():
            source = self.request.source
            schema = decoded_schema(source.schema, source.binding)
            batch = receive_batch(self.channel, schema, timeout_s + _PATIENCE_S)
        if batch is not None:
            self.note_peak(batch.peak_bytes)
        return batch

    def take(self, timeout_s: float, ranges: Sequence[OffsetRange] = ()) -> DecodedBatch | None:
        """See ``Subscription.take``."""
        self.ask(timeout_s, ranges)
        batch = self.answer(timeout_s)
        return None if batch is None else replace(batch, confirm=self.confirm)

    def confirm(self) -> None:
        """Wait until the last answer is confirmed. Raises as ``answer``."""
        with self._reading():
            receive_confirmed(self.channel, _PATIENCE_S)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (Ended, TimeoutError) as error:
            self.on_loss()
            raise gone(self.request.source) from error

    def close(self) -> None:
        self.channel.close()


def gone(source: TailSource) -> LogUnavailable:
    return LogUnavailable(
        f"{source.topic}: the server's process that reads topics ended; retry, it is started again.",
        topic=source.topic,
    )
