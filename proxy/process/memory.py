"""How much memory there is, and what a server may take of it: what its settings say, else shares.

Without limits one user's wide statements took all of a machine of 24 GB: DuckDB's own limit is 80 % of it, which leaves out
binding and the work on a single row. The machine stood still for twenty minutes before the kernel ended the
process.

Bounds the freed memory that glibc's ``malloc`` keeps, by the machine instead of by the number of threads.

Threads that allocate at once get arenas of their own, up to eight for each processor, and no arena uses what another
has free. gRPC and the engine have up to hundreds of threads that come and go. With one arena per processor 64 clients
left 66 MB of heap instead of 86, at the same speed (glibc 2.36, 2 processors), but a thread that frees a large tree
keeps its arena's lock for up to 100 ms, and half of all others waited for it. Now it is a quarter of that. DuckDB,
Arrow and small Python objects have allocators of their own.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
from collections.abc import Mapping
from pathlib import Path

#: Of all: the engine's part, and the whole process's. Other processes are on the machine, one of ours that reads topics.
_ENGINE, _PROCESS = 0.5, 0.8
#: Of the process, where only that is given; and of the engine's limit, where only that is.
_ENGINE_OF_PROCESS, _BEYOND_ENGINE = 0.625, 1.25
_MEMINFO = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")


def memory_limits(
    engine_bytes: int | None, process_bytes: int | None, total_bytes: int | None
) -> tuple[int | None, int | None]:
    """Return the limits of the engine and of the process, given those of the settings and the memory there is.

    None: there is no limit, or the engine's own. A limit that is given stays.
    """
    if process_bytes is None and total_bytes is not None:
        process_bytes = max(
            int(_PROCESS * total_bytes), int(_BEYOND_ENGINE * (engine_bytes or 0))
        )
    if engine_bytes is None:
        most = [
            int(fraction * whole)
            for fraction, whole in ((_ENGINE, total_bytes), (_ENGINE_OF_PROCESS, process_bytes))
            if whole is not None
        ]
        engine_bytes = min(most, default=None)
    return engine_bytes, process_bytes


def total_memory() -> int | None:
    """Bytes that all processes together may take here; None where the machine does not say."""
    return _least("MemTotal", 0)


def free_memory() -> int | None:
    """Bytes this process and its children may still take; None where the machine does not say."""
    with contextlib.suppress(FileNotFoundError):
        return _least("MemAvailable", int((_GROUP / "memory.current").read_text()))
    return _least("MemAvailable", 0)


def _least(of_machine: str, used_of_group: int) -> int | None:
    limits = [resource.getrlimit(resource.RLIMIT_AS)[0]]
    if _MEMINFO.exists():
        facts = dict(line.split(":") for line in _MEMINFO.read_text().splitlines())
        limits.append(int(facts[of_machine].split()[0]) * 1024)
    # In a file of a group without a limit stands "max".
    with contextlib.suppress(FileNotFoundError, ValueError):
        limits.append(int((_GROUP / "memory.max").read_text()) - used_of_group)
    return min((limit for limit in limits if limit != resource.RLIM_INFINITY), default=None)


#: Of malloc.h.
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
    processors = len(os.sched_getaffinity(0))  # there is, where there is glibc
    return bool(libc.mallopt(_M_ARENA_MAX, _ARENAS_EACH * processors))


def give_back() -> None:
    """Give memory that is free to the system: what a burst needed would stay with the process for good.

    Some milliseconds for each 100 MB, under an arena's lock: not while a call waits.
    """
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)
