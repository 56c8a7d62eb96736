"""The console at an identity provider that hangs, or answers what none should: one of fixed answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from connectors.flight_server import NotLetIn
from tests.harness.console_browser import ConsoleBrowser, console_over
from thermocline.console.app import _ENTRIES
from thermocline.console.identity_provider import IdentityProvider, RegisteredClient
from thermocline.console.person import LoginForm, Person

URI = "grpc://127.0.0.1:1"
SOON_S = 20


@dataclass
class FixedProvider:
    """``answers`` are by path; none is given before ``gate`` is open."""

    issuer: str = ""
    answers: dict[str, object] = field(default_factory=dict)
    gate: threading.Event = field(default_factory=threading.Event)
    arrived: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def client(self) -> RegisteredClient:
        return RegisteredClient(self.issuer, "console", "openid", "of-a-test")


@pytest.fixture
def provider() -> Iterator[FixedProvider]:
    fixed = FixedProvider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            fixed.arrived.release()
            fixed.gate.wait()
            body = json.dumps(fixed.answers.get(self.path)).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        fixed.issuer = f"http://127.0.0.1:{server.server_port}"
        fixed.answers["/.well-known/openid-configuration"] = {
            "issuer": fixed.issuer,
            "authorization_endpoint": f"{fixed.issuer}/authorize",
            "token_endpoint": f"{fixed.issuer}/token",
        }
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield fixed
        finally:
            fixed.gate.set()
            server.shutdown()
            serving.join()


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
