"""``%%thermocline`` and ``%seam``, after ``%load_ext thermocline_client``."""

from __future__ import annotations

import getpass
import os
import re
import time
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, line_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring
from IPython.display import DisplayHandle, display

from thermocline_client.answer import StatementAnswer
from thermocline_client.connecting import connect
from thermocline_client.connection import Connection
from thermocline_client.seam import seam_of

URI_VARIABLE, PASSWORD_VARIABLE = "THERMOCLINE_URI", "THERMOCLINE_PASSWORD"
#: Shorter statements show no progress; then it moves about this often.
_PATIENCE_S, _STEP_S = 0.5, 0.5
_FRAME_S = 1.0
_SPAN = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)\s*(ms|s|m|h)?")
_SECONDS = {"ms": 0.001, "s": 1, None: 1, "m": 60, "h": 3_600}


def register(shell: Any) -> None:
    shell.register_magics(ThermoclineMagics(shell))


class _Progress:
    """A line below the cell while a statement runs; it is wiped at the end."""

    def __init__(self) -> None:
        self._handle: DisplayHandle | None = None
        self._next_s = _PATIENCE_S

    def __call__(self, rows: int, seconds: float) -> None:
        if seconds < self._next_s:
            return
        self._next_s = seconds + _STEP_S
        line = _Line(f"{rows:,} rows, {seconds:.0f} s; interrupt the kernel to cancel")
        if self._handle is None:
            self._handle = display(line, display_id=True)
        else:
            self._handle.update(line)

    def wipe(self) -> None:
        if self._handle is not None:
            self._handle.update(_Line(""))


class _Line:
    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return f"<small>{self._text}</small>"


@magics_class
class ThermoclineMagics(Magics):
    """One connection for each server and user, opened when a cell first asks."""

    shell: Any

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self._connections: dict[tuple[str, str | None, str | None], Connection] = {}
        self._server: tuple[str, str | None, str | None] | None = None

    @line_cell_magic
    @magic_arguments()
    @argument(
        "--server", metavar="URI", help="grpc://HOST:PORT; else as before, or $THERMOCLINE_URI"
    )
    @argument("--user", help="its password is $THERMOCLINE_PASSWORD, or asked for")
    @argument("--token", help="a bearer token instead: --token $name takes it from a variable")
    @argument("--freshness", help="live, 'max_staleness 5s', cold or tail")
    @argument("--cut", help="read what another answer read: its .cut")
    @argument("--wait-for", help="answer once these records are there: topic/partition:offset")
    @argument("--into", metavar="NAME", help="put the answer into a variable and show nothing")
    def thermocline(self, line: str, cell: str | None = None) -> StatementAnswer | None:
        """Run the statement of a cell; as a line, say which server later cells ask."""
        options = parse_argstring(self.thermocline, line)
        connection = self._connected(options.server, options.user, options.token)
        if cell is None:
            return None
        answer = self._ask(connection, cell, options)
        if options.into is None:
            return answer
        if not options.into.isidentifier():
            raise UsageError(f"--into takes the name of a variable, and not {options.into!r}.")
        self.shell.push({options.into: answer})
        return None

    @line_magic
    @magic_arguments()
    @argument("table", help="as SQL names it: lake.net.flows")
    @argument("--live", metavar="TIME", help="draw it again every second, for 10s, 5m")
    def seam(self, line: str) -> None:
        """Draw where Iceberg ends and Kafka begins, per partition. Interrupting ends the drawing."""
        options = parse_argstring(self.seam, line)
        span_s = 0.0 if options.live is None else _span_s(options.live)
        connection = self._connected(None, None, None)
        until_s = time.monotonic() + span_s
        try:
            picture = display(seam_of(connection, options.table), display_id=True)
            while (rest_s := until_s - time.monotonic()) > 0:
                time.sleep(min(_FRAME_S, rest_s))
                picture.update(seam_of(connection, options.table))
        except KeyboardInterrupt:
            pass
        except ValueError as error:
            raise UsageError(str(error)) from None

    def _ask(self, connection: Connection, cell: str, options: Any) -> StatementAnswer:
        progress = _Progress()
        try:
            return connection.ask(
                cell.strip().rstrip(";"),
                progress=progress,
                freshness=options.freshness,
                cut=options.cut,
                wait_for=options.wait_for,
            )
        finally:
            progress.wipe()

    def _connected(self, uri: str | None, user: str | None, token: str | None) -> Connection:
        """Return the connection that options name; without any, that of the cell before."""
        if uri is None and user is None and token is None and self._server is not None:
            return self._connections[self._server]
        uri = uri or os.environ.get(URI_VARIABLE)
        if not uri:
            raise UsageError(
                f"no server is named: run %thermocline --server grpc://HOST:PORT, or set ${URI_VARIABLE}."
            )
        server = (uri, user, token)
        if server not in self._connections:
            password = None if user is None else _password(user)
            try:
                self._connections[server] = connect(
                    uri, user=user, password=password, token=token
                )
            except ValueError as error:
                raise UsageError(str(error)) from None
        self._server = server
        return self._connections[server]


def _password(user: str) -> str:
    saved = os.environ.get(PASSWORD_VARIABLE)
    return getpass.getpass(f"Password of {user}: ") if saved is None else saved


def _span_s(text: str) -> float:
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"--live takes a time such as 10s or 5m, and not {text!r}.")
    return float(match[1]) * _SECONDS[match[2]]
