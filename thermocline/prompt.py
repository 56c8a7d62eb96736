"""The prompt of ``thermocline sql``: line editing, history and completion by readline."""

from __future__ import annotations

import contextlib
import os
import re
import readline
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from planner.errors import FederationError
from thermocline.client import Client
from thermocline.output.answers import deliver
from thermocline.output.formats import WRITERS
from thermocline.output.table import Grid
from thermocline.statements import is_complete, split

_HISTORY_LINES = 5_000
_KEYWORDS = [
    "AND",
    "AS",
    "ASC",
    "BETWEEN",
    "BY",
    "CASE",
    "COUNT",
    "CROSS",
    "DESC",
    "DESCRIBE",
    "DISTINCT",
    "ELSE",
    "END",
    "EXCEPT",
    "EXPLAIN",
    "FROM",
    "FULL",
    "GROUP",
    "HAVING",
    "IN",
    "INNER",
    "INTERSECT",
    "IS",
    "JOIN",
    "LEFT",
    "LIKE",
    "LIMIT",
    "NOT",
    "NULL",
    "OFFSET",
    "ON",
    "OR",
    "ORDER",
    "OUTER",
    "OVER",
    "PARTITION",
    "QUALIFY",
    "RIGHT",
    "SELECT",
    "THEN",
    "UNION",
    "USING",
    "VALUES",
    "WHEN",
    "WHERE",
    "WINDOW",
    "WITH",
]
_HELP = """\
  SELECT ...;      run a statement; it may span lines and ends with ;
  \\d               list tables
  \\d TABLE         columns of a table
  \\x               rows as records, on or off
  \\f FORMAT        table, csv, json or jsonl
  \\n ROWS          rows a table shows, 0 for all
  \\q               leave (also Ctrl-D); Ctrl-C ends a statement\
"""
_PLAIN = re.compile(r"[a-z_][a-z0-9_$]*")
_TEXTS = ("table", "csv", "json", "jsonl")


@dataclass
class _Prompt:
    client: Client
    form: str
    max_rows: int
    records: bool = False
    left: bool = False

    def run(self, text: str) -> None:
        """Run what was typed; an error is told, and the prompt goes on."""
        try:
            if text.startswith("\\"):
                self._command(text)
            else:
                for statement in split(text):
                    deliver(
                        self.client,
                        statement,
                        sys.stdout.buffer,
                        form=self.form,
                        max_rows=self.max_rows,
                        records=self.records,
                    )
        except FederationError as error:
            click.echo(error.message, err=True)
        except KeyboardInterrupt:
            click.echo("cancelled", err=True)
        sys.stdout.flush()

    def _command(self, text: str) -> None:
        name, _, argument = text.rstrip("; ").partition(" ")
        handler: Callable[[str], None] | None = {
            "\\d": self._describe,
            "\\dt": self._describe,
            "\\x": self._expand,
            "\\f": self._choose,
            "\\n": self._limit,
            "\\q": self._leave,
        }.get(name)
        if handler is None:
            click.echo(_HELP)
        else:
            handler(argument.strip())

    def _describe(self, table: str) -> None:
        if table:
            self.run(f"SELECT column_name, column_type FROM (DESCRIBE {table});")  # noqa: S608 - the user's own
            return
        tables = self.client.tables()
        lines = Grid(["catalog", "schema", "table"], [False] * 3).lines(tables)
        click.echo("\n".join([*lines, f"({len(tables)} tables)"]))

    def _expand(self, _: str) -> None:
        self.records = not self.records
        click.echo(f"rows as records: {'on' if self.records else 'off'}")

    def _choose(self, form: str) -> None:
        if form not in _TEXTS:
            click.echo(f"formats here are {', '.join(_TEXTS)}.", err=True)
            return
        self.form = form

    def _limit(self, rows: str) -> None:
        if not rows.isdecimal():
            click.echo("\\n takes a number of rows.", err=True)
            return
        self.max_rows = int(rows)

    def _leave(self, _: str) -> None:
        self.left = True


def run(client: Client, *, form: str, max_rows: int) -> None:
    """Ask for statements until the user leaves.

    Raises:
        FederationError: the server cannot list its tables, so it cannot answer either.
    """
    words = _words(client)
    click.echo(f"{len(client.tables())} tables; \\d lists them, \\? helps, \\q leaves.")
    prompt = _Prompt(client, form if form in WRITERS and form in _TEXTS else "table", max_rows)
    with _editing(words):
        while not prompt.left:
            try:
                text = _typed()
            except EOFError:
                click.echo()
                return
            except KeyboardInterrupt:
                click.echo()
                continue
            if text.strip():
                prompt.run(text.strip())


def _typed() -> str:
    """Read lines until a statement ends, or a command of the prompt."""
    text = input("thermocline> ")
    if text.strip().startswith("\\"):
        return text
    while text.strip() and not is_complete(text):
        text += "\n" + input("        ...> ")
    return text


def _words(client: Client) -> list[str]:
    tables = client.tables()
    names = {".".join(map(_quoted, table)) for table in tables}
    names |= {_quoted(table[-1]) for table in tables}
    return sorted(names) + _KEYWORDS


def _quoted(name: str) -> str:
    if _PLAIN.fullmatch(name.lower()):
        return name
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


@contextlib.contextmanager
def _editing(words: list[str]) -> Iterator[None]:
    """Have history and completion inside the block; the history is kept for the next time."""
    history = history_file()
    with contextlib.suppress(OSError):
        readline.read_history_file(history)
    readline.set_history_length(_HISTORY_LINES)
    readline.set_completer_delims(" \t\n,()=<>+-*/;")
    readline.set_completer(lambda text, state: _completion(words, text, state))
    readline.parse_and_bind("tab: complete")
    try:
        yield
    finally:
        readline.set_completer(None)
        # A home that cannot be written to costs the history, nothing else.
        with contextlib.suppress(OSError):
            history.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            readline.write_history_file(history)
            history.chmod(0o600)


def _completion(words: list[str], text: str, state: int) -> str | None:
    if not text:
        return None
    matches = [word for word in words if word.lower().startswith(text.lower())]
    return matches[state] if state < len(matches) else None


def history_file() -> Path:
    """Return where statements are remembered: they may hold data, so only their user may read it."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "thermocline" / "history"
