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
    remedy = "end other programs, or raise the limit of the container or shell it runs in"
    _check("memory", NEEDED_MEMORY_BYTES, free_memory(), f"; {remedy}")
    remedy = "set TMPDIR to a folder on a larger disk, or name one with --keep"
    _check_disk(folder, NEEDED_DISK_BYTES, remedy)
    if not (jars.is_resolved("kafka") and jars.is_resolved("iceberg")):
        cache = jars.cache_folder()
        cache.mkdir(parents=True, exist_ok=True)
        remedy = "set XDG_CACHE_HOME to a folder on a larger disk"
        _check_disk(cache, NEEDED_CACHE_BYTES, remedy)


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
    _check("disk", needed_bytes, free, f" where it would work; make room, or {remedy}")


def _check(what: str, needed: int, free: int | None, remedy: str) -> None:
    if free is not None and free < needed:
        raise BadConfig(
            f"the demo needs {_gb(needed)} of free {what} and {_gb(free)} is free{remedy}.",
            free_bytes=free,
        )


def _gb(count: int) -> str:
    return f"{count / 1e9:.1f} GB"
