"""What else may answer at a schema registry's URL, or not answer: each fault has its sentence, and no secret is in any."""

from __future__ import annotations

import datetime as dt
import logging
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from connectors.registry.client import SchemaRegistry
from connectors.registry.http import MAX_ANSWER_BYTES
from connectors.registry.registries import SchemaRegistries
from connectors.registry.texts import MAX_REFERENCES, UnknownSchema, UnusableSchema, WriterText
from planner.errors import BadConfig, FederationError, SchemaRegistryUnavailable
from tests.fixtures.certificates import Authority, Pem
from tests.harness.clock import Clock
from tests.harness.ports import lasting_port
from tests.harness.scripted_registry import Reply, by_id, missing, scripted_registry

NO_OPTIONS: Mapping[str, str] = {}
QUICK = {"retries.wait.ms": "1"}
HTML = "<html><body>Welcome</body></html>"
STRANGE = "is url in [schema_registry] the registry's URL?"
PASSWORD = "hush-hush"


def schema(text: str = '"int"', *references: tuple[str, str, int]) -> Reply:
    names = ("name", "subject", "version")
    return Reply(
        {
            "id": 7,
            "version": 1,
            "schema": text,
            "references": [dict(zip(names, each, strict=True)) for each in references],
        }
    )


def error_of(
    url: str, options: Mapping[str, str] = NO_OPTIONS, timeout_s: float = 10
) -> FederationError:
    """The error of asking for schema id 7."""
    with pytest.raises(FederationError) as caught:
        ask(url, options, timeout_s)
    return caught.value


def ask(url: str, options: Mapping[str, str] = NO_OPTIONS, timeout_s: float = 10) -> object:
    with SchemaRegistry({"url": url, **QUICK, **options}) as registry:
        return by_id(registry, 7, timeout_s=timeout_s)


