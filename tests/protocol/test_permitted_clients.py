"""Stock clients of a user who may see some rows, and one column masked: the same answer through each of them."""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Iterator

import adbc_driver_flightsql.dbapi as adbc
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from planner.names import TableName
from tests.fixtures.jdbc import Jdbc, metadata, prepared, query, values
from tests.fixtures.server import SqlServer, serving, settings_of, sqlite_catalog
from tests.fixtures.toolchains import Program
from tests.harness.wire import packed
from thermocline.config.settings import Granted

# The first run compiles a Go program and installs a Node one.
pytestmark = pytest.mark.timeout(900)

USER, PASSWORD = "clerk", "c"
SQL = "SELECT id, region, iban FROM net.accounts ORDER BY id"
VISIBLE = [(1, "eu", "CH.."), (3, "eu", "DE.."), (4, "eu", None)]
#: A mask holds in conditions too: what the clerk asks of the column is asked of what he sees of it.
BOUND = "SELECT count(*) AS n FROM net.accounts WHERE iban = ?"


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlServer]:
    catalogs = {"lake": sqlite_catalog(tmp_path_factory.mktemp("bank"))}
    settings = settings_of(catalogs, {}, users={USER: PASSWORD, "boss": "b"})
    grants = {
        "boss": Granted(users=("boss",), tables=("*",)),
        "clerk": Granted(
            users=(USER,),
            tables=("lake.net.accounts",),
            without=("limit_chf",),
            rows="region = 'eu'",
            masks={"iban": "left(iban, 2) || '..'"},
        ),
    }
    with serving(settings.model_copy(update={"permissions": grants})) as running:
        rows = pa.table(
            {
                "id": pa.array([1, 2, 3, 4]),
                "region": ["eu", "us", "eu", "eu"],
                "iban": ["CH93-SECRET", "US64-SECRET", "DE89-SECRET", None],
                "limit_chf": pa.array([10, 20, 30, 40]),
                "at": pa.array(
                    [dt.datetime(2024, 2, 29, tzinfo=dt.UTC)] * 4, pa.timestamp("us", "UTC")
                ),
            }
        )
        for name in ("accounts", "vault"):
            running.create_plain(rows, name=TableName("lake", ("net",), name))
        yield running


def test_adbc_pandas_and_polars(bank: SqlServer) -> None:
    options = {"username": USER, "password": PASSWORD}
    with adbc.connect(bank.uri, db_kwargs=options, autocommit=True) as connection:
        with connection.cursor() as cur:
            cur.execute(SQL)
            assert cur.fetchall() == VISIBLE
            for value, count in (("CH93-SECRET", 0), ("CH..", 1)):
                cur.execute(BOUND, (value,))
                assert cur.fetchall() == [(count,)]
            for hidden in ("SELECT limit_chf FROM net.accounts", "FROM net.vault"):
                with pytest.raises(adbc.Error) as caught:
                    cur.execute(hidden)
                assert "SECRET" not in str(caught.value)
        result = pd.read_sql(SQL, connection)
        assert result.astype(object).where(result.notna(), None).values.tolist() == [
            list(row) for row in VISIBLE
        ]
        assert pl.read_database(SQL, connection).rows() == VISIBLE
        listed = connection.adbc_get_objects(depth="columns").read_all().to_pylist()
        reply = str(listed)
        assert "'accounts'" in reply
        assert "vault" not in reply
        assert "limit_chf" not in reply


def test_jdbc(bank: SqlServer, jdbc: Jdbc) -> None:
    _, request, raw, output, tables, columns, hidden, _ = jdbc.run(
        [
            query(SQL),
            prepared(BOUND, ("String", "CH93-SECRET")),
            prepared(BOUND, ("String", "CH..")),
            metadata("getTables", "lake", "net", "%", None),
            metadata("getColumns", "lake", "net", "%", "%"),
            query("SELECT limit_chf FROM net.accounts"),
        ],
        port=bank.port,
        properties={"user": USER, "password": PASSWORD},
    )
    assert values(request) == [[str(row[0]), row[1], row[2]] for row in VISIBLE]
    assert (values(raw), values(output)) == ([["0"]], [["1"]])
    assert [row["TABLE_NAME"] for row in tables["ok"]] == ["accounts"]
    assert [row["COLUMN_NAME"] for row in columns["ok"]] == ["id", "region", "iban", "at"]
    assert "SECRET" not in hidden["error"]["message"]


def test_go(bank: SqlServer, go_client: Program) -> None:
    hidden = "SELECT limit_chf FROM net.accounts"
    fields = go_client(f"127.0.0.1:{bank.port}", "", USER, PASSWORD, SQL, hidden)
    assert fields[SQL] == [[str(row[0]), row[1], row[2] or "(null)"] for row in VISIBLE]
    assert fields[hidden]["error"] == "InvalidArgument"
    # Its columns but the one he may not know of.
    assert fields["tables"] == {"accounts": 4}


def test_node(bank: SqlServer, node_client: Program) -> None:
    decoded = base64.b64encode(packed("CommandStatementQuery", query=SQL)).decode()
    observed = node_client(
        f"127.0.0.1:{bank.port}", "plain", USER, PASSWORD, decoded, "rows", SQL
    )
    expected = [[str(row[0]), row[1], row[2]] for row in VISIBLE]
    assert observed == {"direct": expected, "stock": expected}
