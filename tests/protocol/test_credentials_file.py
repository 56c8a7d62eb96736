"""Users and static tokens of the credentials file, through a server, and while the file changes."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import adbc_driver_flightsql.dbapi as adbc
import pytest
from adbc_driver_manager import ProgrammingError
from click.testing import CliRunner
from pyarrow import flight

from planner.errors import BadConfig
from proxy.access.authentication.callers import Access
from proxy.access.authentication.credentials import Credentials, entry, make_token
from proxy.access.authentication.hashes import Passwords, make_hash
from tests.fixtures.jdbc import Jdbc, query, values
from tests.harness.canned import CannedBackend, CannedServer, serve
from tests.harness.wire import NoHandshake, bearer, bodies, fetched, prepare
from thermocline.cli import app

TOKEN, DIGEST = make_token()


class Clock:
    """Seconds, forward as told. Every look at the credentials is late enough to look at the file again."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 10
        return self.now_s


@pytest.fixture(scope="module")
def hashed() -> str:
    return make_hash("pässword:1")


@pytest.fixture
def file(tmp_path: Path, hashed: str) -> Path:
    path = tmp_path / "credentials.toml"
    path.write_text(
        entry("users", "ada", "password", hashed, ["analysts", "eu"])
        + entry("tokens", "dashboards", "sha256", DIGEST)
    )
    return path


@pytest.fixture
def server_with_credentials_file(backend: CannedBackend, file: Path) -> Iterator[CannedServer]:
    credentials = Credentials(file, clock_s=Clock())
    server = serve(backend, Access(verify=credentials.verify, tokens=(credentials.token,)))
    yield CannedServer(server, backend)
    assert server.stop(10)


def login(canned_server: CannedServer, user: str, password: str) -> adbc.Connection:
    value = {"username": user, "password": password}
    return adbc.connect(canned_server.uri, db_kwargs=value, autocommit=True)


def test_a_user_logs_in_and_statements_run_in_their_name(
    server_with_credentials_file: CannedServer,
) -> None:
    with (
        login(server_with_credentials_file, "ada", "pässword:1") as connection,
        connection.cursor() as cur,
    ):
        cur.execute("SELECT 1")
        assert cur.fetchall() == [(1,)]
    assert server_with_credentials_file.backend.planned_in is not None
    assert server_with_credentials_file.backend.planned_in.user == "ada"
    assert server_with_credentials_file.backend.planned_in.groups == {"analysts", "eu"}


@pytest.mark.parametrize(
    ("user", "password"),
    [("ada", "wrong"), ("eve", "pässword:1"), ("dashboards", "")],
)
def test_others_are_told_nothing_of_who_exists(
    server_with_credentials_file: CannedServer, user: str, password: str
) -> None:
    with pytest.raises(ProgrammingError, match="Unknown user or wrong password") as caught:
        login(server_with_credentials_file, user, password).close()
    # The request's id is random and hexadecimal.
    assert "ada" not in re.sub(r"request [0-9a-f]{16}", "", str(caught.value))


def test_a_static_token_needs_no_handshake_and_survives_the_end_of_its_sessions(
    server_with_credentials_file: CannedServer,
) -> None:
    for _ in range(2):
        value = {"adbc.flight.sql.authorization_header": f"Bearer {TOKEN}"}
        # Closing the connection sends CloseSession.
        with (
            adbc.connect(
                server_with_credentials_file.uri, db_kwargs=value, autocommit=True
            ) as connection,
            connection.cursor() as cur,
        ):
            cur.execute("SELECT 1")
            assert cur.fetchall() == [(1,)]
    assert server_with_credentials_file.backend.planned_in is not None
    assert server_with_credentials_file.backend.planned_in.user == "dashboards"


def test_two_connections_with_one_static_token_are_two_sessions(
    server_with_credentials_file: CannedServer,
) -> None:
    with (
        closing(flight.connect(server_with_credentials_file.uri)) as one,
        closing(flight.connect(server_with_credentials_file.uri)) as two,
    ):
        prepare(one, "SELECT 1", bearer(TOKEN))
        bodies(two, "CloseSession", b"", bearer(TOKEN))
        assert fetched(one, "SELECT 1 AS a", bearer(TOKEN)) == [{"a": 1}]


def test_jdbc_shakes_hands_with_a_static_token(
    server_with_credentials_file: CannedServer, jdbc: Jdbc
) -> None:
    _, outcome, closed = jdbc.run(
        [query("SELECT 1")], port=server_with_credentials_file.port, properties={"token": TOKEN}
    )
    assert values(outcome) == [["1"]]
    assert "ok" in closed


