"""Audit lines of a server that ends: all of them where it is told to, all but the last ones where it is killed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from tests.harness.server_process import SOON_S, ServerProcess


def ask(server: ServerProcess, first: int, count: int) -> None:
    """Ask statements of 1, 2, 3, ... rows."""
    with server.cursor() as cursor:
        for rows in range(first, first + count):
            cursor.execute(f"SELECT * FROM range({rows})")
            assert len(cursor.fetch_arrow_table()) == rows


def rows_of(log: Path) -> list[int]:
    """The rows of the statements that ended, in the order of the file; each line is whole."""
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return [line["rows"] for line in lines if line["outcome"] == "ok" and line["rows"]]


def wait(until: Callable[[], bool]) -> None:
    last = time.monotonic() + SOON_S
    while not until():
        assert time.monotonic() < last
        time.sleep(0.01)


def test_sigterm_loses_no_line_and_sigkill_only_the_last(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    server = ServerProcess(tmp_path, audit_log=str(log))
    try:
        ask(server, 1, 60)
        wait(lambda: rows_of(log) == list(range(1, 61)))
        ask(server, 61, 5)
        (child,) = psutil.Process(server.process.pid).children()
        child.kill()
        server.port = int(server.says(r"serving Flight SQL on .*:(\d+)")[1])
        before = rows_of(log)
        assert before[:60] == list(range(1, 61))
        assert before[60:] in [list(range(61, 61 + count)) for count in range(6)]
        ask(server, 101, 100)
    finally:
        server.stop()
    assert rows_of(log) == before + list(range(101, 201))
