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
SEEN = [(1, "eu", "CH.."), (3, "eu", "DE.."), (4, "eu", None)]
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
            assert cur.fetchall() == SEEN
            for held, count in (("CH93-SECRET", 0), ("CH..", 1)):
                cur.execute(BOUND, (held,))
                assert cur.fetchall() == [(count,)]
            for hidden in ("SELECT limit_chf FROM net.accounts", "FROM net.vault"):
                with pytest.raises(adbc.Error) as caught:
                    cur.execute(hidden)
                assert "SECRET" not in str(caught.value)
        found = pd.read_sql(SQL, connection)
        assert found.astype(object).where(found.notna(), None).values.tolist() == [
            list(row) for row in SEEN
        ]
        assert pl.read_database(SQL, connection).rows() == SEEN
        listed = connection.adbc_get_objects(depth="columns").read_all().to_pylist()
        told = str(listed)
        assert "'accounts'" in told
        assert "vault" not in told
        assert "limit_chf" not in told


def test_jdbc(bank: SqlServer, jdbc: Jdbc) -> None:
    _, asked, raw, shown, tables, columns, hidden, _ = jdbc.run(
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
    assert values(asked) == [[str(row[0]), row[1], row[2]] for row in SEEN]
    assert (values(raw), values(shown)) == ([["0"]], [["1"]])
    assert [row["TABLE_NAME"] for row in tables["ok"]] == ["accounts"]
    assert [row["COLUMN_NAME"] for row in columns["ok"]] == ["id", "region", "iban", "at"]
    assert "SECRET" not in hidden["error"]["message"]


def test_go(bank: SqlServer, go_client: Program) -> None:
    hidden = "SELECT limit_chf FROM net.accounts"
    seen = go_client(f"127.0.0.1:{bank.port}", "", USER, PASSWORD, SQL, hidden)
    assert seen[SQL] == [[str(row[0]), row[1], row[2] or "(null)"] for row in SEEN]
    assert seen[hidden]["error"] == "InvalidArgument"
    # Its columns but the one he may not know of.
    assert seen["tables"] == {"accounts": 4}


def test_node(bank: SqlServer, node_client: Program) -> None:
    asked = base64.b64encode(packed("CommandStatementQuery", query=SQL)).decode()
    seen = node_client(f"127.0.0.1:{bank.port}", "plain", USER, PASSWORD, asked, "rows", SQL)
    expected = [[str(row[0]), row[1], row[2]] for row in SEEN]
    assert seen == {"direct": expected, "stock": expected}
