"""Makes from settings the parts that decide who may call a server, and that keep calls private."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ParamSpec

from planner.errors import BadConfig
from proxy.access.authentication.callers import Access, Caller, FixedUsers, TokenCheck
from proxy.access.authentication.credentials import Credentials
from proxy.access.authentication.jwks import Jwks
from proxy.access.authentication.jwt_tokens import JwtTokens
from proxy.access.authentication.lockout import Lockout
from proxy.access.limits import Admins, LimitsOf, UserLimits
from proxy.flightsql.server import Tls
from thermocline.config.settings import AccessSettings, Limits, Settings

P = ParamSpec("P")


def access(settings: Settings) -> Access:
    """Return every configured way to prove an identity; without one, every caller on this machine is served.

    Raises:
        BadConfig: a file or a value is wrong; or other machines can reach the address, and authentication or TLS is
            missing.
    """
    own = settings.access
    tables: list[FixedUsers | Credentials] = []
    tokens: list[TokenCheck] = []
    if settings.server.users:
        users = settings.server.users
        tables.append(
            FixedUsers({name: text.get_secret_value() for name, text in users.items()})
        )
    if own.credentials_file is not None:
        credentials = Credentials(Path(own.credentials_file), clock_s=time.monotonic)
        tables.append(credentials)
        tokens.append(credentials.token)
    if (jwt := _jwt(own)) is not None:
        tokens.append(jwt)
    if own.certificate_users and own.tls_client_ca is None:
        raise BadConfig(
            "access.certificate_users needs access.tls_client_ca: the authority that signed the users' certificates."
        )
    lockout = Lockout(_first([table.verify for table in tables]), time.monotonic)
    combined = Access(
        verify=lockout if tables else None,
        remembers=lockout.remembers,
        recall=_first([table.recall for table in tables]) if tables else None,
        tokens=tuple(tokens),
        certificates=own.certificate_users,
        allow_anonymous=not (tables or tokens or own.certificate_users),
    )
    _refuse_exposure(settings, anonymous=combined.allow_anonymous)
    return combined


def tls(settings: Settings) -> Tls | None:
    """Return the certificate and key of ``access.tls_*``; None if not configured.

    Raises:
        BadConfig: only one of the two is configured, or a file cannot be read.
    """
    own = settings.access
    if own.tls_certificate is None and own.tls_key is None:
        if own.tls_client_ca is not None:
            raise BadConfig(
                "access.tls_client_ca needs access.tls_certificate and access.tls_key."
            )
        return None
    if own.tls_certificate is None or own.tls_key is None:
        raise BadConfig("access.tls_certificate and access.tls_key are needed together.")
    certificate, key = (
        _pem("tls_certificate", own.tls_certificate),
        _pem("tls_key", own.tls_key),
    )
    authority = None if own.tls_client_ca is None else _pem("tls_client_ca", own.tls_client_ca)
    return Tls(certificate, key, authority)


def admins(settings: Settings) -> Admins:
    own = settings.access.admins
    return Admins(frozenset(own.users), frozenset(own.groups))


def limits_of(settings: Settings) -> LimitsOf:
    """Limits of each user: the first ``[limits.<name>]`` that names the user or a group, else the defaults."""
    server, own = settings.server, settings.access
    default = UserLimits(
        max_sessions=own.max_sessions_per_user,
        max_streams=own.max_streams_per_user,
        max_calls_per_s=own.max_calls_per_s_per_user,
        timeout_s=server.statement_timeout_s,
        answer_timeout_s=server.answer_timeout_s,
        max_rows=server.max_result_rows,
        max_bytes=server.max_result_bytes,
        upload_idle_s=server.upload_idle_s,
        reader_idle_s=server.reader_idle_s,
        max_failures_per_s=own.max_failures_per_s_per_user,
    )
    rules = [
        (frozenset(rule.users), frozenset(rule.groups), _replaced(default, rule))
        for rule in settings.limits.values()
    ]

    def limits(user: str | None, groups: frozenset[str]) -> UserLimits:
        for users, of_groups, user_limits in rules:
            if user in users or groups & of_groups:
                return user_limits
        return default

    return limits


def _replaced(default: UserLimits, rule: Limits) -> UserLimits:
    names = {
        "max_sessions": rule.max_sessions,
        "max_streams": rule.max_streams,
        "max_calls_per_s": rule.max_calls_per_s,
        "max_failures_per_s": rule.max_failures_per_s,
        "timeout_s": None
        if rule.statement_timeout_s is None
        else min(rule.statement_timeout_s, default.timeout_s),
        "answer_timeout_s": rule.answer_timeout_s,
        "max_rows": rule.max_result_rows,
        "max_bytes": rule.max_result_bytes,
    }
    return replace(
        default,
        **{name: value for name, value in names.items() if value is not None},  # type: ignore[arg-type]
    )


def _first(ways: Sequence[Callable[P, Caller | None]]) -> Callable[P, Caller | None]:
    """Try tables of users in order: a password is right if any of them accepts it."""

    def identify(*arguments: P.args, **named: P.kwargs) -> Caller | None:
        callers = (way(*arguments, **named) for way in ways)
        return next((caller for caller in callers if caller is not None), None)

    return identify


def _jwt(own: AccessSettings) -> JwtTokens | None:
    if own.jwt_issuer is None and own.jwt_audience is None:
        if own.jwt_keys_url is not None:
            raise BadConfig("access.jwt_keys_url needs access.jwt_issuer and jwt_audience.")
        return None
    if own.jwt_issuer is None or own.jwt_audience is None:
        raise BadConfig(
            "access.jwt_issuer and access.jwt_audience are needed together: a token of that issuer for somebody "
            "else must not open this server."
        )
    return JwtTokens(
        issuer=own.jwt_issuer,
        audience=own.jwt_audience,
        keys=Jwks(
            issuer=own.jwt_issuer,
            url=own.jwt_keys_url,
            clock_s=time.monotonic,
            keep_s=own.jwt_keep_keys_s,
        ),
        algorithms=own.jwt_algorithms,
        user_claim=own.jwt_user_claim,
        groups_claim=own.jwt_groups_claim,
    )


def _refuse_exposure(settings: Settings, *, anonymous: bool) -> None:
    rest = settings.iceberg_rest
    hosts = [settings.server.host, *([rest.host] if rest.port is not None else [])]
    host = next((host for host in hosts if not _loopback(host)), None)
    if host is None or settings.access.allow_insecure_public:
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
