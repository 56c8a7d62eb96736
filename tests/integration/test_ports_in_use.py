"""A server that is started while another one still ends on its ports waits for them; systemd does not restart exit 78."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import flight

from tests.contract.engine import LONG
from tests.fixtures.server import sqlite_catalog
from tests.harness.server_process import SOON_S
from tests.harness.wire import fetched

SETTINGS = ("server.port", "server.http_port", "iceberg_rest.port")


def listening(port: int = 0) -> socket.socket:
    return socket.create_server(("127.0.0.1", port))


def ports() -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(listening()) for _ in SETTINGS]
        return [each.getsockname()[1] for each in sockets]


def configured(folder: Path, flight: int, http: int, rest: int) -> str:
    catalog = "".join(f'{key} = "{value}"\n' for key, value in sqlite_catalog(folder).items())
    file = folder / "thermocline.toml"
    file.write_text(
        f"[catalogs.lake]\n{catalog}[iceberg_rest]\nport = {rest}\n"
        f'[server]\nport = {flight}\nhttp_port = {http}\naudit_log = "off"\n'
    )
    return str(file)


@contextlib.contextmanager
def serving(config: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "thermocline", "--config", config, "serve"],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    overdue = threading.Timer(SOON_S, process.kill)
    overdue.start()
    try:
        yield process
    finally:
        overdue.cancel()
        process.terminate()
        process.communicate(timeout=SOON_S)


def until(process: subprocess.Popen[str], text: str) -> list[str]:
    """Lines it says up to one with the text."""
    lines: list[str] = []
    assert process.stderr is not None
    for line in process.stderr:
        lines.append(line.removesuffix("\n"))
        if text in line:
            return lines
    raise AssertionError(f"it did not say {text}: {lines}")


def test_a_server_waits_for_each_of_its_ports(tmp_path: Path) -> None:
    numbers = ports()
    config = configured(tmp_path, *numbers)
    with contextlib.ExitStack() as others:
        in_use = [others.enter_context(listening(number)) for number in numbers]
        with serving(config) as process:
            for setting, number, other in zip(SETTINGS, numbers, in_use, strict=True):
                assert until(process, setting)[-1] == (
                    f"thermocline: {setting}: 127.0.0.1:{number} is in use; waiting 30 s at most for a server that ends"
                )
                other.close()
            assert f"127.0.0.1:{numbers[2]}" in until(process, "live tables")[-1]


@pytest.mark.soak
def test_a_server_is_started_again_at_once_after_a_kill(tmp_path: Path) -> None:
    """Its supervisor is gone; what it supervised drains a statement, and has the ports until then."""
    numbers = ports()
    config = configured(tmp_path, *numbers)
    with serving(config) as first:
        until(first, "live tables")

        def ask() -> None:
            address = f"grpc://127.0.0.1:{numbers[0]}"
            with (
                closing(flight.connect(address)) as client,
                contextlib.suppress(pa.ArrowException),
            ):
                fetched(client, LONG)

        asking = threading.Thread(target=ask)
        asking.start()
        asking.join(2)
        assert asking.is_alive()
        os.kill(first.pid, signal.SIGKILL)
        first.wait(SOON_S)
        with serving(config) as second:
            assert "in use" in until(second, "in use")[-1]
            until(second, "live tables")
        asking.join(SOON_S)
