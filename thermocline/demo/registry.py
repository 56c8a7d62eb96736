"""A real schema registry as a child process: Apicurio's, which speaks the protocol of Confluent's. For the demo and the tests.

It keeps all in memory, so one that is started again is an empty registry that gives the same ids to other schemas.
"""

from __future__ import annotations

import contextlib
import random
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from connectors import child_guard, jars
from planner.errors import Unavailable
from thermocline.demo.broker import PORTS, START_TIMEOUT_S, StartGuard, free_ports

HEAP_MB = 512


def registry_url(port: int) -> str:
    return f"http://127.0.0.1:{port}/apis/ccompat/v7"


def registry_command(java: str, jvm_flags: Sequence[str], ports: tuple[int, int]) -> list[str]:
    """``java`` is Java 21 or newer; ``ports`` are the registry's own and that of its management.

    Raises:
        BadConfig, Unavailable: as ``jars.resolve``.
    """
    [jar] = jars.resolve("schema-registry")
    options = {
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": ports[0],
        # Else one of all addresses, and always the same.
        "quarkus.management.host": "127.0.0.1",
        "quarkus.management.port": ports[1],
        "apicurio.storage.kind": "sql",
        "apicurio.storage.sql.kind": "h2",
        "apicurio.datasource.url": "jdbc:h2:mem:registry_db",
    }
    words = [f"-D{name}={value}" for name, value in options.items()]
    heap = (f"-Xmx{HEAP_MB}m", "-XX:+ExitOnOutOfMemoryError")
    return [java, *heap, *jvm_flags, *words, "-jar", str(jar)]


def registry_answers(url: str) -> bool:
    with contextlib.suppress(OSError):
        return bool(urllib.request.urlopen(f"{url}/subjects", timeout=5).status == 200)  # noqa: S310 - ours
    return False


class RegistryProcess:
    """A registry on free ports of this machine; its output is in ``log``."""

    def __init__(
        self, log: Path, java: str, jvm_flags: Sequence[str], start_guard: StartGuard
    ) -> None:
        """Start it, without a wait."""
        free = free_ports(random.sample(PORTS, 100))
        ports = next(free), next(free)
        self.url = registry_url(ports[0])
        self._log = log
        self._guard = start_guard(log, registry_command(java, jvm_flags, ports))

    @property
    def running(self) -> bool:
        return self._guard.poll() is None

    def wait(self) -> None:
        """Return once it answers. Raises Unavailable: it ended, or did not answer in time."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while not registry_answers(self.url):
            if not self.running or time.monotonic() > deadline:
                lines = self._log.read_text(errors="replace").splitlines() or [
                    "it said nothing"
                ]
                raise Unavailable(f"the local schema registry did not start ({lines[-1]}).")
            time.sleep(0.1)

    def stop(self) -> None:
        with self._guard:
            child_guard.release(self._guard)
