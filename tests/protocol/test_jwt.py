"""Tokens of an identity provider: what is checked, key rotation, and the provider's outages."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from pyarrow import flight

from planner.errors import BadConfig, Unavailable
from proxy.access.authentication.callers import Access, Unauthenticated
from proxy.access.authentication.jwks import Jwks
from proxy.access.authentication.jwt_tokens import JwtTokens
from tests.fixtures.jdbc import Jdbc, query, values
from tests.fixtures.oidc import AUDIENCE, Provider
from tests.harness.canned import CannedBackend, CannedServer, serve
from tests.harness.wire import NoHandshake, bearer, fetched


class Clock:
    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def keys(provider: Provider, clock: Clock) -> Jwks:
    return Jwks(issuer=provider.issuer, url=None, clock_s=clock)


def checker(provider: Provider, keys: Jwks, **settings: Any) -> JwtTokens:
    return JwtTokens(issuer=provider.issuer, audience=AUDIENCE, keys=keys, **settings)


@pytest.fixture
def check(provider: Provider, keys: Jwks) -> JwtTokens:
    return checker(provider, keys, groups_claim="groups")


@pytest.fixture
def served_jwt(backend: CannedBackend, check: JwtTokens) -> Iterator[CannedServer]:
    server = serve(backend, Access(tokens=(check,)))
    yield CannedServer(server, backend)
    assert server.stop(10)


def test_adbc_calls_with_a_token_in_the_name_and_groups_it_says(
    served_jwt: CannedServer, provider: Provider
) -> None:
    token = provider.token(groups=["analysts", "eu"])
    value = {"adbc.flight.sql.authorization_header": f"Bearer {token}"}
    with (
        adbc.connect(served_jwt.uri, db_kwargs=value, autocommit=True) as connection,
        connection.cursor() as cur,
    ):
        cur.execute("SELECT 1")
        assert cur.fetchall() == [(1,)]
    assert served_jwt.backend.planned_in is not None
    assert served_jwt.backend.planned_in.user == "ada"
    assert served_jwt.backend.planned_in.groups == {"analysts", "eu"}
    assert provider.requests["/keys"] == 1


def test_jdbc_calls_with_a_token(
    served_jwt: CannedServer, provider: Provider, jdbc: Jdbc
) -> None:
    _, outcome, _ = jdbc.run(
        [query("SELECT 1")], port=served_jwt.port, properties={"token": provider.token()}
    )
    assert values(outcome) == [["1"]]


def test_a_new_token_of_the_same_user_goes_on_in_the_connection_s_session(
    served_jwt: CannedServer, provider: Provider
) -> None:
    with closing(flight.connect(served_jwt.uri)) as client:
        fetched(client, "SELECT 1", bearer(provider.token()))
        configured = served_jwt.backend.calls["configure"]
        fetched(client, "SELECT 1", bearer(provider.token(jti="2")))
        assert served_jwt.backend.calls["configure"] == configured
        fetched(client, "SELECT 1", bearer(provider.token(sub="bob")))
        assert served_jwt.backend.calls["configure"] == configured + 1


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"sub": "a", "groups": ["b c"]}, {"sub": "a b", "groups": ["c"]}),
        ({"sub": "a", "groups": ["b", "c"]}, {"sub": "a", "groups": ["b,c"]}),
        ({"sub": "a", "groups": ["b"]}, {"sub": "a b", "groups": []}),
        ({"sub": "a", "groups": ["b"]}, {"sub": "a", "groups": ["b", ""]}),
    ],
)
def test_callers_of_one_connection_have_sessions_of_their_own(
    served_jwt: CannedServer, provider: Provider, first: dict[str, Any], second: dict[str, Any]
) -> None:
    """As behind a proxy; whatever their names would be together with their groups."""
    with closing(flight.connect(served_jwt.uri)) as client:
        sessions = []
        for claims in (first, second, first):
            fetched(client, "SELECT 1", bearer(provider.token(**claims)))
            session = served_jwt.backend.planned_in
            assert session is not None
            assert (session.user, session.groups) == (
                claims["sub"],
                frozenset(claims["groups"]),
            )
            sessions.append(session.id)
    assert sessions[0] == sessions[2] != sessions[1]


class Headers(flight.ClientMiddlewareFactory):
    """Collects the authorization headers of answers."""

    def __init__(self) -> None:
        self.authorization: list[str] = []

    def start_call(self, info: Any) -> flight.ClientMiddleware:
        factory = self

        class Read(flight.ClientMiddleware):
            def received_headers(self, names: dict[str, list[str]]) -> None:
                factory.authorization.extend(names.get("authorization", []))

        return Read()


def test_a_session_ends_with_the_token_it_was_opened_with(
    backend: CannedBackend, provider: Provider, keys: Jwks
) -> None:
    now = Clock()
    now.now_s = time.time()
    server = serve(backend, Access(tokens=(checker(provider, keys, now_s=now),)))
    observed = Headers()
    uri = f"grpc://127.0.0.1:{server.port}"
    with closing(flight.FlightClient(uri, middleware=[observed])) as client:
        client.authenticate(NoHandshake(), bearer(provider.token(expires_in_s=600)))
    with closing(flight.connect(uri)) as client:
        session = bearer(observed.authorization[0].removeprefix("Bearer "))
        assert fetched(client, "SELECT 1 AS a", session) == [{"a": 1}]
        now.now_s += 640
        with pytest.raises(flight.FlightUnauthenticatedError, match="not valid any more"):
            fetched(client, "SELECT 1", session)
    assert server.stop(10)


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        ({"expires_in_s": -60}, "has expired"),
        ({"iss": "https://evil.example"}, "by somebody else"),
        ({"aud": "another"}, "another audience"),
        ({"nbf": 4_000_000_000}, "not valid yet"),
        ({"exp": None}, "no claim exp"),
        ({"iss": None}, "no claim iss"),
        ({"aud": None}, "no claim aud"),
        ({"sub": None}, "no claim sub"),
        ({"sub": ""}, "no claim sub"),
        ({"exp": "soon"}, "not valid"),
    ],
)
def test_each_claim_is_checked(
    check: JwtTokens, provider: Provider, claims: dict[str, Any], message: str
) -> None:
    with pytest.raises(Unauthenticated, match=message):
        check(provider.token(**claims))


def test_clocks_may_differ_a_little(check: JwtTokens, provider: Provider) -> None:
    assert check(provider.token(expires_in_s=-10)) is not None


class TestForgeries:
    def test_a_shared_secret_made_of_the_public_key(
        self, check: JwtTokens, provider: Provider
    ) -> None:
        header = {"alg": "HS256", "kid": "first", "typ": "JWT"}
        claims = {"iss": provider.issuer, "aud": AUDIENCE, "sub": "ada", "exp": time.time() + 9}
        import hmac

        signed = ".".join(_part(json.dumps(part).encode()) for part in (header, claims))
        mac = hmac.digest(provider.public_pem(), signed.encode(), "sha256")
        with pytest.raises(Unauthenticated, match="algorithm"):
            check(f"{signed}.{_part(mac)}")

    def test_no_signature(self, check: JwtTokens, provider: Provider) -> None:
        token = provider.signed(None, "none", {"kid": "first"})
        with pytest.raises(Unauthenticated, match="algorithm"):
            check(token)

    def test_another_s_key_under_a_known_name(
        self, check: JwtTokens, provider: Provider
    ) -> None:
        stranger = rsa.generate_private_key(65537, 2048)
        with pytest.raises(Unauthenticated, match="signature or contents"):
            check(provider.signed(stranger, "RS256", {"kid": "first"}))

    def test_an_algorithm_that_is_not_on_the_list(self, provider: Provider, keys: Jwks) -> None:
        provider.add("curve", "ES256")
        with pytest.raises(Unauthenticated, match="algorithm"):
            checker(provider, keys, algorithms=["RS256"])(provider.token("curve"))
        assert checker(provider, keys)(provider.token("curve")) is not None

    def test_a_curve_s_name_over_an_rsa_key(self, check: JwtTokens, provider: Provider) -> None:
        provider.add("curve", "ES256")
        _, private = provider._private["curve"]
        with pytest.raises(Unauthenticated, match="signature or contents"):
            check(provider.signed(private, "ES256", {"kid": "first"}))

    def test_changed_claims(self, check: JwtTokens, provider: Provider) -> None:
        header, _, signature = provider.token().split(".")
        claims = {"iss": provider.issuer, "aud": AUDIENCE, "sub": "root", "exp": 9e9}
        with pytest.raises(Unauthenticated, match="signature or contents"):
            check(f"{header}.{_part(json.dumps(claims).encode())}.{signature}")

    def test_what_is_no_token_is_left_to_others(self, check: JwtTokens) -> None:
        assert check("opaque") is None
        assert check("a.b.c") is None

    @pytest.mark.parametrize("algorithms", [["HS256"], ["none"], ["RS256", "HS512"], []])
    def test_a_list_that_lets_anybody_sign_is_refused(
        self, provider: Provider, keys: Jwks, algorithms: list[str]
    ) -> None:
        with pytest.raises(BadConfig, match="not possible"):
            checker(provider, keys, algorithms=algorithms)


def test_a_time_that_is_none_is_refused_by_name(check: JwtTokens, provider: Provider) -> None:
    for far in (10**400, 1e300):
        with pytest.raises(Unauthenticated, match="exp is not a time"):
            check(provider.token(exp=far))
    claims: tuple[tuple[str, Any], ...] = (
        ("exp", float("inf")),
        ("exp", float("nan")),
        ("nbf", float("inf")),
        ("iat", float("inf")),
        ("nbf", 10**400),
        ("iat", "x" * 1_000),
    )
    for claim, value in claims:
        with pytest.raises(Unauthenticated):
            check(provider.token(**{claim: value}))


class TestKeys:
    def test_a_new_key_is_fetched_when_a_token_names_it(
        self, check: JwtTokens, provider: Provider, clock: Clock
    ) -> None:
        assert check(provider.token()) is not None
        provider.add("second")
        clock.now_s += 11
        assert check(provider.token("second")) is not None
        assert provider.requests["/keys"] == 2

    def test_made_up_key_names_do_not_become_a_flood_of_requests(
        self, check: JwtTokens, provider: Provider, clock: Clock
    ) -> None:
        provider.add("hidden", published=False)
        for _ in range(20):
            with pytest.raises(Unauthenticated, match="its issuer does not have"):
                check(provider.token("hidden"))
        assert provider.requests["/keys"] == 1
        clock.now_s += 11
        with pytest.raises(Unauthenticated):
            check(provider.token("hidden"))
        assert provider.requests["/keys"] == 2

    def test_a_withdrawn_key_is_refused_after_the_next_refresh(
        self, check: JwtTokens, provider: Provider, clock: Clock
    ) -> None:
        provider.add("second")
        assert check(provider.token()) is not None
        provider.withdraw("first")
        assert check(provider.token()) is not None
        clock.now_s += 301
        with pytest.raises(Unauthenticated, match="its issuer does not have"):
            check(provider.token())
        assert check(provider.token("second")) is not None

    def test_an_outage_leaves_the_last_keys_for_a_while(
        self, check: JwtTokens, provider: Provider, clock: Clock
    ) -> None:
        assert check(provider.token()) is not None
        provider.down = True
        clock.now_s += 3_000
        assert check(provider.token()) is not None
        clock.now_s += 700
        with pytest.raises(Unavailable, match="keys cannot be fetched"):
            check(provider.token())
        provider.down = False
        clock.now_s += 11
        assert check(provider.token()) is not None

    def test_a_provider_that_is_down_from_the_start_is_unavailable_to_the_client(
        self, served_jwt: CannedServer, provider: Provider
    ) -> None:
        provider.down = True
        with (
            closing(flight.connect(served_jwt.uri)) as client,
            pytest.raises(flight.FlightUnavailableError, match="Retry later") as caught,
        ):
            fetched(client, "SELECT 1", bearer(provider.token()))
        assert provider.issuer not in str(caught.value)

    @pytest.mark.parametrize(
        "url", ["http://login.example/keys", "file:///etc/passwd", "ftp://x/y", "keys"]
    )
    def test_keys_come_over_https_only(self, url: str) -> None:
        with pytest.raises(BadConfig, match="not https"):
            Jwks(issuer="https://login.example", url=url, clock_s=time.monotonic)


def test_users_and_groups_may_be_in_other_claims(provider: Provider, keys: Jwks) -> None:
    check = checker(provider, keys, user_claim="email", groups_claim="realm_access.roles")
    result = check(provider.token(email="a@b", realm_access={"roles": ["x", 3, "y"]}))
    assert result is not None
    assert (result.user, result.groups) == ("a@b", frozenset({"x", "y"}))
    spaced = checker(provider, keys, groups_claim="scope")(provider.token(scope="p q"))
    assert spaced is not None
    assert spaced.groups == {"p", "q"}


def _part(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
