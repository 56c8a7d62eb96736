"""Which server a command asks: one that is named, the configured one, or one of this process."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from planner.errors import BadConfig
from thermocline.config.settings import AccessSettings, IcebergRest, Settings, load

if TYPE_CHECKING:
    from thermocline.client import Client

#: Not THERMOCLINE_SERVER: that is the name of the settings' section.
URI_VARIABLE = "THERMOCLINE_URI"
#: A server of this machine that does not accept within this time is taken as not there.
_PROBE_S = 1.0


@dataclass(frozen=True, slots=True)
class ServerChoice:
    """What the options of ``server_options`` and ``contract_options`` say."""

    uri: str | None = None
    local: bool = False
    user: str | None = None
    token: str | None = field(default=None, repr=False)
    freshness: str | None = None
    cut: str | None = None
    wait_for: str | None = None

    @property
    def contract(self) -> dict[str, str]:
        texts = {"freshness": self.freshness, "cut": self.cut, "wait_for": self.wait_for}
        return {name: text for name, text in texts.items() if text is not None}


def server_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say which server is asked, and as whom."""
    server = click.option(
        "--server",
        "uri",
        metavar="URI",
        help=f"A server to ask, as grpc://HOST:PORT; else ${URI_VARIABLE}, else the configured address.",
    )
    local = click.option(
        "--local",
        is_flag=True,
        help="Ask no server: read broker and catalog of the configuration from this process. Also what "
        "happens, with a note, when no server listens at the configured address.",
    )
    return server(local(login_options(command)))


def login_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say as whom a server is asked."""
    user = click.option(
        "--user",
        metavar="NAME",
        help="User name; the password is $THERMOCLINE_PASSWORD, or asked for.",
    )
    token = click.option("--token", metavar="TEXT", help="A bearer token instead.")
    return user(token(command))


def contract_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say how new an answer must be."""
    freshness = click.option(
        "--freshness",
        metavar="CONTRACT",
        help="live, 'max_staleness 5s', cold or tail.  [default: live]",
    )
    cut = click.option(
        "--cut",
        metavar="TEXT",
        help="Read what another statement read: the text its thermocline_cut() gave.",
    )
    wait_for = click.option(
        "--wait-for",
        metavar="RECORDS",
        help="Answer once these records are committed: topic/partition:offset, several with commas.",
    )
    return freshness(cut(wait_for(command)))


def server_named(uri: str | None, *, local: bool) -> str | None:
    """Return the server that an option or the environment names, if any.

    Raises:
        BadConfig: it contradicts ``local``, or is no address.
    """
    if uri and local:
        raise BadConfig("--server and --local contradict each other; give one of them.")
    uri = uri or (None if local else os.environ.get(URI_VARIABLE))
    if not uri:
        return None
    # The driver takes a tenth of a second to load.
    from connectors.flight_server import server_uri

    return server_uri(uri)


@contextlib.contextmanager
def connect_server(config: str | None, **options: Any) -> Iterator[Client]:
    """Connect as ``ServerChoice`` of ``options`` say; set those of the contract in the session.

    Raises:
        BadConfig: no server is named, and the configuration has none either; contradicting options.
        Unavailable, RequestError: as ``client.connected`` and ``Client.set``.
    """
    from thermocline.client import connected

    chosen = ServerChoice(**options)
    address = server_named(chosen.uri, local=chosen.local)
    if address is None:
        settings = load(config)
        address = None if chosen.local else _configured(settings)
    opening = (
        connected(
            address, user=chosen.user, password=password_of(chosen.user), token=chosen.token
        )
        if address
        else _own_server(settings)
    )
    with opening as client:
        for name, value in chosen.contract.items():
            client.set(name, value)
        yield client


def _configured(settings: Settings) -> str | None:
    """Return the configured address; None, with a note, where no server listens at it."""
    server = settings.server
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(server.host, server.host)  # noqa: S104 - a server's own
    if server.port and _listens(host, server.port):
        scheme = "grpc" if settings.access.tls_certificate is None else "grpc+tls"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{server.port}"
    if not settings.catalogs:
        raise BadConfig(
            f"no server listens on {server.host}:{server.port} and no catalog is configured; name a server with "
            f"--server, or write thermocline.toml."
        )
    click.echo(
        f"thermocline: no server listens on {server.host}:{server.port}; reading from this process (--local).",
        err=True,
    )
    return None


@contextlib.contextmanager
def _own_server(settings: Settings) -> Iterator[Client]:
    """Run a server for this process: on any free port of this machine, for a user with a password of its own."""
    from thermocline.client import connected
    from thermocline.serve.assembly import running_server

    password = secrets.token_urlsafe(24)
    # Standard error is the caller's own; an audit log that is a file goes on.
    audit = "off" if settings.server.audit_log == "stderr" else settings.server.audit_log
    changes = {"host": "127.0.0.1", "port": 0, "users": {"local": password}, "audit_log": audit}
    server = type(settings.server).model_validate({**settings.server.model_dump(), **changes})
    # Who holds catalog and broker credentials may read everything anyway.
    own = {"server": server, "iceberg_rest": IcebergRest(), "access": AccessSettings()}
    with (
        running_server(settings.model_copy(update={**own, "permissions": None})) as running,
        connected(
            f"grpc://127.0.0.1:{running.port}", user="local", password=password
        ) as client,
    ):
        yield client


def password_of(user: str | None) -> str | None:
    if user is None:
        return None
    password = os.environ.get("THERMOCLINE_PASSWORD")
    if password is not None:
        return password
    return str(click.prompt(f"Password of {user}", hide_input=True, err=True))


def _listens(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=_PROBE_S):
            return True
    except OSError:
        return False
