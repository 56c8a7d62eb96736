"""What tools learn by SQL, from the real server: information_schema, SHOW, DESCRIBE."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pytest

from tests.fixtures.server import SqlServer


@pytest.fixture
def cursor(iceberg_server: SqlServer) -> Iterator[adbc.Cursor]:
    with iceberg_server.cursor() as opened:
        yield opened


def rows(cursor: adbc.Cursor, sql: str, parameters: Any = None) -> list[tuple[Any, ...]]:
    cursor.execute(sql, parameters)
    result: list[tuple[Any, ...]] = cursor.fetchall()
    return result


def test_tables_and_their_comments(cursor: adbc.Cursor) -> None:
    sql = (
        "SELECT table_catalog, table_schema, table_name, table_type, table_comment "
        "FROM information_schema.tables ORDER BY ALL"
    )
    assert rows(cursor, sql) == [
        ("lake", "net", "flows", "BASE TABLE", "what went by"),
        ("lake", "net.eu", 'Odd "é"', "BASE TABLE", None),
    ]


def test_columns_with_types_nullability_and_comments(cursor: adbc.Cursor) -> None:
    sql = (
        "SELECT column_name, ordinal_position, is_nullable, data_type, numeric_precision, numeric_scale, "
        "COLUMN_COMMENT FROM information_schema.columns "
        "WHERE table_catalog = 'lake' AND table_schema = 'net' AND table_name = ? ORDER BY ordinal_position"
    )
    assert rows(cursor, sql, ["flows"]) == [
        ("id", 1, "YES", "BIGINT", 19, 0, "the key"),
        ("name", 2, "YES", "VARCHAR", None, None, None),
        ("price", 3, "YES", "DECIMAL(18,4)", 18, 4, None),
        ("at", 4, "YES", "TIMESTAMP WITH TIME ZONE", None, None, None),
    ]


def test_what_is_listed_here_is_what_the_listing_commands_list(
    iceberg_server: SqlServer, cursor: adbc.Cursor
) -> None:
    with adbc.connect(iceberg_server.uri, autocommit=True) as connection:
        tree = connection.adbc_get_objects(depth="columns").read_all().to_pylist()
    listed = {
        (
            catalog["catalog_name"],
            schema["db_schema_name"],
            table["table_name"],
            column["column_name"],
        )
        for catalog in tree
        for schema in catalog["catalog_db_schemas"]
        for table in schema["db_schema_tables"]
        for column in table["table_columns"]
    }
    sql = "SELECT table_catalog, table_schema, table_name, column_name FROM information_schema.columns"
    assert set(rows(cursor, sql)) == listed
    assert len(listed) == 8


@pytest.mark.parametrize(
    "place",
    [
        "information_schema",
        "lake.information_schema",
        "INFORMATION_SCHEMA",
        '"lake"."Information_Schema"',
    ],
)
def test_it_is_found_however_it_is_written(cursor: adbc.Cursor, place: str) -> None:
    assert rows(cursor, f"SELECT count(*) FROM {place}.SCHEMATA") == [(2,)]


# As Power BI's DuckDB connector browses: databases, schemas, tables, columns, keys.
POWER_BI = [
    ("SHOW DATABASES", [("lake",)]),
    (
        "SELECT schema_name AS Name FROM information_schema.schemata WHERE catalog_name = 'lake' "
        "AND schema_name <> 'information_schema' ORDER BY 1",
        [("net",), ("net.eu",)],
    ),
    (
        "SELECT table_name AS Name, table_type FROM information_schema.tables "
        "WHERE table_catalog = 'lake' AND table_schema = 'net'",
        [("flows", "BASE TABLE")],
    ),
    (
        "SELECT column_name, data_type, is_nullable FROM information_schema.columns WHERE table_catalog = 'lake' "
        "AND table_schema = 'net' AND table_name = 'flows' ORDER BY ordinal_position LIMIT 1",
        [("id", "BIGINT", "YES")],
    ),
    (
        "SELECT u.column_name FROM information_schema.table_constraints c "
        "JOIN information_schema.key_column_usage u ON c.constraint_name = u.constraint_name "
        "AND c.table_catalog = u.table_catalog AND c.table_schema = u.table_schema "
        "AND c.table_name = u.table_name WHERE c.constraint_type = 'PRIMARY KEY' "
        "AND c.table_name = 'flows' ORDER BY u.ordinal_position",
        [],
    ),
    (
        "SELECT u.column_name AS from_column, r.table_name AS to_table "
        "FROM information_schema.table_constraints c "
        "JOIN information_schema.key_column_usage u ON c.constraint_name = u.constraint_name "
        "JOIN information_schema.constraint_column_usage r ON c.constraint_name = r.constraint_name "
        "WHERE c.constraint_type = 'FOREIGN KEY'",
        [],
    ),
    ('SELECT * FROM (SELECT "id" FROM "net"."flows") AS "_" WHERE 0 = 1', []),
    (
        'select "_"."name" as "name", count(*) as "n" from "net"."flows" "_" '
        'group by "_"."name" order by "_"."name" nulls last limit 4096',
        [("a", 1), ("ü", 1), (None, 1)],
    ),
]


@pytest.mark.parametrize(("sql", "expected"), POWER_BI)
def test_power_bi_browses_and_folds(
    cursor: adbc.Cursor, sql: str, expected: list[tuple[Any, ...]]
) -> None:
    assert rows(cursor, sql) == expected


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SHOW SCHEMAS", [("lake", "net"), ("lake", "net.eu")]),
        ("SHOW TABLES FROM net", [("flows",)]),
        ("SHOW TABLES", [("flows",)]),
        (
            "SHOW ALL TABLES",
            [
                ("lake", "net", "flows", "BASE TABLE"),
                ("lake", "net.eu", 'Odd "é"', "BASE TABLE"),
            ],
        ),
        ("SELECT 1", [(1,)]),
        ("SHOW TimeZone", [("UTC",)]),
    ],
)
def test_show(cursor: adbc.Cursor, sql: str, expected: list[tuple[Any, ...]]) -> None:
    assert rows(cursor, sql) == expected


@pytest.mark.parametrize("word", ["DESCRIBE", "DESC", "SHOW"])
def test_a_table_is_described(cursor: adbc.Cursor, word: str) -> None:
    described = rows(cursor, f"{word} net.flows")
    assert [row[:2] for row in described] == [
        ("id", "BIGINT"),
        ("name", "VARCHAR"),
        ("price", "DECIMAL(18,4)"),
        ("at", "TIMESTAMP WITH TIME ZONE"),
    ]


def test_use_and_set_are_seen_by_later_statements(cursor: adbc.Cursor) -> None:
    assert rows(cursor, "SELECT count(*) FROM net.flows") == [(3,)]
    cursor.execute("USE NET")
    cursor.execute("BEGIN")
    assert rows(cursor, "SELECT count(*) FROM flows") == [(3,)]
    assert rows(cursor, "SHOW TABLES") == [("flows",)]
    cursor.execute("COMMIT")
    cursor.execute("SET profile = bi")
    cursor.execute("SELECT sum(id) AS n FROM flows")
    assert cursor.fetch_arrow_table().schema == pa.schema([("n", pa.float64())])


def test_what_is_not_there_is_an_unknown_table(cursor: adbc.Cursor) -> None:
    with pytest.raises(adbc.Error, match=r"no table information_schema\.pg_user"):
        cursor.execute("SELECT * FROM information_schema.pg_user")


def test_listings_join_with_tables_and_parameters(cursor: adbc.Cursor) -> None:
    sql = (
        "WITH wide AS (SELECT table_name FROM information_schema.columns GROUP BY 1 HAVING count(*) > ?) "
        "SELECT w.table_name, f.id FROM wide w CROSS JOIN net.flows f WHERE w.table_name = 'flows' ORDER BY f.id"
    )
    assert rows(cursor, sql, [3]) == [("flows", 1), ("flows", 2), ("flows", 3)]
