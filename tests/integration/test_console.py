"""The console over a real server with logins and grants: what pages say is what the server says to that person."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pytest

from planner.schema import Column
from tests.fixtures.certificates import Authority
from tests.fixtures.kafka import Kafka
from tests.fixtures.server import SqlServer, settings_of, sqlite_catalog
from tests.harness.console_browser import ConsoleBrowser, console_over
from thermocline.config.settings import AccessSettings, AdminSettings, Granted
from thermocline.console.person import ConsoleTarget, Person
from thermocline.serve.assembly import running_server

PASSWORD = "of-a-test"
COLUMNS = [Column(1, "id", pa.int64()), Column(2, "name", pa.string())]
SCRIPT = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def served(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlServer]:
    catalogs = {"lake": sqlite_catalog(tmp_path_factory.mktemp("console"))}
    users = dict.fromkeys(("anna", "filtered", "boss"), PASSWORD)
    settings = settings_of(catalogs, kafka.settings, users=users).model_copy(
        update={
            "access": AccessSettings(admins=AdminSettings(users=("boss",))),
            "permissions": {
                "all": Granted(users=("anna", "boss"), tables=("lake.net.*",)),
                "some": Granted(users=("filtered",), tables=("lake.net.events",), rows="id < 3", without=("name",)),
            },
        }
    )  # fmt: skip
    with running_server(settings) as running:
        yield SqlServer(running, settings)


@pytest.fixture(scope="module")
def topic(served: SqlServer, kafka: Kafka) -> str:
    """Of a table ``lake.net.events`` with ten hot rows in two partitions."""
    topic = kafka.topic(2)
    name = served.name()
    served.bind(topic, COLUMNS, name=type(name)("lake", ("net",), "events"))
    for partition in (0, 1):
        rows = [{"id": 2**60 + n, "name": SCRIPT} for n in range(5 + partition)]
        kafka.produce(topic, [json.dumps(row).encode() for row in rows], partition=partition)
    large = pa.table({"n": [1], "text": ["x" * 10_000_000]})
    served.create_plain(large, name=type(name)("lake", ("net",), "archive"))
    served.refresh()
    return topic


@pytest.fixture(scope="module")
def console(served: SqlServer, topic: str) -> Iterator[ConsoleBrowser]:
    with console_over(served.uri, partial(Person, ConsoleTarget(served.uri))) as browser:
        yield browser


def browser_of(console: ConsoleBrowser, user: str) -> ConsoleBrowser:
    browser = ConsoleBrowser(console.port)
    assert browser.log_in(user, PASSWORD).status == 200
    return browser


@pytest.fixture(scope="module")
def anna(console: ConsoleBrowser) -> ConsoleBrowser:
    return browser_of(console, "anna")


def ended(browser: ConsoleBrowser, sql: str, **more: str) -> tuple[str, dict[str, Any]]:
    reply = browser.post("statements", sql=sql, **more)
    assert reply.status == 200, reply.body
    name = reply.document["id"]
    deadline_s = time.monotonic() + 30
    while (state := browser.get(f"statements/{name}").document)["state"] == "running":
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    return name, state


EVENTS = {"catalog": "lake", "schema": "net", "table": "events"}


def test_a_login_is_the_servers(console: ConsoleBrowser) -> None:
    browser = ConsoleBrowser(console.port)
    assert browser.get("open").document["is_open"] is False
    reply = browser.log_in("anna", "wrong")
    assert (reply.status, reply.document["error"]["class"]) == (401, "NotLetIn")
    assert browser.get("tables").status == 401
    assert browser.log_in("anna", PASSWORD).document["name"] == "anna"


def test_the_seam_of_the_page_is_that_of_sql(anna: ConsoleBrowser, served: SqlServer) -> None:
    page = anna.get("seam", **EVENTS).document
    login = {"username": "anna", "password": PASSWORD}
    with served.cursor(**login) as cursor:
        cursor.execute(
            'SELECT kafka_partition, watermark, log_end, tail_offsets FROM lake.net."events$seam" ORDER BY 1'
        )
        expected = cursor.fetchall()
    assert expected == [(0, 0, 5, 5), (1, 0, 6, 6)]
    fields = ("kafka_partition", "watermark", "log_end", "tail_offsets")
    assert [tuple(int(row[name]) for name in fields) for row in page["seam"]] == expected
    assert [(tail["kafka_partition"], tail["lag"]) for tail in page["tails"]] == [
        ("0", "5"),
        ("1", "6"),
    ]


def test_a_snapshot_of_before_the_page_was_opened_can_be_gone_back_to(
    anna: ConsoleBrowser, served: SqlServer
) -> None:
    [first] = anna.get("table", **EVENTS).document["snapshots"]
    with served.catalog() as catalog:
        [entry] = catalog.load_table(("net", "events")).metadata.snapshots
    assert first == {
        "snapshot_id": str(entry.snapshot_id),
        "since_ms": str(entry.timestamp_ms),
    }
    rows = anna.get("seam", **EVENTS, at=first["snapshot_id"]).document["seam"]
    assert [row["watermark"] for row in rows] == ["0", "0"]


def test_a_page_asks_one_statement(served: SqlServer, topic: str) -> None:
    statements: list[str] = []

    class Counted(Person):
        def ask(
            self, sql: str, cut: str | None = None, parameters: Sequence[str] | None = None
        ) -> pa.Table:
            statements.append(sql)
            return super().ask(sql, cut, parameters)

    with console_over(served.uri, partial(Counted, ConsoleTarget(served.uri))) as browser:
        browser.log_in("anna", PASSWORD)
        [tails, seam] = browser.get("seam", **EVENTS).document.values()
        assert [row["kafka_partition"] for row in tails] == ["0", "1"]
        assert [row["kafka_partition"] for row in seam] == ["0", "1"]
        health = browser.get("health").document
        assert ([row["name"] for row in health["catalogs"]], len(health["brokers"])) == (
            ["lake"],
            1,
        )
        running = browser.get("running").document
        assert {row["user"] for row in running["sessions"]} == {"anna"}
        browser.get("tables")
    assert len(statements) == 4
    assert topic == tails[0]["topic"]


def test_pages_show_what_grants_open(anna: ConsoleBrowser, console: ConsoleBrowser) -> None:
    tables = {row["table"]: row for row in anna.get("tables").document["tables"]}
    assert set(tables) == {"events", "archive"}
    assert (tables["events"]["lag"], tables["archive"]["state"]) == ("11", None)
    assert anna.get("health").document["brokers"][0]["state"] == "ok"
    filtered = browser_of(console, "filtered")
    [only] = filtered.get("tables").document["tables"]
    assert (only["table"], only["state"], only["lag"]) == ("events", "closed", None)
    seam = filtered.get("seam", **EVENTS).document
    assert (seam["seam"], [row["state"] for row in seam["tails"]]) == ([], ["closed"])
    details = filtered.get("table", **EVENTS).document
    assert "name" not in {row["name"] for row in details["columns"]}
    assert details["snapshots"] == []
    assert anna.get("table", **{**EVENTS, "table": "archive"}).document["snapshots"] == []


def test_an_answer_keeps_every_digit_and_its_cut(anna: ConsoleBrowser) -> None:
    sql = "SELECT id, name FROM lake.net.events ORDER BY id DESC"
    name, state = ended(anna, sql)
    assert (state["state"], state["rows"], state["is_whole"]) == ("finished", 11, True)
    rows = anna.get(f"statements/{name}/rows", start=0, stop=1).document["rows"]
    assert rows == [[str(2**60 + 5), SCRIPT]]
    csv = anna.send("GET", f"/api/statements/{name}/file?format=csv")
    assert csv.body.decode().splitlines()[:2] == ['"id","name"', f'{2**60 + 5},"{SCRIPT}"']
    assert csv.headers["content-disposition"] == 'attachment; filename="answer.csv"'
    _, again = ended(anna, sql, cut=state["cut"])
    assert (again["cut"], again["rows"]) == (state["cut"], 11)
    sides = anna.post("explain", sql=sql).document["sides"]
    assert [(side["side"], side["offsets"]) for side in sides] == [
        ("cold", None),
        ("tail", "11"),
    ]


def test_a_value_of_ten_megabytes_is_an_answer(anna: ConsoleBrowser) -> None:
    name, state = ended(anna, "SELECT text FROM lake.net.archive")
    assert (state["state"], state["rows"], state["error"]) == ("finished", 1, None)
    [[cell]] = anna.get(f"statements/{name}/rows").document["rows"]
    assert cell == ["x" * 500, 10_000_000]


def test_a_setting_of_one_statement_is_of_no_other(anna: ConsoleBrowser) -> None:
    for _ in range(4):
        _, state = ended(anna, "SET freshness = 'cold'")
        assert state["state"] == "finished"
    _, state = ended(anna, "SELECT id FROM lake.net.events")
    assert state["rows"] == 11
    assert len(anna.get("seam", **EVENTS).document["seam"]) == 2


def test_an_error_is_the_servers_sentence(anna: ConsoleBrowser) -> None:
    _, state = ended(anna, "SELECT nothing FROM lake.net.events")
    assert state["state"] == "failed"
    assert state["error"]["message"].startswith(
        'Referenced column "nothing" not found in FROM clause!'
    )


def test_a_cancelled_statement_ends_on_the_server(
    anna: ConsoleBrowser, served: SqlServer
) -> None:
    sql = "SELECT count(*) FROM range(10000000) a, range(10000000) b"
    name = anna.post("statements", sql=sql).document["id"]
    with served.cursor(username="boss", password=PASSWORD) as boss:
        await_rows(boss, 1)
        assert anna.send("DELETE", f"/api/statements/{name}").status == 200
        await_rows(boss, 0)
    deadline_s = time.monotonic() + 20
    while anna.get(f"statements/{name}").document["state"] == "running":
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    assert anna.get(f"statements/{name}").document["state"] == "cancelled"


def await_rows(boss: adbc.Cursor, count: int) -> None:
    """Wait until so many statements of anna run."""
    deadline_s = time.monotonic() + 20
    while True:
        boss.execute(
            "SELECT state, tables FROM system.statements WHERE \"user\" = 'anna' AND state <> 'ended'"
        )
        rows = boss.fetchall()
        if len(rows) == count:
            return
        assert time.monotonic() < deadline_s, rows
        time.sleep(0.05)


def test_an_administrator_ends_what_others_run(
    anna: ConsoleBrowser, console: ConsoleBrowser
) -> None:
    boss, filtered = browser_of(console, "boss"), browser_of(console, "filtered")
    sql = "SELECT count(*) FROM range(10000000) a, range(10000000) b"
    name = anna.post("statements", sql=sql).document["id"]
    deadline_s = time.monotonic() + 20
    while True:
        rows = boss.get("running").document["statements"]
        mine = [row["id"] for row in rows if row["user"] == "anna" and row["state"] != "ended"]
        if mine:
            break
        assert time.monotonic() < deadline_s
        time.sleep(0.2)
    assert {row["user"] for row in filtered.get("running").document["statements"]} == {
        "filtered"
    }
    refused = filtered.post("running/cancel", statement=mine[0])
    assert (refused.status, "There is no running statement" in refused.sentence) == (404, True)
    assert boss.post("running/cancel", statement=mine[0]).status == 200
    while (state := anna.get(f"statements/{name}").document)["state"] == "running":
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    assert (state["state"], state["error"]["class"]) == ("failed", "Cancelled")


def test_an_answer_is_nobody_elses(anna: ConsoleBrowser, console: ConsoleBrowser) -> None:
    name, _ = ended(anna, "SELECT 1")
    boss = browser_of(console, "boss")
    for path in ("", "/rows", "/cell", "/file?format=csv", "/points"):
        assert boss.send("GET", f"/api/statements/{name}{path}").status == 404
    assert boss.send("DELETE", f"/api/statements/{name}").status == 404


def test_a_page_goes_on_when_its_server_was_started_again(tmp_path: Path) -> None:
    settings = settings_of({"lake": sqlite_catalog(tmp_path)}, {}, users={"anna": PASSWORD})
    with running_server(settings) as running:
        uri = f"grpc://127.0.0.1:{running.port}"
        again = settings.model_copy(
            update={"server": settings.server.model_copy(update={"port": running.port})}
        )
    with console_over(uri, partial(Person, ConsoleTarget(uri))) as browser:
        with running_server(again):
            assert browser.log_in("anna", PASSWORD).status == 200
            assert browser.get("health").status == 200
        reply = browser.get("tables")
        assert (reply.status, reply.sentence) == (
            503,
            "the server does not answer; the page goes on once it does.",
        )
        with running_server(again):
            assert browser.get("names").document == {"columns": []}
            _, state = ended(browser, "SELECT 1")
            assert state["state"] == "finished"


def test_the_command_serves_over_tls_until_it_is_told_to_end(
    served: SqlServer, authority: Authority, tmp_path: Path
) -> None:
    pem = authority.server()
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    certificate.write_bytes(pem.certificate)
    key.write_bytes(pem.key)
    command = [
        sys.executable,
        "-m",
        "thermocline",
        "console",
        "--server",
        served.uri,
        "--port",
        "0",
    ]
    with subprocess.Popen(
        [*command, "--tls-certificate", str(certificate), "--tls-key", str(key)],
        stderr=subprocess.PIPE,
        text=True,
    ) as console:
        assert console.stderr is not None
        try:
            said = console.stderr.readline()
            match = re.search(r"is on https://127\.0\.0\.1:(\d+)/$", said)
            assert match is not None, said
            trusted = ssl.create_default_context(cadata=authority.certificate.decode())
            connection = http.client.HTTPSConnection(
                "127.0.0.1", int(match[1]), context=trusted
            )
            with contextlib.closing(connection):
                connection.request("GET", "/")
                assert b"<title>Thermocline</title>" in connection.getresponse().read()
        finally:
            console.send_signal(signal.SIGTERM)
            assert console.wait(30) == 0
