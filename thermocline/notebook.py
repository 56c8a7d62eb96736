"""``%%thermocline``: a statement in a cell of a notebook, after ``%load_ext thermocline.notebook``."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click
import pyarrow as pa

from planner import spark_names
from planner.errors import BadConfig, BadParameter
from thermocline.client import split
from thermocline.connect import (
    ServerChoice,
    connect_server,
    contract_options,
    password_of,
    server_named,
    server_options,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from thermocline import spark as tc


def load_ipython_extension(shell: Any) -> None:
    """What ``%load_ext`` calls."""
    shell.register_magic_function(run_cell, "cell", "thermocline")


def run_cell(line: str, cell: str) -> DataFrame | pa.Table:
    """Run the statement of a cell at a cut of its own, or at ``--cut``.

    With ``--engine spark`` it is Spark's SQL, run by the notebook's session: a DataFrame, whose every action is that cut.
    Else a server answers, as ``thermocline sql`` is answered: an Arrow table.

    Raises:
        click.UsageError: an option is none.
        BadParameter: the cell has not one statement.
        BadConfig: there is no Spark session, or as ``thermocline.connect.connect_server``.
        FederationError: as statements do.
    """
    chosen: dict[str, Any] = _options.main(
        shlex.split(line), "%%thermocline", standalone_mode=False
    )
    engine, config = chosen.pop("engine"), chosen.pop("config")
    statements = split(cell) if engine == "duckdb" else spark_names.statements(cell)
    if len(statements) != 1:
        raise BadParameter(f"a cell runs one statement, and this has {len(statements)}.")
    if engine == "spark":
        return _on_spark(statements[0], config, ServerChoice(**chosen))
    with connect_server(config, **chosen) as client, client.ask(statements[0]) as answer:
        return pa.Table.from_batches(list(answer.batches()), answer.schema)


@click.command(add_help_option=False)
@click.option("--engine", type=click.Choice(["duckdb", "spark"]), default="duckdb")
@click.option("--config", metavar="FILE")
@contract_options
@server_options
def _options(**chosen: Any) -> dict[str, Any]:
    return chosen


#: By session and by where it reads. A DataFrame reads the files of its lake, so none is closed before the notebook ends.
_lakes: dict[tuple[object, ...], tc.Lake | tc.ServerLake] = {}


def _on_spark(sql: str, config: str | None, options: ServerChoice) -> DataFrame:
    from connectors.spark.errors import statement_errors
    from connectors.spark.session import session_of_process
    from thermocline import spark as tc
    from thermocline.spark_statements import SparkStatements, arguments_of

    session = session_of_process()
    if session is None:
        raise BadConfig("this notebook has no Spark session; start one before the cell is run.")
    user, token = options.user, options.token
    server = server_named(options.uri, local=options.local)
    place = (id(session), config, server, user, token)
    if place not in _lakes:
        _lakes[place] = (
            tc.connect(session, config)
            if server is None
            else tc.connect(
                session, server=server, user=user, password=password_of(user), token=token
            )
        )
    with statement_errors():
        return SparkStatements(session, _lakes[place], arguments_of(options), None).frame(sql)
