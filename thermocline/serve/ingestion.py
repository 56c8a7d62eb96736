"""Starts the process that reads topics for a server, with as few rights as it needs."""

from __future__ import annotations

import contextlib
import logging
import pickle
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from proxy.process.landlock import NoLandlock, Rights, restrict
from proxy.process.memory import bound_arenas, give_back
from proxy.tail.reader.child import Ingestion
from proxy.tail.reader.worker import fork_workers, serve_requests
from thermocline.serve.sandbox import log_to_stderr, rights_to_read_topics

if TYPE_CHECKING:
    from thermocline.config.settings import Settings

_log = logging.getLogger("thermocline.serve.ingestion")


@dataclass(frozen=True, slots=True)
class Setup:
    """Setup that the server sends once. ``rights`` is None where nothing is given up."""

    clusters: dict[str, dict[str, str]]
    rights: Rights | None


@contextlib.contextmanager
def ingesting(settings: Settings) -> Iterator[Ingestion | None]:
    """Start the process by the settings; end it afterwards. No program can start after ``confined``.

    Yields None where the server's own process reads topics.
    """
    if not (settings.tail.own_process and settings.clusters):
        yield None
        return
    locked = settings.server.landlock != "off"
    setup = Setup(settings.clusters, rights_to_read_topics(settings) if locked else None)
    command = [sys.executable, "-m", "thermocline.serve.ingestion"]
    with contextlib.closing(Ingestion(command, pickle.dumps(setup))) as ingestion:
        ingestion.begin()
        yield ingestion


def main() -> None:
    """Main program of the process that ``ingesting`` starts; its argument is the number of a socket."""
    bound_arenas()
    setup = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the server, which starts this
    if setup.rights is not None:
        try:
            restrict(setup.rights)
        except NoLandlock as error:  # where it is required, the server itself ends
            log_to_stderr()
            _log.warning("the process that reads topics is not locked: %s", error)
    control = socket.socket(fileno=int(sys.argv[1]))
    fork_workers(control, lambda worker: _work(worker, setup.clusters))


def _work(worker: socket.socket, clusters: dict[str, dict[str, str]]) -> None:
    from connectors.kafka.clusters import KafkaClusters
    from connectors.registry.decoders import Decoders
    from proxy.tail.pacing import IN_OWN_PROCESS
    from proxy.tail.reader.readers import local_readers

    log_to_stderr()
    # The server asks registries: this process knows none.
    decoders = Decoders()
    readers = local_readers(
        KafkaClusters(clusters), decoders, pacing=IN_OWN_PROCESS, give_back=give_back
    )
    serve_requests(worker, readers, decoders.add)


if __name__ == "__main__":
    main()
