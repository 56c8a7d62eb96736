"""What each error is on the wire, and what none may hold."""

from __future__ import annotations

import re

import pyarrow as pa
from pyarrow import flight

from planner import errors

LEAKS = re.compile(r'Traceback|File "|/work|site-packages|\.py\b|line \d+, in')
#: One row for each leaf and family: what raw Flight raises, what ADBC calls it.
ROWS: list[tuple[type[errors.FederationError], type[Exception], str]] = [
    (errors.RequestError, pa.ArrowInvalid, "INVALID_ARGUMENT"),
    (errors.BadStatement, pa.ArrowInvalid, "INVALID_ARGUMENT"),
    (errors.UnsupportedStatement, pa.ArrowInvalid, "INVALID_ARGUMENT"),
    (errors.UnknownTable, KeyError, "NOT_FOUND"),
    (errors.UnknownTopic, KeyError, "NOT_FOUND"),
    (errors.NotAllowed, flight.FlightUnauthorizedError, "UNAUTHORIZED"),
    (errors.BadParameter, pa.ArrowInvalid, "INVALID_ARGUMENT"),
    (errors.BadTicket, pa.ArrowInvalid, "INVALID_ARGUMENT"),
    (errors.UnsupportedType, pa.ArrowInvalid, "INVALID_ARGUMENT"),
    (errors.UnsupportedFile, pa.ArrowInvalid, "INVALID_ARGUMENT"),
    (errors.NotForKeyedTables, pa.ArrowInvalid, "INVALID_ARGUMENT"),
    (errors.Unavailable, flight.FlightUnavailableError, "IO"),
    (errors.LogUnavailable, flight.FlightUnavailableError, "IO"),
    (errors.CatalogUnavailable, flight.FlightUnavailableError, "IO"),
    (errors.Overloaded, flight.FlightUnavailableError, "IO"),
    (errors.DeadlineExceeded, flight.FlightTimedOutError, "TIMEOUT"),
    (errors.Cancelled, flight.FlightCancelledError, "CANCELLED"),
    (errors.StalePlan, flight.FlightUnavailableError, "IO"),
    (errors.SnapshotExpired, flight.FlightUnavailableError, "IO"),
    (errors.GrantsChanged, flight.FlightUnavailableError, "IO"),
    (errors.TicketExpired, flight.FlightUnavailableError, "IO"),
    (errors.LimitExceeded, pa.ArrowInvalid, "INVALID_ARGUMENT"),
    (errors.TailTooLarge, pa.ArrowInvalid, "INVALID_ARGUMENT"),
    (errors.Inconsistent, flight.FlightInternalError, "INTERNAL"),
    (errors.TailGap, flight.FlightInternalError, "INTERNAL"),
    (errors.WatermarkMissing, flight.FlightInternalError, "INTERNAL"),
]
