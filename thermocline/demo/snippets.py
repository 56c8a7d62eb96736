"""What to paste to ask the demo from elsewhere. A test runs each one as it is printed."""

# ruff: noqa: S608 - statements for people to read, made of names of ours

from __future__ import annotations

from dataclasses import dataclass

from thermocline.demo.feeds import FLOWS, PROCESSES, DemoFeed


@dataclass(frozen=True, slots=True)
class Snippet:
    """``language`` is python, or empty for a line that is pasted into a client's form."""

    title: str
    language: str
    text: str


def jdbc_url(port: int) -> str:
    return f"jdbc:arrow-flight-sql://127.0.0.1:{port}/?useEncryption=false"


def snippets(port: int) -> tuple[Snippet, ...]:
    """Connection strings and queries for one server, each complete in itself."""
    uri = f"grpc://127.0.0.1:{port}"
    connect = (
        "import adbc_driver_flightsql.dbapi as flight_sql\n\n"
        f'lake = flight_sql.connect("{uri}", autocommit=True)\n'
    )
    return (
        Snippet("Flight SQL", "", uri),
        Snippet("JDBC", "", jdbc_url(port)),
        Snippet("SQL", "", f"SELECT count(*), max(ts) FROM {PROCESSES.table}"),
        Snippet("the seam", "", f"SELECT * FROM {_side(FLOWS, 'seam')}"),
        Snippet(
            "ADBC",
            "python",
            f"{connect}"
            "cursor = lake.cursor()\n"
            f'cursor.execute("""SELECT src_subnet, sum(bytes) FROM {FLOWS.table}\n'
            '    WHERE blocked GROUP BY 1 ORDER BY 2 DESC""")\n'
            "print(cursor.fetch_arrow_table().to_pylist())\n"
            "cursor.close()\nlake.close()\n",
        ),
        Snippet(
            "pandas",
            "python",
            f"import pandas as pd\n{connect}"
            f'print(pd.read_sql("""SELECT event_type, count(*) AS events\n'
            f'    FROM {PROCESSES.table} GROUP BY 1""", lake))\n'
            "lake.close()\n",
        ),
        Snippet(
            "Polars",
            "python",
            f"import polars as pl\n{connect}"
            f'print(pl.read_database("""SELECT * FROM {FLOWS.table}\n'
            '    WHERE dst_port = 3389 LIMIT 10""", lake))\n'
            "lake.close()\n",
        ),
        Snippet(
            "DuckDB",
            "python",
            f"import duckdb\n{connect}"
            "cursor = lake.cursor()\n"
            f'cursor.execute("SELECT * FROM {PROCESSES.table} WHERE elevated")\n'
            "rows = cursor.fetch_arrow_table()\n"
            'print(duckdb.sql("FROM rows SELECT image, count(*) GROUP BY 1"))\n'
            "cursor.close()\nlake.close()\n",
        ),
    )


def _side(feed: DemoFeed, name: str) -> str:
    return f'{feed.table.catalog}.{feed.table.schema}."{feed.table.name}${name}"'


def printed(port: int) -> str:
    """All of them as plain text."""
    return "\n".join(
        f"# {snippet.title}\n{snippet.text.rstrip()}\n" for snippet in snippets(port)
    )
