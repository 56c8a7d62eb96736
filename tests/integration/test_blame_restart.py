"""Who ended the process is known to the next one, whichever way it ended."""

from __future__ import annotations

import subprocess
import sys

import pytest

from proxy.access.limits import SLOWED_SLOTS

#: It flushes: its lines and those of the process that it starts go to one pipe, in the order in which they came about.
SUPERVISOR = """
import sys
from functools import partial
from proxy.process.supervisor import Supervisor
from proxy.access.limits import new_file
file = new_file()
command = [sys.executable, "-c", sys.argv[1], str(file)]
sys.exit(Supervisor(command, report=partial(print, flush=True), stop_grace_s=5, inherited=[file]).run())
"""
CHILD = """
import os, signal, sys, threading, time
from types import SimpleNamespace
from proxy.access.limits import Blame
from proxy.process.watchdog import Watchdog
blame = Blame(int(sys.argv[1]))
if blame.most("limited", None) is not None:
    print("slowed", blame.most("limited", None), blame.most("admin", None), flush=True)
    sys.exit(0)
watchdog = Watchdog(
    grace_s=0.2, max_process_bytes=None, blame=blame,
    statements=SimpleNamespace(long=lambda: {{"limited": 9.0, "admin": 1.0}}),
)
watchdog.farewell = lambda why: print("farewell:", why, flush=True)
watchdog.start()
with watchdog.expecting(60, "admin"):
    {ends}
    time.sleep(60)
"""
ENDS = {
    "it ignored its interrupt": (
        'with watchdog.expecting(0.1, "limited"): time.sleep(60)',
        "farewell: a statement ignored its interrupt past its deadline",
    ),
    "it was killed": (
        "time.sleep(1); os.kill(os.getpid(), signal.SIGKILL)",
        "the server process ended with signal 9; starting it again in 0.1 s",
    ),
}


@pytest.mark.parametrize("way", ENDS)
def test_the_next_process_slows_down_whose_statement_ended_the_last(way: str) -> None:
    ends, line = ENDS[way]
    done = subprocess.run(
        [sys.executable, "-c", SUPERVISOR, CHILD.format(ends=ends)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert line in lines
    assert lines[-1] == f"slowed {SLOWED_SLOTS} None"
