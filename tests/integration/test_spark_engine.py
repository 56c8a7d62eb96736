"""Spark as the engine: the command, and the page of what differs between its SQL and DuckDB's."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import click
import pytest
from IPython.core.interactiveshell import InteractiveShell
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from traitlets.config import Config

import thermocline.spark as tc
from connectors.spark.lake.lake import Lake
from planner.errors import (
    BadConfig,
    BadParameter,
    BadStatement,
    FederationError,
    RequestError,
    UnknownTable,
    UnsupportedStatement,
)
from planner.names import TableName
from tests.docs.pages import ROOT
from tests.fixtures.kafka import Kafka
from tests.fixtures.server import TieredServer
from tests.harness.spark_rows import bound_flows, record, settings_of
from thermocline import notebook
from thermocline.cli import app

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

PAGE = ROOT / "docs" / "spark-sql-differences.md"
REFUSED = "refused"
Run = Callable[..., str]


@pytest.fixture
def flows(tiered_server: TieredServer, kafka: Kafka) -> tuple[TableName, str]:
    return bound_flows(tiered_server, kafka)


@pytest.fixture
def config(tiered_server: TieredServer, tmp_path: Path) -> Path:
    """A file of the server's settings."""
    lake = "".join(
        f'"{key}" = {json.dumps(value)}\n'
        for key, value in tiered_server.settings.catalogs["lake"].items()
    )
    brokers = tiered_server.settings.kafka["bootstrap.servers"]
    config = tmp_path / "thermocline.toml"
    config.write_text(f'[catalogs.lake]\n{lake}[kafka]\n"bootstrap.servers" = "{brokers}"\n')
    return config


@pytest.fixture
def spark_sql(tiered_server: TieredServer, config: Path, tmp_path: Path) -> Run:
    """``thermocline sql --engine spark``, in the session there is; what it writes."""
    assert tiered_server.lake.session is SparkSession.getActiveSession()

    def run(*arguments: str, engine: str = "spark") -> str:
        out = tmp_path / "out"
        command = ["--config", str(config), "sql", "--engine", engine, "-o", str(out)]
        app.main([*command, *arguments], standalone_mode=False)
        return out.read_text()

    return run


def test_the_command_runs_sparks_sql_at_a_cut(
    spark_sql: Run,
    tiered_server: TieredServer,
    flows: tuple[TableName, str],
    kafka: Kafka,
    tmp_path: Path,
) -> None:
    table, topic = flows
    token = tiered_server.ask(f"SELECT thermocline_cut() AS t FROM {table} LIMIT 1")
    kafka.produce(topic, [record(1_000)])
    count = f"SELECT count(*) AS n, 7 DIV 2 AS half FROM {table}"
    as_lines = ("--format", "jsonl")
    assert json.loads(spark_sql(count, *as_lines)) == {"n": 61, "half": 3}
    cut = ("--cut", token.to_pylist()[0]["t"])
    assert json.loads(spark_sql(count, *cut, *as_lines))["n"] == 60
    few = spark_sql(f"SELECT id FROM {table}", "--max-rows", "3", "--format", "table")
    assert "the first 3 rows; there are more" in few
    through = ("--server", tiered_server.uri)
    assert json.loads(spark_sql(count, *through, *as_lines))["n"] == 61
    file = tmp_path / "two.sql"
    file.write_text(f"SELECT 'it\\'s; one' AS x; -- ;\n{count};")
    lines = [json.loads(line) for line in spark_sql("-f", str(file), *as_lines).splitlines()]
    assert lines == [{"x": "it's; one"}, {"n": 61, "half": 3}]
    for statement, kind, words in (
        ("SELECT * FROM lake.net.nowhere", UnknownTable, "there is no table"),
        (f"SELECT nothing FROM {table}", BadStatement, "Spark: [UNRESOLVED_COLUMN"),
        ("SELECT 1 / 0", BadStatement, "Spark: [DIVIDE_BY_ZERO]"),
        ("SELEC 1", UnsupportedStatement, "begins no query"),
        ("SELECT (1", BadStatement, "Spark: [PARSE_SYNTAX_ERROR]"),
    ):
        with pytest.raises(FederationError) as refusal:
            spark_sql(statement, *as_lines)
        assert isinstance(refusal.value, kind), refusal.value
        assert words in refusal.value.message
    for arguments, words in (
        (("--freshness", "cold"), "side='cold'"),
        (("--token", "x"), "name it with --server"),
    ):
        with pytest.raises(BadConfig, match=words):
            spark_sql(count, *arguments)


