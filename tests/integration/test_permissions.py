"""Permissions through the stock driver and raw Flight: no path shows a value, a name or a count that is closed."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable

import pyarrow as pa
import pytest
from pyarrow import flight

from planner.names import METADATA_COLUMNS
from tests.fixtures.permissions import (
    CLOSED,
    COLUMN,
    PAY,
    ROW,
    USERS,
    PermissionsServer,
    outcome,
    records,
)
from tests.harness.wire import prepare, select

pytestmark = pytest.mark.kafka

#: {t} is a table, {n} its bare name. What works for ``boss``, and what fails for all.
STATEMENTS = [
    "SELECT * FROM {t}",
    "FROM {t} AS p SELECT p",
    "SELECT row_to_json(p) FROM {t} AS p",
    "SELECT p.* FROM {t} AS p JOIN {t} AS q USING (id)",
    "SELECT * FROM {t} NATURAL JOIN (SELECT 'COLMARK' AS ssn)",
    "SELECT * FROM {t} AS p LEFT JOIN lake.net.archive AS q ON p.id = q.id",
    "SELECT COLUMNS('s.*|k.*|p.*') FROM {t}",
    "SELECT * EXCLUDE (id) FROM {t}",
    "SELECT * REPLACE (upper(name) AS name) FROM {t}",
    "SELECT ssn FROM {t}",
    "SELECT pay FROM {t} ORDER BY pay DESC LIMIT 3",
    "SELECT id FROM {t} WHERE ssn LIKE 'COLMARK%'",
    "SELECT id FROM {t} WHERE pay > 765432000",
    "SELECT ssn, count(*) FROM {t} GROUP BY ALL",
    "SELECT kafka_key FROM {t}",
    "SELECT kafka_headers FROM {t}",
    "SELECT kafka_value FROM {t}",
    "SELECT kafka_error FROM {t}",
    "SELECT decode(kafka_key) FROM {t}",
    'SELECT * FROM "{t}$cold"',
    'SELECT * FROM "{t}$tail"',
    'SELECT ssn, kafka_key FROM "{t}$tail"',
    "SELECT * FROM {t} WHERE id IN (SELECT id FROM lake.net.people WHERE name > 'Q')",
    "WITH c AS MATERIALIZED (SELECT * FROM {t}) SELECT * FROM c AS a, c AS b WHERE a.id = b.id",
    "SELECT name FROM {t} UNION SELECT ssn FROM {t}",
    "SELECT max(name), min(name), max(region) FROM {t}",
    "SELECT string_agg(name, ',') FROM {t}",
    "SELECT histogram(name) FROM {t}",
    "SELECT first(name ORDER BY id DESC) FROM {t}",
    "SELECT lag(name) OVER (ORDER BY id), lead(name) OVER (ORDER BY id) FROM {t}",
    "SELECT name FROM {t} ORDER BY id DESC LIMIT 1",
    "SELECT name FROM {t} USING SAMPLE 5",
    "SELECT name FROM {t} TABLESAMPLE 100%",
    "PIVOT {t} ON region IN ('us', 'eu') USING max(name) GROUP BY id",
    "UNPIVOT (SELECT id, region, name FROM {t}) ON region, name",
    "SUMMARIZE {t}",
    "DESCRIBE {t}",
    # Errors that quote values, in every place where a condition could be moved before the filter.
    "SELECT id FROM {t} WHERE CAST(name AS INTEGER) = 1",
    "SELECT CAST(name AS INTEGER) FROM {t}",
    "SELECT CAST(name AS DATE) FROM {t} WHERE name LIKE 'R%'",
    "SELECT CAST(name AS UUID) FROM {t} WHERE name LIKE 'R%'",
    "SELECT * FROM {t} WHERE name LIKE 'R%' AND CAST(name AS INTEGER) = 1 AND id > 0",
    "SELECT * FROM {t} WHERE CASE WHEN region = 'us' THEN CAST(name AS INTEGER) ELSE 1 END = 1",
    "SELECT * FROM {t} WHERE CASE WHEN region = 'us' THEN error(name) ELSE true END",
    "SELECT sum(CASE WHEN region = 'us' THEN CAST(name AS INTEGER) END) FROM {t}",
    "SELECT id FROM {t} GROUP BY id, name HAVING CAST(name AS INTEGER) = 1 AND name LIKE 'R%'",
    "SELECT * FROM {t} AS p JOIN {t} AS q ON p.id = q.id AND CAST(q.name AS INTEGER) = 1 AND q.region = 'us'",
    "SELECT * FROM {t} QUALIFY CAST(max(name) OVER () AS INTEGER) = 1",
    "SELECT * FROM {t} ORDER BY CASE WHEN region = 'us' THEN error(name) END",
    "SELECT strptime(name, '%Y') FROM {t} WHERE name LIKE 'R%'",
    "SELECT json_extract(name, '$.a') FROM {t} WHERE name LIKE 'R%'",
    "SELECT id FROM {t} WHERE 9223372036854775807 + id > 0",
    "SELECT CAST(id AS TINYINT) FROM {t} WHERE id > 50",
    "SELECT CAST(ssn AS INTEGER) FROM {t}",
    "SELECT id FROM {t} WHERE CAST(pay AS TINYINT) = 1",
    "SELECT TRY(error(ssn)) FROM {t}",
    "SELECT (SELECT error(q.ssn) FROM {t} AS q WHERE q.id = p.id) FROM {t} AS p",
    # Names.
    "SELECT snn FROM {t}",
    "SELECT rowid FROM {t}",
    "SELECT filename FROM {t}",
    "SELECT * FROM lake.net.{n}s",
    "SELECT * FROM lake.net.hidden_tabl",
    "SELECT * FROM lake.other_n.people",
    "SELECT * FROM vaul.net.people",
    'SELECT * FROM "{t}$seams"',
    "SELECT * FROM \"__tc:{t}:all\"",
    # The past.
    "SELECT * FROM {t} AT (VERSION => 1)",
    "SELECT ssn FROM {t} AT (TIMESTAMP => now())",
    "SELECT * FROM {t} AT (TIMESTAMP => now())",
    "SELECT CAST(name AS INTEGER) FROM {t} AT (TIMESTAMP => now()) WHERE name LIKE 'R%'",
    # What is told of tables.
    "SELECT * FROM information_schema.columns",
    "SELECT * FROM information_schema.tables",
    "SELECT * FROM information_schema.schemata",
    "SHOW ALL TABLES",
    "SHOW TABLES",
    "EXPLAIN SELECT * FROM {t} WHERE ssn = 'x' AND pay > 765432000",
    "EXPLAIN SELECT CAST(name AS INTEGER) FROM {t}",
]  # fmt: skip


@pytest.mark.parametrize("user", USERS)
def test_no_statement_shows_what_is_closed(
    permissions_server: PermissionsServer, user: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    forbidden, _ = USERS[user]
    for table in (permissions_server.bound, permissions_server.plain):
        for statement in STATEMENTS:
            sql = statement.replace('"{t}$', f'lake.net."{table.name}$').format(
                t=table, n=table.name
            )
            reply = outcome(permissions_server, user, sql)
            for pattern in forbidden:
                requested = pattern is CLOSED and pattern.search(sql)
                assert requested or not pattern.search(reply), (sql, reply)
    assert not any(pattern.search(caplog.text) for pattern in forbidden[:-1])


def test_the_statements_would_show_it(permissions_server: PermissionsServer) -> None:
    """The matrix looks for something that is there."""
    items = [
        outcome(permissions_server, "boss", statement.replace('"{t}$', 'lake.net."people$').format(
            t=permissions_server.bound, n="people"))
        for statement in STATEMENTS
    ]  # fmt: skip
    for pattern, times in ((ROW, 25), (COLUMN, 14), (PAY, 8), (CLOSED, 3)):
        assert sum(pattern.search(text) is not None for text in items) >= times, pattern
    errors = [text for text in items if re.match(r"\w*Error: ", text)]
    assert sum(ROW.search(text) is not None for text in errors) >= 5, "errors quote values"


@pytest.mark.parametrize("user", USERS)
def test_what_is_open_is_answered_in_full(
    permissions_server: PermissionsServer, user: str
) -> None:
    _, rows = USERS[user]
    visible = [row for row in records() if row["region"] == "eu" or rows > 20]
    for table in (permissions_server.bound, permissions_server.plain):
        assert permissions_server.ask(
            user, f"SELECT count(*) AS n FROM {table}"
        ).to_pylist() == [{"n": rows}]
        result = permissions_server.ask(
            user, f"SELECT id, region, name FROM {table} WHERE name IS NOT NULL ORDER BY id"
        ).to_pylist()
        assert result == [
            {key: row[key] for key in ("id", "region", "name")} for row in visible
        ]


def test_masks_hold_for_everything_that_is_asked_of_the_column(
    permissions_server: PermissionsServer,
) -> None:
    for table in (permissions_server.bound, permissions_server.plain):
        rows = permissions_server.ask(
            "masked", f"SELECT ssn, pay FROM {table} WHERE id = 105"
        ).to_pylist()
        assert rows == [{"ssn": "COLMARK-x ROWMARK-x", "pay": 0}]
        sql = f"FROM {table} WHERE pay > 0 OR ssn = ?"
        assert permissions_server.ask("masked", sql, ["COLMARK-5"]).num_rows == 0
        n = permissions_server.ask(
            "masked", f"SELECT count(*) AS n FROM {table} WHERE pay = 0"
        ).to_pylist()
        assert n == [{"n": 30}]
        assert {
            row["ssn"]
            for row in permissions_server.ask("both", f"SELECT ssn FROM {table}").to_pylist()
        } == {"of both"}


@pytest.mark.parametrize("user", [*USERS, "nobody", "boss"])
def test_prepared_statements_and_their_parameters(
    permissions_server: PermissionsServer, user: str
) -> None:
    forbidden, _ = USERS.get(user, ([CLOSED] if user == "nobody" else [], 0))
    for table in (permissions_server.bound, permissions_server.plain):
        for sql, value in (
            (f"SELECT * FROM {table} WHERE name > ?", "Q"),
            (f"SELECT * FROM {table} WHERE ssn > ?", "A"),
            (f"SELECT id FROM {table} WHERE CAST(name AS INTEGER) = ?", 1),
        ):
            reply = outcome(permissions_server, user, sql, [value])
            assert not any(pattern.search(reply) for pattern in forbidden), reply
            if user == "nobody":
                assert f"there is no table {table}" in reply
    with flight.connect(permissions_server.server.uri) as client:
        reply = _said(
            lambda: str(
                prepare(
                    client,
                    f"SELECT * FROM {permissions_server.bound}",
                    permissions_server.options(user),
                )
            )
        )
        schema = _said(lambda: client.get_schema(
            select(f"SELECT * FROM {permissions_server.bound}"), permissions_server.options(user)).schema.to_string())  # fmt: skip
    for text in (reply, schema):
        assert ("kafka_value" in text) is (user == "boss")
        assert ("pay" in text) is (user in ("boss", "masked", "filtered"))


def _said(call: Callable[[], str]) -> str:
    try:
        return call()
    except (flight.FlightError, pa.ArrowException, KeyError) as error:
        return str(error)


COLUMNS = {
    "boss": {*METADATA_COLUMNS, "id", "region", "name", "ssn", "pay"},
    "filtered": {*METADATA_COLUMNS[:3], "id", "region", "name", "ssn", "pay"},
    "masked": {*METADATA_COLUMNS[:3], "id", "region", "name", "ssn", "pay"},
    "narrow": {*METADATA_COLUMNS[:3], "id", "region", "name"},
    "both": {"id", "region", "name", "ssn"},
    "mismatched": set(),
    "unbound": set(),
}


@pytest.mark.parametrize("user", COLUMNS)
def test_metadata_tells_of_what_is_open(
    permissions_server: PermissionsServer, user: str
) -> None:
    connection = permissions_server.cursor(user).connection
    objects = connection.adbc_get_objects(depth="all").read_all().to_pylist()
    items = {
        (catalog["catalog_name"], schema["db_schema_name"], table["table_name"]): {
            column["column_name"] for column in table["table_columns"] or ()
        }
        for catalog in objects
        for schema in catalog["catalog_db_schemas"]
        for table in schema["db_schema_tables"]
    }
    if user == "boss":
        assert len(items) == 5
    else:
        assert set(items) == {
            ("lake", "net", name) for name in ("people", "archive", "failing")
        }
        assert {catalog["catalog_name"] for catalog in objects} == {"lake"}
    assert items["lake", "net", "people"] == COLUMNS[user]
    listed = permissions_server.ask(
        user,
        "SELECT column_name FROM information_schema.columns WHERE table_name = 'people' AND table_schema = 'net'",
    )
    assert {row["column_name"] for row in listed.to_pylist()} == COLUMNS[user]


def test_who_may_nothing_sees_nothing(permissions_server: PermissionsServer) -> None:
    connection = permissions_server.cursor("nobody").connection
    objects = connection.adbc_get_objects(depth="tables").read_all().to_pylist()
    assert [(value["catalog_name"], value["catalog_db_schemas"]) for value in objects] == [
        ("lake", [])
    ]
    assert permissions_server.ask("nobody", "SELECT 1 AS a").to_pylist() == [{"a": 1}]
    assert (
        permissions_server.ask("nobody", "SELECT * FROM information_schema.tables").num_rows
        == 0
    )


@pytest.mark.parametrize("user", ["nobody", "filtered"])
def test_a_closed_table_is_a_table_that_does_not_exist(
    permissions_server: PermissionsServer, user: str
) -> None:
    for sql in (
        "SELECT * FROM {}",
        "EXPLAIN SELECT * FROM {}",
        'SELECT * FROM "{}$tail"',
        "DESCRIBE {}",
    ):
        closed, unknown = (
            re.sub(r" \(statement \w+\)|Vendor code: \d+", "", outcome(permissions_server, user, sql.format(name)))
            for name in (permissions_server.hidden, "lake.net.nothing_here")
        )  # fmt: skip
        assert "there is no table" in closed
        assert closed.replace("hidden_table", "nothing_here") == unknown
    reply = outcome(permissions_server, user, "USE vault").replace("vault", "other")
    unknown = outcome(permissions_server, user, "USE nowhere").replace("nowhere", "other")
    assert re.sub(r"\(\w+ \w{16}\)", "", reply) == re.sub(r"\(\w+ \w{16}\)", "", unknown)


@pytest.mark.parametrize(
    ("user", "why"),
    [
        ("mismatched", "it names column snn, which the table does not have"),
        ("unbound", "No function matches|Cannot|Could not|convert"),
    ],
)
def test_a_grant_that_does_not_fit_closes_the_table_and_the_log_says_why(
    permissions_server: PermissionsServer, user: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    for sql in (
        "SELECT id FROM {}",
        "EXPLAIN FROM {}",
        "DESCRIBE {}",
        'SELECT * FROM "{}$tail"',
    ):
        named = sql.replace(
            '"{}$tail"', f'lake.net."{permissions_server.bound.name}$tail"'
        ).format(permissions_server.bound)
        reply = outcome(permissions_server, user, named)
        assert (
            f"{permissions_server.bound}: the permissions that hold for you do not fit the table"
            in reply
        )
        assert "snn" not in reply
        assert "ssn" not in reply
    assert re.search(
        rf"permissions\.{user} on {permissions_server.bound}: .*({why})", caplog.text
    )


def test_where_a_record_does_not_decode_is_told_to_those_who_see_all(
    permissions_server: PermissionsServer, caplog: pytest.LogCaptureFixture
) -> None:
    assert "ssn" in outcome(
        permissions_server, "boss", f"SELECT id FROM {permissions_server.failing}"
    )
    for user in USERS:
        reply = outcome(
            permissions_server, user, f"SELECT id FROM {permissions_server.failing}"
        )
        assert (
            f"{permissions_server.failing}: a record that is not tiered yet does not decode; the server's"
            in reply
        )
        assert "ssn" not in reply
    assert "ssn" in caplog.text


def test_the_seam_is_for_those_who_see_every_row(permissions_server: PermissionsServer) -> None:
    seam = f'SELECT * FROM lake.net."{permissions_server.bound.name}$seam"'
    assert (
        permissions_server.ask("boss", seam).num_rows
        == permissions_server.ask("masked", seam).num_rows
        == 2
    )
    for user in ("filtered", "both"):
        reply = outcome(permissions_server, user, seam)
        assert "counts rows that you may not see" in reply


def test_explain_counts_nothing_under_a_filter(permissions_server: PermissionsServer) -> None:
    for table in (permissions_server.bound, permissions_server.plain):
        for sql in (
            f"EXPLAIN FROM {table}",
            f"EXPLAIN FROM {table} WHERE name = 'x' AND id > 99999",
        ):
            for row in permissions_server.ask("filtered", sql).to_pylist():
                assert row["why"] == (
                    "a row filter holds for you: how much there is to read is not told"
                )
                counted = (
                    "partitions",
                    "offsets",
                    "records",
                    "files",
                    "bytes",
                    "files_to_read",
                    "ranges",
                )
                assert {row[name] for name in counted} == {None}
        items = permissions_server.ask("masked", f"EXPLAIN FROM {table}").to_pylist()
        assert sum(row["offsets"] or row["records"] or 0 for row in items) == 31
    # What is asked of a masked column is not held against the files' own values.
    far = f"EXPLAIN FROM {permissions_server.plain} WHERE pay < 5 AND ssn = 'of both'"
    assert [
        row["files_to_read"] for row in permissions_server.ask("masked", far).to_pylist()
    ] == [1]
    assert [
        row["files_to_read"] for row in permissions_server.ask("boss", far).to_pylist()
    ] == [0]
