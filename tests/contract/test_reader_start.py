"""A process that reads topics while it starts: at which priority, and what statements do meanwhile."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import cast

import psutil

from connectors.registry.decoders import Decoders
from planner.offsets import OffsetRange
from planner.seam.binding import Binding
from proxy.tail.reader.child import Ingestion
from proxy.tail.reader.readers import MUCH_OFFSETS, LocalReader, remote_readers
from proxy.tail.reader.source import TailSource
from proxy.tail.reader.worker import _NICE
from tests.harness.tails import SCHEMA

SOURCE = TailSource("flows", SCHEMA, Binding("flows"), "flows", "id")
#: Says by a file that it loads, and loads until another one is there.
PROGRAM = """
import socket, sys, time
from pathlib import Path
from proxy.tail.reader.worker import fork_workers, serve_requests

def work(control):
    folder = Path(sys.argv[1])
    (folder / "loading").touch()
    while not (folder / "go on").exists():
        time.sleep(0.01)
    serve_requests(control, None, None)

fork_workers(socket.socket(fileno=int(sys.argv[2])), work)
"""


def wait_for(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_it_has_the_priority_of_the_server_until_it_serves(tmp_path: Path) -> None:
    """At a lower one it took half a minute to load on a busy machine."""
    own = os.getpriority(os.PRIO_PROCESS, 0)
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    with closing(Ingestion(command, b"")) as ingestion:
        assert not ingestion.is_ready
        ingestion.begin()
        wait_for((tmp_path / "loading").exists)
        (worker,) = psutil.Process(ingestion._process.pid).children()
        assert not ingestion.is_ready
        assert worker.nice() == own
        (tmp_path / "go on").touch()
        wait_for(lambda: ingestion.is_ready)
        assert worker.nice() == min(own + _NICE, 19)


def _no_local(source: TailSource) -> LocalReader:
    del source
    return cast("LocalReader", None)


def test_little_is_fetched_sooner_than_it_is_followed_until_it_serves() -> None:
    class Starting:
        is_ready = False

    starting = Starting()
    reader = remote_readers(cast("Ingestion", starting), _no_local, Decoders())(SOURCE)
    little, much = [OffsetRange(0, 5, 5 + MUCH_OFFSETS)], [OffsetRange(0, 0, MUCH_OFFSETS + 1)]
    assert reader.fetches_sooner(little)
    assert not reader.fetches_sooner(much)  # the same process would fetch it
    starting.is_ready = True
    assert not reader.fetches_sooner(little)
