"""Who may call a server, and how a call is kept private: from settings to the parts that do it."""

from __future__ import annotations

import ipaddress
import time
from dataclasses import replace
from pathlib import Path

from planner.errors import BadConfig
from proxy.flightsql.access import Access, FixedUsers, Identity, Recall, TokenCheck, Verify
from proxy.flightsql.limits import LimitsOf, UserLimits
from proxy.flightsql.server import Tls
from proxy.identity.credentials import Credentials
from proxy.identity.jwks import Jwks
from proxy.identity.jwt_tokens import JwtTokens
from proxy.identity.lockout import Lockout
from thermocline.config import AccessSettings, Limits, Settings


def access(settings: Settings) -> Access:
    """Every configured way to prove an identity; without one, anybody on this machine is served.

    Raises:
        BadConfig: a file or a value is wrong; or the address can be reached by others, and something is missing
            that keeps strangers or listeners out.
    """
    held = settings.access
    verifies: list[Verify] = []
    recalls: list[Recall] = []
    tokens: list[TokenCheck] = []
    if settings.server.users:
        users = {name: text.get_secret_value() for name, text in settings.server.users.items()}
        fixed = FixedUsers(users)
        verifies.append(fixed.verify)
        recalls.append(fixed.recall)
    if held.credentials_file is not None:
        credentials = Credentials(Path(held.credentials_file), clock_s=time.monotonic)
        verifies.append(credentials.verify)
        recalls.append(credentials.recall)
        tokens.append(credentials.token)
    jwt = _jwt(held)
    if jwt is not None:
        tokens.append(jwt)
    if held.certificate_users and held.tls_client_ca is None:
        raise BadConfig(
            "access.certificate_users needs access.tls_client_ca: the authority that signed the users' certificates."
        )
    found = Access(
        verify=Lockout(_any(verifies), time.monotonic) if verifies else None,
        recall=_first(recalls) if recalls else None,
        tokens=tuple(tokens),
        certificates=held.certificate_users,
        allow_anonymous=not (verifies or tokens or held.certificate_users),
    )
    _refuse_exposure(settings, anonymous=found.allow_anonymous)
    return found


def tls(settings: Settings) -> Tls | None:
    """The certificate and key of ``access.tls_*``; None: none are configured.

    Raises:
        BadConfig: only one of the two, or a file that cannot be read.
    """
    held = settings.access
    if held.tls_certificate is None and held.tls_key is None:
        if held.tls_client_ca is not None:
            raise BadConfig(
                "access.tls_client_ca needs access.tls_certificate and access.tls_key."
            )
        return None
    if held.tls_certificate is None or held.tls_key is None:
        raise BadConfig("access.tls_certificate and access.tls_key are needed together.")
    return Tls(
        _pem("tls_certificate", held.tls_certificate),
        _pem("tls_key", held.tls_key),
        None if held.tls_client_ca is None else _pem("tls_client_ca", held.tls_client_ca),
    )


def limits_of(settings: Settings) -> LimitsOf:
    """What each user may take: the first of ``[limits.<name>]`` that names the user or a group, else the defaults."""
    server, held = settings.server, settings.access
    default = UserLimits(
        max_sessions=held.max_sessions_per_user,
        max_streams=held.max_streams_per_user,
        max_calls_per_s=held.max_calls_per_s_per_user,
        answer_timeout_s=server.answer_timeout_s,
        max_rows=server.max_result_rows,
        max_bytes=server.max_result_bytes,
        upload_idle_s=server.upload_idle_s,
        reader_idle_s=server.reader_idle_s,
    )
    rules = [
        (frozenset(rule.users), frozenset(rule.groups), _replaced(default, rule))
        for rule in settings.limits.values()
    ]

    def limits(user: str | None, groups: frozenset[str]) -> UserLimits:
        for users, of_groups, found in rules:
            if user in users or groups & of_groups:
                return found
        return default

    return limits


def _replaced(default: UserLimits, rule: Limits) -> UserLimits:
    names = {
        "max_sessions": rule.max_sessions,
        "max_streams": rule.max_streams,
        "max_calls_per_s": rule.max_calls_per_s,
        "timeout_s": rule.statement_timeout_s,
        "answer_timeout_s": rule.answer_timeout_s,
        "max_rows": rule.max_result_rows,
        "max_bytes": rule.max_result_bytes,
    }
    return replace(
        default,
        **{name: value for name, value in names.items() if value is not None},  # type: ignore[arg-type]
    )


def _any(verifies: list[Verify]) -> Verify:
    """A password is right where any table of users says so; the later ones are asked only then."""

    def verify(user: str, password: str) -> Identity | None:
        found = (check(user, password) for check in verifies)
        return next((identity for identity in found if identity is not None), None)

    return verify


def _first(recalls: list[Recall]) -> Recall:
    def recall(user: str) -> Identity | None:
        found = (known(user) for known in recalls)
        return next((identity for identity in found if identity is not None), None)

    return recall


def _jwt(held: AccessSettings) -> JwtTokens | None:
    if held.jwt_issuer is None and held.jwt_audience is None:
        if held.jwt_keys_url is not None:
            raise BadConfig("access.jwt_keys_url needs access.jwt_issuer and jwt_audience.")
        return None
    if held.jwt_issuer is None or held.jwt_audience is None:
        raise BadConfig(
            "access.jwt_issuer and access.jwt_audience are needed together: a token of that issuer for somebody "
            "else must not open this server."
        )
    return JwtTokens(
        issuer=held.jwt_issuer,
        audience=held.jwt_audience,
        keys=Jwks(
            issuer=held.jwt_issuer,
            url=held.jwt_keys_url,
            clock_s=time.monotonic,
            keep_s=held.jwt_keep_keys_s,
        ),
        algorithms=held.jwt_algorithms,
        user_claim=held.jwt_user_claim,
        groups_claim=held.jwt_groups_claim,
    )


def _refuse_exposure(settings: Settings, *, anonymous: bool) -> None:
    host = settings.server.host
    if _loopback(host) or settings.access.allow_insecure_public:
        return
    if anonymous:
        raise BadConfig(
            f"the server would listen on {host} for anybody; add users (access.credentials_file, jwt_issuer, "
            f"certificate_users or [server.users]), or listen on 127.0.0.1. If that is meant, say "
            f"access.allow_insecure_public = true."
        )
    if settings.access.tls_certificate is None:
        raise BadConfig(
            f"the server would listen on {host} without TLS: passwords, tokens and rows could be read on the way; "
            f"set access.tls_certificate and access.tls_key. If something in front of it ends TLS, say "
            f"access.allow_insecure_public = true."
        )


def _loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _pem(name: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise BadConfig(
            f"access.{name}: {path} cannot be read ({error.strerror}).", file=path
        ) from error
