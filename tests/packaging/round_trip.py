"""Run by an environment that holds the wheel: writes a plain Iceberg table, serves it, asks over Flight SQL."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import adbc_driver_flightsql.dbapi as flight_sql
import pyarrow as pa
from pyiceberg.catalog import load_catalog

folder = Path.cwd()
properties = {
    "type": "sql",
    "uri": f"sqlite:///{folder / 'catalog.db'}",
    "warehouse": (folder / "warehouse").as_uri(),
}
catalog = load_catalog("lake", **properties)
catalog.create_namespace("net")
rows = pa.table({"n": pa.array([10, 20, 30], pa.int64())})
catalog.create_table("net.hosts", rows.schema).append(rows)
catalog.close()

lines = [f'{key} = "{value}"' for key, value in properties.items()]
config = folder / "thermocline.toml"
config.write_text("\n".join(["[catalogs.lake]", *lines]), encoding="utf-8")
command = [
    str(Path(sys.executable).with_name("thermocline")),
    "--config",
    str(config),
    "serve",
    "--port",
    "0",
]
with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
    assert server.stderr is not None
    try:
        said = ""
        while (match := re.search(r"grpc://\S+", said)) is None:
            line = server.stderr.readline()
            assert line, said
            said += line
        with (
            flight_sql.connect(match[0], autocommit=True) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("SELECT count(*), max(n) FROM lake.net.hosts")
            print(cursor.fetchall())
    finally:
        server.terminate()
        server.communicate(timeout=30)
assert server.returncode == 0, server.returncode
