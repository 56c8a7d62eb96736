"""Superset's engine specification: what it writes is accepted by a server. Superset itself need not be there."""

from __future__ import annotations

import datetime as dt

import pytest

make_url = pytest.importorskip("sqlalchemy.engine").make_url

from thermocline_client import Connection  # noqa: E402
from thermocline_client.superset_spec import ThermoclineEngineSpec  # noqa: E402

#: As PostgresBaseEngineSpec of Superset 6.1.0 has them.
GRAINS = [
    "DATE_TRUNC('second', at)",
    "DATE_TRUNC('minute', at) + INTERVAL '5 seconds' * FLOOR(EXTRACT(SECOND FROM at) / 5)",
    "DATE_TRUNC('minute', at)",
    "DATE_TRUNC('hour', at) + INTERVAL '15 minutes' * FLOOR(EXTRACT(MINUTE FROM at) / 15)",
    "DATE_TRUNC('hour', at)",
    "DATE_TRUNC('day', at)",
    "DATE_TRUNC('week', at)",
    "DATE_TRUNC('month', at)",
    "DATE_TRUNC('quarter', at)",
    "DATE_TRUNC('year', at)",
]


@pytest.mark.parametrize("grain", GRAINS)
def test_a_chart_over_time_is_answered(lake: Connection, grain: str) -> None:
    begin, end = (
        ThermoclineEngineSpec.convert_dttm("TIMESTAMP WITH TIME ZONE", dt.datetime(year, 1, 1))
        for year in (2024, 2025)
    )
    grain = grain.replace("at)", '"at")').replace("FROM at", 'FROM "at"')
    sql = (
        f'SELECT {grain} AS t, COUNT(*) AS count FROM lake.net.flows WHERE "at" >= {begin} AND "at" < {end}'
        f" GROUP BY {grain} LIMIT 1000;\n\n;"
    )
    [row] = lake.ask(sql).arrow().to_pylist()
    assert row["count"] == 3
    assert row["t"].date() <= dt.date(2024, 2, 29)


TIMES = [
    ("DATE", "DATE '2024-02-29'"),
    ("TIMESTAMP", "TIMESTAMP '2024-02-29 12:30:00.000001'"),
    ("DATETIME", "TIMESTAMP '2024-02-29 12:30:00.000001'"),
    ("VARCHAR", None),
]


@pytest.mark.parametrize(("kind", "text"), TIMES)
def test_a_time_is_written_as_the_engine_reads_it(
    lake: Connection, kind: str, text: str | None
) -> None:
    time = dt.datetime(2024, 2, 29, 12, 30, 0, 1)
    assert ThermoclineEngineSpec.convert_dttm(kind, time) == text
    if text is not None:
        [row] = lake.ask(f"SELECT {text} AS v").arrow().to_pylist()
        assert row["v"] == (time.date() if kind == "DATE" else time)


def test_a_schema_is_chosen_by_the_url() -> None:
    url = make_url("thermocline://h/lake?tls=false")
    assert ThermoclineEngineSpec.get_schema_from_engine_params(url, {}) is None
    chosen, arguments = ThermoclineEngineSpec.adjust_engine_params(url, {}, schema="net")
    assert (chosen.query["schema"], chosen.query["tls"], arguments) == ("net", "false", {})
    assert ThermoclineEngineSpec.get_schema_from_engine_params(chosen, {}) == "net"
