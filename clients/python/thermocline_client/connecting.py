"""Where a server is and who asks it, before a driver is loaded."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from thermocline_client.connection import Connection

DEFAULT_PORT = 31337
_SCHEMES = ("grpc", "grpc+tcp", "grpc+tls")
#: The prefix of the driver's options that are headers of each call.
CALL_HEADER = "adbc.flight.sql.rpc.call_header."
#: One row of 10 MB is an answer. Servers send at most 4 MiB to a client that says nothing.
_MAX_MESSAGE_BYTES = 64 << 20
_GRPC_OVERHEAD_BYTES = 1 << 20
#: Options of the driver to have such rows.
LARGE_ROWS = {
    "adbc.flight.sql.client_option.with_max_msg_size": str(
        _MAX_MESSAGE_BYTES + _GRPC_OVERHEAD_BYTES
    ),
    f"{CALL_HEADER}max_message_bytes": str(_MAX_MESSAGE_BYTES),
}


def server_uri(text: str) -> str:
    """Return a server's address, with a scheme and a port. Raises ValueError: it is none, or says who asks."""
    parts = urlsplit(text if "://" in text else f"grpc://{text}")
    if "@" in parts.netloc:
        # Not repeated: it may hold a password, and an address is in errors and on pages.
        raise ValueError(
            "a server's address names no user; write grpc://HOST:PORT, and give user and password beside it."
        )
    try:
        port = parts.port
    except ValueError:
        port = -1
    is_more = parts.path not in ("", "/") or parts.query or parts.fragment
    if parts.scheme not in _SCHEMES or not parts.hostname or port == -1 or is_more:
        raise ValueError(
            f"{text!r} is not a server's address; write grpc://HOST:PORT, or grpc+tls://HOST:PORT."
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{port or DEFAULT_PORT}"


def driver_options(
    *,
    user: str | None = None,
    password: str | None = None,
    token: str | None = None,
    tls_roots: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the options of the ADBC driver. ``tls_roots`` is PEM, ``settings`` are those of the session.

    A password goes with every call: no driver logs in again once a session is over.

    Raises:
        ValueError: both a user and a token.
    """
    if user is not None and token is not None:
        raise ValueError("a user with a password or a token says who asks, not both.")
    options = {"adbc.flight.sql.rpc.with_cookie_middleware": "true", **LARGE_ROWS}
    if user is not None:
        login = base64.b64encode(f"{user}:{password or ''}".encode()).decode()
        options["adbc.flight.sql.authorization_header"] = f"Basic {login}"
    if token is not None:
        options["adbc.flight.sql.authorization_header"] = f"Bearer {token}"
    if tls_roots is not None:
        options["adbc.flight.sql.client_option.tls_root_certs"] = tls_roots
    return options | {f"{CALL_HEADER}{name}": value for name, value in (settings or {}).items()}


def connect(
    uri: str,
    *,
    user: str | None = None,
    password: str | None = None,
    token: str | None = None,
    tls_roots: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> Connection:
    """Connect to a server, ``grpc://HOST:PORT`` or ``grpc+tls://HOST:PORT``; the caller closes.

    ``tls_roots`` is PEM. ``settings`` are the session's: ``catalog``, ``schema``, ``time_zone``, ``freshness`` and the like.

    The first statement is the first call of a server: where none answers, or it lets this caller not in, ``ask`` says so.

    Raises:
        ValueError: the address is none; a user and a token.
    """
    address = server_uri(uri)
    options = driver_options(
        user=user, password=password, token=token, tls_roots=tls_roots, settings=settings
    )
    from thermocline_client.connection import opened

    return opened(address, options)
