"""A Thermocline server as its clients reach it: its address, and the driver's errors as ours."""

from __future__ import annotations

import adbc_driver_flightsql.dbapi as flight_sql
import pyarrow as pa
from adbc_driver_flightsql import DatabaseOptions

from planner.errors import (
    BadConfig,
    Cancelled,
    DeadlineExceeded,
    FederationError,
    Inconsistent,
    InternalError,
    LimitExceeded,
    RequestError,
    Unavailable,
    UnknownTable,
    UnsupportedStatement,
)
from thermocline_client import connecting
from thermocline_client.errors import sentence_of

DriverError = flight_sql.Error


class NotLetIn(RequestError):
    """The server does not take user, password or token; also a token of before it was started again."""


class NoServer(Unavailable):
    """No server answers at the address, or the connection broke."""


_FAMILIES: dict[str, type[FederationError]] = {
    "InvalidArgument": RequestError,
    "NotFound": UnknownTable,
    "Unimplemented": UnsupportedStatement,
    "Unauthenticated": NotLetIn,
    "PermissionDenied": RequestError,
    "Unavailable": Unavailable,
    "Canceled": Cancelled,
    "DeadlineExceeded": DeadlineExceeded,
    "Internal": Inconsistent,
}


def server_uri(text: str) -> str:
    """Return a server's address, with a scheme and a port. Raises BadConfig: it is none."""
    try:
        return connecting.server_uri(text)
    except ValueError as error:
        raise BadConfig(str(error)) from None


def connect(
    uri: str,
    *,
    user: str | None = None,
    password: str | None = None,
    token: str | None = None,
    root_certificates: str | None = None,
    large_rows: bool = False,
) -> flight_sql.Connection:
    """Connect; the caller closes. ``root_certificates`` is PEM; with ``large_rows`` one may have 64 MB, else 4 MB.

    Raises:
        DriverError: for ``to_ours``.
    """
    options = dict(connecting.LARGE_ROWS) if large_rows else {}
    if user is not None:
        options |= {"username": user, "password": password or ""}
    if token is not None:
        options[DatabaseOptions.AUTHORIZATION_HEADER.value] = f"Bearer {token}"
    if root_certificates is not None:
        options[DatabaseOptions.TLS_ROOT_CERTS.value] = root_certificates
    return flight_sql.connect(uri, db_kwargs=options, autocommit=True)


def to_ours(error: BaseException) -> BaseException:
    """Return our error for one of the driver's, or of its reader's; anything else as it is."""
    if not isinstance(error, (flight_sql.Error, pa.ArrowException, OSError)):
        return error
    sentence = sentence_of(str(error))
    if sentence is None:
        return error
    if sentence.is_of_no_server:
        return NoServer("no Thermocline server answers at that address.")
    if sentence.status == "Internal" and sentence.text.startswith("Internal error "):
        return InternalError(sentence.text.replace("..", "."))
    if sentence.detail == LimitExceeded.__name__:
        return LimitExceeded(sentence.text)
    return _FAMILIES.get(sentence.status, InternalError)(sentence.text)
