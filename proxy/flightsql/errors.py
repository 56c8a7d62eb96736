"""Which Flight error each of our errors becomes.

pyarrow formats an exception that is not a ``FlightError`` with its traceback, file paths included, into the
client's message; and no ``FlightError`` stands for INVALID_ARGUMENT, NOT_FOUND or UNIMPLEMENTED. Decision
record 0003 says how both are had. Only what is raised here may leave a server method.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import NoReturn

from pyarrow import flight

from planner import errors
from proxy.access.authentication.callers import Unauthenticated
from proxy.flightsql.messages import UnknownCommand
from proxy.flightsql.state.client_session import UnknownHandle
from proxy.ops.call_record import CallRecord
from proxy.session import Cancellation

_log = logging.getLogger(__name__)

# gRPC carries the message in trailers, and 8 KB is what many clients take of all together; beyond it the message is lost.
# It is there twice: its bytes as base64, and with three characters for each byte that is not plain ASCII.
MAX_MESSAGE_CHARS = 2000


class _NoTrace(Exception):
    """Makes ``traceback.format_exception`` fail, on which pyarrow sends ``str()`` and class name alone."""

    @property
    def __cause__(self) -> NoReturn:  # type: ignore[override]  # unreadable is the point
        raise AttributeError("not for clients")

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would answer the repr


class InvalidArgument(_NoTrace, ValueError):
    """INVALID_ARGUMENT: pyarrow maps ValueError to it."""


class LimitExceeded(InvalidArgument):
    """INVALID_ARGUMENT too; its name, which pyarrow sends, tells a client that the statement is not wrong."""


class NotFound(_NoTrace, KeyError):
    """NOT_FOUND: pyarrow maps KeyError to it."""


class Unimplemented(_NoTrace, NotImplementedError):
    """UNIMPLEMENTED: pyarrow maps NotImplementedError to it."""


class Failed(_NoTrace):
    """UNKNOWN. For GetSchema only, where pyarrow lets no ``FlightError`` through."""


Wire = type[Exception]

#: First match wins, so a class stands above its ancestors.
TABLE: tuple[tuple[type[Exception], Wire], ...] = (
    (Unauthenticated, flight.FlightUnauthenticatedError),
    (UnknownCommand, Unimplemented),
    (UnknownHandle, NotFound),
    (errors.UnknownTable, NotFound),
    (errors.UnknownTopic, NotFound),
    (errors.NotAllowed, flight.FlightUnauthorizedError),
    (errors.RequestError, InvalidArgument),
    (errors.DeadlineExceeded, flight.FlightTimedOutError),
    (errors.Cancelled, flight.FlightCancelledError),
    (errors.Unavailable, flight.FlightUnavailableError),
    (errors.StalePlan, flight.FlightUnavailableError),
    (errors.LimitExceeded, LimitExceeded),
    (errors.Inconsistent, flight.FlightInternalError),
)
_WIRE_CLASSES = (flight.FlightError, _NoTrace)


def to_wire(error: BaseException, record: CallRecord) -> Exception:
    """Translate one error and name the call it ends; the text of an error that is not in the table is left out."""
    record.failed(error)
    for ours, wire in TABLE:
        if isinstance(error, ours):
            wire_error: Exception = wire(_bounded(str(error), record))
            return wire_error
    _log.error("internal error %s", record.id, exc_info=error)
    hidden: Exception = flight.FlightInternalError(
        f"Internal error {record.id}. This is a fault of the server; its log has the details under that id."
    )
    return hidden


class Boundary:
    """Lets nothing but wire errors out of the block. A class: five of them are around one small statement.

    What is raised after a cancellation becomes its reason: an interrupted engine knows only that it was interrupted.
    """

    __slots__ = ("_cancellation", "_record")

    def __init__(self, record: CallRecord, cancellation: Cancellation | None = None) -> None:
        self._record, self._cancellation = record, cancellation

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._cancellation is not None and isinstance(error, Exception):
            error = self._cancellation.reason or error
        if error is None or isinstance(error, (*_WIRE_CLASSES, GeneratorExit)):
            return
        # A stray SystemExit would carry its traceback too.
        raise to_wire(error, self._record) from None


@contextmanager
def schema_boundary(boundary: Boundary) -> Iterator[None]:
    """As ``boundary``, for GetSchema: pyarrow catches no ``FlightError`` there."""
    try:
        with boundary:
            yield
    except flight.FlightError as error:
        raise Failed(str(error)) from None


def _bounded(message: str, record: CallRecord) -> str:
    """Cut a message and put the id behind it, under which the audit log has the rest."""
    ending = f" ({'statement' if record.is_statement else 'request'} {record.id})"
    # pyarrow appends ". Detail: …".
    message = message.removesuffix(".")
    fitting = _fitting(message, MAX_MESSAGE_CHARS - len(ending))
    # The sign takes the room of six characters.
    return (message if fitting == message else fitting[:-6] + "…") + ending


def _fitting(message: str, room: int) -> str:
    """The beginning of a message that takes at most as much room as ``room`` plain characters."""
    for at, character in enumerate(message):
        is_plain = " " <= character <= "~" and character != "%"
        room -= 1 if is_plain else 2 * len(character.encode("utf-8", "surrogatepass"))
        if room < 0:
            return message[:at]
    return message
