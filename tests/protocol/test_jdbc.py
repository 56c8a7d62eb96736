"""The unmodified JDBC driver 18.3.0 against the protocol layer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from pyarrow import flight

from proxy.access.authentication.callers import Access, FixedUsers
from tests.fixtures.jdbc import Jdbc, again, connection, metadata, prepared, query, values
from tests.harness.canned import COLUMNS, TABLES, USERS, CannedBackend, CannedServer, serve

# java.sql.Types
_VARCHAR, _BIGINT = 12, -5
# 2024-02-29T12:30:15.123Z
_AT_MS = 1_709_209_815_123


@pytest.fixture(scope="module")
def shared() -> Iterator[CannedServer]:
    """A server for scenarios that leave nothing behind."""
    backend = CannedBackend()
    server = serve(backend, Access(allow_anonymous=True))
    yield CannedServer(server, backend)
    assert server.stop(10)


def _ok(outcome: dict[str, Any]) -> Any:
    assert "ok" in outcome, outcome["error"]
    return outcome["ok"]


PARAMETERS = {
    "int": (("Int", 7), "SELECT ?::BIGINT AS v", "7"),
    "long": (("Long", 2**62), "SELECT ?::BIGINT AS v", str(2**62)),
    "short": (("Short", -3), "SELECT ?::BIGINT AS v", "-3"),
    "double": (("Double", 0.25), "SELECT ?::DOUBLE AS v", "0.25"),
    "float": (("Float", 0.5), "SELECT ?::DOUBLE AS v", "0.5"),
    "string": (("String", "é'\";--"), "SELECT ?::VARCHAR AS v", "é'\";--"),
    "boolean": (("Boolean", True), "SELECT ?::BOOLEAN AS v", "true"),
    "decimal": (("BigDecimal", "-123.4500"), "SELECT ?::DECIMAL(18,4) AS v", "-123.4500"),
    "timestamp": (
        ("Timestamp", _AT_MS),
        "SELECT (?::TIMESTAMP)::VARCHAR AS v",
        "2024-02-29 12:30:15.123",
    ),
    "date": (("Date", _AT_MS), "SELECT (?::DATE)::VARCHAR AS v", "2024-02-29"),
    "time": (("Time", 45_015_123), "SELECT (?::TIME)::VARCHAR AS v", "12:30:15.123"),
    "bytes": (("Bytes", "abc"), "SELECT (?::BLOB)::VARCHAR AS v", "abc"),
    "null text": (("Null", _VARCHAR), "SELECT ?::VARCHAR AS v", None),
    "null number": (("Null", _BIGINT), "SELECT ?::BIGINT AS v", None),
}


def test_parameters_of_every_kind_arrive_unchanged(jdbc: Jdbc, shared: CannedServer) -> None:
    steps = [prepared(sql, parameter) for parameter, sql, _ in PARAMETERS.values()]
    opened, *outcomes, closed = jdbc.run(steps, port=shared.port)
    _ok(opened)
    result = {name: values(outcome) for name, outcome in zip(PARAMETERS, outcomes, strict=True)}
    assert result == {name: [[expected]] for name, (_, _, expected) in PARAMETERS.items()}
    _ok(closed)


RESULTS = {
    "boolean": ("true", "true", "Boolean"),
    "tinyint": ("(-1)::TINYINT", "-1", "Byte"),
    "smallint": ("(-1)::SMALLINT", "-1", "Short"),
    "integer": ("(-1)::INTEGER", "-1", "Integer"),
    "bigint": ("9007199254740993", "9007199254740993", "Long"),
    "hugeint": ("sum(1)", "1", "BigDecimal"),
    "float": ("0.5::FLOAT", "0.5", "Double"),
    "double": ("0.1::DOUBLE", "0.1", "Double"),
    "decimal": ("1.50::DECIMAL(18,2)", "1.50", "BigDecimal"),
    "varchar": ("'é'", "é", "String"),
    "blob": ("'a'::BLOB", "a", "array"),
    "date": ("DATE '2024-02-29'", "2024-02-29", "Date"),
    "time": ("TIME '12:30:15.123'", "12:30:15.123", "ArrowFlightJdbcTime"),
    "timestamp": (
        "TIMESTAMP '2024-02-29 12:30:15.123'",
        "2024-02-29 12:30:15.123",
        "Timestamp",
    ),
    "uuid": (
        "'6ba7b810-9dad-11d1-80b4-00c04fd430c8'::UUID",
        "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
        "String",
    ),
    "list": ("[1, 2]", "[1,2]", "ArrowFlightJdbcArray"),
    "struct": ("{'a': 1}", '{"a":1}', "JsonStringHashMap"),
    "null": ("NULL::VARCHAR", None, "null"),
}


def test_results_of_every_type_can_be_read(jdbc: Jdbc, shared: CannedServer) -> None:
    names = list(RESULTS)
    sql = "SELECT " + ", ".join(f'{RESULTS[name][0]} AS "{name}"' for name in names)
    _, statement, parameterless, *_ = jdbc.run([query(sql), prepared(sql)], port=shared.port)
    for outcome in (statement, parameterless):
        assert [column["label"] for column in _ok(outcome)["columns"]] == names
        [row] = values(outcome)
        assert dict(zip(names, row, strict=True)) == {
            name: text for name, (_, text, _) in RESULTS.items()
        }
        assert dict(zip(names, outcome["ok"]["classes"], strict=True)) == {
            name: java for name, (_, _, java) in RESULTS.items()
        }


def test_a_timestamp_with_zone_reads_as_text(jdbc: Jdbc, shared: CannedServer) -> None:
    sql = "SELECT TIMESTAMPTZ '2024-02-29 12:30:15.123Z' AS at"
    _, outcome, _ = jdbc.run([query(sql)], port=shared.port)
    [[text]] = values(outcome)
    assert text is not None
    assert text.startswith("2024-02-29")


def test_many_rows_arrive_whole_and_a_statement_runs_once(
    jdbc: Jdbc, shared: CannedServer
) -> None:
    before = shared.backend.calls.copy()
    _, outcome, _ = jdbc.run([query("SELECT range AS n FROM range(30000)")], port=shared.port)
    assert [row[0] for row in values(outcome)] == [str(n) for n in range(30_000)]
    ran = shared.backend.calls - before
    assert (ran["prepare"], ran["plan"], ran["open"]) == (1, 1, 1)


def test_a_prepared_statement_is_executed_again_with_other_parameters(
    jdbc: Jdbc, shared: CannedServer
) -> None:
    sql = "SELECT ?::BIGINT + ?::BIGINT AS v"
    _, *outcomes, _ = jdbc.run(
        [
            prepared(sql, ("Int", 1), ("Int", 2)),
            again(("Int", 3), ("Int", 4)),
            again(("Null", _BIGINT), ("Int", 4)),
        ],
        port=shared.port,
    )
    assert [values(outcome) for outcome in outcomes] == [[["3"]], [["7"]], [[None]]]


def test_the_tree_can_be_browsed(jdbc: Jdbc, shared: CannedServer) -> None:
    _, catalogs, db_schemas, tables, views, one, columns, kinds, keys, imported, *_ = jdbc.run(
        [
            metadata("getCatalogs"),
            metadata("getSchemas", "lake", "%"),
            metadata("getTables", None, None, "%", None),
            metadata("getTables", None, "%", "%", ["VIEW"]),
            metadata("getTables", "lake", "main", 'Quo"ted%', ["TABLE", "VIEW"]),
            metadata("getColumns", "lake", "main", "flows", "%"),
            metadata("getTableTypes"),
            metadata("getPrimaryKeys", "lake", "main", "flows"),
            metadata("getImportedKeys", "lake", "main", "flows"),
        ],
        port=shared.port,
    )
    assert [row["TABLE_CAT"] for row in _ok(catalogs)] == ["lake", "second"]
    assert [row["TABLE_SCHEM"] for row in _ok(db_schemas)] == ["main", "other"]
    assert [(r["TABLE_CAT"], r["TABLE_SCHEM"], r["TABLE_NAME"]) for r in _ok(tables)] == sorted(
        (table.catalog, table.schema, table.name) for table in TABLES
    )
    assert [row["TABLE_NAME"] for row in _ok(views)] == ["v_flows"]
    assert [row["TABLE_NAME"] for row in _ok(one)] == ['Quo"ted.Name é']
    fields = {row["COLUMN_NAME"]: row for row in _ok(columns)}
    assert list(fields) == COLUMNS.names
    assert {name: row["TYPE_NAME"] for name, row in fields.items()} == {
        "id": "BIGINT",
        "name": "VARCHAR",
        "price": "DECIMAL(18,4)",
        "at": "TIMESTAMP WITH TIME ZONE",
        "tag": "UUID",
        "parts": "INTEGER[]",
    }
    assert (fields["id"]["IS_NULLABLE"], fields["name"]["IS_NULLABLE"]) == ("NO", "YES")
    assert fields["id"]["REMARKS"] == "the key"
    assert (fields["price"]["COLUMN_SIZE"], fields["price"]["DECIMAL_DIGITS"]) == ("18", "4")
    assert [row["TABLE_TYPE"] for row in _ok(kinds)] == ["TABLE", "VIEW"]
    assert _ok(keys) == _ok(imported) == []


#: Everything a tool may ask at connecting; each reads another SqlInfo code and fails on a wrong member.
GETTERS: dict[str, Any] = {
    "isReadOnly": True,
    "getDatabaseProductName": "Thermocline",
    "getDatabaseProductVersion": "1.2.3",
    "getIdentifierQuoteString": '"',
    "getSearchStringEscape": "\\",
    "getSQLKeywords": "QUALIFY",
    "getStringFunctions": "upper",
    "getNumericFunctions": "",
    "getSystemFunctions": "",
    "getTimeDateFunctions": "",
    "getCatalogTerm": "catalog",
    "getSchemaTerm": "schema",
    "isCatalogAtStart": True,
    "allTablesAreSelectable": True,
    "nullsAreSortedAtEnd": True,
    "nullsAreSortedHigh": False,
    "supportsMixedCaseIdentifiers": False,
    # The driver takes "insensitive" for this one.
    "supportsMixedCaseQuotedIdentifiers": True,
    "supportsColumnAliasing": True,
    "supportsGroupBy": True,
    "supportsGroupByUnrelated": True,
    "supportsOuterJoins": True,
    "supportsFullOuterJoins": True,
    "supportsUnion": True,
    "supportsUnionAll": True,
    "supportsSubqueriesInExists": True,
    "supportsCorrelatedSubqueries": True,
    "supportsLikeEscapeClause": True,
    "supportsConvert": False,
    "supportsTransactions": False,
    "supportsBatchUpdates": False,
    "supportsSavepoints": False,
    "supportsStoredProcedures": False,
    "supportsNamedParameters": False,
    "supportsSelectForUpdate": False,
    "supportsPositionedDelete": False,
    "supportsANSI92EntryLevelSQL": True,
    "supportsExtendedSQLGrammar": True,
    "supportsExpressionsInOrderBy": True,
    "getMaxConnections": 0,
    "getMaxStatementLength": 0,
    "getMaxColumnNameLength": 0,
    "getMaxTablesInSelect": 0,
    "getMaxRowSize": 0,
    "getDefaultTransactionIsolation": 0,
    "dataDefinitionCausesTransactionCommit": False,
    "locatorsUpdateCopy": False,
}


def test_every_property_a_tool_may_ask_for_is_answered(
    jdbc: Jdbc, shared: CannedServer
) -> None:
    steps = [metadata(name) for name in GETTERS]
    steps += [
        metadata("supportsResultSetType", 1003),
        metadata("supportsResultSetType", 1004),
        metadata("supportsTransactionIsolationLevel", 8),
        metadata("getTypeInfo"),
        connection("isValid", 5),
    ]
    _, *outcomes, _ = jdbc.run(steps, port=shared.port)
    answers = [_ok(outcome) for outcome in outcomes]
    assert dict(zip(GETTERS, answers, strict=False)) == GETTERS
    # The driver answers getTypeInfo itself, with nothing.
    assert answers[len(GETTERS) :] == [True, False, False, [], True]


def test_errors_carry_the_message_and_leave_the_connection_usable(
    jdbc: Jdbc, shared: CannedServer
) -> None:
    _, bad, unknown, late, fine, _ = jdbc.run(
        [
            query("SELECT nonsense FROM nowhere"),
            query("trick fail UnknownTable"),
            query("trick late_bug"),
            query("SELECT 1"),
        ],
        port=shared.port,
    )
    assert "nowhere" in bad["error"]["message"]
    assert "this is what UnknownTable says" in unknown["error"]["message"]
    assert "Internal error" in late["error"]["message"]
    for outcome in (bad, unknown, late):
        assert "Traceback" not in outcome["error"]["message"]
        assert "/srv" not in outcome["error"]["message"]
    assert values(fine) == [["1"]]


class TestLogin:
    @pytest.fixture
    def guarded_port(self, backend: CannedBackend) -> Iterator[int]:
        server = serve(backend, Access(FixedUsers(USERS).verify))
        yield server.port
        assert server.stop(10)

    def test_user_and_password(self, jdbc: Jdbc, guarded_port: int) -> None:
        outcomes = jdbc.run(
            [query("SELECT 1"), connection("isValid", 5)],
            port=guarded_port,
            properties={"user": "ada", "password": USERS["ada"]},
        )
        assert values(outcomes[1]) == [["1"]]
        assert all("ok" in outcome for outcome in outcomes)

    def test_a_wrong_password(self, jdbc: Jdbc, guarded_port: int) -> None:
        [opened] = jdbc.run(
            [], port=guarded_port, properties={"user": "ada", "password": "wrong"}
        )
        assert "Unknown user or wrong password" in opened["error"]["message"]

    def test_a_token(self, jdbc: Jdbc, guarded_port: int) -> None:
        with closing(flight.connect(f"grpc://127.0.0.1:{guarded_port}")) as client:
            _, value = client.authenticate_basic_token(b"bob", USERS["bob"].encode())
        token = value.decode().removeprefix("Bearer ")
        _, outcome, _ = jdbc.run(
            [query("SELECT 1")], port=guarded_port, properties={"token": token}
        )
        assert values(outcome) == [["1"]]

    def test_a_catalog_is_set_for_the_session(self, jdbc: Jdbc, backend: CannedBackend) -> None:
        server = serve(backend, Access(allow_anonymous=True))
        opened, outcome, closed = jdbc.run(
            [query("SELECT 1")], port=server.port, properties={"catalog": "second"}
        )
        assert server.stop(10)
        _ok(opened)
        assert values(outcome) == [["1"]]
        assert backend.planned_in is not None
        assert backend.planned_in.catalog == "second"
        # The driver closes itself twice and fails the second time, whatever the server answers.
        assert "Channel shutdown" in closed["error"]["message"]
