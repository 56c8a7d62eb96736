"""Bearer tokens that an identity provider signed (JWT): the one place, with ``jwks``, that knows PyJWT."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import jwt

from planner.errors import BadConfig
from proxy.access.authentication.callers import Caller, Unauthenticated
from proxy.access.authentication.jwks import Jwks

#: Signatures only: with a shared secret (HS256) each service that checks tokens can make them.
ALGORITHMS = frozenset(
    "RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 EdDSA".split()  # noqa: SIM905
)

#: What Python raises of JSON that is nested too deep, and of numbers that are none or too large.
_UNREADABLE = (ValueError, OverflowError, RecursionError)
_REFUSALS: dict[type[Exception], str] = {
    jwt.ExpiredSignatureError: "The token has expired. Get a new one.",
    jwt.ImmatureSignatureError: "The token is not valid yet.",
    jwt.InvalidAudienceError: "The token was issued for another audience.",
    jwt.InvalidIssuerError: "The token was issued by somebody else.",
}
#: The end of the year 9999, in seconds since 1970.
_LAST_S = 253_402_300_799


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class JwtTokens:
    """A ``TokenCheck``: tokens of one issuer for one audience.

    ``user_claim`` names the user, ``groups_claim`` a list of groups or a text with spaces between them; claims
    inside claims are written with dots (``realm_access.roles``). Clocks may differ by ``leeway_s``. ``now_s`` is
    seconds since 1970; it decides how long a session lives that a token opened.

    Raises:
        BadConfig: an algorithm is not one of ``ALGORITHMS``.
    """

    issuer: str
    audience: str
    keys: Jwks
    algorithms: Collection[str] = ("RS256", "ES256")
    user_claim: str = "sub"
    groups_claim: str | None = None
    leeway_s: float = 30.0
    now_s: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        refused = sorted(set(self.algorithms) - ALGORITHMS)
        if refused or not self.algorithms:
            raise BadConfig(
                f"JWT algorithm {', '.join(refused) or 'list'} is not possible; choose from "
                f"{', '.join(sorted(ALGORITHMS))}."
            )

    def __call__(self, token: str) -> Caller | None:
        """Return who a token speaks for; None if it is not a JWT at all.

        Raises:
            Unauthenticated: says which check failed.
            Unavailable: the issuer's keys cannot be had.
        """
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, *_UNREADABLE):
            return None
        if header.get("alg") not in self.algorithms:
            raise Unauthenticated(
                "The token is signed with an algorithm that is not accepted here."
            )
        key = self.keys.key(header.get("kid"))
        if key is None:
            raise Unauthenticated("The token is signed with a key its issuer does not have.")
        claims = self._claims(token, key)
        user = _claim(claims, self.user_claim)
        if not isinstance(user, str) or not user:
            raise Unauthenticated(f"The token has no claim {self.user_claim}.")
        expires_s = _seconds(claims["exp"]) + self.leeway_s
        return Caller(user, self._groups(claims), lambda: self.now_s() < expires_s)

    def _claims(self, token: str, key: jwt.PyJWK) -> dict[str, Any]:
        try:
            return jwt.decode(
                token,
                key.key,  # a JWK without "alg" is good for every algorithm of its type
                algorithms=list(self.algorithms),
                audience=self.audience,
                issuer=self.issuer,
                leeway=self.leeway_s,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.MissingRequiredClaimError as error:
            raise Unauthenticated(f"The token has no claim {error.claim}.") from error
        except (jwt.PyJWTError, TypeError, *_UNREADABLE) as error:
            why = _REFUSALS.get(type(error), "The token's signature or contents are not valid.")
            raise Unauthenticated(why) from error

    def _groups(self, claims: dict[str, Any]) -> frozenset[str]:
        if self.groups_claim is None:
            return frozenset()
        claim = _claim(claims, self.groups_claim)
        names = claim.split() if isinstance(claim, str) else claim
        listed = names if isinstance(names, list) else ()
        return frozenset(name for name in listed if isinstance(name, str))


def _seconds(value: Any) -> float:
    """Read a time (RFC 7519, NumericDate): seconds since 1970.

    Raises:
        Unauthenticated: it is none.
    """
    try:
        seconds = float(value)
    except (TypeError, *_UNREADABLE):
        seconds = -1.0
    if not 0 <= seconds <= _LAST_S:  # not so of NaN
        raise Unauthenticated("The token's claim exp is not a time.")
    return seconds


def _claim(claims: dict[str, Any], path: str) -> Any:
    """Find a claim by its whole name, else along its dots."""
    if path in claims:
        return claims[path]
    value: Any = claims
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value