def test_a_handshake_with_a_static_token_answers_the_token_of_a_session(
    server_with_credentials_file: CannedServer,
) -> None:
    with closing(flight.connect(server_with_credentials_file.uri)) as client:
        client.authenticate(NoHandshake(), bearer(TOKEN))
        with pytest.raises(flight.FlightUnauthenticatedError, match="unknown or over"):
            fetched(client, "SELECT 1", bearer(TOKEN + "x"))


def test_a_removed_user_s_session_ends_and_a_changed_password_s_too(
    server_with_credentials_file: CannedServer, file: Path, hashed: str
) -> None:
    with closing(flight.connect(server_with_credentials_file.uri)) as client:
        _, inputs = client.authenticate_basic_token("ada", "pässword:1")
        session = bearer(inputs.decode().removeprefix("Bearer "))
        assert fetched(client, "SELECT 1 AS a", session) == [{"a": 1}]
        file.write_text(entry("users", "bob", "password", hashed))
        with pytest.raises(flight.FlightUnauthenticatedError, match="not valid any more"):
            fetched(client, "SELECT 1", session)
        with pytest.raises(flight.FlightUnauthenticatedError, match="unknown or over"):
            fetched(client, "SELECT 1", bearer(TOKEN))
        with pytest.raises(flight.FlightUnauthenticatedError, match="wrong password"):
            client.authenticate_basic_token("ada", "pässword:1")
        _, inputs = client.authenticate_basic_token("bob", "pässword:1")
        session = bearer(inputs.decode().removeprefix("Bearer "))
        assert fetched(client, "SELECT 1 AS a", session) == [{"a": 1}]
        file.write_text(entry("users", "bob", "password", make_hash("another")))
        with pytest.raises(flight.FlightUnauthenticatedError, match="not valid any more"):
            fetched(client, "SELECT 1", session)


@pytest.mark.parametrize("damage", ["[users", '[users.eve]\npassword = "plain"\n', None])
def test_a_file_that_went_wrong_locks_nobody_out_and_is_told_once(
    file: Path, damage: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    credentials = Credentials(file, clock_s=Clock())
    good = file.read_text()
    with caplog.at_level(logging.ERROR):
        if damage is None:
            file.unlink()
        else:
            file.write_text(damage)
        for _ in range(3):
            assert credentials.verify("ada", "pässword:1") is not None
            assert credentials.token(TOKEN) is not None
    assert len(caplog.records) == 1
    file.write_text(good.replace("ada", "eva"))
    assert credentials.verify("ada", "pässword:1") is None
    assert credentials.verify("eva", "pässword:1") is not None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[users", "not a file of"),
        ("users = " + "[" * 5_000, "nested too deeply"),
        ("users = 3", "not a file of"),
        ('[users.ada]\npassword = "secret"', "users.ada.password is not an argon2 hash"),
        ('[users.ada]\npassword = "x"\nadmin = true', "admin"),
        ('[tokens.t]\nsha256 = "abc"', "tokens.t.sha256 is not the SHA-256"),
        (
            "".join(entry("tokens", name, "sha256", DIGEST) for name in ("a", "b")),
            "the same token",
        ),
    ],
)
def test_at_the_start_a_wrong_file_is_refused_without_showing_a_secret(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "credentials.toml"
    path.write_text(text)
    with pytest.raises(BadConfig, match=message) as caught:
        Credentials(path, clock_s=Clock())
    assert "secret" not in str(caught.value)


def test_a_password_that_was_right_is_not_computed_again(hashed: str) -> None:
    clock = Clock()
    checked = Passwords(clock)
    assert checked.matches(hashed, "pässword:1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "proxy.access.authentication.hashes._verify",
            lambda *_: pytest.fail("computed again"),
        )
        assert checked.matches(hashed, "pässword:1")
    clock.now_s += 1_000
    assert checked.matches(hashed, "pässword:1")
    assert not checked.matches(hashed, "pässword:2")
    assert not checked.matches(None, "pässword:1")


def test_the_commands_print_entries_that_work(tmp_path: Path) -> None:
    run = CliRunner()
    request = ["password", 'o\'hara "x"', "--group", "eu", "--stdin"]
    user = run.invoke(app, request, input="hush\n", catch_exceptions=False)
    token = run.invoke(app, ["token", "bot"], catch_exceptions=False)
    path = tmp_path / "credentials.toml"
    path.write_text(user.stdout + token.stdout)
    credentials = Credentials(path, clock_s=Clock())
    result = credentials.verify('o\'hara "x"', "hush")
    assert result is not None
    assert result.groups == {"eu"}
    reply = token.stderr.removeprefix("token: ").strip()
    assert hashlib.sha256(reply.encode()).hexdigest() in token.stdout
    assert reply not in token.stdout
    bot = credentials.token(reply)
    assert bot is not None
    assert bot.user == "bot"
    assert run.invoke(app, ["password", "x", "--stdin"], input="\n").exit_code == 2
