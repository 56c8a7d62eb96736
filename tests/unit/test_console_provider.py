"""The console at an identity provider that hangs, or answers what none should: one of fixed answers."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
import pytest

from connectors.flight_server import NotLetIn
from planner.errors import Unavailable
from tests.harness.console_browser import ConsoleBrowser, console_over
from thermocline.console.app import _ENTRIES
from thermocline.console.identity_provider import IdentityProvider, RegisteredClient, _endpoints
from thermocline.console.person import ConsoleTarget, LoginForm, Person

URI = "grpc://127.0.0.1:1"
SOON_S = 20
DISCOVERY = "/.well-known/openid-configuration"


@dataclass
class FixedProvider:
    """``answers`` are by path; none is given before ``gate`` is open."""

    issuer: str = ""
    answers: dict[str, Any] = field(default_factory=dict)
    gate: threading.Event = field(default_factory=threading.Event)
    arrived: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def client(self) -> RegisteredClient:
        return RegisteredClient(self.issuer, "console", "openid", "of-a-test")


@pytest.fixture
def provider() -> Iterator[FixedProvider]:
    fixed = FixedProvider()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.answer()

        def do_GET(self) -> None:
            fixed.arrived.release()
            fixed.gate.wait()
            self.answer()

        def answer(self) -> None:
            body = json.dumps(fixed.answers.get(self.path)).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        fixed.issuer = f"http://127.0.0.1:{server.server_port}"
        fixed.answers[DISCOVERY] = {
            "issuer": fixed.issuer,
            "authorization_endpoint": f"{fixed.issuer}/authorize",
            "token_endpoint": f"{fixed.issuer}/token",
        }
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        try:
            yield fixed
        finally:
            fixed.gate.set()
            server.shutdown()
            serving.join()


class NamedPerson(Person):
    def _ask(self, sql: str, cut: str | None, parameters: Sequence[str] | None) -> pa.Table:
        return pa.table({"name": ["ada"]})


def not_let_in(_: LoginForm) -> Person:
    raise NotLetIn("the password is wrong.")


def test_a_provider_that_hangs_keeps_no_other_login_waiting(provider: FixedProvider) -> None:
    with (
        console_over(URI, not_let_in, provider=IdentityProvider(provider.client())) as browser,
        ThreadPoolExecutor(_ENTRIES) as asking,
    ):
        try:
            begun = [
                asking.submit(ConsoleBrowser(browser.port).post, "login/provider")
                for _ in range(_ENTRIES)
            ]
            for _ in begun:
                assert provider.arrived.acquire(timeout=SOON_S)
            assert browser.get("open").document["provider"] in provider.issuer
            reply = browser.log_in("ada", "wrong")
            assert (reply.status, reply.sentence) == (401, "the password is wrong.")
            assert not any(each.done() for each in begun)
        finally:
            provider.gate.set()
        assert {each.result().status for each in begun} == {200}


@pytest.mark.parametrize(
    "answer",
    [
        "null",
        "[]",
        '"text"',
        "{}",
        '{"issuer": "ISSUER", "token_endpoint": "x"}',
        '{"issuer": "ISSUER", "authorization_endpoint": 5, "token_endpoint": "x"}',
    ],
)
def test_what_is_no_providers_answer_is_a_sentence(
    answer: str, provider: FixedProvider, caplog: pytest.LogCaptureFixture
) -> None:
    """Who runs the console reads in its log what was wrong."""
    provider.gate.set()
    provider.answers[DISCOVERY] = json.loads(answer.replace("ISSUER", provider.issuer))
    host = provider.issuer.removeprefix("http://")
    sentence = f"the identity provider at {host} does not answer as one; try again."
    with pytest.raises(Unavailable, match=f"^{re.escape(sentence)}$"):
        IdentityProvider(provider.client()).begin("http://127.0.0.1:1/")
    [line] = caplog.messages
    assert re.fullmatch(f"the identity provider at {host} was not understood: .*Error.*", line)
    assert "of-a-test" not in line


def test_a_provider_that_lists_no_methods_is_asked_by_the_first_of_them(
    provider: FixedProvider,
) -> None:
    provider.gate.set()
    provider.answers[DISCOVERY]["token_endpoint_auth_methods_supported"] = None
    address, _ = IdentityProvider(provider.client()).begin("http://127.0.0.1:1/")
    assert address.startswith(f"{provider.issuer}/authorize?")


def test_a_provider_of_another_name_is_named(provider: FixedProvider) -> None:
    """OpenID Connect Discovery 1.0, section 4.3. A slash at the end is the usual difference."""
    provider.gate.set()
    issuer = f"{provider.issuer}/"
    sentence = f"the identity provider calls itself {provider.issuer}; have --oidc-issuer say the same, not {issuer}."
    with pytest.raises(Unavailable, match=f"^{re.escape(sentence)}$"):
        IdentityProvider(replace(provider.client(), issuer=issuer)).begin("http://127.0.0.1:1/")


@pytest.mark.parametrize("name", ["authorization_endpoint", "token_endpoint"])
def test_a_provider_of_https_has_no_address_without(name: str) -> None:
    issuer = "https://login.example"
    document = {
        "issuer": issuer,
        "authorization_endpoint": f"{issuer}/authorize",
        "token_endpoint": f"{issuer}/token",
    }
    assert list(_endpoints(document, issuer).values()) == list(document.values())[1:]
    for address in ("http://login.example/x", "file:///x"):
        sentence = f"the identity provider's {name} is {address}, which is not https; have the provider say https."
        with pytest.raises(Unavailable, match=f"^{re.escape(sentence)}$"):
            _endpoints(document | {name: address}, issuer)


def test_what_a_login_was_begun_with_is_good_for_one(provider: FixedProvider) -> None:
    provider.gate.set()
    provider.answers["/token"] = {"access_token": "token", "token_type": "Bearer"}
    log_in = partial(NamedPerson, ConsoleTarget(URI))
    with console_over(URI, log_in, provider=IdentityProvider(provider.client())) as browser:
        address = browser.post("login/provider").document["address"]
        [state] = parse_qs(urlsplit(address).query)["state"]
        name, _, begun = browser.cookie.partition("=")
        assert begun.startswith(f"{state}.")
        reply = browser.post("login", code="code", state=state)
        assert (reply.status, reply.document["name"]) == (200, "ada")
        assert f'{name}=""; HttpOnly; Max-Age=0; Path=/; SameSite=strict' in reply.cookies
        assert browser.get("session").document["name"] == "ada"