@pytest.mark.parametrize(
    ("reply", "sentence"),
    [
        (Reply(HTML, kind="text/html; charset=utf-8"), "answered text/html, not JSON"),
        (Reply(HTML, 404, "text/html"), "answered text/html, not JSON"),
        (Reply("", 302, "text/html"), "answered with a redirect (HTTP 302)"),
        (Reply("certainly", kind="application/json"), "answered what is not JSON"),
        (Reply("", 204), "answered what is not JSON"),
        (Reply("[" * 100_000, kind="application/json"), "answered what is not JSON"),
        (Reply({"status": "UP"}), "answered JSON that is not a schema"),
        (Reply([1, 2]), "answered JSON that is not a schema"),
        (Reply({"schema": '"int"', "references": [7]}), "answered JSON that is not a schema"),
        (Reply({"detail": "no such path"}, 404), "answered HTTP 404"),
        (Reply(f'"{"x" * MAX_ANSWER_BYTES}"'), "answered more than 32 MB"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_registry_is_named_by_what_it_answers(reply: Reply, sentence: str) -> None:
    with scripted_registry(reply) as registry:
        error = error_of(registry.url)
        assert type(error) is BadConfig
        assert error.message == f"the schema registry {sentence}; {STRANGE}"
        # Nothing that asking again would cure.
        assert len(registry.paths) == 1


@pytest.mark.parametrize("status", [401, 403, 407])
@pytest.mark.parametrize(
    "reply",
    [Reply({"error_code": 40101, "message": "no"}), Reply(HTML, kind="text/html")],
    ids=["json", "html"],
)
def test_a_refused_login_is_named(status: int, reply: Reply) -> None:
    reply.status = status
    with scripted_registry(reply) as registry:
        error = error_of(registry.url, {"basic.auth.user.info": f"alice:{PASSWORD}"})
        assert type(error) is BadConfig
        assert error.message == (
            f"the schema registry refuses the login (HTTP {status}); check basic.auth.user.info or bearer.auth.* "
            "in [schema_registry]."
        )
        assert len(registry.paths) == 1


@pytest.mark.parametrize("status", [408, 429, 500, 503, 507])
def test_an_outage_is_asked_again_and_then_unavailable(status: int) -> None:
    with scripted_registry(Reply(HTML, status, "text/html")) as registry:
        error = error_of(registry.url)
        assert type(error) is SchemaRegistryUnavailable
        assert error.message == (
            f"the schema registry answers HTTP {status}; retry when it is well again."
        )
        assert len(registry.paths) == 4
        registry.answer = lambda _path: schema() if len(registry.paths) == 6 else Reply("", 503)
        assert ask(registry.url) == WriterText(7, '"int"', {}, "AVRO")


def test_an_outage_is_never_kept_and_an_answer_always() -> None:
    replies = [Reply("", 503), schema()]
    with (
        scripted_registry(lambda _path: replies.pop(0)) as scripted,
        SchemaRegistry({"url": scripted.url, "max.retries": "0"}) as registry,
    ):
        with pytest.raises(SchemaRegistryUnavailable, match="answers HTTP 503"):
            by_id(registry, 7, timeout_s=10)
        for _ in range(3):
            assert by_id(registry, 7, timeout_s=10) == WriterText(7, '"int"', {}, "AVRO")
        assert len(scripted.paths) == 2


def test_unknown_ids_wait_together_and_again_after_a_minute_of_silence() -> None:
    clock = Clock()

    def sleep(seconds: float) -> None:
        clock.now += seconds

    with (
        scripted_registry(missing()) as scripted,
        SchemaRegistry({"url": scripted.url}, clock=clock, sleep=sleep) as registry,
    ):
        both = {each: UnknownSchema(f"schema id {each}") for each in (7, 8)}
        assert registry.by_ids([7, 8], timeout_s=60) == both
        assert (clock.now, len(scripted.paths)) == (1010, 22)
        clock.now += 60
        assert registry.by_ids([7, 8], timeout_s=60) == both
        assert (clock.now, len(scripted.paths)) == (1070, 24)
        clock.now += 70
        assert registry.by_ids([7, 8], timeout_s=60) == both
        assert (clock.now, len(scripted.paths)) == (1150, 46)


def test_many_threads_that_want_one_id_ask_once() -> None:
    at_once = threading.Barrier(8)

    def at_barrier(registry: SchemaRegistry) -> object:
        at_once.wait()
        return by_id(registry, 7, timeout_s=10)

    with (
        scripted_registry(schema()) as scripted,
        SchemaRegistry({"url": scripted.url}) as registry,
        ThreadPoolExecutor(8) as pool,
    ):
        answers = list(pool.map(at_barrier, [registry] * 8))
        assert answers == [WriterText(7, '"int"', {}, "AVRO")] * 8
        assert len(scripted.paths) == 1


@pytest.mark.parametrize(
    "reply",
    [Reply(hangs=True), Reply({"schema": "x" * 100}, drips=True)],
    ids=["hangs", "drips"],
)
def test_one_without_an_end_is_unavailable_when_the_time_is_over(reply: Reply) -> None:
    with scripted_registry(reply) as registry:
        error = error_of(registry.url, timeout_s=0.3)
    assert type(error) is SchemaRegistryUnavailable
    assert error.message == "the schema registry did not answer in time; retry when it does."


def test_another_url_answers_for_one_that_hangs_is_away_or_is_no_registry() -> None:
    with (
        scripted_registry(Reply(hangs=True)) as hanging,
        scripted_registry(Reply(HTML, kind="text/html")) as other,
        scripted_registry(schema()) as registry,
    ):
        away = f"http://127.0.0.1:{lasting_port()}"
        for first in (away, other.url, hanging.url):
            assert ask(f"{first}/, {registry.url}", timeout_s=2) == WriterText(
                7, '"int"', {}, "AVRO"
            )
        assert len(hanging.paths) == len(other.paths) == 1


def test_each_url_has_its_own_login() -> None:
    with scripted_registry(Reply("", 503)) as one, scripted_registry(schema()) as two:
        urls = one.url.replace("://", "://a%3Ab:c@"), two.url.replace("://", "://d:e@")
        assert ask(",".join(urls)) == WriterText(7, '"int"', {}, "AVRO")
        assert (one.logins, two.logins) == (["Basic YTpiOmM="], ["Basic ZDpl"])


@pytest.mark.parametrize(
    ("login", "options", "header"),
    [
        ("", {"basic.auth.user.info": f"alice:{PASSWORD}"}, "Basic YWxpY2U6aHVzaC1odXNo"),
        (f"alice:{PASSWORD}@", {}, "Basic YWxpY2U6aHVzaC1odXNo"),
        (
            "",
            {
                "bearer.auth.credentials.source": "STATIC_TOKEN",
                "bearer.auth.token": PASSWORD,
                "bearer.auth.logical.cluster": "lsrc-1",
            },
            f"Bearer {PASSWORD}",
        ),
    ],
    ids=["basic", "in the URL", "bearer"],
)
def test_logins_reach_the_registry_and_neither_logs_nor_errors(
    login: str, options: dict[str, str], header: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    replies = [schema(), Reply("", 401), Reply("", 500), Reply(HTML, kind="text/html")]
    texts = []
    with scripted_registry(lambda _path: replies.pop(0)) as registry:
        url = registry.url.replace("://", f"://{login}")
        assert ask(url, options) == WriterText(7, '"int"', {}, "AVRO")
        texts = [error_of(url, {**options, "max.retries": "0"}).message for _ in range(3)]
        assert registry.logins == [header] * 4
    away = f"http://{login}127.0.0.1:{lasting_port()}"
    texts += [error_of(away, options).message, caplog.text]
    assert PASSWORD not in "".join(texts)
    assert "alice" not in "".join(texts)
    # Nor is there a line for each request.
    assert "HTTP Request" not in caplog.text


@pytest.mark.parametrize(
    ("token_reply", "sentence"),
    [
        (Reply({"access_token": "abc", "expires_in": 300, "token_type": "Bearer"}), None),
        (
            Reply({"error": "invalid_client", "error_description": PASSWORD}, 401),
            "no token was issued for this login; check bearer.auth.* in [schema_registry].",
        ),
        (
            Reply({"error": "server_error"}, 503),
            "the issuer of its tokens does not answer; retry when it does.",
        ),
        (None, "the issuer of its tokens does not answer; retry when it does."),
    ],
    ids=["well", "refused", "busy", "away"],
)
def test_tokens_by_client_credentials(token_reply: Reply | None, sentence: str | None) -> None:
    with (
        scripted_registry(schema()) as registry,
        scripted_registry(token_reply or Reply()) as issuer,
    ):
        at = f"http://127.0.0.1:{lasting_port()}" if token_reply is None else issuer.url
        options = {
            "bearer.auth.credentials.source": "OAUTHBEARER",
            "bearer.auth.client.id": "thermocline",
            "bearer.auth.client.secret": PASSWORD,
            "bearer.auth.scope": "schemas",
            "bearer.auth.logical.cluster": "lsrc-1",
            "bearer.auth.issuer.endpoint.url": f"{at}/token",
        }
        if sentence is None:
            assert ask(registry.url, options) == WriterText(7, '"int"', {}, "AVRO")
            assert registry.logins == ["Bearer abc"]
            return
        error = error_of(registry.url, options)
        is_outage = "retry" in sentence
        assert type(error) is (SchemaRegistryUnavailable if is_outage else BadConfig)
        assert error.message == f"the schema registry cannot be asked: {sentence}"
        assert registry.paths == []


def server_side(pem: Pem, folder: Path, client_ca: bytes | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    (folder / "server.pem").write_bytes(pem.certificate + pem.key)
    context.load_cert_chain(folder / "server.pem")
    if client_ca is not None:
        context.load_verify_locations(cadata=client_ca.decode())
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def test_certificates_that_do_not_fit_are_named(authority: Authority, tmp_path: Path) -> None:
    ca, key = tmp_path / "ca.pem", tmp_path / "client.pem"
    ca.write_bytes(authority.certificate)
    client = authority.client("thermocline")
    key.write_bytes(client.certificate + client.key)
    other = authority.server("registry.example")
    with scripted_registry(schema(), server_side(authority.server(), tmp_path)) as registry:
        secure = registry.url.replace("http:", "https:")
        untrusted = error_of(secure)
        assert ask(secure, {"ssl.ca.location": str(ca)}) == WriterText(7, '"int"', {}, "AVRO")
        assert type(error_of(registry.url)) is SchemaRegistryUnavailable
    with scripted_registry(schema(), server_side(other, tmp_path)) as registry:
        secure = registry.url.replace("http:", "https:")
        elsewhere = error_of(secure, {"ssl.ca.location": str(ca)})
    old = authority.server(age=dt.timedelta(days=2))
    with scripted_registry(schema(), server_side(old, tmp_path)) as registry:
        secure = registry.url.replace("http:", "https:")
        expired = error_of(secure, {"ssl.ca.location": str(ca)})
    of_client = server_side(authority.server(), tmp_path, authority.certificate)
    with scripted_registry(schema(), of_client) as registry:
        secure = registry.url.replace("http:", "https:")
        anonymous = error_of(secure, {"ssl.ca.location": str(ca)})
        options = {"ssl.ca.location": str(ca), "ssl.certificate.location": str(key)}
        assert ask(secure, options) == WriterText(7, '"int"', {}, "AVRO")
    with scripted_registry(schema()) as registry:
        plain = error_of(registry.url.replace("http:", "https:"))
    errors = (untrusted, elsewhere, expired, anonymous, plain)
    certificate = "the certificate of the schema registry"
    assert [error.message for error in errors] == [
        f"{certificate} is signed by no authority that is trusted here; set ssl.ca.location in [schema_registry] "
        "to that authority's certificate.",
        f"{certificate} is of another host; name a host of the certificate as url in [schema_registry].",
        f"{certificate} is not valid today; renew it, or correct this machine's clock.",
        "TLS with the schema registry fails (TLSV13_ALERT_CERTIFICATE_REQUIRED); check url and the ssl.* options in "
        "[schema_registry].",
        "TLS with the schema registry fails (WRONG_VERSION_NUMBER); check url and the ssl.* options in "
        "[schema_registry].",
    ]
    assert {type(error) for error in errors} == {BadConfig}


def test_a_file_that_is_no_certificate_is_refused_before_anything_is_asked(
    tmp_path: Path,
) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    options = {"url": "https://registry.example", "ssl.ca.location": str(tmp_path / "ca.pem")}
    with pytest.raises(
        BadConfig,
        match=r"^\[schema_registries.plant\]: the client of schema registries does not accept its options; see that",
    ) as caught:
        SchemaRegistry(options, name="plant")
    assert str(tmp_path) not in caught.value.message


#: Its terminal is the one that it is started with.
_AT_A_TERMINAL = """
import fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from connectors.registry.client import SchemaRegistry
from planner.errors import BadConfig
options = {"url": "https://registry.example", "ssl.certificate.location": sys.argv[1]}
try:
    SchemaRegistry(options)
except BadConfig:
    SchemaRegistry({**options, "ssl.key.password": "hush"})
    print("neither", flush=True)
"""


def test_a_key_with_a_password_is_no_question_at_the_terminal(
    authority: Authority, tmp_path: Path
) -> None:
    """OpenSSL asks there, and waits, where it is given none."""
    pem = authority.client("thermocline")
    key = load_pem_private_key(pem.key, None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"hush")
    )
    (tmp_path / "client.pem").write_bytes(pem.certificate + key)
    ours, theirs = os.openpty()
    with os.fdopen(ours, "rb"), os.fdopen(theirs, "rb") as terminal:
        result = subprocess.run(
            [sys.executable, "-c", _AT_A_TERMINAL, str(tmp_path / "client.pem")],
            stdin=terminal,
            capture_output=True,
            start_new_session=True,
            timeout=60,
            text=True,
        )
    assert (result.stdout, result.stderr) == ("neither\n", "")


def in_a_circle(path: str) -> Reply:
    return (
        schema('"b"', ("b", "b", 1)) if "/subjects/a/" in path else schema('"a"', ("a", "a", 1))
    )


def in_a_long_row(path: str) -> Reply:
    at = 0 if "ids" in path else int(path.split("/")[2]) + 1
    return schema('"int"', (f"n{at}", str(at), 1))


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (in_a_circle, "it refers in a circle, through subject a, version 1"),
        (in_a_long_row, f"it refers to more than {MAX_REFERENCES} schemas"),
        (lambda _path: Reply({"schema": "x", "schemaType": "XSD"}), "it is of the type 'XSD'"),
    ],
    ids=["circle", "long row", "type"],
)
def test_what_is_beyond_the_bounds_is_refused_by_name_and_asked_for_once(
    answer: Callable[[str], Reply], why: str
) -> None:
    with (
        scripted_registry(answer) as scripted,
        SchemaRegistry({"url": scripted.url}) as registry,
    ):
        assert by_id(registry, 7, timeout_s=30) == UnusableSchema(7, why)
        requests = len(scripted.paths)
        assert by_id(registry, 7, timeout_s=30) == UnusableSchema(7, why)
        assert len(scripted.paths) == requests <= MAX_REFERENCES + 1


def test_versions_cost_one_request_and_one_for_each_that_is_new() -> None:
    numbers = [1, 2]

    def answer(path: str) -> Reply:
        if path.endswith("/versions"):
            return Reply(numbers)
        version = int(path.split("/")[-1])
        return Reply({"id": 10 + version, "version": version, "schema": '"int"'})

    with (
        scripted_registry(answer) as scripted,
        SchemaRegistry({"url": scripted.url}) as registry,
    ):
        assert registry.versions("a", timeout_s=10) == {1: 11, 2: 12}
        assert len(scripted.paths) == 3
        numbers.append(5)
        assert registry.versions("a", timeout_s=10) == {1: 11, 2: 12, 5: 15}
        assert registry.versions("a", timeout_s=10) == {1: 11, 2: 12, 5: 15}
        assert len(scripted.paths) == 6


def test_a_registry_that_cannot_say_where_an_id_is_registered_says_nothing() -> None:
    replies = [Reply({"error_code": 404, "message": "HTTP 404 Not Found"}, 404), missing()]
    with (
        scripted_registry(lambda _path: replies.pop(0)) as scripted,
        SchemaRegistry({"url": scripted.url}) as registry,
    ):
        assert registry.subject_versions_of(7, timeout_s=10) is None
        assert registry.subject_versions_of(7, timeout_s=10) is not None


def test_registries_by_name() -> None:
    with (
        scripted_registry(schema()) as scripted,
        SchemaRegistries({"plant": {"url": scripted.url}}) as registries,
    ):
        assert registries.of("plant") is registries.of("plant")
        assert by_id(registries.of("plant"), 7, timeout_s=10) == WriterText(
            7, '"int"', {}, "AVRO"
        )
        with pytest.raises(
            SchemaRegistryUnavailable,
            match=r"^no schema registry can be asked: the settings have no \[schema_registry\]; add it, with url\.$",
        ):
            registries.of("")
