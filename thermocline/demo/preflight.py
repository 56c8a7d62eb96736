"""What the demo needs from the machine, looked at before anything starts. One sentence says what to do."""

from __future__ import annotations

import resource
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

from connectors import jars
from planner.errors import BadConfig

#: Broker 512 MB of heap, Spark 1 GB, their native parts, the server with a tail of some minutes.
NEEDED_MEMORY_BYTES = 2_500_000_000
#: An hour of events and their files is below this; Spark's jars and logs are small beside it.
NEEDED_DISK_BYTES = 2_000_000_000
#: Kafka and Iceberg jars, twice while they are unpacked.
NEEDED_CACHE_BYTES = 300_000_000
#: Where the demo's server listens if it may.
PORTS = range(31337, 31437)

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def check_machine(
    folder: Path,
    *,
    memory_bytes: int = NEEDED_MEMORY_BYTES,
    disk_bytes: int = NEEDED_DISK_BYTES,
) -> None:
    """Refuse a machine the demo cannot run on. ``folder`` is where it will work; it exists.

    Raises:
        BadConfig: no Java or an old one, too little memory or disk; the sentence says what to do.
    """
    jars.java()
    free = free_memory()
    if free is not None and free < memory_bytes:
        raise BadConfig(
            f"the demo needs {_gb(memory_bytes)} of free memory and {_gb(free)} is free; end other programs, or "
            f"raise the limit of the container or shell it runs in.",
            free_bytes=free,
        )
    check_disk(
        folder, disk_bytes, "set TMPDIR to a folder on a larger disk, or name one with --keep"
    )
    if not (jars.is_resolved("kafka") and jars.is_resolved("iceberg")):
        cache = jars.cache_folder()
        cache.mkdir(parents=True, exist_ok=True)
        check_disk(cache, NEEDED_CACHE_BYTES, "set XDG_CACHE_HOME to a folder on a larger disk")


def check_disk(folder: Path, needed_bytes: int, remedy: str) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed_bytes:
        raise BadConfig(
            f"the demo needs {_gb(needed_bytes)} of free disk and {_gb(free)} is free where it would work; "
            f"make room, or {remedy}.",
            free_bytes=free,
        )


def choose_port(requested: int | None) -> int:
    """The port asked for, else the first free one from 31337 on.

    Raises:
        BadConfig: the one asked for is taken.
    """
    for port in (requested,) if requested is not None else PORTS:
        if port is not None and _is_free(port):
            return port
    busy = f"port {requested} is" if requested is not None else "ports 31337 to 31436 are"
    raise BadConfig(
        f"{busy} taken by another program on this machine; end it, or name a free one with --port.",
        port=requested,
    )


def free_memory() -> int | None:
    """Bytes this process and its children may still take; None where the machine does not say."""
    limits = [*_of_machine(), *_of_cgroup()]
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        limits.append(soft)
    return min(limits, default=None)


def _of_machine() -> Iterator[int]:
    if _MEMINFO.exists():
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                yield int(line.split()[1]) * 1024


def _of_cgroup() -> Iterator[int]:
    limit, used = _CGROUP / "memory.max", _CGROUP / "memory.current"
    if limit.exists() and used.exists() and limit.read_text().strip().isdigit():
        yield int(limit.read_text()) - int(used.read_text())


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _gb(count: int) -> str:
    return f"{count / 1e9:.1f} GB"
