"""``system.statements``, ``system.sessions`` and CANCEL QUERY: who sees and ends what, with stock clients."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pytest

from planner.names import TableName
from tests.fixtures.server import SqlServer, serving, settings_of, sqlite_catalog
from thermocline.config.settings import AccessSettings, AdminSettings, Settings

SOON_S = 30.0
USERS = {"ada": "a", "bob": "b", "eve": "e"}
#: Works until it is cancelled.
LONG = "SELECT sum(hash(a.range * b.range)) FROM range(1000000) a, range(1000000) b"
NO_BROKER = {"bootstrap.servers": "127.0.0.1:1"}


def own_settings(folder: Path, **server: Any) -> Settings:
    settings = settings_of({"lake": sqlite_catalog(folder)}, NO_BROKER, users=USERS, **server)
    admins = AdminSettings(users=("eve",))
    return settings.model_copy(update={"access": AccessSettings(admins=admins)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("statements")


@pytest.fixture(scope="module")
def audit(folder: Path) -> Path:
    return folder / "audit.log"


@pytest.fixture(scope="module")
def server(folder: Path, audit: Path) -> Iterator[SqlServer]:
    with serving(own_settings(folder, audit_log=str(audit), audit_text=True)) as running:
        yield running


@pytest.fixture(scope="module")
def table(server: SqlServer) -> TableName:
    return server.create_plain(pa.table({"a": [1, 2, 3]}))


def ask_as(server: SqlServer, user: str, sql: str) -> list[dict[str, Any]]:
    with server.cursor(username=user, password=USERS[user]) as cursor:
        cursor.execute(sql)
        rows: list[dict[str, Any]] = cursor.fetch_arrow_table().to_pylist()
        return rows


def listed(server: SqlServer, user: str, sql: str) -> list[dict[str, Any]]:
    """What a user sees of the statements with this text."""
    rows = ask_as(server, user, "SELECT * FROM system.statements ORDER BY started")
    return [row for row in rows if row["sql"] == sql]


def ended(server: SqlServer, user: str, sql: str) -> list[dict[str, Any]]:
    """The same of those that are over; a call is written down after its client has the answer."""
    until_s = time.monotonic() + SOON_S
    rows: list[dict[str, Any]] = []
    while not rows and time.monotonic() < until_s:
        rows = [row for row in listed(server, user, sql) if row["state"] == "ended"]
    return rows


@contextlib.contextmanager
def running(server: SqlServer, user: str) -> Iterator[tuple[str, list[str]]]:
    """Run ``LONG`` until it is cancelled; give its id and, afterwards, the messages that its client got."""
    messages: list[str] = []

    def run() -> None:
        try:
            ask_as(server, user, LONG)
        except adbc.Error as error:
            messages.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    until_s = time.monotonic() + SOON_S
    rows: list[dict[str, Any]] = []
    while not rows and time.monotonic() < until_s:
        rows = [row for row in listed(server, user, LONG) if row["state"] == "running"]
    yield rows[0]["id"], messages
    thread.join(SOON_S)
    assert not thread.is_alive()


def audited(audit: Path, count: int, **fields: str) -> list[dict[str, Any]]:
    """Lines of the audit log that have ``fields``, once there are ``count``: a thread writes what ended 50 ms ago."""
    until_s = time.monotonic() + SOON_S
    while True:
        whole = [
            line for line in audit.read_text().splitlines(keepends=True) if line[-1] == "\n"
        ]
        lines = [line for line in map(json.loads, whole) if fields.items() <= line.items()]
        if len(lines) >= count or time.monotonic() > until_s:
            return lines
        time.sleep(0.02)


def test_a_statement_that_ended_says_what_the_audit_log_says(
    server: SqlServer, table: TableName, audit: Path
) -> None:
    sql = f"SELECT a, 'ended' FROM {table}"
    assert len(ask_as(server, "ada", sql)) == 3
    [row] = ended(server, "ada", sql)
    [line] = audited(audit, 1, sql=sql)
    for ours, theirs in {
        "id": "id",
        "user": "user",
        "session": "session",
        "outcome": "outcome",
        "rows": "rows",
        "bytes": "bytes",
        "sha256": "sha256",
    }.items():
        assert row[ours] == line[theirs], ours
    assert row["elapsed_s"] == pytest.approx(line["seconds"], abs=0.01)
    assert (row["state"], row["waits_for"], row["tables"]) == ("ended", None, [str(table)])


def test_others_see_nothing_of_it_and_admins_all(server: SqlServer, table: TableName) -> None:
    sql = f"SELECT a, 'mine' FROM {table}"
    ask_as(server, "ada", sql)
    assert len(ended(server, "ada", sql)) == 1
    assert [len(listed(server, user, sql)) for user in ("bob", "eve")] == [0, 1]
    users = "SELECT DISTINCT user FROM system.sessions"
    with server.cursor(username="ada", password="a") as cursor:
        cursor.execute("SELECT 1")
        assert ask_as(server, "bob", users) == [{"user": "bob"}]
        assert {"ada", "eve"} <= {row["user"] for row in ask_as(server, "eve", users)}
    own = ask_as(server, "bob", "SELECT * FROM system.sessions WHERE is_own")
    assert [(row["user"], row["calls"], row["catalog"]) for row in own] == [("bob", 1, "lake")]


def test_statements_without_a_table_are_forgotten_unless_they_failed(server: SqlServer) -> None:
    ping, wrong = "SELECT 'no table'", "SELECT no_such_column"
    ask_as(server, "bob", ping)
    with pytest.raises(adbc.Error):
        ask_as(server, "bob", wrong)
    assert {row["outcome"] for row in ended(server, "bob", wrong)} == {"BadStatement"}
    assert listed(server, "bob", ping) == []


def test_a_running_one_is_cancelled_by_its_user(server: SqlServer, audit: Path) -> None:
    with running(server, "ada") as (statement_id, messages):
        with pytest.raises(adbc.Error) as refusal:
            ask_as(server, "bob", f"CANCEL QUERY '{statement_id}'")
        assert f"There is no running statement '{statement_id}' of yours" in str(refusal.value)
        assert ask_as(server, "ada", f"cancel query '{statement_id}';") == []
    assert "The statement was cancelled" in messages[0]
    assert statement_id in messages[0]
    cancels = audited(audit, 2, cancels=statement_id)
    assert [(line["user"], line["outcome"]) for line in cancels] == [
        ("bob", "UnknownHandle"),
        ("ada", "ok"),
    ]
    outcomes = {row["id"]: row["outcome"] for row in ended(server, "ada", LONG)}
    assert outcomes[statement_id] == "Cancelled"


def test_an_admin_cancels_anothers(server: SqlServer) -> None:
    with running(server, "ada") as (statement_id, messages):
        ask_as(server, "eve", f"CANCEL QUERY '{statement_id}'")
    assert "The statement was cancelled" in messages[0]


def test_admins_are_taken_over_by_a_reload(folder: Path) -> None:
    from thermocline.serve.assembly import running_server

    before = own_settings(folder)
    after = before.model_copy(update={"access": AccessSettings()})
    with running_server(before, read=lambda: after) as run:
        server = SqlServer(run, before)
        users = "SELECT DISTINCT user FROM system.sessions ORDER BY user"
        with server.cursor(username="ada", password="a") as cursor:
            cursor.execute("SELECT 1")
            assert ask_as(server, "eve", users) == [{"user": "ada"}, {"user": "eve"}]
            run.reload()
            assert ask_as(server, "eve", users) == [{"user": "eve"}]


def test_anonymous_callers_see_their_own_session_and_no_text(tmp_path: Path) -> None:
    settings = settings_of({"lake": sqlite_catalog(tmp_path)}, NO_BROKER)
    with serving(settings) as server:
        table = server.create_plain(pa.table({"a": [1]}))
        sql = f"SELECT a FROM {table}"
        cookies = {"adbc.flight.sql.rpc.with_cookie_middleware": "true"}
        with server.cursor(**cookies) as first, server.cursor(**cookies) as second:
            first.execute(sql)
            first.fetchall()
            for cursor, expected in (first, 1), (second, 0):
                cursor.execute(
                    "SELECT sql, sha256 FROM system.statements WHERE state = 'ended'"
                )
                rows = cursor.fetch_arrow_table().to_pylist()
                digest = hashlib.sha256(sql.encode()).hexdigest()
                assert rows == [{"sql": None, "sha256": digest}] * expected
                cursor.execute("SELECT is_own FROM system.sessions")
                assert cursor.fetchall() == [(True,)]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT * FROM lake.system.tails", "there is no table lake.system.tails"),
        ("SELECT * FROM system.nothing", "there is no table system.nothing"),
        (
            "SELECT * FROM system.tails AT (VERSION => 3)",
            "system.tails has no versions; leave AT out",
        ),
        ("CANCEL QUERY", "syntax error"),
        ("CANCEL QUERY '0123456789abcdef'", "There is no running statement '0123456789abcdef'"),
    ],
)
def test_what_is_no_such_thing_is_refused_by_name(
    server: SqlServer, sql: str, message: str
) -> None:
    with pytest.raises(adbc.Error, match=r"statement [0-9a-f]{16}") as refusal:
        ask_as(server, "ada", sql)
    assert message in str(refusal.value)


def test_names_are_written_as_of_any_table(server: SqlServer) -> None:
    sql = (
        'SELECT s.user, system.sessions.id = s.session AS same FROM SYSTEM."Statements" s '
        "JOIN system.sessions ON system.sessions.id = s.session WHERE s.state = ?"
    )
    with server.cursor(username="bob", password="b") as cursor:
        cursor.execute(sql, ("running",))
        assert cursor.fetchall() == [("bob", True)]
