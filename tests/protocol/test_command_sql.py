"""``thermocline sql`` against the protocol server: outputs, errors and exit codes as users meet them."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from planner import errors
from tests.harness.canned import CannedServer
from tests.harness.error_statuses import ROWS
from thermocline.cli import exit_code, main

Output = tuple[int, bytes, str]
ERROR_ID = re.compile(r"\((statement|request) [0-9a-f]{16}\)")


@pytest.fixture
def run(
    shared_server: CannedServer, capfdbinary: pytest.CaptureFixture[bytes]
) -> Callable[..., Output]:
    """Run a command in this process: exit code, standard output, standard error.

    The id that an error carries, another one each time, is shown as N.
    """

    def reply(*arguments: str) -> Output:
        code = 0
        try:
            main([*arguments, "--server", shared_server.uri])
        except SystemExit as ended:
            code = int(ended.code or 0)
        out, err = capfdbinary.readouterr()
        return code, out, ERROR_ID.sub(r"(\1 N)", err.decode())

    return reply


def test_a_statement_is_a_table_unless_told_otherwise(run: Callable[..., Output]) -> None:
    assert run("sql", "SELECT 1 AS a, 'x' AS b") == (
        0,
        "a  b\n─  ─\n1  x\n(1 row)\n".encode(),
        "",
    )


def test_every_format_holds_the_same_rows(run: Callable[..., Output], tmp_path: Path) -> None:
    sql = "SELECT range AS n, 'row ' || range AS name FROM range(10000)"
    expected = [{"n": n, "name": f"row {n}"} for n in range(10_000)]
    code, out, err = run("sql", sql, "--format", "jsonl")
    assert (code, err) == (0, "")
    assert [json.loads(line) for line in out.splitlines()] == expected
    assert json.loads(run("sql", sql, "--format", "json")[1]) == expected
    assert run("sql", sql, "--format", "csv")[1].count(b"\n") == 10_001
    assert (
        pa.ipc.open_file(run("sql", sql, "--format", "arrow")[1]).read_all().to_pylist()
        == expected
    )
    table = parquet.read_table(io.BytesIO(run("sql", sql, "--format", "parquet")[1]))
    assert table.to_pylist() == expected
    target = tmp_path / "rows.parquet"
    assert run("sql", sql, "-o", str(target)) == (0, b"", "")
    assert parquet.read_table(target).to_pylist() == expected


@pytest.mark.parametrize("form", ["table", "csv", "json", "jsonl"])
def test_a_year_that_python_does_not_have_is_printed(
    run: Callable[..., Output], form: str
) -> None:
    sql = "SELECT TIMESTAMP '58877-01-01' AS t, TIMESTAMPTZ '58877-01-01 00:00:00+00' AS z"
    code, out, err = run("sql", sql, "--format", form)
    assert (code, err) == (0, "")
    assert out.count(b"58877-01-01 00:00:00.000000") == 2


def test_a_long_table_says_that_there_is_more(run: Callable[..., Output]) -> None:
    _, out, _ = run("sql", "FROM range(1000)", "--max-rows", "2")
    assert out.decode().splitlines() == [
        "range",
        "─────",
        "    0",
        "    1",
        "(the first 2 rows; there are more: --max-rows 0 shows all)",
    ]


def test_statements_of_a_file_run_one_after_the_other(
    run: Callable[..., Output], tmp_path: Path
) -> None:
    file = tmp_path / "two.sql"
    file.write_text("SELECT 1 AS a;\n-- a comment; with a semicolon\nSELECT ';' AS b;\n")
    code, out, _ = run("sql", "-f", str(file), "--format", "jsonl")
    assert (code, out) == (0, b'{"a":1}\n{"b":";"}\n')
    code, _, err = run("sql", "-f", str(file), "-o", str(tmp_path / "x.parquet"))
    assert code == 2
    assert "2 results do not make one parquet file" in err


def test_a_failure_leaves_no_file(run: Callable[..., Output], tmp_path: Path) -> None:
    target = tmp_path / "rows.csv"
    code, _, err = run("sql", "trick late_fail TailGap", "-o", str(target))
    assert (code, err) == (
        6,
        "thermocline: lake.main.flows: this is what TailGap says (statement N).\n",
    )
    assert list(tmp_path.iterdir()) == []


#: What a status cannot tell apart: a stale plan is retried as an outage is.
_EXIT_CODES = {4: 3}


@pytest.mark.parametrize("ours", [ours for ours, _, _ in ROWS])
@pytest.mark.parametrize("trick", ["fail", "late_fail"])
def test_each_error_ends_with_the_code_of_its_family(
    run: Callable[..., Output], ours: type[errors.FederationError], trick: str
) -> None:
    code, _, err = run("sql", f"trick {trick} {ours.__name__}")
    expected = exit_code(ours(""))
    assert code == _EXIT_CODES.get(expected, expected)
    assert (
        err
        == f"thermocline: lake.main.flows: this is what {ours.__name__} says (statement N).\n"
    )


def test_a_bug_of_the_server_is_told_as_one(run: Callable[..., Output]) -> None:
    code, _, err = run("sql", "trick bug")
    assert code == 70
    assert err.startswith("thermocline: Internal error ")
    assert err.endswith("its log has the details under that id.\n")


def test_nobody_at_the_address_is_told_with_the_address(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["sql", "SELECT 1", "--server", "127.0.0.1:1"])
    assert ended.value.code == 3
    assert capfd.readouterr().err == (
        "thermocline: no server answers at grpc://127.0.0.1:1; start one with `thermocline serve`, or name "
        "another with --server.\n"
    )


def test_a_password_is_taken_from_the_environment(
    password_server: CannedServer,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    arguments = [
        "sql",
        "SELECT 1 AS a",
        "--format",
        "csv",
        "--server",
        password_server.uri,
        "--user",
        "ada",
    ]
    monkeypatch.setenv("THERMOCLINE_PASSWORD", "pässword:1")
    main(arguments)
    assert capfd.readouterr().out == '"a"\n1\n'
    monkeypatch.setenv("THERMOCLINE_PASSWORD", "wrong")
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    reply = ERROR_ID.sub(r"(\1 N)", capfd.readouterr().err)
    assert reply == "thermocline: Unknown user or wrong password (request N).\n"


def started(
    canned_server: CannedServer, *arguments: str, **options: object
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "thermocline", "sql", "--server", canned_server.uri, *arguments],
        **options,  # type: ignore[call-overload]
    )


def test_a_reader_that_has_seen_enough_ends_the_command_quietly(
    canned_server: CannedServer,
) -> None:
    with started(
        canned_server,
        "FROM range(3000000)",
        "--format",
        "csv",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(30) == 141
        assert process.stderr.read() == b""


def test_ctrl_c_ends_the_statement_on_the_server_too(canned_server: CannedServer) -> None:
    with started(
        canned_server, "trick slow", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert canned_server.backend.running.wait(30)
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
    assert canned_server.backend.closed.wait(10)


class Terminal:
    """A command on a terminal of 100 columns."""

    def __init__(self, canned_server: CannedServer, home: Path, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        environment = {**os.environ, "HOME": str(home), "TERM": "xterm", "COLUMNS": "100"}
        environment.pop("XDG_STATE_HOME", None)
        # Nobody here answers where the cursor is.
        environment["PROMPT_TOOLKIT_NO_CPR"] = "1"
        self.process = started(
            canned_server,
            *arguments,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
        )
        os.close(theirs)
        self.screen = ""

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def until(self, text: str, timeout_s: float = 30) -> str:
        """Read until ``text`` shows; what was shown up to it since the last time."""
        deadline = time.monotonic() + timeout_s
        while (end := self.screen.find(text)) < 0:
            assert time.monotonic() < deadline, self.screen
            if select.select([self._ours], [], [], 0.1)[0]:
                self.screen += os.read(self._ours, 65_536).decode()
        output, self.screen = self.screen[: end + len(text)], self.screen[end + len(text) :]
        return output

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


#: Sent to the terminal when a prompt begins to read: what is pasted shall be marked as such.
PROMPT = "\x1b[?2004h"


def test_the_prompt_runs_lists_completes_and_remembers(
    canned_server: CannedServer, tmp_path: Path
) -> None:
    terminal = Terminal(canned_server, tmp_path)
    try:
        terminal.until(PROMPT)
        terminal.type("select 40 + 2\n")
        terminal.until("...>")
        terminal.type("as answer;\n")
        assert "42" in terminal.until("(1 row")
        terminal.until(PROMPT)
        terminal.type("\\d\n")
        assert "v_flows" in terminal.until("(7 tables)")
        terminal.until(PROMPT)
        terminal.type("selec 1;\n")
        terminal.until("syntax error")
        terminal.until(PROMPT)
        terminal.type("select 1 as one from lake.oth\t lim\t0;\n")
        terminal.until("lake.other.flows")
        terminal.until("LIMIT")
        terminal.until('Catalog "lake" does not exist')
        terminal.until(PROMPT)
        terminal.type("select 'half\n")
        terminal.until("...>")
        terminal.type("of it\x03")
        terminal.until(PROMPT)
        terminal.type("\x1b[A\n")
        terminal.until('Catalog "lake" does not exist')
        terminal.until(PROMPT)
        terminal.type("\\q\n")
        assert terminal.process.wait(10) == 0
    finally:
        terminal.close()
    history = tmp_path / ".local" / "state" / "thermocline" / "history"
    assert "as answer;" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0


def test_ctrl_c_at_the_prompt_ends_the_statement_and_ctrl_d_the_prompt(
    canned_server: CannedServer, tmp_path: Path
) -> None:
    (tmp_path / ".local").touch()  # no folder for a history can be made
    terminal = Terminal(canned_server, tmp_path)
    try:
        terminal.until(PROMPT)
        terminal.type("trick slow;\n")
        terminal.until(" rows  1 s")
        # What a terminal that a shell gave to the command makes of Ctrl-C.
        terminal.process.send_signal(signal.SIGINT)
        terminal.until("cancelled")
        terminal.until(PROMPT)
        terminal.type("\x04")
        assert terminal.process.wait(10) == 0
    finally:
        terminal.close()


def test_a_long_statement_shows_rows_and_seconds_and_wipes_them(
    canned_server: CannedServer, tmp_path: Path
) -> None:
    terminal = Terminal(canned_server, tmp_path, "trick slow")
    try:
        assert "\r\033[K" not in terminal.until(" rows  1 s")
    finally:
        terminal.close()
