"""What to paste to ask the demo from elsewhere. A test runs each one as it is printed."""

# ruff: noqa: S608 - statements for people to read, made of names of ours

from __future__ import annotations

from typing import NamedTuple

from thermocline.demo.feeds import FLOWS, PROCESSES


class Snippet(NamedTuple):
    """``language`` is python, or empty for a line that is pasted into a client's form."""

    title: str
    text: str
    language: str = ""


_CONNECT = """\
import adbc_driver_flightsql.dbapi as flight_sql

lake = flight_sql.connect("{uri}", autocommit=True)
"""
_ADBC = f'''\
{_CONNECT}cursor = lake.cursor()
cursor.execute("""SELECT src_subnet, sum(bytes) FROM {FLOWS.table}
    WHERE blocked GROUP BY 1 ORDER BY 2 DESC""")
print(cursor.fetch_arrow_table().to_pylist())
cursor.close()
lake.close()
'''
_PANDAS = f'''\
import pandas as pd
{_CONNECT}print(pd.read_sql("""SELECT event_type, count(*) AS events
    FROM {PROCESSES.table} GROUP BY 1""", lake))
lake.close()
'''
_POLARS = f'''\
import polars as pl
{_CONNECT}print(pl.read_database("""SELECT * FROM {FLOWS.table}
    WHERE dst_port = 3389 LIMIT 10""", lake))
lake.close()
'''
_DUCKDB = f"""\
import duckdb
{_CONNECT}cursor = lake.cursor()
cursor.execute("SELECT * FROM {PROCESSES.table} WHERE elevated")
rows = cursor.fetch_arrow_table()
print(duckdb.sql("FROM rows SELECT image, count(*) GROUP BY 1"))
cursor.close()
lake.close()
"""


def jdbc_url(port: int) -> str:
    return f"jdbc:arrow-flight-sql://127.0.0.1:{port}/?useEncryption=false"


def snippets(port: int) -> list[Snippet]:
    """Connection strings and queries for one server, each complete in itself."""
    uri = f"grpc://127.0.0.1:{port}"
    python = {"ADBC": _ADBC, "pandas": _PANDAS, "Polars": _POLARS, "DuckDB": _DUCKDB}
    return [
        Snippet("Flight SQL", uri),
        Snippet("JDBC", jdbc_url(port)),
        Snippet("SQL", f"SELECT count(*), max(ts) FROM {PROCESSES.table}"),
        Snippet("the seam", f"SELECT * FROM {FLOWS.side_table('seam')}"),
        *(Snippet(title, text.format(uri=uri), "python") for title, text in python.items()),
    ]


def printed(port: int) -> str:
    """All of them as plain text."""
    return "\n".join(f"# {title}\n{text.rstrip()}\n" for title, text, _ in snippets(port))
