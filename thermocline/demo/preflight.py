"""What the demo needs from the machine, looked at before anything starts. One sentence says what to do."""

from __future__ import annotations

import shutil
from pathlib import Path

from connectors import jars
from planner.errors import BadConfig
from proxy.process.memory import free_memory
from thermocline.demo.broker import free_ports

#: Broker 512 MB of heap, Spark 1 GB, their native parts, the server with a tail of some minutes.
NEEDED_MEMORY_BYTES = 2_500_000_000
#: An hour of events and their files is below this; Spark's jars and logs are small beside it.
NEEDED_DISK_BYTES = 2_000_000_000
#: Kafka and Iceberg jars, twice while they are unpacked.
NEEDED_CACHE_BYTES = 300_000_000
#: Where the demo's server listens if it may.
PORTS = range(31337, 31437)


def check_machine(folder: Path) -> None:
    """Refuse a machine the demo cannot run on. ``folder`` is where it will work; it exists.

    Raises:
        BadConfig: no Java or an old one, too little memory or disk; the sentence says what to do.
    """
    jars.java()
    free = free_memory()
    if free is not None and free < NEEDED_MEMORY_BYTES:
        raise BadConfig(
            f"the demo needs {_gb(NEEDED_MEMORY_BYTES)} of free memory and {_gb(free)} is free; end other "
            f"programs, or raise the limit of the container or shell it runs in.",
            free_bytes=free,
        )
    remedy = "set TMPDIR to a folder on a larger disk, or name one with --keep"
    _check_disk(folder, NEEDED_DISK_BYTES, remedy)
    if not (jars.is_resolved("kafka") and jars.is_resolved("iceberg")):
        cache = jars.cache_folder()
        cache.mkdir(parents=True, exist_ok=True)
        _check_disk(
            cache, NEEDED_CACHE_BYTES, "set XDG_CACHE_HOME to a folder on a larger disk"
        )


def choose_port(requested: int | None) -> int:
    """Return the port asked for, else the first free one from 31337 on.

    Raises:
        BadConfig: the one asked for is taken.
    """
    port = next(free_ports(PORTS if requested is None else [requested]), None)
    if port is None:
        busy = "ports 31337 to 31436 are" if requested is None else f"port {requested} is"
        raise BadConfig(
            f"{busy} taken by another program on this machine; end it, or name a free one with --port.",
            port=requested,
        )
    return port


def _check_disk(folder: Path, needed_bytes: int, remedy: str) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed_bytes:
        raise BadConfig(
            f"the demo needs {_gb(needed_bytes)} of free disk and {_gb(free)} is free where it would work; "
            f"make room, or {remedy}.",
            free_bytes=free,
        )


def _gb(count: int) -> str:
    return f"{count / 1e9:.1f} GB"
