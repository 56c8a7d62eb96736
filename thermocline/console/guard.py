"""What every answer of the console says to a browser, and which requests are refused before they are read.

Scripts, styles and data come from the console's own origin alone, nothing inline; a text becomes no HTML (Trusted Types). The
cookie is read by no script and sent by no other site; a request that changes something names its origin besides.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response

_POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
)
_HEADERS: Mapping[str, str] = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
_READING = ("GET", "HEAD")


def guarded(response: Response) -> Response:
    """Add the headers. What is not said to be kept by browsers is not."""
    for name, value in _HEADERS.items():
        response.headers[name] = value
    response.headers.setdefault("cache-control", "no-store")
    return response


def is_foreign(request: Request) -> bool:
    """Return whether another site sent the request, or one that changes something does not say that none did."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return True
    if request.method in _READING:
        return False
    host, origin = request.headers.get("host"), request.headers.get("origin", "")
    # A proxy in front may speak TLS where this process does not: the host is compared, not the scheme.
    return not host or origin.partition("://")[2] != host


def is_address(host: str) -> bool:
    """Return whether a Host header has an IP address or localhost, and no name that its owner may turn to another machine."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    if name.lower() == "localhost":
        return True
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def cookie_name(port: int, *, is_secure: bool) -> str:
    """Name the cookie: browsers share cookies among all ports of a host."""
    return f"{'__Host-' if is_secure else ''}thermocline_{port}"


def set_cookie(response: Response, name: str, value: str, *, is_secure: bool) -> None:
    """Have the browser keep the cookie until it ends; an empty value takes it away."""
    response.set_cookie(
        name,
        value,
        max_age=None if value else 0,
        path="/",
        secure=is_secure,
        httponly=True,
        samesite="strict",
    )
