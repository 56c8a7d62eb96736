"""The audit log: one line for each statement that ended and each call that failed, and no more than it may say."""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from planner.names import TableName
from proxy.access.authentication.callers import Access, FixedUsers
from proxy.ops.audit_log import AuditLog
from proxy.ops.call_record import CallRecord, Journal
from tests.fixtures.server import serving, settings_of, sqlite_catalog
from tests.harness.canned import USERS, CannedBackend, CannedServer, serve
from tests.harness.wire import bodies, fetched, login, packed, prepare, select, ticket
from thermocline.serve.auditing import open_journal

SOON_S = 30
NOW = datetime(2026, 11, 21, 20, 15, tzinfo=UTC)


class Lines:
    """Keeps the lines; a line is written after the client has its answer, so who reads waits."""

    def __init__(self) -> None:
        self.arrived = threading.Semaphore(0)
        self.texts: list[str] = []

    def put(self, line: str) -> None:
        self.texts.append(line)
        self.arrived.release()

    def next(self) -> dict[str, Any]:
        assert self.arrived.acquire(timeout=SOON_S), "no line arrived"
        line: dict[str, Any] = json.loads(self.texts.pop(0))
        return line


@pytest.fixture
def lines() -> Lines:
    return Lines()


def journal(lines: Lines, *, with_text: bool = False) -> Journal:
    return AuditLog(lines.put, with_text=with_text, now=lambda: NOW).write


@pytest.fixture
def audited(backend: CannedBackend, lines: Lines) -> Iterator[CannedServer]:
    server = serve(backend, Access(FixedUsers(USERS).verify), journals=[journal(lines)])
    yield CannedServer(server, backend)
    assert server.stop(10)


@pytest.fixture
def client(audited: CannedServer) -> Iterator[flight.FlightClient]:
    with closing(flight.connect(audited.uri)) as connected:
        yield connected


@pytest.fixture
def ada(client: flight.FlightClient) -> flight.FlightCallOptions:
    return login(client, "ada")


def id_of(error: BaseException, word: str = "statement") -> str:
    items = re.search(rf"\({word} ([0-9a-f]{{16}})\)", str(error))
    assert items, str(error)
    return items[1]


def test_a_statement_that_ended_is_one_line(
    client: flight.FlightClient, ada: flight.FlightCallOptions, lines: Lines
) -> None:
    sql = "SELECT * FROM range(3) AS t(a)"
    assert len(fetched(client, sql, ada)) == 3
    line = lines.next()
    seconds, session, peer = line.pop("seconds"), line.pop("session"), line.pop("peer")
    assert 0 < seconds < SOON_S
    assert re.fullmatch("[0-9a-f]{8}", session)
    assert "127.0.0.1" in peer
    assert re.fullmatch("[0-9a-f]{16}", line.pop("id"))
    assert 24 <= line.pop("bytes") < 100
    assert line == {
        "time": "2026-11-21T20:15:00.000+00:00",
        "call": "DO_GET",
        "user": "ada",
        "sha256": hashlib.sha256(sql.encode()).hexdigest(),
        "cut": {"lake.main.flows": "snapshot 7"},
        "rows": 3,
        "outcome": "ok",
    }
    assert lines.texts == []


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (
            lambda client, ada: client.get_flight_info(select("trick fail TailGap"), ada),
            "TailGap",
        ),
        (lambda client, ada: prepare(client, "nonsense", ada), "BadStatement"),
        (
            lambda client, ada: fetched(client, "trick late_fail LogUnavailable", ada),
            "LogUnavailable",
        ),
    ],
)
def test_the_client_s_error_and_the_line_carry_one_id(
    client: flight.FlightClient,
    ada: flight.FlightCallOptions,
    lines: Lines,
    call: Callable[[flight.FlightClient, Any], Any],
    kind: str,
) -> None:
    with pytest.raises((pa.ArrowException, KeyError)) as result:
        call(client, ada)
    line = lines.next()
    assert line["id"] == id_of(result.value)
    assert (line["outcome"], line["user"]) == (kind, "ada")
    assert re.fullmatch("[0-9a-f]{64}", line["sha256"])
    assert lines.texts == []


def test_a_fault_of_ours_is_named_no_further(
    client: flight.FlightClient, ada: flight.FlightCallOptions, lines: Lines
) -> None:
    with pytest.raises(flight.FlightInternalError) as result:
        fetched(client, "trick bug", ada)
    line = lines.next()
    assert line["outcome"] == "Internal"
    assert line["id"] in str(result.value)


def test_the_same_ticket_has_the_same_id_wherever_it_is_redeemed(
    client: flight.FlightClient, ada: flight.FlightCallOptions, lines: Lines
) -> None:
    info = client.get_flight_info(select("SELECT 1 AS a"), ada)
    for _ in range(2):
        client.do_get(info.endpoints[0].ticket, ada).read_all()
    assert lines.next()["id"] == lines.next()["id"]