def test_the_cut_of_a_job_is_read_by_the_command_line(
    spark_sql: Run, tiered_server: TieredServer, flows: tuple[TableName, str], kafka: Kafka
) -> None:
    table, topic = flows
    with Lake(tiered_server.lake.session, settings_of(tiered_server)) as lake:
        token = lake.at(str(table)).token
    kafka.produce(topic, [record(1_000)])
    options = ("--server", tiered_server.uri, "--cut", token, "--format", "jsonl")
    count = spark_sql(f"SELECT count(*) AS n FROM {table}", *options, engine="duckdb")
    assert json.loads(count) == {"n": 60}


@pytest.fixture
def notebook_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str, str], Any]]:
    """``%%thermocline`` in a shell of notebooks: its line, and its text."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    shell = InteractiveShell(config=Config({"HistoryManager": {"enabled": False}}))
    shell.run_line_magic("load_ext", "thermocline.notebook")
    yield lambda line, text: shell.run_cell_magic("thermocline", line, text)
    # What a notebook's end does.
    for lake in notebook._lakes.values():
        if isinstance(lake, tc.Lake):
            lake.close()
    notebook._lakes.clear()


def test_a_cell_of_a_notebook_is_one_cut(
    notebook_cell: Callable[[str, str], Any],
    config: Path,
    tiered_server: TieredServer,
    flows: tuple[TableName, str],
    kafka: Kafka,
) -> None:
    table, topic = flows
    spark, server = f"--engine spark --config {config}", f"--server {tiered_server.uri}"
    count = f"SELECT count(*) AS n, 7 DIV 2 AS half FROM {table}"
    frame = notebook_cell(spark, f"-- how many\n{count};\n")
    kafka.produce(topic, [record(1_000)])
    assert [tuple(row) for row in frame.collect()] == [(60, 3)]
    assert [row["n"] for row in notebook_cell(spark, count).collect()] == [61]
    assert [row["n"] for row in notebook_cell(f"--engine spark {server}", count).collect()] == [
        61
    ]
    answer = notebook_cell(server, f"SELECT count(*) AS n, 7 // 2 AS half FROM {table}")
    assert answer.to_pylist() == [{"n": 61, "half": 3}]
    for line, text, kind, words in (
        (spark, "SELECT * FROM lake.net.nowhere", UnknownTable, "there is no table"),
        (spark, f"SELECT nothing FROM {table}", BadStatement, "Spark: [UNRESOLVED_COLUMN"),
        (spark, "SELECT 1; SELECT 2", BadParameter, "one statement, and this has 2"),
        (f"{spark} --freshness cold", count, BadConfig, "side='cold'"),
        (server, "SELEC 1", RequestError, "syntax error"),
    ):
        with pytest.raises(kind) as refusal:
            notebook_cell(line, text)
        assert words in str(refusal.value)
    with pytest.raises(click.UsageError, match="No such option"):
        notebook_cell("--engin spark", count)


def test_the_page_of_differences_tells_both_answers(tiered_server: TieredServer) -> None:
    def duckdb(sql: str) -> str:
        try:
            [row] = tiered_server.ask(sql).to_pylist()
        except adbc.Error:
            return REFUSED
        return text_of(row)

    def spark(sql: str) -> str:
        try:
            [row] = tiered_server.lake.session.sql(sql).collect()
        except PySparkException:
            return REFUSED
        return text_of(row.asDict())

    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    page_rows, answers = [], []
    for line in rows:
        cells = [
            cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[2:-1]
        ]
        if not cells[0].startswith("`"):
            continue
        parts = [cell.strip("`") for cell in cells]
        if len(parts) == 2:
            sql, answer = parts
            parts = [sql, answer, sql, answer]
        page_rows.append(parts)
        answers.append([parts[0], duckdb(parts[0]), parts[2], spark(parts[2])])
    assert answers == page_rows
    assert len(page_rows) > 30


def text_of(row: dict[str, Any]) -> str:
    [value] = row.values()
    return "NULL" if value is None else str(value)
