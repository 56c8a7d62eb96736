"""Removes the demo's folder once nobody uses it any more, however the demo ended.

``python janitor.py FOLDER`` reads process ids, one a line, from the standard input. When it ends, with the
demo that held the other end, the janitor waits until those processes are gone (they are tethered to the demo,
so they end too), removes the folder and ends. Only the standard library: it must start at once.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from pathlib import Path

#: A tether ends its command within 15 s; whoever lives longer is stuck.
PATIENCE_S = 25.0
_PAUSE_S = 0.05


def main(folder: str) -> None:
    pids = [int(line) for line in sys.stdin if line.strip().isdigit()]
    deadline = time.monotonic() + PATIENCE_S
    while any(_lives(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)
    # What the processes started themselves ends a moment after them, and may still write.
    while Path(folder).exists() and time.monotonic() < deadline + PATIENCE_S:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(_PAUSE_S)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    """A child the demo never waited for has ended all the same. Only Linux says."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (OSError, IndexError):
        return False


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    main(sys.argv[1])
