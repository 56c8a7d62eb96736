"""A server process that stops answering is replaced by its supervisor, whatever holds it; one that is paused is not."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.harness.server_process import SOON_S, ServerProcess

#: On SIGUSR2 a process keeps Python's lock for ten minutes: ``PyDLL`` does not let it go, as a pattern does not that
#: backtracks.
HOLDING = """
import ctypes, signal
signal.signal(signal.SIGUSR2, lambda *_: ctypes.PyDLL(None).sleep(600))
"""

SUPERVISED = """
import time
from proxy.process.supervisor import ParentWatch
parent = ParentWatch(1)
parent.start()
parent.answer()
print("at work", flush=True)
time.sleep(600)
"""
SUPERVISOR = """
import sys
from proxy.process.supervisor import Supervisor
command = [sys.executable, "-c", sys.argv[1]]
Supervisor(command, report=lambda text: print(text, flush=True), stop_grace_s=5, max_silence_s=2).run()
"""


@contextmanager
def supervised() -> Iterator[tuple[subprocess.Popen[str], psutil.Process]]:
    """A supervisor of little patience, and its child at work."""
    process = subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, SUPERVISED],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "at work\n"
        (child,) = psutil.Process(process.pid).children()
        time.sleep(1.5)  # it has been asked
        yield process, child
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.communicate(timeout=SOON_S)


def test_a_machine_that_was_paused_kills_nobody() -> None:
    with supervised() as (process, child):
        # The child last and for longer: its supervisor comes back, and finds it silent.
        process.send_signal(signal.SIGSTOP)
        child.suspend()
        time.sleep(4)
        process.send_signal(signal.SIGCONT)
        time.sleep(0.5)
        child.resume()
        time.sleep(3)
        assert psutil.Process(process.pid).children() == [child]
        assert child.status() != psutil.STATUS_ZOMBIE


def test_a_child_that_is_stopped_is_replaced_and_ends_with_its_supervisor() -> None:
    with supervised() as (process, child):
        child.suspend()
        assert process.stdout is not None
        assert process.stdout.readline() == (
            "the server process has not answered for 2 s; ending it\n"
        )
        assert process.stdout.readline() == (
            "the server process ended with signal 9; starting it again in 0.1 s\n"
        )
        assert process.stdout.readline() == "at work\n"
        (second,) = psutil.Process(process.pid).children()
        assert second != child
        process.kill()
        process.wait()
        second.wait(SOON_S)


def test_a_server_whose_lock_is_kept_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole server, with the settings users have: a deadline or a thread of its own could not help."""
    (tmp_path / "early").mkdir()
    (tmp_path / "early" / "sitecustomize.py").write_text(HOLDING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "early"))
    served = ServerProcess(tmp_path)
    try:
        (child,) = psutil.Process(served.process.pid).children()
        time.sleep(3)  # it has been asked
        began = time.monotonic()
        child.send_signal(signal.SIGUSR2)
        served.says("the server process has not answered for 10 s; ending it")
        assert time.monotonic() - began > 9
        # Where its threads were, for who looks into it.
        served.says(r'sitecustomize\.py", line \d+ in')
        served.says("the server process ended with signal 9; starting it again in 0.1 s")
        served.port = int(
            served.says(r"serving Flight SQL on grpc\+tls://127\.0\.0\.1:(\d+)")[1]
        )
        with served.cursor() as cursor:
            cursor.execute("SELECT 1")
            assert cursor.fetchall() == [(1,)]
        assert not child.is_running()
    finally:
        served.stop()
