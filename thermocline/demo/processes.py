"""The demo's own commands as children that cannot outlive it, and the janitor that cleans up after them all."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from connectors import child_guard
from planner.errors import Unavailable
from thermocline.demo import janitor

STOP_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Child:
    """One of our own commands, tethered to this process; its output is in ``log``."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def check(self) -> None:
        """Raise when it has ended, with the last thing it said."""
        if self.process.poll() is not None:
            lines = self.text().strip().splitlines()
            said = lines[-1].removeprefix("thermocline: ") if lines else "it printed nothing"
            raise Unavailable(f"the demo's {self.name} ended: {said.rstrip('.')}.")

    def text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def ask_to_stop(self) -> None:
        """What its tether sees as our end."""
        if self.process.stdin is not None and not self.process.stdin.closed:
            self.process.stdin.close()

    def stop(self) -> None:
        self.ask_to_stop()
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Janitor:
    """Owns the removal of ``folder``. Lives until this process and everybody it was told of are gone."""

    def __init__(self, folder: Path) -> None:
        # A session of its own: a Ctrl-C in the terminal is not for it.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", janitor.__file__, str(folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def wait_for(self, pid: int | None) -> None:
        """Keep the folder until this process is gone."""
        if pid is not None and self._process.stdin is not None:
            self._process.stdin.write(f"{pid}\n".encode())
            self._process.stdin.flush()

    def finish(self) -> None:
        """Have the folder removed now; everybody who used it has ended."""
        self._process.communicate()


def start(folder: Path, config: Path, name: str, *arguments: str) -> Child:
    """Run ``thermocline arguments…`` with everything temporary inside ``folder``."""
    log = folder / f"{name}.log"
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "thermocline", "--config", str(config), *arguments]
    # Settings of the user's own installation must not reach the demo's processes.
    inherited = {
        key: value for key, value in os.environ.items() if not key.startswith("THERMOCLINE_")
    }
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", child_guard.__file__, str(log), *command],
        env=inherited | {"TMPDIR": str(temporary), "SPARK_LOCAL_DIRS": str(temporary)},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    return Child(name, process, log)
