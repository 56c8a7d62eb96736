"""Keeps one server process running: restarts it within seconds when it dies or stops answering.

The engine runs users' statements, so its process may die or have to be ended (proxy.process.watchdog). The supervisor
does nothing that can fail so, and does not trust the child's own watchdog: a thread that keeps Python's lock stops all
others. The child's standard input is a socket. It answers pings there, on a thread that takes that lock, and sees the
end of the socket as its parent's death (``ParentWatch``). So a killed supervisor leaves no server behind. Nothing that
the child starts inherits its standard input.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType

#: A process that has answered before and is silent for this long is replaced.
MAX_SILENCE_S = 10.0
#: A supervisor whose look comes this much late was not running itself: the machine was paused or is overloaded.
MAX_LATENESS_S = 1.0


class Heartbeat:
    """The answers of one process. Times are of one monotonic clock, in seconds."""

    def __init__(
        self, *, began_s: float, interval_s: float, max_silence_s: float = MAX_SILENCE_S
    ) -> None:
        """``interval_s`` is the intended time between two calls of ``look``."""
        self._interval_s, self._max_silence_s = interval_s, max_silence_s
        self._looked_s = self._silent_since_s = began_s
        self._answers = False

    def look(self, now_s: float, *, answered: bool) -> bool:
        """Note whether an answer came since the last look; return whether to replace the process.

        A process that has never answered is starting. A late look begins the silence anew: the process may not have run
        either.
        """
        self._answers |= answered
        if answered or now_s - self._looked_s > self._interval_s + MAX_LATENESS_S:
            self._silent_since_s = now_s
        self._looked_s = now_s
        return self._answers and now_s - self._silent_since_s >= self._max_silence_s


#: Exit code of a child with a wrong configuration: starting it again would not help (sysexits.h).
EXIT_CONFIG = 78
#: A restart is promised within 5 s; the last delay plus start-up must fit.
_FIRST_DELAY_S, MAX_DELAY_S = 0.1, 2.0
#: A child that lived this long was healthy: the next restart is immediate again.
_HEALTHY_S = 10.0
_LOOK_S, _ASK_S, _QUESTION = 0.2, 1.0, b"?"
#: Signal on which a child writes its threads' stacks to standard error: without Python's lock, without values.
_WHERE = signal.SIGUSR1
#: How long a silent child has to write down where its threads are. If it works at all, it takes milliseconds.
_LAST_WORDS_S = 0.5


class Supervisor:
    """Runs ``command`` until a signal stops it. ``report`` gets one sentence per restart. SIGHUP goes to the child."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        report: Callable[[str], None],
        stop_grace_s: float,
        max_silence_s: float = MAX_SILENCE_S,
        inherited: Sequence[int] = (),
    ) -> None:
        """``stop_grace_s`` is how long a child may take to stop.

        ``max_silence_s`` is that of ``Heartbeat``, for a child with a ``ParentWatch``. The child inherits the
        descriptors ``inherited``.
        """
        self._inherited = tuple(inherited)
        self._command = list(command)
        self._report = report
        self._stop_grace_s = stop_grace_s
        self._max_silence_s = max_silence_s
        self._stopping = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        """Block until SIGTERM, SIGINT or a clean end of the child; return the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        if not sys.stdin.isatty():  # at a terminal, it means that the terminal is gone
            signal.signal(signal.SIGHUP, self._on_hangup)
        delay_s = _FIRST_DELAY_S
        while True:
            started = time.monotonic()
            ours, theirs = socket.socketpair()
            with ours:
                with theirs:
                    self._child = subprocess.Popen(
                        self._command, stdin=theirs.fileno(), pass_fds=self._inherited
                    )
                if self._stopping.is_set():
                    self._child.terminate()
                ours.setblocking(False)
                code = self._wait(self._child, ours)
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

    def _wait(self, child: subprocess.Popen[bytes], line: socket.socket) -> int:
        sent_s = began_s = time.monotonic()
        heartbeat = Heartbeat(
            began_s=began_s, interval_s=_LOOK_S, max_silence_s=self._max_silence_s
        )
        while not self._stopping.is_set():
            with contextlib.suppress(subprocess.TimeoutExpired):
                return child.wait(timeout=_LOOK_S)
            now_s = time.monotonic()
            if now_s - sent_s >= _ASK_S:
                sent_s = now_s
                with contextlib.suppress(OSError):  # it does not read, or ended just now
                    line.send(_QUESTION)
            if heartbeat.look(now_s, answered=_answered(line)):
                self._replace(child)
                return child.wait()
        try:
            return child.wait(timeout=self._stop_grace_s)
        except subprocess.TimeoutExpired:
            child.kill()
            return child.wait()

    def _replace(self, child: subprocess.Popen[bytes]) -> None:
        """End a child that ignores SIGTERM: its handlers are Python's."""
        self._report(
            f"the server process has not answered for {self._max_silence_s:g} s; ending it"
        )
        child.send_signal(_WHERE)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_LAST_WORDS_S)
        child.kill()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._stopping.set()
        if self._child is not None:
            self._child.terminate()

    def _on_hangup(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self._child is not None:
            self._child.send_signal(number)


class ParentWatch:
    """The child's side. Ends this process when its standard input ends, because the supervisor is gone.

    Sends itself SIGTERM, and exits at once ``stop_grace_s`` later, as the supervisor would have done.
    """

    def __init__(self, stop_grace_s: float) -> None:
        self._stop_grace_s = stop_grace_s
        self._answering = threading.Event()
        self._thread = threading.Thread(target=self._run, name="parent-watch", daemon=True)

    def start(self) -> None:
        faulthandler.register(_WHERE, all_threads=True)
        self._thread.start()

    def answer(self) -> None:
        """Answer from now on. Call it after libraries are loaded, which may keep Python's lock for long."""
        self._answering.set()

    def _run(self) -> None:
        # Not sys.stdin: a daemon thread that has its lock aborts the interpreter's shutdown.
        # If the other end closed with answers unread, the socket is reset and not at its end.
        with contextlib.suppress(OSError):
            while question := os.read(0, 4096):
                if self._answering.is_set():
                    os.write(0, question)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(self._stop_grace_s)
        os.kill(os.getpid(), signal.SIGKILL)


def _answered(line: socket.socket) -> bool:
    with contextlib.suppress(OSError):
        return bool(line.recv(4096))
    return False


def _describe(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
