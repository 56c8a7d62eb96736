"""Does what a page says, in a folder of its own, as its reader would.

The page's broker address and port are replaced by those of this test run; nothing else is.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import adbc_driver_flightsql.dbapi as flight_sql

from tests.docs.pages import BACKGROUND, NOT_RUN, PRINTS, Block
from tests.harness.forked_python import Programs

BLOCK_TIMEOUT_S = 240.0
START_TIMEOUT_S = 60.0
_LOG = "background.log"
_FILE = re.compile(r"(?:#|//) (?P<name>[\w.-]+\.(?:toml|java))\n")


@dataclass
class Walk:
    """A reader's folder, and what happened in it. Close it: background commands end.

    What ends by itself runs in forks, by ``programs``; what goes on in the background is started as users start it.
    """

    folder: Path
    replaced: Mapping[str, str]
    port: int
    programs: Programs
    _background: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def follow(self, page: list[Block]) -> None:
        """Do every block of the page, in order."""
        printed = ""
        for block in page:
            if block.directive == NOT_RUN:
                continue
            if block.directive == PRINTS:
                self._compare(block, printed)
            elif block.directive == BACKGROUND:
                self._start(block)
            else:
                printed = self._do(block)

    def _do(self, block: Block) -> str:
        text = self._here(block.text)
        if block.language in ("toml", "java"):
            return self._write(block, text)
        if block.language == "sql":
            return self._ask(block, text)
        if block.language == "python":
            return self._run(block, [str(self.programs.python), "-W", "error", "-c", text])
        assert block.language == "bash", f"{block}: say how to run it, or mark it as not run"
        return self._run(block, ["bash", "-euo", "pipefail", "-c", text])

    def _write(self, block: Block, text: str) -> str:
        name = _FILE.match(text)
        assert name, f"{block}: its first line does not name the file"
        (self.folder / name["name"]).write_text(text, encoding="utf-8")
        return ""

    def _ask(self, block: Block, text: str) -> str:
        with (
            flight_sql.connect(f"grpc://127.0.0.1:{self.port}", autocommit=True) as connection,
            connection.cursor() as cursor,
        ):
            for statement in filter(str.strip, text.split(";")):
                cursor.execute(statement)
                table = cursor.fetch_arrow_table()
        assert table.num_rows, f"{block}: no row"
        return str(table.to_pylist())

    def _run(self, block: Block, command: list[str]) -> str:
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self._environment(self.programs.path),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BLOCK_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, (
            f"{block}: exit {done.returncode}\n{done.stdout}\n{done.stderr}\n{self._said()}"
        )
        return done.stdout

    def _start(self, block: Block) -> None:
        command = self._here(block.text).strip()
        with (self.folder / _LOG).open("ab") as log:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._background.append(process)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            assert process.poll() is None, f"{block}: ended\n{self._said()}"
            assert time.monotonic() < deadline, f"{block}: does not answer\n{self._said()}"
            time.sleep(0.2)

    def _said(self) -> str:
        log = self.folder / _LOG
        return log.read_text(encoding="utf-8") if log.exists() else ""

    def _answers(self) -> bool:
        uri = f"grpc://127.0.0.1:{self.port}"
        try:
            with (
                flight_sql.connect(uri, autocommit=True) as connection,
                connection.cursor() as cursor,
            ):
                cursor.execute("SELECT 1")
                return bool(cursor.fetchall())
        except flight_sql.Error:
            return False

    def _compare(self, block: Block, printed: str) -> None:
        expected = self._here(block.text).strip()
        pattern = r"[\s\S]*?".join(
            r"\s+".join(map(re.escape, part.split())) for part in expected.split("…")
        )
        assert re.search(pattern, printed), (
            f"{block}: shows\n{expected}\nprinted was\n{printed}"
        )

    def _here(self, text: str) -> str:
        for written, actual in self.replaced.items():
            text = text.replace(written, actual)
        return text

    def _environment(self, *folders: Path) -> dict[str, str]:
        fields = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("THERMOCLINE_", "AWS_"))
        }
        path = (*map(str, folders), str(Path(sys.executable).parent), fields["PATH"])
        return {**fields, "PATH": os.pathsep.join(path), "COLUMNS": "120"}

    def close(self) -> None:
        """End what still runs."""
        for process in self._background:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            if process.poll() is None:
                process.kill()
                process.wait()
