"""Run one command that must not outlive the process that asked for it.

``python child_guard.py LOG COMMAND…`` starts the command with its output appended to LOG, prints its process id,
and then reads the standard input. The starting process has the other end of that pipe and writes nothing: when
it dies, however it dies, the kernel closes the pipe, and the command is ended (SIGTERM, SIGKILL after a grace
time). When the command ends by itself, so does the child_guard. What the command started and left behind is asked
to end too: Spark's JVM, started by a Python that is gone before the JVM is up, would wait for it for ever.

A pipe and not PR_SET_PDEATHSIG: that signal fires when the *thread* that started the child ends, exists on
Linux only, and setting it needs code between fork and exec, which is unsafe in a process with threads.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path

GRACE_S = 15


def main(log: str, command: list[str]) -> None:
    # Its own signal to the group must not end the child_guard. A handler, unlike SIG_IGN, is not passed on to the command.
    signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        output = Path(log).open("ab")  # noqa: SIM115 - closed below
    except OSError as error:
        # The starting process and its folder may be gone: there is nobody to tell.
        sys.exit(None if _is_closed(sys.stdin.fileno()) else f"{log}: {error.strerror}")
    with output:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    with contextlib.suppress(BrokenPipeError):  # gone already: the standard input will say so
        os.write(sys.stdout.fileno(), f"{child.pid}\n".encode())
    threading.Thread(target=_follow, args=(child,), daemon=True).start()
    while sys.stdin.buffer.read(4096):
        pass
    child.terminate()
    try:
        child.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    _end_group()


def _is_closed(pipe: int) -> bool:
    """Whether the starting process has closed the other end."""
    readable, _, _ = select.select([pipe], [], [], 0)
    return bool(readable) and not os.read(pipe, 1)


def _follow(child: subprocess.Popen[bytes]) -> None:
    code = child.wait()
    _end_group()
    os._exit(code if code >= 0 else 128 - code)


def _end_group() -> None:
    """SIGTERM for all processes of this group; nothing where the group is somebody else's."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGTERM)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
