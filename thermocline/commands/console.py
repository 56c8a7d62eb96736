"""``thermocline console``: pages in a browser over a server, as an ordinary client of it."""

from __future__ import annotations

import functools
import ipaddress
import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from planner.errors import BadConfig
from thermocline.connect import server_named
from thermocline.options import option, options, takes

if TYPE_CHECKING:
    from thermocline.console.identity_provider import IdentityProvider

EXAMPLES = """\b
Examples:
  thermocline console --server grpc://127.0.0.1:31337
  thermocline console --server grpc+tls://db.example --host 0.0.0.0 --tls-certificate c.pem --tls-key k.pem
"""
_DEFAULT_PORT = 8337
_TIDY_S = 0.5
_CONSOLE_THREAD = "console-http"


@options
class ConsoleOptions:
    uri: str | None = option(
        "--server",
        metavar="URI",
        help="The server, as grpc://HOST:PORT or grpc+tls://HOST:PORT; else $THERMOCLINE_URI.",
    )
    server_ca: str | None = option(
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False),
        help="Who signs the server's certificate, as PEM; else whom the system trusts.",
    )
    host: str = option(default="127.0.0.1", show_default=True, help="Address to listen on.")
    port: int = option(
        type=click.IntRange(0, 65535),
        default=_DEFAULT_PORT,
        show_default=True,
        help="Port to listen on, 0 for any.",
    )
    tls_certificate: str | None = option(
        metavar="FILE", help="The console's own certificate, as PEM; browsers then use https."
    )
    tls_key: str | None = option(metavar="FILE", help="The key of that certificate, as PEM.")
    oidc_issuer: str | None = option(
        metavar="URL",
        help="An identity provider whose tokens the server takes: people may log in there. $THERMOCLINE_CONSOLE_SECRET is the "
        "console's secret at it, if it has one.",
    )
    oidc_client: str | None = option(
        metavar="ID", help="What that provider knows the console as."
    )
    oidc_scope: str = option(
        default="openid",
        show_default=True,
        help="What is asked of it, so that its access tokens are for the server.",
    )
    allow_insecure_public: bool = option(
        help="Listen on a public address without TLS, as behind a proxy that has it."
    )


@click.command(epilog=EXAMPLES)
@takes(ConsoleOptions)
def command(chosen: ConsoleOptions) -> None:
    """Serve pages for people: tables, their seams drawn live, statements, what runs, health.

    A process of its own and an ordinary client of a server: everyone logs in as to the server, and sees what the server would answer to
    any other client. Ctrl-C or SIGTERM ends it.
    """
    # Arrow and the driver take a tenth of a second to load.
    from proxy.process.asgi import HttpServer, HttpTls
    from thermocline.console.app import ConsoleApplication
    from thermocline.console.person import ConsoleTarget, Person

    uri = server_named(chosen.uri, local=False)
    if uri is None:
        raise BadConfig(
            "no server is named; give --server grpc://HOST:PORT, or set THERMOCLINE_URI."
        )
    if (chosen.tls_certificate is None) != (chosen.tls_key is None):
        raise BadConfig("--tls-certificate and --tls-key go together; give both or neither.")
    tls = None
    if chosen.tls_certificate is not None and chosen.tls_key is not None:
        tls = HttpTls(chosen.tls_certificate, chosen.tls_key)
    if (
        tls is None
        and not chosen.allow_insecure_public
        and not _is_of_this_machine(chosen.host)
    ):
        raise BadConfig(
            f"passwords would cross the network to {chosen.host} in clear text; give --tls-certificate and --tls-key, or "
            f"--allow-insecure-public where a proxy in front has TLS."
        )
    roots = (
        None if chosen.server_ca is None else Path(chosen.server_ca).read_text(encoding="utf-8")
    )
    log_in = functools.partial(Person, ConsoleTarget(uri, roots))
    application = ConsoleApplication(
        uri, log_in, is_secure=tls is not None, provider=_provider(chosen)
    )
    try:
        server = HttpServer(
            application,
            address=(chosen.host, chosen.port),
            name=_CONSOLE_THREAD,
            setting="--port",
            tls=tls,
        )
    except BadConfig as error:
        if "port" in error.facts:
            raise
        # What listens is the server's code, too: its sentence names settings.
        raise BadConfig(
            "--tls-certificate or --tls-key cannot be used: a file is missing or is not valid."
        ) from error
    application.port = server.port
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    scheme = "http" if tls is None else "https"
    host = f"[{chosen.host}]" if ":" in chosen.host else chosen.host
    click.echo(
        f"thermocline: the console of {uri} is on {scheme}://{host}:{server.port}/", err=True
    )
    # A signal that another thread gets does not wake a wait without end.
    while not ended.wait(_TIDY_S):
        application.tidy()
    server.stop()
    application.close()


def _provider(chosen: ConsoleOptions) -> IdentityProvider | None:
    if chosen.oidc_issuer is None and chosen.oidc_client is None:
        return None
    if chosen.oidc_issuer is None or chosen.oidc_client is None:
        raise BadConfig("--oidc-issuer and --oidc-client go together; give both or neither.")
    if not _is_provider(chosen.oidc_issuer):
        raise BadConfig(
            "--oidc-issuer is an address of https; http is for a provider on this machine only."
        )
    # Its client of HTTP takes a tenth of a second to load.
    from thermocline.console.identity_provider import IdentityProvider, RegisteredClient

    secret = os.environ.get("THERMOCLINE_CONSOLE_SECRET") or None
    return IdentityProvider(
        RegisteredClient(chosen.oidc_issuer, chosen.oidc_client, chosen.oidc_scope, secret)
    )


def _is_provider(address: str) -> bool:
    try:
        parts = urlsplit(address)
        parts.port  # noqa: B018  raises where it is no number
    except ValueError:
        return False
    host = parts.hostname
    if host is None or parts.scheme not in ("https", "http"):
        return False
    return parts.scheme == "https" or _is_of_this_machine(host)


def _is_of_this_machine(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
