"""Zero lag, as a marimo notebook: ``marimo edit zero_lag_marimo.py``, with ``thermocline demo`` in another terminal.

``pip install thermocline-client 'marimo[sql]' matplotlib pandas``
"""

import marimo

app = marimo.App(app_title="Zero lag")


@app.cell
def connect():
    import os

    import adbc_driver_flightsql.dbapi as flight_sql
    import marimo as mo

    import thermocline_client

    uri = os.environ.get("THERMOCLINE_URI", "grpc://127.0.0.1:31337")
    lake = thermocline_client.connect(uri)
    flight = flight_sql.connect(uri, autocommit=True)
    return flight, lake, mo


@app.cell
def title(mo):
    mo.md("""
    # Zero lag

    One table over a Kafka topic and an Iceberg table, up to the last committed record. The line below an answer says how many rows
    were in Iceberg (cold) and in Kafka alone (hot), how long it took and how old the newest record was.
    """)


@app.cell
def by_protocol(lake):
    grouped = lake.ask(
        "SELECT protocol, count(*) AS flows FROM lake.edr.flows GROUP BY protocol ORDER BY protocol"
    )
    grouped
    return (grouped,)


@app.cell
def busy_ports(flight, mo):
    # A cell of SQL: marimo lists the connection's tables and completes their names.
    busy = mo.sql(
        "SELECT dst_port, count(*) AS flows FROM lake.edr.flows GROUP BY dst_port ORDER BY flows DESC, dst_port",
        engine=flight,
    )
    return (busy,)


@app.cell
def plot(busy):
    busy.to_pandas().set_index("dst_port").plot.bar(y="flows", legend=False)


@app.cell
def same_rows(lake):
    # The same rows again, whatever was written since: each answer has its cut.
    count = "SELECT count(*) AS n FROM lake.edr.flows"
    first = lake.ask(count)
    again = lake.ask(count, cut=first.cut)
    is_same = first.arrow()["n"] == again.arrow()["n"]
    is_same
    return (is_same,)


if __name__ == "__main__":
    app.run()
