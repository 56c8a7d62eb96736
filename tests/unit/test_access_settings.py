"""From settings to who may call: what is refused, and what must be said in so many words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planner.errors import BadConfig
from proxy.access.limits import UserLimits
from thermocline.config.settings import AccessSettings, Limits, Server, Settings
from thermocline.serve.access import access, limits_of, tls

JWT: dict[str, Any] = {"jwt_issuer": "https://login.example", "jwt_audience": "thermocline"}


def settings(
    host: str = "127.0.0.1", users: dict[str, str] | None = None, **value: Any
) -> Settings:
    server: dict[str, Any] = {"host": host, "users": users or {}}
    return Settings(server=Server(**server), access=AccessSettings(**value))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_this_machine_is_served_without_asking(host: str) -> None:
    assert access(settings(host)).allow_anonymous


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "server.example", ""])
def test_an_open_address_needs_users_and_tls(host: str, tmp_path: Path) -> None:
    pem: dict[str, Any] = {
        "tls_certificate": str(tmp_path / "c"),
        "tls_key": str(tmp_path / "k"),
    }
    with pytest.raises(BadConfig, match=r"for anybody; add users .*allow_insecure_public"):
        access(settings(host))
    with pytest.raises(BadConfig, match="for anybody"):
        access(settings(host, **pem))
    with pytest.raises(BadConfig, match=r"without TLS.*allow_insecure_public"):
        access(settings(host, users={"ada": "x"}))
    with pytest.raises(BadConfig, match="without TLS"):
        access(settings(host, **JWT))
    assert not access(settings(host, users={"ada": "x"}, **pem)).allow_anonymous
    assert not access(settings(host, **JWT, **pem)).allow_anonymous


def test_what_is_insecure_can_be_meant() -> None:
    assert access(settings("0.0.0.0", allow_insecure_public=True)).allow_anonymous
    result = access(settings("0.0.0.0", users={"ada": "x"}, allow_insecure_public=True))
    assert result.verify is not None
    assert result.verify("ada", "x") is not None
    assert result.verify("ada", "y") is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tls_certificate": "c"}, "needed together"),
        ({"tls_key": "k"}, "needed together"),
        ({"tls_client_ca": "ca"}, "needs access.tls_certificate"),
        (
            {"tls_certificate": "absent.pem", "tls_key": "k"},
            "tls_certificate: absent.pem cannot be read",
        ),
    ],
)
def test_half_of_tls_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(BadConfig, match=message):
        tls(settings(**fields))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"jwt_issuer": "https://a"}, "needed together"),
        ({"jwt_audience": "a"}, "needed together"),
        ({"jwt_keys_url": "https://a"}, "needs access.jwt_issuer"),
        ({**JWT, "jwt_issuer": "http://a"}, "not https"),
        ({**JWT, "jwt_algorithms": ("HS256",)}, "HS256 is not possible"),
        ({"certificate_users": True}, "needs access.tls_client_ca"),
        ({"credentials_file": "absent.toml"}, "absent.toml: the credentials cannot be read"),
    ],
)
def test_half_of_an_identity_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(BadConfig, match=message):
        access(settings(**fields))


def test_limits_are_handed_on() -> None:
    result = limits_of(
        settings(
            max_sessions_per_user=3,
            max_streams_per_user=2,
            max_calls_per_s_per_user=1.5,
            max_failures_per_s_per_user=7,
        )
    )
    assert result("ada", frozenset()) == UserLimits(
        3, 2, 1.5, answer_timeout_s=3600, max_failures_per_s=7
    )


def test_some_users_have_limits_of_their_own_the_first_that_fits() -> None:
    rules = {
        "boards": Limits(users=("grafana",), groups=("viewers",), max_streams=1),
        "people": Limits(
            groups=("staff", "viewers"),
            statement_timeout_s=5,
            answer_timeout_s=6,
            max_result_rows=7,
            max_result_bytes=8,
            max_sessions=9,
            max_calls_per_s=10,
            max_failures_per_s=11,
        ),
    }
    value = settings(max_streams_per_user=2).model_copy(update={"limits": rules})
    result = limits_of(value)
    default = UserLimits(1000, 2, answer_timeout_s=3600)
    assert result("ada", frozenset({"others"})) == default
    assert result(None, frozenset()) == default
    assert result("grafana", frozenset({"staff"})) == replace(default, max_streams=1)
    assert result("ada", frozenset({"viewers", "staff"})) == replace(default, max_streams=1)
    assert result("ada", frozenset({"staff"})) == UserLimits(
        9, 2, 10, 5, 6, 7, 8, max_failures_per_s=11
    )
