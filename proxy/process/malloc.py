"""Bounds the freed memory that glibc's ``malloc`` keeps, by the machine instead of by the number of threads.

Threads that allocate at once get arenas of their own, up to eight for each processor, and no arena uses what another
has free. gRPC and the engine have up to hundreds of threads that come and go. With one arena per processor 64 clients
left 66 MB of heap instead of 86, at the same speed (glibc 2.36, 2 processors), but a thread that frees a large tree
keeps its arena's lock for up to 100 ms, and half of all others waited for it. Now it is a quarter of that.
DuckDB, Arrow and small Python objects
have allocators of their own.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping

# malloc.h
_M_ARENA_MAX = -8
_ARENAS_EACH = 4


def bound_arenas(environment: Mapping[str, str] = os.environ) -> bool:
    """Allow four arenas for each processor. Call it before threads start. False if nothing was set.

    That is so with another C library, or where ``environment`` configures ``malloc`` already.
    """
    if "MALLOC_ARENA_MAX" in environment or "malloc.arena_max" in environment.get(
        "GLIBC_TUNABLES", ""
    ):
        return False
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "gnu_get_libc_version"):
        return False
    return bool(libc.mallopt(_M_ARENA_MAX, _ARENAS_EACH * _processors()))


def give_back() -> None:
    """Give memory that is free to the system: what a burst needed would stay with the process for good.

    Some milliseconds for each 100 MB, under an arena's lock: not while anybody waits.
    """
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)


def _processors() -> int:
    """Number of processors this process may run on, where the system tells."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
