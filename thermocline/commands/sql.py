"""``thermocline sql``: statements and their results."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

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
from thermocline.options import option, options, takes

if TYPE_CHECKING:
    from thermocline.output.answers import Asks

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


@options
class SqlOptions:
    file: str | None = option(
        "-f",
        "--file",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False, allow_dash=True),
        help="Run the statements of a file, '-' for standard input; they end with ';'.",
    )
    form: Literal["table", "csv", "json", "jsonl", "arrow", "parquet"] | None = option(
        "--format", help="How rows are written; else by the name of -o, else a table."
    )
    output: str | None = option(
        "-o",
        "--output",
        metavar="FILE",
        help="Write to a file, which appears when the result is whole.",
    )
    max_rows: int = option(
        type=click.IntRange(0),
        default=100,
        show_default=True,
        help="Rows a table shows; 0 for all.",
    )
    engine: Literal["duckdb", "spark"] = option(
        default="duckdb",
        show_default=True,
        help="Who runs the statement. For spark it is written in Spark's SQL, with full names; a Spark starts in this process "
        "(as under [tier]), which takes seconds, reads store and brokers by itself unless --server is given, and collects "
        "the whole answer.",
    )


@click.command(epilog=EXAMPLES)
@click.argument("statement", required=False)
@takes(SqlOptions)
@contract_options
@server_options
@click.pass_obj
def command(
    config: str | None, chosen: SqlOptions, /, statement: str | None, **server: Any
) -> None:
    """Run STATEMENT, the statements of a file, or a prompt.

    Each answer holds every record committed before it was asked, each once; --freshness says otherwise. Formats but table are streamed: a
    result may be larger than memory.
    """
    from thermocline.output.answers import deliver
    from thermocline.output.formats import CONCATENATED, format_of, opened

    file, output, max_rows = chosen.file, chosen.output, chosen.max_rows
    if statement is not None and file is not None:
        raise click.UsageError("give a STATEMENT or a file with -f, not both.")
    form = chosen.form or (format_of(output) if output else None) or "table"
    asks = statement is None and file is None
    if asks and not sys.stdin.isatty():
        file, asks = "-", False
    on_spark = chosen.engine == "spark"
    if asks and on_spark:
        raise click.UsageError("--engine spark runs a STATEMENT or a file; it has no prompt.")
    statements = []
    if not asks:
        text = _text_of(str(file)) if statement is None else statement
        statements = spark_names.statements(text) if on_spark else split(text)
        if not statements:
            raise click.UsageError("there is no statement to run.")
    if len(statements) > 1 and form not in (*CONCATENATED, "table"):
        raise click.UsageError(
            f"{len(statements)} results do not make one {form} file; use --format jsonl, or run them one by one."
        )
    if form in ("arrow", "parquet") and output is None and sys.stdout.isatty():
        raise click.UsageError(f"{form} is not for a terminal; name a file with -o.")
    if asks:
        with connect_server(config, **server) as client:
            from thermocline.prompt import run

            run(client, form=form, max_rows=max_rows)
        return
    limit = max_rows if form == "table" and max_rows else None
    with (
        _on_spark(config, limit, **server)
        if on_spark
        else connect_server(config, **server) as runner,
        opened(output) as sink,
    ):
        for text in statements:
            deliver(runner, text, sink, form=form, max_rows=max_rows)


def _on_spark(
    config: str | None, max_rows: int | None, *, uri: str | None, local: bool, **server: Any
) -> AbstractContextManager[Asks]:
    from thermocline.spark_statements import spark_statements

    uri = server_named(uri, local=local)
    password = password_of(server["user"])
    return spark_statements(config, uri=uri, password=password, max_rows=max_rows, **server)


def _text_of(path: str) -> str:
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfig(f"{path}: the file cannot be read as UTF-8 text.") from error
