"""An engine that reads live tables, in a Python of its own: ``python -m tests.harness.engine_programs ENGINE`` there.

Each line of standard input is a JSON object; so is each answer: ``rows`` as ``plain`` writes values, or ``error``, the engine's
words. ``open`` names a catalog and a table, by which statements go from then on; ``{t}`` stands for the table.
"""

from __future__ import annotations

import datetime as dt
import importlib
import json
import math
import sys
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

#: Statement -> rows.
Ask = Callable[[str], Iterable[Iterable[Any]]]


def plain(value: Any) -> Any:
    """Return a value as all engines write it: numbers that are equal are equal, times are text in UTC."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, float | Decimal):
        return float(value)
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None).isoformat()
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, str):
        try:
            return float(Decimal(value))  # a decimal over JSON
        except ArithmeticError:
            return value
    return value


def _of_arrow(table: Any) -> Iterable[Iterable[Any]]:
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


def _loaded(address: str, warehouse: str, schema: str, name: str) -> Any:
    """Load a table with pyiceberg."""
    catalogs = importlib.import_module("pyiceberg.catalog")
    catalog = catalogs.load_catalog("live", type="rest", uri=address, warehouse=warehouse)
    return catalog.load_table((schema, name))


def _daft(address: str, warehouse: str, schema: str, name: str, **_: str) -> Ask:
    daft = importlib.import_module("daft")
    table = _loaded(address, warehouse, schema, name)
    return lambda sql: _of_arrow(
        daft.sql(sql.format(t="t"), t=daft.read_iceberg(table)).to_arrow()
    )


def _datafusion(address: str, warehouse: str, schema: str, name: str, **_: str) -> Ask:
    table = _loaded(address, warehouse, schema, name)
    # pyiceberg's session is among them, and DataFusion takes texts only.
    table.io.properties = {
        key: value for key, value in table.io.properties.items() if isinstance(value, str)
    }
    context = importlib.import_module("datafusion").SessionContext()
    context.register_table("t", table)
    return lambda sql: _of_arrow(context.sql(sql.format(t="t")).to_arrow_table())


def _sail(address: str, warehouse: str, schema: str, name: str, **_: str) -> Ask:
    """A server reads its catalogs from the environment when it starts."""
    os = importlib.import_module("os")
    os.environ["SAIL_CATALOG__LIST"] = (
        f'[{{name="live", type="iceberg-rest", uri="{address}", warehouse="{warehouse}"}}]'
    )
    server = importlib.import_module("pysail.spark").SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    builder = importlib.import_module("pyspark.sql").SparkSession.builder
    session = builder.remote(f"sc://127.0.0.1:{server.listening_address[1]}").create()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    _alive.append(server)
    return lambda sql: session.sql(sql.format(t=f"live.{schema}.{name}")).collect()


#: What ends with the process.
_alive: list[Any] = []


def _clickhouse(
    address: str, warehouse: str, schema: str, name: str, *, store: str, key: str, secret: str
) -> Ask:
    """``store``: the address of the bucket that the warehouse and the live files are in."""
    if not _alive:
        _alive.append(importlib.import_module("chdb.session").Session())
        _alive[0].query("SET allow_database_iceberg = 1")
    session = _alive[0]
    session.query("DROP DATABASE IF EXISTS live")
    session.query(
        f"CREATE DATABASE live ENGINE = DataLakeCatalog('{address}/v1', '{key}', '{secret}') SETTINGS "
        f"catalog_type = 'rest', warehouse = '{warehouse}', vended_credentials = false, "
        f"storage_endpoint = '{store}'"
    )

    def ask(sql: str) -> list[Any]:
        answer = session.query(sql.format(t=f"live.`{schema}.{name}`"), "JSONCompactEachRow")
        return [json.loads(line) for line in answer.bytes().splitlines()]

    return ask


ENGINES: dict[str, Callable[..., Ask]] = {
    "daft": _daft,
    "datafusion": _datafusion,
    "sail": _sail,
    "clickhouse": _clickhouse,
}


def main(engine: str) -> None:
    ask: Ask | None = None
    answers = sys.stdout
    sys.stdout = sys.stderr  # what libraries print
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any] = {"rows": []}
        try:
            if "open" in request:
                ask = ENGINES[engine](**request["open"])
            elif ask is not None:
                rows = ask(request["sql"])
                answer = {"rows": [[plain(value) for value in row] for row in rows]}
        except Exception as error:  # its words are what is tested
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(sys.argv[1])
