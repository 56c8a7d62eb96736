"""The tiering service as a process family that can be killed in parts."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from connectors.failpoints import Failpoint
from tests.harness.forked_commands import Started, start

ROOT = Path(__file__).parents[2]
#: A Spark start beside everything else the machine runs, at the lowest priority.
HIT_TIMEOUT_S = 1200.0


class Tierer:
    """``thermocline tier``: started again whenever it is found dead, which a supervisor would do."""

    def __init__(self, config: Path, marker: Path, *arguments: str) -> None:
        """``marker`` names the tierer: its failpoints' files and its log lie there."""
        self._config = config
        self._marker = marker
        self._arguments = arguments
        self._log = Path(f"{marker}.log")
        self._process: Started | None = None
        self._holds = 0
        self.starts = 0

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def ensure(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self.starts += 1
        points = {
            "THERMOCLINE_FAILPOINT": "armed",
            "THERMOCLINE_FAILPOINT_FILE": str(self._marker),
        }
        self._process = start(
            ("--config", str(self._config), "tier", *self._arguments),
            ROOT,
            self._log,
            os.environ | points,
        )

    @contextlib.contextmanager
    def paused_at(self, point: Failpoint) -> Iterator[None]:
        """Hold it at ``point`` until the end of the block, once it gets there."""
        armed = Path(f"{self._marker}.armed")
        self._marker.unlink(missing_ok=True)
        self._holds += 1
        _write_at_once(armed, f"{point}#{self._holds}")
        try:
            deadline = time.monotonic() + HIT_TIMEOUT_S
            while not self._marker.exists():
                self.ensure()
                assert time.monotonic() < deadline, (
                    f"{point} was never reached: {self.said[-2000:]}"
                )
                time.sleep(0.02)
            yield
        finally:
            armed.unlink()

    def wait_for_publish(self) -> None:
        """Wait until it has published once more."""
        before = self.said.count(": published ")
        deadline = time.monotonic() + HIT_TIMEOUT_S
        while self.said.count(": published ") == before:
            self.ensure()
            assert time.monotonic() < deadline, f"nothing is published: {self.said[-2000:]}"
            time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL of driver, JVM and Python workers at once."""
        if self._process is None:
            return
        for member in self._family():
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
        self._process.kill()
        self._process.wait()
        self._process = None

    def stop(self) -> int:
        """SIGTERM; its exit code."""
        assert self._process is not None
        self._process.terminate()
        code = self._process.wait(HIT_TIMEOUT_S)
        self._process = None
        return code

    def kill_jvm(self) -> bool:
        """SIGKILL of Spark's JVM; whether there was one."""
        return self._kill_one(self._jvms(), random.Random(0))

    def kill_executor(self, chance: random.Random) -> bool:
        """SIGKILL of one executor's JVM, which has a process of its own on a cluster; whether there was one."""
        return self._kill_one(
            [
                value
                for jvm in self._jvms()
                for value in _children(jvm.pid)
                if _name(value) == "java"
            ],
            chance,
        )

    def kill_worker(self, chance: random.Random) -> bool:
        """SIGKILL of one Python worker; whether there was one."""
        return self._kill_one(
            [
                value
                for jvm in self._jvms()
                for value in _children(jvm.pid)
                if "python" in _name(value)
            ],
            chance,
        )

    def wait_dead(self) -> None:
        assert self._process is not None
        self._process.wait(HIT_TIMEOUT_S)

    @contextlib.contextmanager
    def running(self) -> Iterator[Tierer]:
        try:
            yield self
        finally:
            self.kill()

    def _jvms(self) -> list[psutil.Process]:
        """The driver's: none while it starts, and its executors' are below it."""
        if self._process is None:
            return []
        return [
            value
            for value in _children(self._process.pid, recursive=False)
            if _name(value) == "java"
        ]

    def _kill_one(self, processes: list[psutil.Process], chance: random.Random) -> bool:
        if not processes:
            return False
        with contextlib.suppress(psutil.NoSuchProcess):
            chance.choice(processes).kill()
            return True
        return False

    def _family(self) -> list[psutil.Process]:
        return [] if self._process is None else _children(self._process.pid)


def _write_at_once(file: Path, text: str) -> None:
    """Nobody may read half of it."""
    half = file.with_suffix(".half")
    half.write_text(text)
    half.rename(file)


def _children(pid: int, *, recursive: bool = True) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=recursive)
    except psutil.NoSuchProcess:
        return []


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""
