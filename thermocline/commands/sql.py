"""``thermocline sql``: statements and their results."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from planner import spark_names
from planner.errors import BadConfig
from thermocline.client import split
from thermocline.connect import (
    connect_server,
    contract_options,
    password_of,
    server_named,
    server_options,
)

FORMATS = ("table", "csv", "json", "jsonl", "arrow", "parquet")
_BINARY = frozenset({"arrow", "parquet"})

EXAMPLES = """\b
Examples:
  thermocline sql "SELECT count(*) FROM lake.net.flows"
  thermocline sql "FROM lake.net.flows LIMIT 5" --format jsonl
  thermocline sql "FROM lake.net.flows" -o flows.parquet
  thermocline sql -f report.sql --format csv > report.csv
  thermocline sql "SELECT count(*) FROM lake.net.flows" --freshness cold
  thermocline sql --engine spark "SELECT count(*) FROM lake.net.flows"
  thermocline sql                          a prompt: \\d lists tables
"""


@click.command(epilog=EXAMPLES)
@click.argument("statement", required=False)
@click.option(
    "-f",
    "--file",
    "file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    help="Run the statements of a file, '-' for standard input; they end with ';'.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="How rows are written; else by the name of -o, else a table.",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Write to a file, which appears when the result is whole.",
)
@click.option(
    "--max-rows",
    type=click.IntRange(0),
    default=100,
    show_default=True,
    help="Rows a table shows; 0 for all.",
)
@click.option(
    "--engine",
    type=click.Choice(["duckdb", "spark"]),
    default="duckdb",
    show_default=True,
    help="Who runs the statement. For spark it is written in Spark's SQL, with full names; a Spark starts in this process "
    "(as under [tier]), which takes seconds, reads store and brokers by itself unless --server is given, and collects "
    "the whole answer.",
)
@contract_options
@server_options
@click.pass_obj
def command(
    config: str | None,
    /,
    statement: str | None,
    file: str | None,
    form: str | None,
    output: str | None,
    max_rows: int,
    engine: str,
    **server: Any,
) -> None:
    """Run STATEMENT, the statements of a file, or a prompt.

    Each answer holds every record committed before it was asked, each once; --freshness says otherwise. Formats but table are streamed: a
    result may be larger than memory.
    """
    from thermocline.output.answers import deliver
    from thermocline.output.formats import CONCATENATED, format_of, opened

    if statement is not None and file is not None:
        raise click.UsageError("give a STATEMENT or a file with -f, not both.")
    form = form or (format_of(output) if output else None) or "table"
    asks = statement is None and file is None
    if asks and not sys.stdin.isatty():
        file, asks = "-", False
    if asks and engine == "spark":
        raise click.UsageError("--engine spark runs a STATEMENT or a file; it has no prompt.")
    statements = [] if asks else _statements(statement, file, engine)
    if len(statements) > 1 and form not in CONCATENATED and form != "table":
        raise click.UsageError(
            f"{len(statements)} results do not make one {form} file; use --format jsonl, or run them one by one."
        )
    if form in _BINARY and output is None and sys.stdout.isatty():
        raise click.UsageError(f"{form} is not for a terminal; name a file with -o.")
    if engine == "spark":
        limit = max_rows if form == "table" and max_rows else None
        _run_on_spark(config, statements, output, form, max_rows, limit, server)
        return
    with connect_server(config, **server) as client:
        if asks:
            from thermocline.prompt import run

            run(client, form=form, max_rows=max_rows)
        else:
            with opened(output) as sink:
                for text in statements:
                    deliver(client, text, sink, form=form, max_rows=max_rows)


def _run_on_spark(
    config: str | None,
    statements: Sequence[str],
    output: str | None,
    form: str,
    max_rows: int,
    limit: int | None,
    server: dict[str, Any],
) -> None:
    from thermocline.output.answers import deliver
    from thermocline.output.formats import opened
    from thermocline.spark_statements import spark_statements

    uri = server_named(server.pop("uri"), local=server.pop("local"))
    password = password_of(server["user"])
    with (
        spark_statements(config, uri=uri, password=password, max_rows=limit, **server) as spark,
        opened(output) as sink,
    ):
        for text in statements:
            deliver(spark, text, sink, form=form, max_rows=max_rows)


def _statements(statement: str | None, file: str | None, engine: str) -> Sequence[str]:
    if statement is None:
        text = sys.stdin.read() if file == "-" else _text_of(Path(str(file)))
    else:
        text = statement
    statements = split(text) if engine == "duckdb" else spark_names.statements(text)
    if not statements:
        raise click.UsageError("there is no statement to run.")
    return statements


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfig(f"{path}: the file cannot be read as UTF-8 text.") from error
