"""Keeps one server process running: restarts it within seconds when it dies (design.md 3, process model).

The engine runs users' statements, so the process that holds it may have to be ended (proxy.watchdog) or may
die; the supervisor does nothing that can. The child sees its parent's death as the end of its standard
input (``exit_with_parent``), so a killed supervisor leaves no server behind.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType

#: A child that ends with this code has a wrong configuration: starting it again would not help (sysexits.h).
EXIT_CONFIG = 78
#: A restart is promised within 5 s (issue 3); the last delay plus start-up must fit.
MAX_DELAY_S = 2.0
_FIRST_DELAY_S = 0.1
#: A child that lived this long was healthy: the next restart is immediate again.
_HEALTHY_S = 10.0


class Supervisor:
    """Runs ``command`` until told to stop. ``report`` gets one sentence per restart. SIGHUP goes to the child."""

    def __init__(
        self, command: Sequence[str], *, report: Callable[[str], None], stop_grace_s: float
    ) -> None:
        """``stop_grace_s`` is how long a child that was told to stop may take."""
        self._command = list(command)
        self._report = report
        self._stop_grace_s = stop_grace_s
        self._stopping = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        """Block until SIGTERM, SIGINT or a clean end of the child; return the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        if not sys.stdin.isatty():  # else it means that the terminal is gone
            signal.signal(signal.SIGHUP, self._on_hangup)
        delay_s = _FIRST_DELAY_S
        while True:
            started = time.monotonic()
            self._child = subprocess.Popen(self._command, stdin=subprocess.PIPE)
            if self._stopping.is_set():
                self._child.terminate()
            code = self._wait(self._child)
            if self._stopping.is_set() or code in (0, EXIT_CONFIG):
                return 0 if self._stopping.is_set() else code
            if time.monotonic() - started > _HEALTHY_S:
                delay_s = _FIRST_DELAY_S
            self._report(
                f"the server process ended with {_describe(code)}; starting it again in {delay_s:g} s"
            )
            self._stopping.wait(delay_s)
            if self._stopping.is_set():
                return 0
            delay_s = min(delay_s * 2, MAX_DELAY_S)

    def _wait(self, child: subprocess.Popen[bytes]) -> int:
        while not self._stopping.is_set():
            try:
                return child.wait(timeout=0.2)
            except subprocess.TimeoutExpired:
                continue
        try:
            return child.wait(timeout=self._stop_grace_s)
        except subprocess.TimeoutExpired:
            child.kill()
            return child.wait()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._stopping.set()
        if self._child is not None:
            self._child.terminate()

    def _on_hangup(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self._child is not None:
            self._child.send_signal(number)


def exit_with_parent(stop_grace_s: float) -> None:
    """End this process when its standard input ends: the supervisor holds the other end.

    By SIGTERM; at once if it is still here ``stop_grace_s`` later, as the supervisor would have seen to.
    """

    def watch() -> None:
        # Not sys.stdin: its lock, held by a daemon thread, aborts the interpreter's shutdown.
        while os.read(0, 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(stop_grace_s)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def _describe(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
