"""Commands that must not outlive the process that started them, and the folder they work in.

``python child_guard.py LOG COMMAND…`` starts the command with its output appended to LOG, prints its process id,
and then reads the standard input. The starting process has the other end of that pipe and writes nothing: when
it dies, however it dies, the kernel closes the pipe, and the command is ended (SIGTERM, SIGKILL after a grace
time). When the command ends by itself, so does the child_guard. What the command started and left behind is asked
to end too: Spark's JVM, started by a Python that is gone before the JVM is up, would wait for it for ever.

``python child_guard.py --remove FOLDER`` removes the folder when the last writer of its standard input is gone.

A pipe and not PR_SET_PDEATHSIG: that signal fires when the *thread* that started the child ends, exists on
Linux only, and setting it needs code between fork and exec, which is unsafe in a process with threads.
Only the standard library: a guard must start at once.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

GRACE_S = 15
#: What a command left behind may still write for a moment after it.
_LEFT_BEHIND_S = 25.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_REMOVE = "--remove"


def start(
    log: Path,
    command: Sequence[str],
    *,
    folder: Path | None = None,
    inherited: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a command under a guard, which is what is returned: closing its standard input ends both."""
    # A session of its own: a Ctrl-C in the terminal must not reach the command before its users stopped.
    return subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, str(log), *command],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        pass_fds=inherited,
    )


def command_id(guard: subprocess.Popen[bytes]) -> int | None:
    """Return the process id of the command itself, read once; None when it could not be started."""
    line = guard.stdout.readline() if guard.stdout is not None else b""
    return int(line) if line else None


def release(guard: subprocess.Popen[bytes]) -> None:
    """Have the command ended; its end is not waited for."""
    if guard.stdin is not None:
        guard.stdin.close()


class FolderGuard:
    """Removes a folder once this process and all that was started here are gone, however they ended.

    They share the writing end of one pipe, so the kernel does the counting.
    """

    def __init__(self, folder: Path) -> None:
        reading, self._writing = os.pipe()
        self._remover = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, _REMOVE, str(folder)],
            stdin=reading,
            start_new_session=True,
        )
        os.close(reading)

    def start(self, log: Path, command: Sequence[str]) -> subprocess.Popen[bytes]:
        return start(log, command, inherited=[self._writing])

    def finish(self) -> None:
        """Give up the folder, and wait until it is gone."""
        os.close(self._writing)
        self._remover.wait()


def _run(log: str, command: list[str]) -> None:
    # Its own signal to the group must not end the child_guard. A handler, unlike SIG_IGN, is not passed on to the command.
    signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        output = Path(log).open("ab")  # noqa: SIM115 - closed below
    except OSError as error:
        # The starting process and its folder may be gone: no one is left to tell.
        sys.exit(None if _is_closed(sys.stdin.fileno()) else f"{log}: {error.strerror}")
    with output:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    with contextlib.suppress(BrokenPipeError):  # gone already: the standard input will say so
        os.write(sys.stdout.fileno(), f"{child.pid}\n".encode())
    threading.Thread(target=_follow, args=(child,), daemon=True).start()
    _wait_for_the_end_of_input()
    child.terminate()
    try:
        child.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    _end_group()


def _remove(folder: Path) -> None:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    _wait_for_the_end_of_input()
    deadline = time.monotonic() + _LEFT_BEHIND_S
    while folder.exists() and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.05)


def _wait_for_the_end_of_input() -> None:
    while sys.stdin.buffer.read(4096):
        pass


def _is_closed(pipe: int) -> bool:
    """Whether the starting process has closed the other end."""
    readable, _, _ = select.select([pipe], [], [], 0)
    return bool(readable) and not os.read(pipe, 1)


def _follow(child: subprocess.Popen[bytes]) -> None:
    code = child.wait()
    _end_group()
    os._exit(code if code >= 0 else 128 - code)


def _end_group() -> None:
    """SIGTERM for all processes of this group; nothing where another process leads the group."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGTERM)


if __name__ == "__main__":
    first, *rest = sys.argv[1:]
    if first == _REMOVE:
        _remove(Path(rest[0]))
    else:
        _run(first, rest)
