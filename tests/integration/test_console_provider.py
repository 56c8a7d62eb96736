"""Logging in to the console at a real identity provider (``tests/harness/identity_provider``), over a real server that takes its tokens."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from planner.errors import Unavailable
from tests.fixtures.server import settings_of, sqlite_catalog
from tests.fixtures.toolchains import needed_go_program
from tests.harness.console_browser import ConsoleBrowser, Reply, console_over
from tests.harness.environments import python_with_browser
from thermocline.config.settings import AccessSettings
from thermocline.console.identity_provider import IdentityProvider, RegisteredClient
from thermocline.console.person import ConsoleTarget, Person
from thermocline.serve.assembly import running_server

#: Whom this provider always lets in.
NAME = "1234567890"
#: The server takes tokens until 30 s after their end: clocks differ.
ENDS_IN_3_S = "-27s"


@dataclass(frozen=True)
class Site:
    """A console whose server takes the tokens of a provider."""

    browser: ConsoleBrowser
    client: RegisteredClient


@contextmanager
def site_of(folder: Path, lifetime: str) -> Iterator[Site]:
    program = needed_go_program("identity-provider")
    with subprocess.Popen(
        [program, lifetime], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        issuer, client_id, secret = process.stdout.readline().split()
        client = RegisteredClient(issuer, client_id, "openid", secret)
        settings = settings_of({"lake": sqlite_catalog(folder)}, {}).model_copy(
            update={"access": AccessSettings(jwt_issuer=issuer, jwt_audience=client_id)}
        )
        with running_server(settings) as running:
            uri = f"grpc://127.0.0.1:{running.port}"
            log_in = partial(Person, ConsoleTarget(uri))
            with console_over(uri, log_in, provider=IdentityProvider(client)) as browser:
                yield Site(browser, client)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site_of(tmp_path_factory.mktemp("site"), "10m") as site:
        yield site


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def sent_back(address: str) -> dict[str, str]:
    """Log in at the provider; return the parameters that it sends the browser back with."""
    with pytest.raises(urllib.error.HTTPError) as redirect:
        urllib.request.build_opener(_Stay).open(address, timeout=30)
    with redirect.value as response:
        location = urlsplit(response.headers["location"])
    assert location.path == "/"
    return {name: text for name, [text] in parse_qs(location.query).items()}


def returned(browser: ConsoleBrowser) -> dict[str, str]:
    begun = browser.post("login/provider")
    assert begun.status == 200, begun.body
    assert begun.headers["set-cookie"].partition("; ")[2] == "HttpOnly; Path=/; SameSite=strict"
    return sent_back(begun.document["address"])


def test_a_login_at_the_provider_is_one_here_until_logout(site: Site) -> None:
    browser = ConsoleBrowser(site.browser.port)
    issuer = urlsplit(site.client.issuer)
    assert browser.get("open").document["provider"] == issuer.netloc
    answer = returned(browser)
    reply = browser.post("login", **answer)
    assert (reply.status, reply.document["name"]) == (200, NAME)
    assert "HttpOnly" in reply.headers["set-cookie"]
    assert browser.get("session").document["name"] == NAME
    assert browser.get("health").status == 200
    cookie = browser.cookie
    assert browser.post("logout").status == 200
    browser.cookie = cookie
    assert browser.get("health").status == 401


def refused(reply: Reply) -> str:
    assert (reply.status, "set-cookie" in reply.headers) == (401, False)
    return reply.sentence


def test_a_code_is_of_the_browser_that_began_and_good_once(site: Site) -> None:
    browser, other = ConsoleBrowser(site.browser.port), ConsoleBrowser(site.browser.port)
    answer = returned(browser)
    sentence = "this login was begun in another browser, or long ago; log in again."
    assert refused(other.post("login", **answer)) == sentence
    stolen = returned(other)
    assert refused(browser.post("login", **stolen)) == sentence
    # With the state of its own, but by another verifier (RFC 7636, section 4.6).
    mixed = {"code": stolen["code"], "state": answer["state"]}
    begun = browser.cookie
    assert "the identity provider refuses the login" in refused(browser.post("login", **mixed))
    answer = returned(browser)
    begun = browser.cookie
    assert browser.post("login", **answer).status == 200
    browser.cookie = begun
    assert "the identity provider refuses the login" in refused(browser.post("login", **answer))


def test_a_token_that_ends_mid_page_ends_the_login(tmp_path: Path) -> None:
    with site_of(tmp_path, ENDS_IN_3_S) as site:
        browser = site.browser
        assert browser.post("login", **returned(browser)).status == 200
        deadline_s = time.monotonic() + 30
        while (reply := browser.get("health")).status == 200:
            assert time.monotonic() < deadline_s
            time.sleep(0.2)
        assert reply.document["error"]["class"] == "NotLetIn"
        assert refused(browser.get("health")) == "log in first."


def test_a_provider_that_names_another_issuer_is_none(site: Site) -> None:
    """OpenID Connect Discovery 1.0, section 4.3."""
    client = replace(site.client, issuer=f"{site.client.issuer}/")
    with pytest.raises(Unavailable) as refusal:
        IdentityProvider(client).begin("http://127.0.0.1:1/")
    own = site.client.issuer
    assert refusal.value.message == (
        f"the identity provider calls itself {own}; have --oidc-issuer say the same, not {own}/."
    )


@pytest.mark.tools
def test_a_person_logs_in_by_a_button_and_comes_back_to_the_page(
    site: Site, tmp_path: Path
) -> None:
    program = Path(__file__).parents[1] / "harness" / "console_program.py"
    address = f"http://{site.browser.host}/"
    folder = Path(os.environ.get("THERMOCLINE_PICTURES", tmp_path))
    done = subprocess.run(
        [python_with_browser(), program, "provider", address, f"folder={folder}"],
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["faults"] == []
    assert (answer["name"], answer["address"]) == (NAME, f"{address}#/health")
    assert answer["left"] == address
    assert answer["refused"] == "✕ the identity provider refuses the login: access_denied."
