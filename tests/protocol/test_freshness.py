"""Freshness, the past and what is waited for, as stock clients ask for them: real statements over the doubles."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import pytest

from proxy.access.authentication.callers import Access
from proxy.access.limits import ServerPolicy
from proxy.flightsql.metadata.sqlinfo import Product
from proxy.flightsql.server import Address, ServerOptions, start
from tests.harness.flows import tier, write
from tests.harness.lake import Lake
from thermocline.cli import main

COUNT = "SELECT count(*) AS n FROM flows"
HEADER = "adbc.flight.sql.rpc.call_header."
OPTION = "adbc.flight.sql.session.option."


@dataclass
class LakeServer:
    lake: Lake
    uri: str

    def connect(self, **options: str) -> adbc.Connection:
        return adbc.connect(self.uri, db_kwargs=options, autocommit=True)


@pytest.fixture(scope="module")
def running() -> Iterator[LakeServer]:
    """Five records; three are cold."""
    lake = Lake()
    write(lake, 0, 5)
    tier(lake, 3)
    server = start(
        lake.statements,
        Address("127.0.0.1", 0),
        ServerPolicy(Access(allow_anonymous=True)),
        ServerOptions(Product("Thermocline", "1")),
    )
    yield LakeServer(lake, f"grpc://127.0.0.1:{server.port}")
    assert server.stop(10)
    lake.stop_server()


@pytest.fixture
def cursor(running: LakeServer) -> Iterator[adbc.Cursor]:
    with running.connect() as connection, connection.cursor() as cur:
        yield cur


def count(cursor: adbc.Cursor, sql: str = COUNT) -> int:
    cursor.execute(sql)
    result: int = cursor.fetchone()[0]  # type: ignore[index]
    return result


def total(running: LakeServer) -> int:
    return running.lake.topics["flows"].end(0)


def test_a_contract_is_set_in_sql_and_shown(running: LakeServer, cursor: adbc.Cursor) -> None:
    for text, expected in {
        "SET freshness = 'cold'": 3,
        "SET freshness = tail": total(running) - 3,
        "SET freshness TO 'Max_Staleness 1h'": total(running),
        "RESET freshness": total(running),
    }.items():
        cursor.execute(text)
        assert count(cursor) == expected
    cursor.execute("SET freshness = 'max_staleness 90s'")
    cursor.execute("SHOW freshness")
    assert cursor.fetchone() == ("max_staleness 90s",)
    with pytest.raises(adbc.ProgrammingError, match="is no freshness; write live"):
        cursor.execute("SET freshness = 'newest'")
    with pytest.raises(adbc.ProgrammingError, match="names no record to wait for"):
        cursor.execute("SET wait_for = 'soon'")
    with pytest.raises(adbc.ProgrammingError, match="not one a server gave out"):
        cursor.execute("SET cut = 'c:soon'")


def test_a_contract_is_a_session_option(running: LakeServer) -> None:
    with running.connect() as connection:
        connection.adbc_connection.set_options(**{f"{OPTION}freshness": "cold"})
        with connection.cursor() as cursor:
            assert count(cursor) == 3
        assert connection.adbc_connection.get_option(f"{OPTION}freshness") == "cold"


def test_a_contract_is_a_header_of_one_call(running: LakeServer, cursor: adbc.Cursor) -> None:
    header = f"{HEADER}thermocline-freshness"
    cursor.adbc_statement.set_options(**{header: "cold"})
    assert count(cursor) == 3
    cursor.adbc_statement.set_options(**{header: "tail"})
    assert count(cursor) == total(running) - 3
    cursor.adbc_statement.set_options(**{header: "worst"})
    with pytest.raises(adbc.ProgrammingError, match="'worst' is no freshness"):
        cursor.execute(COUNT)


def test_a_contract_comes_with_the_connection(running: LakeServer) -> None:
    with (
        running.connect(**{f"{HEADER}freshness": "cold"}) as connection,
        connection.cursor() as cursor,
    ):
        assert count(cursor) == 3


@pytest.mark.parametrize("way", ["metadata", "sql"])
def test_reads_are_repeated_with_the_cut_of_the_first(running: LakeServer, way: str) -> None:
    with running.connect() as connection, connection.cursor() as cursor:
        cursor.execute(
            COUNT
            if way == "metadata"
            else f"SELECT thermocline_cut() AS c, {COUNT[7:]} GROUP BY 1"
        )
        first = cursor.fetch_arrow_table()
        metadata = first.schema.metadata or {}
        cut = (
            metadata[b"thermocline.cut"].decode()
            if way == "metadata"
            else first["c"][0].as_py()
        )
        write(running.lake, 0, 2)
        assert count(cursor) == first["n"][0].as_py() + 2
        assert count(cursor, f"{COUNT} AT (VERSION => '{cut}')") == first["n"][0].as_py()
        cursor.execute(f"SET cut = '{cut}'")
        assert count(cursor) == first["n"][0].as_py()
        cursor.execute("RESET cut")
        assert count(cursor) == first["n"][0].as_py() + 2


def test_a_prepared_statement_tells_its_cut_too(cursor: adbc.Cursor) -> None:
    cursor.execute("SELECT kafka_offset FROM flows WHERE kafka_offset < ?", (2,))
    table = cursor.fetch_arrow_table()
    assert table.num_rows == 2
    assert (table.schema.metadata or {})[b"thermocline.cut"].startswith(b"c:")
    cursor.execute("SELECT thermocline_cut() IS NULL")
    assert cursor.fetch_arrow_table().schema.metadata is None


def test_an_empty_answer_tells_its_cut_too(cursor: adbc.Cursor) -> None:
    cursor.execute("SELECT * FROM flows WHERE n > 1000")
    table = cursor.fetch_record_batch()
    assert b"thermocline.cut" in (table.schema.metadata or {})
    assert table.read_all().num_rows == 0


def test_a_version_is_asked_for_in_sql(running: LakeServer, cursor: adbc.Cursor) -> None:
    first = min(
        key for key, version in running.lake.versions.items() if version.covered.get(0) == 3
    )
    assert count(cursor, f"{COUNT} AT (VERSION => {first})") == 3
    with pytest.raises(adbc.ProgrammingError, match="snapshot 4711 is not one of the"):
        cursor.execute(f"{COUNT} AT (VERSION => 4711)")
    with pytest.raises(adbc.ProgrammingError, match="no columns, no parameters"):
        cursor.execute(f"{COUNT} AT (VERSION => ?)", (first,))


def test_own_writes_are_read(running: LakeServer, cursor: adbc.Cursor) -> None:
    write(running.lake, 0, 1)
    cursor.execute(f"SET wait_for = 'flows/0:{total(running) - 1}'")
    assert count(cursor) == total(running)


def test_two_sessions_have_contracts_of_their_own(running: LakeServer) -> None:
    with running.connect() as one, running.connect() as other:
        with one.cursor() as cursor:
            cursor.execute("SET freshness = 'cold'")
            assert count(cursor) == 3
        with other.cursor() as cursor:
            assert count(cursor) == total(running)


def rows_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    main(arguments)
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_the_command_asks_under_a_contract(
    running: LakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    ask = ("sql", "--server", running.uri, "--format", "jsonl")
    with_cut = "SELECT thermocline_cut() AS cut, count(*) AS n FROM flows GROUP BY 1"
    (first,) = rows_of(capsys, *ask, with_cut)
    assert rows_of(capsys, *ask, COUNT, "--freshness", "cold") == [{"n": 3}]
    write(running.lake, 0, 1)
    last = total(running) - 1
    assert rows_of(capsys, *ask, COUNT, "--wait-for", f"flows/0:{last}") == [{"n": last + 1}]
    assert rows_of(capsys, *ask, COUNT, "--cut", first["cut"]) == [{"n": first["n"]}]
    main(("explain", "--server", running.uri, COUNT, "--freshness", "max_staleness 1h"))
    assert "max_staleness 3600s, measured" in capsys.readouterr().out
    with pytest.raises(SystemExit) as refused:
        main((*ask, COUNT, "--freshness", "it's new"))
    assert refused.value.code == 2
    assert '"it\'s new" is no freshness; write live' in capsys.readouterr().err
