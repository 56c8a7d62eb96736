"""Logs people in at an identity provider: OpenID Connect's authorization code with PKCE (RFC 6749, section 4.1; RFC 7636).

The console reads no token: the access token goes to the server as one that a person pastes does, and the server checks it
at every call.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import httpx2
from authlib.integrations.base_client import OAuthError
from authlib.integrations.httpx_client import OAuth2Client

from connectors.flight_server import NotLetIn
from planner.errors import Unavailable

_log = logging.getLogger(__name__)
_DISCOVERY = "/.well-known/openid-configuration"
_TIMEOUT_S = 10.0
_AUTHORIZATION, _TOKEN = "authorization_endpoint", "token_endpoint"
_METHODS, _POST = "token_endpoint_auth_methods_supported", "client_secret_post"


@dataclass(frozen=True, slots=True)
class RegisteredClient:
    """What a provider knows the console as. Without a ``secret`` it is a public client, by PKCE alone."""

    issuer: str
    client_id: str
    scope: str
    secret: str | None = field(default=None, repr=False)


class IdentityProvider:
    """Thread-safe: it remembers nothing. What a login needs until its end is in the browser's own cookie."""

    def __init__(self, client: RegisteredClient) -> None:
        self._client = client
        self.host = urlsplit(client.issuer).netloc

    def begin(self, redirect_uri: str) -> tuple[str, str]:
        """Return the address to log in at, and what ``token`` wants back of the same browser.

        Raises Unavailable: the provider does not answer as one.
        """
        state, verifier = secrets.token_urlsafe(24), secrets.token_urlsafe(48)
        with self._asking(redirect_uri) as (client, endpoints):
            address, _ = client.create_authorization_url(
                endpoints[_AUTHORIZATION], state=state, code_verifier=verifier
            )
        return address, f"{state}.{verifier}"

    def token(self, redirect_uri: str, begun: str, code: str, state: str) -> str:
        """Return the access token of a code. ``begun`` is of ``begin``.

        Raises:
            NotLetIn: the code is of another browser's login, or the provider does not take it.
            Unavailable: the provider does not answer as one.
        """
        expected, _, verifier = begun.partition(".")
        if not expected or not secrets.compare_digest(expected.encode(), state.encode()):
            raise NotLetIn(
                "this login was begun in another browser, or long ago; log in again."
            )
        with self._asking(redirect_uri) as (client, endpoints):
            token = client.fetch_token(endpoints[_TOKEN], code=code, code_verifier=verifier)
            return str(token["access_token"])

    @contextlib.contextmanager
    def _asking(self, redirect_uri: str) -> Iterator[tuple[OAuth2Client, dict[str, str]]]:
        """Lend a client and the provider's endpoints (OpenID Connect Discovery 1.0, section 4)."""
        own = self._client
        try:
            with OAuth2Client(
                own.client_id,
                own.secret,
                scope=own.scope,
                redirect_uri=redirect_uri,
                code_challenge_method="S256",
                timeout=_TIMEOUT_S,
            ) as client:
                address = own.issuer.rstrip("/") + _DISCOVERY
                response = client.request("GET", address, withhold_token=True)
                document = response.raise_for_status().json()
                endpoints = _endpoints(document, own.issuer)
                if own.secret and _POST in (document.get(_METHODS) or ()):
                    client.token_endpoint_auth_method = _POST
                yield client, endpoints
        except OAuthError as error:
            raise NotLetIn(
                f"the identity provider refuses the login: {error.description or error.error}."
            ) from error
        except (httpx2.HTTPError, ValueError, LookupError) as error:
            # Not the whole of it: that may be an answer, with a token.
            why = f"{type(error).__name__}: {error!s:.200}".partition("\n")[0]
            _log.warning("the identity provider at %s was not understood: %s", self.host, why)
            raise Unavailable(
                f"the identity provider at {self.host} does not answer as one; try again."
            ) from error


def _endpoints(document: object, issuer: str) -> dict[str, str]:
    """Return the addresses to log in at and to have tokens of.

    Raises:
        ValueError: it is no document of a provider.
        Unavailable: it is another issuer's, or has the console's secret and tokens cross the network in clear text.
    """
    if not isinstance(document, dict):
        raise ValueError("no object")  # noqa: TRY004  as any other bad answer
    if document["issuer"] != issuer:
        raise Unavailable(
            f"the identity provider calls itself {document['issuer']}; have --oidc-issuer say the same, not {issuer}."
        )
    endpoints = {name: document[name] for name in (_AUTHORIZATION, _TOKEN)}
    schemes = ("https",) if urlsplit(issuer).scheme == "https" else ("https", "http")
    for name, address in endpoints.items():
        if not isinstance(address, str):
            raise ValueError(name)  # noqa: TRY004
        if urlsplit(address).scheme not in schemes:
            raise Unavailable(
                f"the identity provider's {name} is {address}, which is not https; have the provider say https."
            )
    return endpoints
