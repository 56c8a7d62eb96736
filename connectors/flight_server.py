"""A Thermocline server as its clients reach it: its address, and the driver's errors as ours."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

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

#: ``INVALID_ARGUMENT: [FlightSQL] <sentence>. Detail: Python exception: <class> (InvalidArgument; Prepare)``;
#: amid the rows without the first word. The word in brackets is gRPC's.
_SERVER_ERROR = re.compile(
    r"^(?:[A-Z_]+: )?\[FlightSQL\] (?P<text>.*?)"
    r"(?:\. Detail: (?:Python exception: )?(?P<detail>\w+))?"
    r" \((?P<code>\w+); .*\)(?:\. Vendor code: \d+)?$",
    re.DOTALL,
)


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
#: What gRPC says when no server answered: no sentence of a server's.
_NOBODY = re.compile(
    r"connection error|transport:|dial tcp|error reading from server|name resolver", re.I
)


def server_uri(text: str) -> str:
    """Return a server's address, with a scheme and a port. Raises BadConfig: it is none."""
    parts = urlsplit(text if "://" in text else f"grpc://{text}")
    if parts.scheme not in ("grpc", "grpc+tcp", "grpc+tls") or not parts.hostname:
        raise BadConfig(
            f"{text!r} is not a server's address; write grpc://HOST:PORT, or grpc+tls://HOST:PORT."
        )
    return parts.geturl() if parts.port else f"{parts.geturl()}:31337"


def connect(
    uri: str,
    *,
    user: str | None = None,
    password: str | None = None,
    token: str | None = None,
    root_certificates: str | None = None,
) -> flight_sql.Connection:
    """Connect; the caller closes. ``root_certificates`` is PEM. Raises DriverError: for ``to_ours``."""
    options: dict[str, str] = {}
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
    match = _SERVER_ERROR.match(str(error))
    if match is None:
        return error
    text = match["text"]
    if match["code"] == "Unavailable" and _NOBODY.search(text):
        return NoServer("no Thermocline server answers at that address.")
    if not text.endswith((".", "?", "^", "…")):
        text = f"{text}."
    if match["code"] == "Internal" and text.startswith("Internal error "):
        return InternalError(text.replace("..", "."))
    if match["detail"] == LimitExceeded.__name__:
        return LimitExceeded(text)
    return _FAMILIES.get(match["code"], InternalError)(text)