def test_a_statement_its_client_left_is_told_as_left(
    audited: CannedServer,
    client: flight.FlightClient,
    ada: flight.FlightCallOptions,
    lines: Lines,
) -> None:
    info = client.get_flight_info(select("trick slow"), ada)
    reader = client.do_get(info.endpoints[0].ticket, ada)
    assert reader.read_chunk().data.num_rows == 1
    reader.cancel()
    line = lines.next()
    assert line["outcome"] in ("Cancelled", "Abandoned")
    assert line["rows"] == 1


def test_what_a_session_sets_is_a_statement_and_browsing_is_none(
    client: flight.FlightClient, ada: flight.FlightCallOptions, lines: Lines
) -> None:
    client.do_get(ticket("CommandGetCatalogs"), ada).read_all()
    client.get_flight_info(select("SELECT 1"), ada)
    client.get_flight_info(select("SET time_zone = 'UTC'"), ada)
    line = lines.next()
    assert line["sha256"] == hashlib.sha256(b"SET time_zone = 'UTC'").hexdigest()
    assert (line["outcome"], line["rows"]) == ("ok", 0)
    assert lines.texts == []


def test_messages_that_are_none_and_logins_that_fail_are_written_too(
    client: flight.FlightClient, ada: flight.FlightCallOptions, lines: Lines
) -> None:
    with pytest.raises(pa.ArrowInvalid) as result:
        bodies(client, "CreatePreparedStatement", packed("CommandGetCatalogs"), ada)
    line = lines.next()
    assert line["id"] == id_of(result.value, "request")
    assert (line["call"], line["outcome"]) == ("DO_ACTION", "Malformed")
    assert "sha256" not in line
    with pytest.raises(flight.FlightUnauthenticatedError) as refused:
        client.authenticate_basic_token("eve\n{", "wrong")
    line = lines.next()
    assert line["id"] == id_of(refused.value, "request")
    assert line["call"] == "HANDSHAKE"
    assert line["claimed_user"] == "eve\n{"
    assert line["outcome"] == "Unauthenticated"
    assert "user" not in line


def test_the_text_is_written_only_where_that_is_wanted(
    backend: CannedBackend, lines: Lines
) -> None:
    sql = "SELECT 'a secret\nhabit' AS \U0001f600"
    for with_text in (False, True):
        server = serve(
            backend,
            Access(allow_anonymous=True),
            journals=[journal(lines, with_text=with_text)],
        )
        with closing(flight.connect(f"grpc://127.0.0.1:{server.port}")) as client:
            fetched(client, sql)
        assert server.stop(10)
        assert lines.arrived.acquire(timeout=SOON_S)
        text = lines.texts.pop(0)
        assert "\n" not in text
        line = json.loads(text)
        assert line.get("sql") == (sql if with_text else None)
        assert ("secret" in text) is with_text
        assert line["user"] is None


def test_a_journal_that_fails_costs_the_client_nothing(
    backend: CannedBackend, caplog: pytest.LogCaptureFixture
) -> None:
    failed = threading.Event()

    def fails(record: CallRecord) -> None:
        failed.set()
        raise OSError("disk full")

    server = serve(backend, Access(allow_anonymous=True), journals=[fails])
    with closing(flight.connect(f"grpc://127.0.0.1:{server.port}")) as client:
        assert fetched(client, "SELECT 1 AS a") == [{"a": 1}]
    assert failed.wait(SOON_S)
    assert server.stop(10)
    assert "was not written down" in caplog.text


def test_the_real_server_writes_a_file_and_finds_it_again_after_a_rotation(
    tmp_path: Path,
) -> None:
    log = tmp_path / "audit.jsonl"
    catalogs = {"lake": sqlite_catalog(tmp_path)}
    with serving(settings_of(catalogs, {}, audit_log=str(log))) as canned_server:
        table = canned_server.create_plain(
            pa.table({"a": [1, 2]}), name=TableName("lake", ("net",), "t")
        )
        with canned_server.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {table}")
            cursor.fetch_arrow_table()
            until = time.monotonic() + SOON_S
            while not log.read_bytes():  # written after the client has its answer
                assert time.monotonic() < until
                time.sleep(0.01)
            log.rename(tmp_path / "audit.1")
            with suppress(Exception):
                cursor.execute("SELECT nosuch")
    [ended] = map(json.loads, (tmp_path / "audit.1").read_text().splitlines())
    [failed] = map(json.loads, log.read_text().splitlines())
    assert (ended["rows"], ended["outcome"]) == (2, "ok")
    assert re.fullmatch(r"snapshot \d+", ended["cut"]["lake.net.t"])
    assert failed["outcome"] == "BadStatement"
    for file in (log, tmp_path / "audit.1"):
        assert file.stat().st_mode & 0o777 == 0o600


def test_a_file_that_was_there_keeps_the_rights_of_its_group_and_nobody_elses(
    tmp_path: Path,
) -> None:
    log = tmp_path / "audit.jsonl"
    for before, after in ((0o644, 0o640), (0o600, 0o600), (0o666, 0o660)):
        log.touch()
        log.chmod(before)
        with open_journal(settings_of({}, {}, audit_log=str(log))):
            assert log.stat().st_mode & 0o777 == after
