"""Keeps what Python knows of a thread of gRPC's as long as that thread has a call.

A call enters Python some seven times: headers, method, each batch, its end. Python makes a state for a thread that it did
not start each time it enters, with 16 KB of stack from the system, and throws it away when it leaves: 15 us, and
the other processors are interrupted to forget the pages.
"""

from __future__ import annotations

import ctypes
import threading

_ensure = ctypes.pythonapi.PyGILState_Ensure
_ensure.restype = ctypes.c_int
_release = ctypes.pythonapi.PyGILState_Release
_release.argtypes, _release.restype = [ctypes.c_int], None


class ThreadState:
    """Made on a thread, which keeps its state until ``let_go`` is called there. Once."""

    def __init__(self) -> None:
        # Counted as if Python had been entered once more.
        self._before = _ensure()
        self._thread = threading.get_ident()

    def let_go(self) -> None:
        # Elsewhere it would take away the state of whoever calls; the thread's own stays, a leak of 17 KB.
        if threading.get_ident() == self._thread:
            _release(self._before)
