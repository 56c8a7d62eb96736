"""The prompt of ``thermocline sql``; prompt_toolkit edits lines, remembers and completes them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.shortcuts import CompleteStyle

from planner.errors import FederationError
from planner.sql_text import identifier
from thermocline.client import Client, is_complete, split
from thermocline.output.answers import deliver
from thermocline.output.table import Grid
from thermocline.serve.sql_info import COMMON_WORDS, KEYWORDS

#: What is completed, read backwards from the cursor.
_TYPED = re.compile(r"^[^\s,()=<>+\-*/;]+")
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
        """Run what was typed; print an error, and go on."""
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
        match name, argument.strip():
            case "\\d" | "\\dt", table:
                self._describe(table)
            case "\\x", _:
                self.records = not self.records
                click.echo(f"rows as records: {'on' if self.records else 'off'}")
            case "\\f", form if form in _TEXTS:
                self.form = form
            case "\\f", _:
                click.echo(f"formats here are {', '.join(_TEXTS)}.", err=True)
            case "\\n", rows if rows.isdecimal():
                self.max_rows = int(rows)
            case "\\n", _:
                click.echo("\\n takes a number of rows.", err=True)
            case "\\q", _:
                self.left = True
            case _:
                click.echo(_HELP)

    def _describe(self, table: str) -> None:
        if table:
            self.run(f"SELECT column_name, column_type FROM (DESCRIBE {table});")  # noqa: S608 - the user's own
            return
        tables = self.client.tables()
        lines = Grid(["catalog", "schema", "table"], [False] * 3).lines(tables)
        click.echo("\n".join([*lines, f"({len(tables)} tables)"]))


def run(client: Client, *, form: str, max_rows: int) -> None:
    """Ask for statements until the user leaves.

    Raises:
        FederationError: the server cannot list its tables, so it cannot answer either.
    """
    tables = client.tables()
    click.echo(f"{len(tables)} tables; \\d lists them, \\? helps, \\q leaves.")

    def goes_on() -> bool:
        text = session.default_buffer.text.strip()
        return not text.startswith("\\") and not is_complete(text)

    prompt = _Prompt(client, form if form in _TEXTS else "table", max_rows)
    session: PromptSession[str] = PromptSession(
        "thermocline> ",
        prompt_continuation="        ...> ",
        multiline=Condition(goes_on),
        history=_history(),
        completer=WordCompleter(_names(tables), ignore_case=True, pattern=_TYPED),
        complete_style=CompleteStyle.READLINE_LIKE,
    )
    while not prompt.left:
        try:
            text = session.prompt().strip()
        except EOFError:
            return
        except KeyboardInterrupt:
            continue
        if text:
            prompt.run(text)


def _names(tables: Sequence[Sequence[str]]) -> list[str]:
    names = {
        name for table in tables for name in (".".join(map(_quoted, table)), _quoted(table[-1]))
    }
    return sorted(names) + sorted({*KEYWORDS, *COMMON_WORDS})


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name.lower()) else identifier(name)


def _history() -> History:
    """Return what was typed before: it may hold data, so only its user may read it.

    A home that cannot be written to costs the history, nothing else.
    """
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    file = Path(state) / "thermocline" / "history"
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.touch(mode=0o600)
        file.chmod(0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(file))
